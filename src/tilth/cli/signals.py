"""Signals during long work: the first requests a stop between two steps, the second acts at once.

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
def first_signal(*, is_rank: bool = False) -> Iterator[list[int]]:
    """Yield a list that receives the first signal to stop; the second acts as usual.

    A rank ignores a second SIGTERM: a cluster may signal all processes, and torchrun, which has the
    first of them, passes its own on.
    """
    noted: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    # A signal that the caller ignores (nohup, a job in the background) stays ignored.
    usual = {n: handler for n in numbers if (handler := signal.getsignal(n)) != signal.SIG_IGN}

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)
        for each, handler in usual.items():
            is_repeated = is_rank and each == signal.SIGTERM
            signal.signal(each, signal.SIG_IGN if is_repeated else handler)
        _say_meanwhile("tilth: finishing the step, then saving …")

    for number in usual:
        signal.signal(number, note)
    try:
        yield noted
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


def _say_meanwhile(text: str) -> None:
    """Print to stderr from a signal handler, which may have interrupted a `print`.

    `print` is not reentrant. The text is then written past it, unless that would block, as for a
    stopped pager.
    """
    try:
        say(text)
    except RuntimeError:
        with suppress(OSError):
            if select.select([], [STDERR], [], 0)[1]:
                os.write(STDERR, f"{text}\n".encode())


def say(text: str) -> None:
    """Print to stderr, unless it is gone: Ctrl-C also ends the `tee` that reads our pipe.

    A broken pipe or a closed terminal raises OSError; stderr is silent from then on.
    """
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        silence_stderr()


def silence_stderr() -> None:
    """Redirect stderr to /dev/null."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
