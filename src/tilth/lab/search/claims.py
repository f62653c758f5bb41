"""The process that works on each trial of a search.

A trial belongs to the process that holds the lock of its claim; locks end with their process. A
process holds the lock of the search while it looks at several trials at once: to take one, to end
one, or to write `lab.json`.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tilth.files import open_lock, refuse_link, try_lock

CLAIMS = "claims"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on a file; wait for it."""
    with open_lock(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def take_claim(folder: Path, number: int) -> IO[bytes] | None:
    """Lock the claim of a trial until it is closed; None if another process has it."""
    claims = folder / CLAIMS
    refuse_link(claims)  # claims are removed
    claims.mkdir(exist_ok=True)
    file = open_lock(claims / f"{number}")
    if try_lock(file):
        return file
    file.close()
    return None


def remove_claim(folder: Path, number: int) -> None:
    """Remove the claim of a trial that has ended."""
    (folder / CLAIMS / f"{number}").unlink(missing_ok=True)
