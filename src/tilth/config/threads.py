"""The number of threads, for every part that uses threads.

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
    """Return the number of threads to use; default: one per usable core.

    At most 16 per core of the machine: with thousands of threads, OpenMP ends the process silently.
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
    """Return the maximum number of threads on this machine."""
    return min(16 * (os.cpu_count() or 1), MAX_THREADS)


def usable_cores() -> int:
    """Return the number of cores available to this process; containers often restrict it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
