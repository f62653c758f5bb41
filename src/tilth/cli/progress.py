"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS_BETWEEN_LINES = 5.0

Report = Callable[[str, int, int], None]
"""Given a phase, what is done of it, and of how much (0: unknown)."""


@contextmanager
def progress() -> Iterator[Report]:
    """Yield the function that long work reports to."""
    if sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,}"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def report(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase)
            bar.update(tasks[phase], completed=done, total=total or max(done, 1))

        yield report


def _lines() -> Report:
    last = time.monotonic()

    def report(phase: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last < SECONDS_BETWEEN_LINES:
            return
        last = time.monotonic()
        share = f" ({done / total:.0%})" if total else ""
        print(f"{phase}: {done:,} of {total:,}{share}", file=sys.stderr, flush=True)

    return report
