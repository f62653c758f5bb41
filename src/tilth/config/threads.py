"""How many threads to use, for every part that has threads.

>>> checked_threads(1)
1
>>> checked_threads(30_000)  # doctest: +ELLIPSIS
Traceback (most recent call last):
ValueError: threads is 30,000, and this machine has ... cores; take ... at most, or leave it out.
"""

import operator
import os

from tilth.config.limits import MAX_THREADS


def checked_threads(threads: int | None, name: str = "threads") -> int:
    """The number of threads to use: what was asked for, or one for each usable core.

    At most 16 for each core of the machine: with thousands, OpenMP ends the process without a word.
    """
    if threads is None:
        return min(usable_cores(), MAX_THREADS)
    if (threads := operator.index(threads)) < 1:
        raise ValueError(f"{name} is {threads}; give 1 or more.")
    if threads > (most := most_threads()):
        raise ValueError(
            f"{name} is {threads:,}, and this machine has {os.cpu_count() or 1} cores; take {most} "
            "at most, or leave it out."
        )
    return threads


def most_threads() -> int:
    """The largest number of threads that is started on this machine."""
    return min(16 * (os.cpu_count() or 1), MAX_THREADS)


def usable_cores() -> int:
    """The cores that this process may run on: a container often has fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
