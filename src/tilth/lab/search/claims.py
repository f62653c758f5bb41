"""Which process works on which trial of a search.

A trial belongs to the process that holds the lock of its claim; locks end with their process. What
looks at several trials at once (to take one, to end one, to write `lab.json`) holds the gate.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tilth.files import FileError, open_lock, try_lock
from tilth.report.lab_file import LOCK

CLAIMS = "claims"


class Claims:
    """The locks in the folder of a search."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def gate(self) -> Iterator[None]:
        """Let one process in at a time."""
        with open_lock(self.folder / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def take(self, number: int) -> IO[bytes] | None:
        """The claim of a trial, locked until it is closed; None if another process has it."""
        claims = self.folder / CLAIMS
        claims.mkdir(exist_ok=True)
        if claims.is_symlink():  # claims are removed, and not from somebody else's folder
            raise FileError(claims, "is a link", "remove it")
        file = open_lock(claims / f"{number}")
        if try_lock(file):
            return file
        file.close()
        return None

    def remove(self, number: int) -> None:
        """Remove the claim of a trial that has ended."""
        (self.folder / CLAIMS / f"{number}").unlink(missing_ok=True)
