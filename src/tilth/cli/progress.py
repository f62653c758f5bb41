"""Progress of long work on stderr: a bar on a terminal, a line every five seconds elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from tilth.formatting import format_bytes

SECONDS_BETWEEN_LINES = 5.0

IN_BYTES = {"check", "count", "fetch", "read", "tokenize", "verify", "write"}
"""The phases that count bytes; they are shown with a rate."""


class Progress:
    """The progress callback of long work; it records the start of each phase."""

    def __init__(self, bars: Bars | None = None) -> None:
        self.began: dict[str, tuple[float, int]] = {}
        """For each phase, the time of its first report and the amount done by then."""
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._last_line = time.monotonic()

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show the amount done, and the rate since the first report of the phase."""
        now = time.monotonic()
        then, done_then = self.began.setdefault(phase, (now, done))
        amount = f"{done:,} of {total:,}"
        if phase in IN_BYTES:
            seconds = now - then
            rate = f", {format_bytes((done - done_then) / seconds)}/s" if seconds > 0.1 else ""
            amount = f"{format_bytes(done)} of {format_bytes(total)}{rate}"
        if self._bars is not None:
            if phase not in self._tasks:
                self._tasks[phase] = self._bars.add_task(phase, amount="")
            task, total = self._tasks[phase], total or max(done, 1)
            self._bars.update(task, completed=done, total=total, amount=amount)
        elif now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            share = f" ({done / total:.0%})" if total else ""
            print(f"{phase}: {amount}{share}", file=sys.stderr, flush=True)


def stderr_console(**options: Any) -> Console:  # noqa: ANN401, options of rich
    """Return a rich console on stderr for live displays.

    rich removes one wrapper of a stream. A live display adds another, around `EscapedTerminal`,
    which would then escape the display itself. So the console gets the innermost stream.
    """
    return Console(file=getattr(sys.stderr, "rich_proxied_file", sys.stderr), **options)


@contextmanager
def progress() -> Iterator[Progress]:
    """Yield the callback for long work."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=stderr_console()) as bars:
        yield Progress(bars)
