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


def check_new_folder(path: Path) -> None:
    """Raise FileExistsError unless a new folder at `path` would replace nothing."""
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file; name a new folder.")
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty; name a new folder.")
    if path.resolve() == Path.cwd():  # the rename would replace it
        raise FileExistsError(f"{path} is the current folder; name a new one.")


@contextmanager
def new_folder(path: Path, what: str = "") -> Iterator[Path]:
    """Yield a folder that appears at `path` when the block ends; `what` precedes it in errors.

    A symlink is written through. Folders that killed processes left next to it are removed.
    """
    target = Path(os.path.realpath(path))
    name = target.name[:40]  # a file name has at most 255 bytes
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target.parent, rf"\.{re.escape(name)}\.([0-9]{{1,9}})\.partial")
        with atomic_folder(target, f".{name}.{os.getpid()}.partial") as partial:
            yield partial
    except OSError as error:
        raise OSError(
            f"cannot create {what}{path} ({error.strerror or error}); check its name, and the "
            "free space and permissions of its parent folder"
        ) from error


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
