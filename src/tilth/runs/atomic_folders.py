"""Folders that appear complete or not at all; removal of the leftovers of killed processes."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tilth.files import sync_folder


@contextmanager
def atomic_folder(target: Path, temporary: str) -> Iterator[Path]:
    """Yield a new folder named `temporary` next to `target`, renamed to it when the block ends.

    The rename replaces an empty folder and nothing else. After an exception, nothing is left.
    """
    partial = target.with_name(temporary)
    delete(partial)
    try:
        partial.mkdir()
        yield partial
        sync_folder(partial)
        partial.rename(target)
        sync_folder(target.parent)
    finally:
        delete(partial)


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Delete the folders in `folder` whose names match `pattern`, a regular expression.

    A group of the pattern is the id of the process that writes the folder: while that process
    runs, the folder stays. Without a group, the caller holds a lock that excludes other writers.
    """
    for path in folder.glob(".*.partial"):
        match = re.fullmatch(pattern, path.name)
        if match and not any(_is_alive(int(pid)) for pid in match.groups()):
            delete(path)


def delete(path: Path) -> None:
    """Delete a folder that no reader opens; errors are ignored, and a link is not followed."""
    with suppress(OSError):
        if path.is_symlink():  # to a checkpoint on another disk, which stays there
            path.unlink()
    shutil.rmtree(path, ignore_errors=True)  # does not follow a link


def _is_alive(pid: int) -> bool:
    """Return whether another process has this id; an earlier one with our own id has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()
