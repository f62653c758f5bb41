"""Long work that ends well: the first signal is noted, the second acts at once.

What enters: Ctrl-C, SIGTERM, the end of a terminal. What leaves: a list to look into between two
steps; whoever works leaves at the next good moment, and what it has done is saved.

    with first_signal() as signals:
        for record in records:
            if signals:
                break
"""

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STDERR = 2


@contextmanager
def first_signal() -> Iterator[list[int]]:
    """Yield a list that the first signal to end is noted in; the second acts as usual."""
    noted: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A signal that the caller ignores (nohup, a job in the background) stays ignored.
    usual = {n: handler for n in numbers if (handler := signal.getsignal(n)) != signal.SIG_IGN}

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        for each, handler in usual.items():
            signal.signal(each, handler)
        _say_meanwhile("tilth: finishing the step, then saving …")

    for number in usual:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _say_meanwhile(text: str) -> None:
    """Say something from a signal handler, which may have come in the midst of a line.

    Then `print` cannot be entered again. What is written past it may have to wait, as for a pager
    that stands still, and is left unsaid.
    """
    try:
        say(text)
    except RuntimeError:
        with suppress(OSError):
            if select.select([], [STDERR], [], 0)[1]:
                os.write(STDERR, f"{text}\n".encode())


def say(text: str) -> None:
    """Print to stderr, if that is still there: Ctrl-C ends the `tee` behind our pipe as well.

    A pipe is broken then; a terminal that was closed gives an input/output error.
    """
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        silence_stderr()


def silence_stderr() -> None:
    """Let what is said from now on go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
