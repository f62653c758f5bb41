r"""The bytes of a file, decompressed where its name ends in `.gz` or `.zst`.

What enters: a file as it was listed. What leaves: its bytes in order, a part at a time; or one
sentence, where it is damaged, was cut short, or is no longer the file that was listed.

>>> import gzip, tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "story.txt.gz")
...     _ = path.write_bytes(gzip.compress(b"Once\nupon a time"))
...     file = ListedFile(path, path.stat().st_size, path.stat().st_mtime_ns)
...     read_whole(file), [part for part, _ in read_parts(file, start=5, part_bytes=6)]
(b'Once\nupon a time', [b'u', b'pon a ', b'time'])
"""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, FileIO
from typing import Any

from tilth.corpus.listing import ListedFile
from tilth.files import FileError

# What zstd makes of a few compressed bytes has no small limit, so it is given few at a time: 4 KiB
# became 45 MB where a file was one long repetition, and 10 kB where it was English.
ZSTD_INPUT_BYTES = 4096

REMEDY = "restore a copy, or make it again"


def read_parts(file: ListedFile, *, start: int, part_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Parts of about `part_bytes`, from byte `start` on; with each, the bytes on disk so far."""
    with _explained(file), opened(file) as raw:
        check_unchanged(file, raw)
        if file.compression == "gz":
            parts = _gzip_parts(raw, part_bytes)
        elif file.compression == "zst":
            parts = _zstd_parts(file, raw, part_bytes)
        else:
            raw.seek(start)
            parts = iter(lambda: raw.read(part_bytes), b"")
            start = max(0, start - file.size_bytes)
        for part in parts:
            if len(part) > start:
                yield part[start:], raw.tell()
            start = max(0, start - len(part))
        if start > 0:
            raise FileError(file.path, "is shorter than it was", "start again from its beginning")
        check_unchanged(file, raw)


def read_whole(file: ListedFile) -> bytes:
    """All bytes of a file, without ever holding them twice."""
    whole = BytesIO()
    for part, _ in read_parts(file, start=0, part_bytes=1 << 20):
        whole.write(part)
    return whole.getvalue()


def count_lines(file: ListedFile, size_bytes: int) -> int:
    """How many lines end in the first bytes of a file."""
    lines = 0
    if size_bytes > 0:
        for part, _ in read_parts(file, start=0, part_bytes=1 << 20):
            lines += part[:size_bytes].count(b"\n")
            size_bytes -= len(part)
            if size_bytes <= 0:
                break
    return lines


def import_zstandard() -> Any:  # noqa: ANN401, a module
    """The package that reads .zst, or a sentence that says how to get it."""
    try:
        import zstandard  # noqa: PLC0415, an extra
    except ModuleNotFoundError:
        raise ValueError('A .zst file needs an extra: pip install "tilth[zstd]".') from None
    return zstandard


def _gzip_parts(raw: FileIO, part_bytes: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=raw) as decompressed:
        yield from iter(lambda: decompressed.read(part_bytes), b"")


def _zstd_parts(file: ListedFile, raw: FileIO, part_bytes: int) -> Iterator[bytes]:
    # Not the package's own stream_reader, which takes a file that was cut short for a whole one.
    zstandard = import_zstandard()
    decompressor = zstandard.ZstdDecompressor()
    part = BytesIO()
    frame = None
    while compressed := raw.read(ZSTD_INPUT_BYTES):
        while compressed:
            frame = frame or decompressor.decompressobj()
            try:
                part.write(frame.decompress(compressed))
            except zstandard.ZstdError as error:
                problem = f"is damaged or is not zstd ({error})"
                raise FileError(file.path, problem, REMEDY) from None
            compressed = frame.unused_data
            if frame.eof:
                frame = None
            if part.tell() >= part_bytes:
                yield part.getvalue()
                part = BytesIO()
    if frame is not None:
        raise EOFError
    if part.tell():
        yield part.getvalue()


@contextmanager
def opened(file: ListedFile) -> Iterator[FileIO]:
    """Open a file that stood there when it was listed."""
    try:
        raw = FileIO(file.path)
    except FileNotFoundError:
        hint = "put it back, or leave it out"
        raise FileError(file.path, "has vanished since it was listed", hint) from None
    with raw:
        yield raw


def check_unchanged(file: ListedFile, raw: FileIO) -> None:
    """Refuse a file that is not as it was when it was listed."""
    found = os.fstat(raw.fileno())
    if (found.st_size, found.st_mtime_ns) != (file.size_bytes, file.modified_ns):
        was = f"{file.size_bytes:,} bytes then, {found.st_size:,} now"
        raise FileError(
            file.path, f"has changed since it was listed ({was})", "start again when it is finished"
        )


@contextmanager
def _explained(file: ListedFile) -> Iterator[None]:
    try:
        yield
    except EOFError:
        raise FileError(file.path, "ends in the middle of its compressed data", REMEDY) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(file.path, f"is damaged or is not gzip ({error})", REMEDY) from None
    except OSError as error:
        hint = "check its permissions and its disk"
        raise FileError(file.path, f"cannot be read ({error.strerror or error})", hint) from None
