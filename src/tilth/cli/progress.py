"""Progress of long work on stderr: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilth.files import Progress as Report

SECONDS_BETWEEN_LINES = 5.0

IN_BYTES = {"check", "count", "fetch", "read", "tokenize", "verify", "write"}
"""The phases whose work is counted in bytes: they show megabytes, and how many a second."""


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
        TextColumn("{task.fields[amount]}"),
        TimeRemainingColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bar:

        def report(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, amount="")
            amount = amounts(phase, done, total)
            bar.update(tasks[phase], completed=done, total=total or max(done, 1), amount=amount)

        amounts = _amounts()
        yield report


def _lines() -> Report:
    last = time.monotonic()
    amounts = _amounts()

    def report(phase: str, done: int, total: int) -> None:
        nonlocal last
        amount = amounts(phase, done, total)
        if time.monotonic() - last < SECONDS_BETWEEN_LINES:
            return
        last = time.monotonic()
        share = f" ({done / total:.0%})" if total else ""
        print(f"{phase}: {amount}{share}", file=sys.stderr, flush=True)

    return report


def _amounts() -> Callable[[str, int, int], str]:
    """The function that says how much is done, and how fast since the phase was first heard of."""
    began: dict[str, tuple[float, int]] = {}

    def amount(phase: str, done: int, total: int) -> str:
        if phase not in IN_BYTES:
            return f"{done:,} of {total:,}"
        then, done_then = began.setdefault(phase, (time.monotonic(), done))
        seconds = time.monotonic() - then
        rate = f", {(done - done_then) / 1e6 / seconds:,.0f} MB/s" if seconds > 0.1 else ""
        return f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB{rate}"

    return amount
