"""Atomic writes, checksums, locks and versioned JSON manifests.

Every package writes through `atomic_write`: bytes go to a temporary file in the same folder, which
is synced and renamed. No reader, crash or power cut ever sees part of a file. A manifest is a JSON
object with its format and version. A wrong or truncated file raises `FileError`, with a hint.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     with atomic_write(f"{folder}/tokens.bin") as file:
...         size_bytes = file.write(b"abc")
...     digest = checksum(f"{folder}/tokens.bin")
...     save_manifest(f"{folder}/manifest.json", {"sha256": digest[:8]}, kind="tokens", version=1)
...     load_manifest(f"{folder}/manifest.json", kind="tokens", version=1)
{'sha256': 'ba7816bf'}
"""

import errno
import fcntl
import hashlib
import json
import math
import os
import re
import stat
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from tilth.schema import check_depth, read, short_repr

T = TypeVar("T")

StrPath = str | os.PathLike[str]
Progress = Callable[[str, int, int], None]
"""Progress callback of long work: the phase, the amount done, the total."""


def no_progress(_phase: str, _done: int, _total: int) -> None:
    """Ignore a report of progress."""


MAX_JSON_BYTES = 64 << 20
"""The maximum size of a manifest: parsing takes about ten times as much memory."""

MAX_TOML_BYTES = 1 << 20
MAX_TOML_DOTS = 10_000
"""The parser takes quadratic time for a dotted key: a second for 10,000 dots, an hour for a MB."""

DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


class FileError(ValueError):
    """A wrong or damaged file. The message is one sentence; `path` is the path as given."""

    def __init__(self, path: StrPath, problem: str, hint: str) -> None:
        super().__init__(path, problem, hint)  # pickle rebuilds an error from its args
        self.path = path

    def __str__(self) -> str:
        path, problem, hint = self.args
        return f"{path} {problem}; {hint}"


@contextmanager
def atomic_write(path: StrPath, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Yield a binary file that appears at `path`, complete, when the block ends.

    Raises FileExistsError if the file exists and `overwrite` is false; follows symlinks. After an
    exception (Ctrl-C included) the old file is unchanged. Flush wrappers of the yielded file
    (`io.TextIOWrapper`, `gzip.GzipFile`) before the block ends.
    """
    target = Path(os.path.realpath(path))
    with _explained(path):
        check_target(path, overwrite=overwrite)
        _remove_leftovers(target)
        temporary, descriptor = _create_temporary(target)
    # closefd=False: the descriptor holds the lock until the rename, even if the block closes the
    # file.
    file = open(descriptor, "wb", closefd=False)  # noqa: SIM115
    try:
        with _explained(path, in_block=True):
            yield file
        with _explained(path):
            file.close()
            os.fsync(descriptor)  # before the rename: its name never points to unwritten blocks
            _publish(path, temporary, target, overwrite)
            sync_folder(target.parent)  # after the rename: its name survives a power cut
    finally:
        # These fail only after an earlier error, which is the one to report; the next writer
        # removes leftovers. The file closes before its descriptor: otherwise its buffer could be
        # flushed into another file that reuses the number.
        with suppress(OSError):
            temporary.unlink()
        with suppress(OSError):
            file.close()
        os.close(descriptor)


def write_atomically(path: StrPath, data: bytes, *, overwrite: bool = False) -> None:
    """Write bytes to a file, which is complete or absent: see `atomic_write`."""
    with atomic_write(path, overwrite=overwrite) as file:
        file.write(data)


def write_text_atomically(path: StrPath, text: str, *, overwrite: bool = False) -> None:
    """Write `text` as UTF-8 through `atomic_write`, without newline translation."""
    write_atomically(path, text.encode("utf-8"), overwrite=overwrite)


@contextmanager
def _explained(path: StrPath, *, in_block: bool = False) -> Iterator[None]:
    """Turn an OSError, often about a temporary name, into one sentence about `path`."""
    try:
        yield
    except OSError as error:
        is_sentence_already = error.strerror is None
        # Errors of the block are re-raised, except a full disk, whose error names no file.
        met_our_file = error.errno in DISK_FULL and error.filename is None
        if is_sentence_already or (in_block and not met_our_file):
            raise
        explained = type(error)(
            f"cannot write {path} ({error.strerror}); "
            "check its name, and the free space and permissions of its folder"
        )
        explained.errno = error.errno
        raise explained from error


def check_target(path: StrPath, *, overwrite: bool = False) -> None:
    """Check, before long work, that `atomic_write` can write to `path`."""
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if target.parent.is_dir():
            return
        raise FileNotFoundError(
            f"cannot write {path} because the folder {target.parent} does not exist; create it"
        ) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"cannot write {path} because it is a folder; name a file in it")
    if not stat.S_ISREG(mode):  # the rename would replace /dev/null for every process
        raise OSError(f"cannot write {path} because it is a device or pipe; name a regular file")
    if not overwrite:
        raise _already_exists(path)


def _already_exists(path: StrPath) -> FileExistsError:
    hint = "pass --overwrite (in Python, overwrite=True) to replace it"
    return FileExistsError(f"{path} already exists; {hint}")


def _temporary_prefix(name: str) -> str:
    encoded = os.fsencode(name)
    if len(encoded) > 100:
        # A name has at most 255 bytes (143 on eCryptfs), so a long one is truncated; the digest
        # distinguishes the temporary files of two long names.
        digest = hashlib.sha256(encoded).hexdigest()[:32]
        name = f"{encoded[:60].decode('utf-8', 'ignore')}~{digest}"
    return f".{name}."


def _create_temporary(target: Path) -> tuple[Path, int]:
    """Create and lock a temporary file; the lock shows that its writer is alive."""
    while True:
        random = os.urandom(8).hex()
        temporary = target.with_name(f"{_temporary_prefix(target.name)}{random}.partial")
        # 0o666: the umask decides the permissions, as for any other new file.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        # Without lock support, leftovers cannot be locked either, so none is ever removed.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another writer may have removed the file as a leftover before it was locked. If the name
        # no longer refers to this file, try again.
        with suppress(FileNotFoundError):
            if os.path.samestat(temporary.stat(), os.fstat(descriptor)):
                return temporary, descriptor
        os.close(descriptor)


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of killed writers to `target`."""
    # Exactly 16 digits: `.a.*.partial` would also match the leftovers of `a.b`.
    pattern = re.compile(re.escape(_temporary_prefix(target.name)) + r"[0-9a-f]{16}\.partial")
    for leftover in target.parent.iterdir():
        if not pattern.fullmatch(leftover.name):
            continue
        # On an error, leave the file: a live writer holds the lock, it was renamed since the
        # listing, or it belongs to another user.
        with suppress(OSError):
            descriptor = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink()
            finally:
                os.close(descriptor)


def _publish(path: StrPath, temporary: Path, target: Path, overwrite: bool) -> None:
    """Rename the complete file to its target atomically."""
    if overwrite:
        temporary.rename(target)
        return
    # A rename would replace a file that appeared meanwhile; a hard link fails without a race.
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise _already_exists(path) from None
    except OSError:
        # No hard links on this file system (FAT, some network shares; error codes vary): check
        # once more just before the rename.
        if os.path.lexists(target):
            raise _already_exists(path) from None
        temporary.rename(target)
    else:
        temporary.unlink()


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its names survive a power cut, if the file system supports it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:  # some network shares cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def open_lock(path: StrPath) -> BinaryIO:
    """Open or create a lock file; raise FileError for a symlink, pipe or device."""
    return open_regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, "locked")


def refuse_link(path: StrPath) -> None:
    """Raise FileError for a symbolic link where files are replaced or deleted.

    In an untrusted folder it may lead to files of the user.
    """
    if Path(path).is_symlink():
        raise FileError(path, "is a symbolic link", "replace it by a copy of what it links to")


def check_own_folder(
    folder: Path, marker: str, names: re.Pattern[str], subfolders: Iterable[str] = ()
) -> None:
    """Raise FileError unless tilth made a folder, whose files may then be replaced and removed.

    `marker` is the first file that is created in it and the last one removed; `names` matches all
    files that tilth writes there, and `subfolders` are its folders.
    """
    hint = "move it elsewhere, or choose another name for the result"
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise FileError(folder, "is a link to another folder, or a file", hint)
    found = sorted(path.name for path in folder.iterdir())
    if found and marker not in found:
        raise FileError(folder, f"was not made by tilth (it has no file {marker})", hint)
    for name in found:
        mode = (folder / name).lstat().st_mode
        is_file = stat.S_ISREG(mode) and names.fullmatch(name)
        if not is_file and not (stat.S_ISDIR(mode) and name in subfolders):
            raise FileError(folder, f"holds {name!r}, which tilth did not write", hint)


def try_lock(file: IO[Any]) -> bool:
    """Try to lock an open file; return whether it succeeded. Closing the file unlocks it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_lock(path: StrPath, taken: str, tries: int = 1) -> Iterator[BinaryIO]:
    """Hold the lock on a file, and yield it; raise ValueError with `taken` if another has it."""
    with open_lock(path) as lock:
        while not try_lock(lock):
            if (tries := tries - 1) == 0:
                raise ValueError(taken)
            time.sleep(0.02)
        yield lock


def checksum(source: StrPath | IO[bytes]) -> str:
    """Return the SHA-256 that `sha256sum` prints, of a path or of the rest of an open file."""
    if isinstance(source, (str, os.PathLike)):
        with open_regular(source) as file:
            return checksum(file)
    digest = hashlib.sha256()
    while chunk := source.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


def open_regular(path: StrPath, flags: int = os.O_RDONLY, action: str = "read") -> BinaryIO:
    """Open a regular file with flags of `os.open`, without blocking; unbuffered unless read-only.

    Other file types raise FileError, and so does a symlink if the flags have O_NOFOLLOW.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO waits for a writer.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        raise FileError(path, "does not exist", "check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        hint = "check the path and its permissions"
        if flags & os.O_NOFOLLOW and getattr(error, "errno", None) == errno.ELOOP:
            reason, hint = "it is a symbolic link", "remove the link"
        raise FileError(path, f"cannot be {action} ({reason})", hint) from None
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        if flags & os.O_ACCMODE == os.O_RDONLY:
            return open(descriptor, "rb")  # noqa: PTH123, Path has no descriptors
        return open(descriptor, "r+b", buffering=0)  # noqa: PTH123
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise FileError(path, "is a folder", "name the file in it")
    hint = "copy it to a file" if action == "read" else "remove it"
    raise FileError(path, "is a pipe or a device", hint)


def read_bytes(path: StrPath, max_bytes: int | None = None) -> bytes:
    """Read a regular file of at most `max_bytes`."""
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if max_bytes is not None and size_bytes > max_bytes:
            problem = f"has {size_bytes:,} bytes, more than the limit of {max_bytes:,}"
            raise FileError(path, problem, "check the path")
        try:
            # A file that grows meanwhile is truncated. Not to the limit: `read` allocates all that
            # it is asked for, which may exceed the memory of a process.
            return file.read() if max_bytes is None else file.read(max(size_bytes, 1 << 16))
        except OSError as error:
            hint = "check the disk"
            raise FileError(path, f"cannot be read ({error.strerror})", hint) from error


def read_toml(path: StrPath) -> dict[str, Any]:
    """Read a TOML file; raise FileError if it is malformed."""
    data = read_bytes(path, MAX_TOML_BYTES)
    if data.count(b".") > MAX_TOML_DOTS:
        problem = f"has more than {MAX_TOML_DOTS:,} dots, too many for a config"
        raise FileError(path, problem, "check the path")
    try:
        values = tomllib.loads(data.decode("utf-8"))
        check_depth("the file", values)  # `a.a.a` has any depth
        return values
    except (ValueError, RecursionError) as error:  # not TOML, not UTF-8, nested too deeply
        raise FileError(path, f"is not TOML ({error})", "correct it, or check the path") from None


def save_manifest(
    path: StrPath, content: dict[str, Any], *, kind: str, version: int, overwrite: bool = False
) -> None:
    """Write `content` as indented JSON after its format (`kind`) and version."""
    try:
        data = manifest_bytes(content, kind=kind, version=version)
        if _parse(data) != {"format": kind, "version": version, **content}:
            raise ValueError("JSON would change it; use strings as keys and lists for tuples")
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot save the manifest {path}: {error}") from error
    write_atomically(path, data, overwrite=overwrite)


def manifest_bytes(content: dict[str, Any], *, kind: str, version: int) -> bytes:
    """Return the bytes that `save_manifest` writes."""
    if not content.keys().isdisjoint({"format", "version"}):
        raise ValueError("the keys 'format' and 'version' are reserved; rename yours")
    manifest = {"format": kind, "version": version, **content}
    # No newline at the end: every truncated file is then invalid JSON.
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
    # Undecodable file names contain surrogates, which UTF-8 cannot encode; JSON has the same
    # backslash escapes.
    return text.encode("utf-8", "backslashreplace")


def checksum_of(content: dict[str, Any]) -> str:
    """Return the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_manifest(path: StrPath, *, kind: str, version: int) -> dict[str, Any]:
    """Load the content that `save_manifest` wrote; check its format and version."""
    data = read_bytes(path, MAX_JSON_BYTES)
    with refuse_invalid(
        path, "is truncated or is not a manifest", "make it again, or restore a copy"
    ):
        manifest = _parse(data)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), str):
        raise FileError(path, "is not a manifest of tilth", "check the path")
    found_kind, found_version = manifest.pop("format"), manifest.pop("version", None)
    if found_kind != kind:
        problem = f"is a {short_repr(found_kind)} manifest, not a {kind!r} manifest"
        raise FileError(path, problem, "check the path")
    if type(found_version) is not int:  # isinstance would let `true` pass as 1
        raise FileError(path, "has a version that is not a whole number", "make it again")
    if found_version > version:
        problem = f"was written by a newer tilth (version {found_version} instead of {version})"
        raise FileError(path, problem, "upgrade tilth")
    if found_version < version:
        problem = f"has version {found_version}; this tilth reads version {version}"
        raise FileError(path, problem, "make it again")
    return manifest


def checked(schema: type[T], content: object, path: StrPath) -> T:
    """Validate the content of a file against a dataclass; unknown keys are ignored."""
    with refuse_invalid(path, "is damaged", "restore a copy, or make it again"):
        return read(schema, content, "the file", extra="ignore")


@contextmanager
def refuse_invalid(path: StrPath, problem: str, hint: str) -> Iterator[None]:
    """Turn an invalid value of a file into a FileError with the reason in parentheses."""
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"{problem} ({str(error).rstrip('.')})", hint) from error


def _parse(data: bytes) -> object:
    """Parse strict JSON: UTF-8, finite numbers, no duplicate keys, limited depth."""
    text = data.decode("utf-8")  # given bytes, json would guess at UTF-16 and UTF-32
    content = json.loads(
        text, parse_float=_finite, parse_constant=_finite, object_pairs_hook=unique_keys
    )
    return check_depth("the object", content)  # or writing it again may overflow the stack


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):  # NaN, Infinity, and 1e999 too
        raise ValueError(f"the number {literal} is not finite")
    return number


def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject duplicate keys, as an `object_pairs_hook` of `json.loads`."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        key = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {short_repr(key)} appears twice")
    return unique
