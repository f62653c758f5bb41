r"""Counts of the pieces of a corpus: saved, merged, and used for training.

Merges depend only on how often each piece occurs. So a corpus can be counted in parts, on several
machines, and the sum of the counts gives the same tokenizer as the whole corpus, bit by bit.

>>> from tilth.tokenizer import count_pieces, train_tokenizer
>>> first, second = count_pieces(texts=["low low lower"]), count_pieces(texts=["low lower"])
>>> both = first.merge(second)
>>> both
<PieceCounts of 5 pieces, 3 distinct, pattern gpt2>
>>> dict(both.items())
{b' low': 1, b' lower': 2, b'low': 2}
>>> train_tokenizer(counts=both, vocab_size=259).merges
((b'o', b'w'), (b'l', b'ow'), (b' ', b'low'))

A file of counts, all numbers little-endian:

    8 bytes    b"\x89tilthPC"
    uint32     version, 1
    uint32     size of the header in bytes
    header     JSON in UTF-8: {"pattern": ..., "special_tokens": [...], "unicode": "18.0.0"}
    records    for each distinct piece: size, bytes, count; sorted by the bytes of the pieces
    uint64     number of records
    uint64     sum of the counts
    32 bytes   SHA-256 of everything before

The size and the count of a record are LEB128. Equal counts have equal bytes: the file of a corpus
does not depend on how the corpus was cut. `core/bpe/piece_records.hpp` reads and writes records.
"""

import hashlib
import io
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Self

from tilth.files import FileError, Progress, StrPath, atomic_write, open_regular
from tilth.formatting import printable
from tilth.schema import Length, read, short_repr
from tilth.tokenizer import _core
from tilth.tokenizer.patterns import MAX_STEPS, Pattern, canonical, describe
from tilth.tokenizer.vocabulary import Vocabulary

MAGIC = b"\x89tilthPC"
VERSION = 1
START = struct.Struct("<8sII")
NUMBERS = struct.Struct("<QQ")
CHECKSUM_BYTES = 32
END_BYTES = NUMBERS.size + CHECKSUM_BYTES
MAX_HEADER_BYTES = 1 << 20
MIN_RECORD_BYTES = 3
BLOCK_BYTES = 1 << 20
MERGE_BYTES = 64 << 20  # of the blocks of all files that are merged

HINT = "count the corpus again, or restore a copy"
ALIKE = "count all parts with the same settings"


@dataclass(frozen=True)
class Counting:
    """The settings that determine the pieces of a text; counts with equal settings merge."""

    pattern: str | Annotated[tuple[str, ...], Length(at_most=MAX_STEPS)] = "gpt2"
    """The split pattern: a name, a regex, or several steps."""
    special_tokens: tuple[str, ...] = ()
    """The special tokens; pieces are counted in the text between them."""
    unicode: str = _core.unicode_version
    """The version of Unicode that classified the characters."""

    @classmethod
    def of(cls, pattern: Pattern, special_tokens: Iterable[str]) -> Self:
        """Validate a pattern and special tokens."""
        special_tokens = tuple(special_tokens)
        validated = Vocabulary.from_parts({}, (), special_tokens, pattern=pattern)
        for token in validated.special_tokens:
            if len(token.encode()) == 1:
                raise ValueError(
                    f"The special token {token!r} is a single byte; choose a longer one."
                )
        return cls(canonical(pattern), special_tokens)

    def header(self) -> bytes:
        """Return the JSON of a file."""
        content = {
            "pattern": self.pattern,
            "special_tokens": self.special_tokens,
            "unicode": self.unicode,
        }
        header = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        if len(header) > MAX_HEADER_BYTES:
            raise ValueError("the pattern and the special tokens have over 1 MB; shorten them")
        return header

    def check_same(self, other: "Counting", subject: str, hint: str) -> None:
        """Raise ValueError if other settings differ: the subject has different ...; the hint."""
        for what, ours, theirs in (
            ("patterns", describe(self.pattern), describe(other.pattern)),
            ("special tokens", list(self.special_tokens), list(other.special_tokens)),
            ("versions of Unicode", self.unicode, other.unicode),
        ):
            if ours != theirs:
                values = f"{short_repr(ours)} and {short_repr(theirs)}"
                raise ValueError(f"{subject} have different {what}, {values}; {hint}.")


@dataclass(frozen=True, repr=False)
class PieceCounts:
    """How often each piece of a corpus occurs. Immutable, picklable, compared by content.

    `count_pieces` makes it, and `train_tokenizer(counts=...)` uses it. `len` is the number of
    distinct pieces.
    """

    settings: Counting
    total: int
    """The number of pieces, each as often as it occurs."""
    _num_pieces: int
    _records: bytes

    @property
    def pattern(self) -> Pattern:
        """The split pattern."""
        return self.settings.pattern

    @property
    def special_tokens(self) -> list[str]:
        """The special tokens."""
        return list(self.settings.special_tokens)

    def __len__(self) -> int:
        return self._num_pieces

    def __repr__(self) -> str:
        pattern = printable(describe(self.pattern))
        return f"<PieceCounts of {self.total:,} pieces, {len(self):,} distinct, pattern {pattern}>"

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Yield each distinct piece and its count, sorted by piece."""
        place = 0
        while place < len(self._records):
            size, start = _number(self._records, place)
            count, place = _number(self._records, start + size)
            yield self._records[start : start + size], count

    def merge(self, *others: "PieceCounts") -> "PieceCounts":
        """Return the sum of these counts and others."""
        for other in others:
            self.settings.check_same(other.settings, "The counts", ALIKE)
        records = io.BytesIO()
        reads = [each._reader() for each in (self, *others)]
        (num_pieces, total), *_ = _core.merge_records(reads, records.write)
        return PieceCounts(self.settings, total, num_pieces, records.getvalue())

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the counts to a file, atomically."""
        with atomic_write(path, overwrite=overwrite) as file:
            writer = _Writer(file, self.settings)
            writer.write(self._records)
            writer.finish(len(self), self.total)

    @classmethod
    def load(cls, path: StrPath) -> "PieceCounts":
        """Read a file of counts; raise FileError if it is damaged."""
        counts = CountsFile(path)
        records = io.BytesIO()
        with _named_errors([counts]):
            totals, _ = _core.merge_records(
                [counts.reader(_watch(None, 0))], records.write
            )  # it validates
        counts.check(totals)
        return cls(counts.settings, counts.total, counts.num_pieces, records.getvalue())

    @classmethod
    def of(cls, settings: Counting, trainer: _core.Trainer) -> "PieceCounts":
        """Return the counts of a trainer."""
        records = io.BytesIO()
        num_pieces, total = trainer.write_records(records.write)
        return cls(settings, total, num_pieces, records.getvalue())

    def add_to(self, trainer: _core.Trainer, progress: Progress) -> None:
        """Add the pieces to a trainer."""
        size_bytes = len(self._records)
        progress("read", 0, size_bytes)
        trainer.add_records(self._reader(), len(self), size_bytes)
        progress("read", size_bytes, size_bytes)

    def _reader(self) -> Callable[[], bytes]:
        file = io.BytesIO(self._records)  # shares the memory
        return lambda: file.read(BLOCK_BYTES)


def merge_counts(
    paths: Sequence[StrPath],
    out: StrPath,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Write the sum of files of counts to `out`; return the number of distinct pieces and of all.

    The files are read and written in blocks: memory does not depend on their sizes. Raises
    FileError for a damaged file and ValueError if their patterns or special tokens differ, or if
    a count exceeds 64 bits. `progress` is called in the phase "read" (bytes).
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files = [CountsFile(path) for path in paths]
    if not files:
        raise ValueError("There are no counts to merge; give one file or more.")
    for file in files[1:]:
        files[0].settings.check_same(file.settings, f"{files[0].path} and {file.path}", ALIKE)
    watch = _watch(progress, sum(file.size_bytes for file in files))
    block_bytes = max(1 << 14, min(BLOCK_BYTES, MERGE_BYTES // len(files)))
    with atomic_write(out, overwrite=overwrite) as target:
        writer = _Writer(target, files[0].settings)
        with _named_errors(files):
            reads = [file.reader(watch, block_bytes) for file in files]
            (num_pieces, total), *sources = _core.merge_records(reads, writer.write)
        for file, totals in zip(files, sources, strict=True):
            file.check(totals)
        writer.finish(num_pieces, total)
    return num_pieces, total


class CountsFile:
    """An untrusted file of counts, read block by block. It is open only while a block is read.

    So a merge of any number of files stays below the limit on open files. A file that is replaced
    meanwhile has a wrong checksum.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        with open_regular(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            start, end = file.read(START.size), b""
            if not start.startswith(MAGIC):
                raise FileError(path, "is not a file of piece counts", "check the path")
            if size_bytes < START.size + END_BYTES:
                raise FileError(path, "is truncated", HINT)
            _, version, header_bytes = START.unpack(start)
            if version != VERSION:
                problem = f"has version {version}; this tilth reads version {VERSION}"
                raise FileError(path, problem, "upgrade tilth, or count the corpus again")
            self._start_bytes = START.size + header_bytes
            self.size_bytes = size_bytes - self._start_bytes - END_BYTES
            """The size of the records."""
            if header_bytes > MAX_HEADER_BYTES or self.size_bytes < 0:
                raise FileError(path, "is truncated or damaged (the size of its header)", HINT)
            header = file.read(header_bytes)
            file.seek(-END_BYTES, os.SEEK_END)
            end = file.read(END_BYTES)
        self.num_pieces, self.total = NUMBERS.unpack(end[: NUMBERS.size])
        self._checksum = end[NUMBERS.size :]
        if self.num_pieces > self.size_bytes // MIN_RECORD_BYTES:
            problem = f"is truncated or damaged (it is too short for {self.num_pieces:,} pieces)"
            raise FileError(path, problem, HINT)
        self.settings = _settings(path, header)
        self._digest = hashlib.sha256(start + header)
        self._done_bytes = 0

    def reader(
        self, watch: Callable[[int], None], block_bytes: int = BLOCK_BYTES
    ) -> Callable[[], bytes]:
        """Return a function that returns the next block of records; call `watch` with its size."""

        def read_block() -> bytes:
            size_bytes = min(block_bytes, self.size_bytes - self._done_bytes)
            if size_bytes == 0:
                return b""
            with open_regular(self.path) as file:
                file.seek(self._start_bytes + self._done_bytes)
                block = file.read(size_bytes)
            if len(block) < size_bytes:
                raise FileError(self.path, "became shorter while it was read", HINT)
            self._digest.update(block)
            self._done_bytes += size_bytes
            watch(size_bytes)
            return block

        return read_block

    def add_to(self, trainer: _core.Trainer, progress: Progress) -> None:
        """Add the pieces to a trainer; raise FileError if the file is damaged."""
        read = self.reader(_watch(progress, self.size_bytes))
        with _named_errors([self]):
            totals = trainer.add_records(read, self.num_pieces, self.size_bytes)
        self.check(totals)

    def check(self, totals: tuple[int, int]) -> None:
        """Compare what was read with the checksum and the numbers; raise FileError if it differs.

        `totals` are the number of records and the sum of their counts.
        """
        self._digest.update(NUMBERS.pack(self.num_pieces, self.total))
        if self._digest.digest() != self._checksum:
            raise FileError(self.path, "is damaged (its checksum differs)", HINT)
        if totals != (self.num_pieces, self.total):
            raise FileError(self.path, "is damaged (its numbers differ from its records)", HINT)


class _Writer:
    """Writes a file of counts; the numbers follow the records, which are not held in memory."""

    def __init__(self, file: BinaryIO, settings: Counting) -> None:
        self._file, self._digest = file, hashlib.sha256()
        header = settings.header()
        self.write(START.pack(MAGIC, VERSION, len(header)) + header)

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)

    def finish(self, num_pieces: int, total: int) -> None:
        self.write(NUMBERS.pack(num_pieces, total))
        self._file.write(self._digest.digest())


def _settings(path: StrPath, header: bytes) -> Counting:
    """Validate the header of a file."""
    try:
        settings = read(Counting, json.loads(header.decode("utf-8")), "the header")
        checked = Counting.of(settings.pattern, settings.special_tokens)
        if Counting(checked.pattern, checked.special_tokens, settings.unicode).header() != header:
            raise ValueError("it is not in canonical form")
    except (ValueError, RecursionError) as error:
        problem = f"has a damaged header ({str(error).rstrip('.')})"
        raise FileError(path, problem, HINT) from None
    return settings


def _watch(progress: Progress | None, size_bytes: int) -> Callable[[int], None]:
    """Return a function that is called with the size of each block, and reports the progress."""
    done_bytes = 0

    def watch(num_bytes: int) -> None:
        nonlocal done_bytes
        done_bytes += num_bytes
        if progress:
            progress("read", done_bytes, size_bytes)

    watch(0)
    return watch


@contextmanager
def _named_errors(files: Sequence[CountsFile]) -> Iterator[None]:
    """Name the file in an error about its records."""
    try:
        yield
    except _core.RecordError as error:
        problem, index = error.args
        raise FileError(files[index].path, f"is damaged ({problem})", HINT) from None


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Return the LEB128 number at a place, and the place after it."""
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
