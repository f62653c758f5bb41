r"""The bytes of a file, decompressed where its name ends in `.gz` or `.zst`.

What enters: a file as it was listed. What leaves: its bytes in order, a part at a time; or one
sentence, where it is damaged, was cut short, or is no longer the file that was listed.

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
from io import BytesIO
from typing import Any, BinaryIO

from tilth.corpus.listing import ListedFile
from tilth.errors import import_extra
from tilth.files import FileError, open_regular

# What zstd makes of a few compressed bytes has no small limit, so it is given few at a time: 4 KiB
# became 45 MB where a file was one long repetition, and 10 kB where it was English.
ZSTD_INPUT_BYTES = 4096
# A file may always expand to the first number of bytes, and beyond it to so many times its size.
# gzip cannot reach that ratio; of repeated text, zstd reaches 30,000, and Parquet any ratio.
FREE_EXPANSION_BYTES = 1 << 30
MAX_EXPANSION = 4096

REMEDY = "restore a copy, or make it again"


class Expansion:
    """The bytes that a file has expanded to, with a limit: a few bytes on disk may be endless."""

    def __init__(self, file: ListedFile) -> None:
        self._path = file.path
        self._left = FREE_EXPANSION_BYTES + MAX_EXPANSION * file.size_bytes

    def add(self, size_bytes: int) -> None:
        """Count some more bytes; too many are an error."""
        self._left -= size_bytes
        if self._left < 0:
            problem = f"expands to more than {MAX_EXPANSION:,} times its size"
            hint = "if you trust it, convert it to plain text, and name that"
            raise FileError(self._path, problem, hint)


def read_parts(file: ListedFile, *, start: int, part_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Parts of about `part_bytes`, from byte `start` on; with each, the bytes on disk so far."""
    with _explained(file), opened(file) as raw:
        check_unchanged(file, raw)
        if file.compression:
            decompress = _gzip_parts if file.compression == "gz" else _zstd_parts
            parts = _limited(file, decompress(file, raw, part_bytes))
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


def read_whole(file: ListedFile, most_bytes: int) -> bytes:
    """All bytes of a file, without ever holding them twice; more than `most_bytes` are an error."""
    whole = BytesIO()
    for part, _ in read_parts(file, start=0, part_bytes=1 << 20):
        whole.write(part)
        if whole.tell() > most_bytes:
            problem = f"is a document of more than {most_bytes:,} bytes"
            raise FileError(file.path, problem, "split it into several files")
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
    """The package that reads .zst."""
    return import_extra("zstandard", "A .zst file")


def _limited(file: ListedFile, parts: Iterator[bytes]) -> Iterator[bytes]:
    expansion = Expansion(file)
    for part in parts:
        expansion.add(len(part))
        yield part


def _gzip_parts(_file: ListedFile, raw: BinaryIO, part_bytes: int) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=raw) as decompressed:
        yield from iter(lambda: decompressed.read(part_bytes), b"")


def _zstd_parts(file: ListedFile, raw: BinaryIO, part_bytes: int) -> Iterator[bytes]:
    part = BytesIO()
    for chunk in _zstd_chunks(file, raw):
        # A chunk may be much longer than a part, and a part becomes a block in memory.
        for start in range(0, len(chunk), part_bytes):
            part.write(memoryview(chunk)[start : start + part_bytes])
            if part.tell() >= part_bytes:
                yield part.getvalue()
                part = BytesIO()
    if part.tell():
        yield part.getvalue()


def _zstd_chunks(file: ListedFile, raw: BinaryIO) -> Iterator[bytes]:
    # Not the package's own stream_reader, which takes a file that was cut short for a whole one.
    zstandard = import_zstandard()
    decompressor = zstandard.ZstdDecompressor()
    frame = None
    while compressed := raw.read(ZSTD_INPUT_BYTES):
        while compressed:
            frame = frame or decompressor.decompressobj()
            try:
                yield frame.decompress(compressed)
            except zstandard.ZstdError as error:
                problem = f"is damaged or is not zstd ({error})"
                raise FileError(file.path, problem, REMEDY) from None
            compressed = frame.unused_data
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError


@contextmanager
def opened(file: ListedFile) -> Iterator[BinaryIO]:
    """Open a file that stood there when it was listed."""
    try:
        raw = open_regular(file.path)
    except FileError:
        if file.path.exists():
            raise
        hint = "put it back, or leave it out"
        raise FileError(file.path, "has vanished since it was listed", hint) from None
    with raw:
        yield raw


def check_unchanged(file: ListedFile, raw: BinaryIO) -> None:
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
