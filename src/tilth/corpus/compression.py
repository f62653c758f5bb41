r"""Read the bytes of a listed file; `.gz` and `.zst` files are decompressed.

A file that is damaged, truncated, or changed since it was listed is a `FileError`.

>>> import gzip, tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "story.txt.gz")
...     _ = path.write_bytes(gzip.compress(b"Once\nupon a time"))
...     file = ListedFile(path, path.stat().st_size, path.stat().st_mtime_ns)
...     read_whole(file, 99), [part for part, _ in read_parts(file, start=5, part_bytes=6)]
(b'Once\nupon a time', [b'u', b'pon a ', b'time'])
"""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import BinaryIO

from tilth.corpus.listing import ListedFile, compression_of
from tilth.errors import import_extra
from tilth.files import FileError, open_regular

# The output of one zstd call is unbounded, so the input is small. 4 KiB expanded to 45 MB for a
# file of one repeated text, and to 10 kB for English.
ZSTD_INPUT_BYTES = 4096
# A file may always expand to the first number of bytes, and beyond it to this multiple of its size.
# gzip cannot reach that ratio; of repeated text, zstd reaches 30,000, and Parquet any ratio.
FREE_EXPANSION_BYTES = 1 << 30
MAX_EXPANSION = 4096

REMEDY = "restore a copy, or make it again"


class Expansion:
    """A limit on the decompressed size of a file: a decompression bomb is a `FileError`."""

    def __init__(self, file: ListedFile) -> None:
        self._path = file.path
        self._left = FREE_EXPANSION_BYTES + MAX_EXPANSION * file.size_bytes

    def add(self, size_bytes: int) -> None:
        """Count decompressed bytes."""
        self._left -= size_bytes
        if self._left < 0:
            problem = f"expands to more than {MAX_EXPANSION:,} times its size"
            hint = "if you trust it, convert it to plain text, and name that"
            raise FileError(self._path, problem, hint)


def read_parts(
    file: ListedFile, *, start: int, part_bytes: int, stop: int | None = None
) -> Iterator[tuple[bytes, int]]:
    """Yield parts of about `part_bytes` from decompressed byte `start` on.

    Each part comes with the number of bytes on disk that have been read so far. Only a file that is
    not compressed has a `stop` before its end.
    """
    try:
        with open_listed(file) as raw:
            compression = compression_of(file.path)
            if compression and not file.size_bytes:  # even an empty text has a header
                raise EOFError
            decompressed = gzip.GzipFile(fileobj=raw) if compression == "gz" else raw
            parts = iter(partial(decompressed.read, part_bytes), b"")
            if compression == "zst":
                parts = _zstd_parts(file, raw, part_bytes)
            elif not compression:
                raw.seek(start)
                start = max(0, start - file.size_bytes)
                if stop is not None:
                    parts = iter(lambda: raw.read(min(part_bytes, stop - raw.tell())), b"")
            expansion = Expansion(file)
            for part in parts:
                expansion.add(len(part))
                if len(part) > start:
                    yield part[start:], raw.tell()
                start = max(0, start - len(part))
            if start > 0:
                hint = "start again from its beginning"
                raise FileError(file.path, "is shorter than it was", hint)
    except EOFError:
        raise FileError(file.path, "ends in the middle of its compressed data", REMEDY) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(file.path, f"is damaged or is not gzip ({error})", REMEDY) from None
    except OSError as error:
        hint = "check its permissions and its disk"
        raise FileError(file.path, f"cannot be read ({error.strerror or error})", hint) from None


def read_whole(file: ListedFile, max_bytes: int) -> bytes:
    """Return all bytes of a file without holding them twice; at most `max_bytes`."""
    whole = BytesIO()
    for part, _ in read_parts(file, start=0, part_bytes=1 << 20):
        whole.write(part)
        if whole.tell() > max_bytes:
            problem = f"is a document of more than {max_bytes:,} bytes"
            raise FileError(file.path, problem, "split it into several files")
    return whole.getvalue()


def count_lines(file: ListedFile, size_bytes: int) -> int:
    """Count the line ends in the first `size_bytes` of a file."""
    lines = 0
    parts = read_parts(file, start=0, part_bytes=1 << 20) if size_bytes else ()
    for part, _ in parts:
        lines += part[:size_bytes].count(b"\n")
        size_bytes -= len(part)
        if size_bytes <= 0:
            break
    return lines


def _zstd_parts(file: ListedFile, raw: BinaryIO, part_bytes: int) -> Iterator[bytes]:
    # Not the package's stream_reader, which takes a truncated file for a whole one.
    zstandard = import_extra("zstandard", "A .zst file")
    decompressor = zstandard.ZstdDecompressor()
    frame = None
    part = BytesIO()
    while compressed := raw.read(ZSTD_INPUT_BYTES):
        while compressed:
            frame = frame or decompressor.decompressobj()
            try:
                chunk = frame.decompress(compressed)
            except zstandard.ZstdError as error:
                problem = f"is damaged or is not zstd ({error})"
                raise FileError(file.path, problem, REMEDY) from None
            compressed = frame.unused_data
            if frame.eof:
                frame = None
            # A chunk may be much longer than a part, and a part becomes a block in memory.
            for start in range(0, len(chunk), part_bytes):
                part.write(memoryview(chunk)[start : start + part_bytes])
                if part.tell() >= part_bytes:
                    yield part.getvalue()
                    part = BytesIO()
    if frame is not None:
        raise EOFError
    if part.tell():
        yield part.getvalue()


@contextmanager
def open_listed(file: ListedFile) -> Iterator[BinaryIO]:
    """Open a listed file; it must be unchanged since then, now and at the end of the block."""
    try:
        raw = open_regular(file.path)
    except FileError:
        if file.path.exists():
            raise
        hint = "put it back, or leave it out"
        raise FileError(file.path, "was removed since it was listed", hint) from None
    with raw:
        _check_unchanged(file, raw)
        yield raw
        _check_unchanged(file, raw)


def _check_unchanged(file: ListedFile, raw: BinaryIO) -> None:
    found = os.fstat(raw.fileno())
    if (found.st_size, found.st_mtime_ns) != (file.size_bytes, file.modified_ns):
        sizes = f"{file.size_bytes:,} bytes then, {found.st_size:,} now"
        problem = f"has changed since it was listed ({sizes})"
        raise FileError(file.path, problem, "start again when it is finished")
