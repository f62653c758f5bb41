"""Lab progress on stderr: a line for each trial that ends, and a live line on a terminal.

Then the answer on stdout, and the report.
"""

import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.cli.progress import stderr_console
from tilth.cli.signals import first_signal, say
from tilth.errors import has_extra

if TYPE_CHECKING:
    from tilth.lab.runner import Event

Show = Callable[["Event"], None]


def watch(events: "Iterator[Event]", command: Sequence[str]) -> None:
    """Show events; on the first signal stop, which saves, and print the command to continue."""
    from tilth.lab.workers import WorkerLostError

    signals: list[int] = []
    try:
        with closing(events), lab_view() as show:  # type: ignore[type-var]  # a generator
            begun = list(islice(events, 1))  # signals act at once until there is work to save
            with first_signal() as signals:
                for event in chain(begun, events):
                    show(event)
                    if signals:
                        break
    except KeyboardInterrupt:
        signals = signals or [signal.SIGINT]
    except WorkerLostError:
        if not signals:
            raise
    if signals:
        say(f"tilth: stopped; continue with `{shlex.join(command)}`")
        sys.exit(128 + signals[0])


def this_command() -> tuple[str, ...]:
    """Return the command line of this process."""
    return ("tilth", *sys.argv[1:])


def report_labs(labs: Sequence[Path], out: Path) -> None:
    """Print the answers and write the report."""
    from tilth.report.lab_file import load_lab
    from tilth.report.writing import read_report, save_report

    for lab in labs:
        print(load_lab(lab).answer or "There is no answer yet: other processes still run trials.")
    if not has_extra("report"):
        print('The report needs an extra: pip install "tilth[report]", then `tilth report`.')
        return
    written = save_report(read_report(list(labs)), out / "report.html", overwrite=True)
    print(f"Wrote {', '.join(map(str, written[:2]))}")


@contextmanager
def lab_view() -> Iterator[Show]:
    """Yield the function that shows an event."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = stderr_console(highlight=False)
    columns = (BarColumn(20), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("beginning")

        def show(event: "Event") -> None:
            part = 0.0
            if event.record is not None:
                part = event.record.step / event.trial.config.known_steps
                loss = "–" if event.record.loss is None else f"{event.record.loss:.3f}"
                said = f"{event.done + 1}/{event.known}  {event.trial.label[:30]}  loss {loss}"
                progress.update(task, description=said)
            else:
                console.print(_ended(event), markup=False)
            progress.update(task, total=event.known, completed=event.done + part)

        yield show


def _lines() -> Show:
    began = time.monotonic()

    def show(event: "Event") -> None:
        if event.result is not None:
            say(f"{_ended(event)}, {time.monotonic() - began:.0f} s so far")

    return show


def _ended(event: "Event") -> str:
    result = event.result
    assert result is not None, "it is a step or the end of a trial"
    said = f"{result.state} after {result.steps:,} steps"
    if result.state == "finished" and result.bits_per_byte is not None:
        said = f"{result.bits_per_byte:.4f} bits per byte"
    return f"{event.done:3} of {event.known}  {event.trial.label}: {said}"
