"""Texts on disk as a stream of documents.

Sources are text files with a separator, folders of files, JSON lines and Parquet, also compressed
as `.gz` or `.zst`; `listing.py` derives the kind from the name. Documents come in order, byte for
byte, in blocks. A block knows its start and end, so reading can resume at its end, and any thread
may parse it. Documents of white space only are left out.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     _ = Path(folder, "a.txt").write_text("One day.<|endoftext|>One night.")
...     _ = Path(folder, "b.jsonl").write_text('{"text": "Once."}')
...     list(Corpus([f"{folder}/a.txt", f"{folder}/b.jsonl"]))
['One day.', 'One night.', 'Once.']
"""

import codecs
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import filterfalse, islice
from typing import Any, NamedTuple

from tilth.corpus.compression import count_lines, read_parts, read_whole
from tilth.corpus.listing import ListedFile, Source, compression_of, list_sources
from tilth.corpus.parquet import open_column, read_column
from tilth.errors import import_extra
from tilth.files import FileError, StrPath
from tilth.schema import check_choice, check_int

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors begin a file with it; it is not text
SHOWN_NAMES = 20  # of the fields of an object that lacks the requested one
# A line of JSON is also held as text, which takes up to 4 bytes a character.
MAX_LINE_SHARE = 1 / 4  # of the longest document
MAX_WARNINGS = 5  # about skipped documents
MAX_JSON_VALUES = 1 << 24  # on a line: each takes up to 100 bytes in memory, and 2 as JSON

log = logging.getLogger(__name__)


class Position(NamedTuple):
    """A place between two documents of a corpus.

    `source` is the index of the source. `place` counts decompressed bytes in text and JSON lines,
    files in a folder, and rows in Parquet.
    """

    source: int
    place: int


BEGINNING = Position(0, 0)


class Documents(NamedTuple):
    """The documents of a block, each valid UTF-8, and a sentence for each skipped one."""

    texts: list[bytes]
    skipped: list[str]


@dataclass(frozen=True)
class Block:
    """Adjacent documents of one source, read but not yet parsed.

    `read_bytes` counts the bytes on disk, of the whole corpus, up to the end of this block;
    `size_bytes` counts the bytes of text that it holds in memory. `documents()` parses and checks
    the documents; any thread may call it.
    """

    start: Position
    end: Position
    read_bytes: int
    size_bytes: int
    documents: Callable[[], Documents]

    @property
    def text(self) -> bytes | None:
        """The unparsed documents of a text file, between separators; None for other sources."""
        return self.documents.cut.text() if isinstance(self.documents, _TextDocuments) else None


class Corpus:
    """The documents of several sources, in order.

    `separator` separates the documents of a text file; `field` is the field of JSON lines or the
    column of Parquet that holds them. A bad document (not UTF-8, not JSON, no such field) is an
    error that names the file and the line, or with `on_error="skip"` a sentence in
    `Documents.skipped`. Memory holds the longest document and a few blocks of about `block_bytes`.
    A document of more than `max_document_bytes`, or a line of JSON of more than a quarter of that,
    is always an error.
    """

    def __init__(
        self,
        paths: StrPath | Iterable[StrPath],
        *,
        separator: str = "<|endoftext|>",
        field: str = "text",
        on_error: str = "stop",
        block_bytes: int = 1 << 20,
        max_document_bytes: int = 1 << 30,
    ) -> None:
        skips = check_choice("on_error", on_error, ("stop", "skip")) == "skip"
        check_int("block_bytes", block_bytes)
        if not isinstance(field, str):
            raise ValueError(f"The field {field!r} is not a string; name one, such as 'text'.")
        encoded = _encoded_separator(separator)
        self._reading = _Reading(encoded, field, skips, block_bytes, max_document_bytes)
        self.separator = encoded
        self.sources: tuple[Source, ...] = list_sources(paths)
        self.size_bytes = sum(source.size_bytes for source in self.sources)  # on disk
        for source in self.sources:
            if any(compression_of(file.path) == "zst" for file in source.files):
                import_extra("zstandard", "A .zst file")
            if source.kind == "parquet":
                with open_column(source.files[0], field):
                    pass  # checked before hours of reading

    def blocks(self, start: Position = BEGINNING, stop: Position | None = None) -> Iterator[Block]:
        """Yield the blocks from `start` on, which is the end of an earlier block.

        `start` and `stop` may also be places of `cutting.cut`; without `stop`, to the end.
        """
        first, place = start
        before = sum(source.size_bytes for source in self.sources[:first])
        for number in range(first, len(self.sources)):
            last = stop.place if stop is not None and number == stop.source else None
            if stop is not None and (number, place) >= stop:
                break
            source = self.sources[number]
            parts = _READERS[source.kind](source, place, last, self._reading)
            for end, disk_bytes, size_bytes, documents in parts:
                start, place = Position(number, place), end
                yield Block(
                    start, Position(number, end), before + disk_bytes, size_bytes, documents
                )
                del documents  # it holds the block, which may be large, while the next one is read
            before += source.size_bytes
            place = 0

    def __iter__(self) -> Iterator[str]:
        """Yield the documents; skipped ones are logged."""
        for block in self.blocks():
            texts, skipped = block.documents()
            for sentence in skipped:
                log.warning("Skipped: %s.", sentence)
            for text in texts:
                yield text.decode()


class _Reading(NamedTuple):
    """The options of a corpus."""

    separator: bytes
    field: str
    skips: bool
    block_bytes: int
    max_document_bytes: int


def _encoded_separator(separator: str) -> bytes:
    with suppress(AttributeError, UnicodeEncodeError):
        if separator:
            return separator.encode()
    hint = "choose the text between documents, such as '<|endoftext|>'"
    raise ValueError(f"The separator {separator!r} is empty or is not Unicode text; {hint}.")


# For each block: the place after it, the bytes of the source on disk so far, its bytes in memory,
# and the function that parses it.
_Parts = Iterator[tuple[int, int, int, Callable[[], Documents]]]
# Documents in order; a bad one is an error.
_Found = Iterator[bytes | FileError]


def warn_skipped(log: logging.Logger, sentences: Sequence[str], before: int) -> int:
    """Log sentences about skipped documents, the first five in all; return their number so far."""
    for sentence in sentences[: max(0, MAX_WARNINGS - before)]:
        log.warning("Skipped: %s.", sentence)
    return before + len(sentences)


# --- text files and JSON lines --------------------------------------------------------------------


class _Cut(NamedTuple):
    """A part of a file between two separators."""

    file: ListedFile
    start: int
    data: bytes
    lines_before: int | None

    def text(self) -> bytes:
        """Return the data without the byte order mark of a file."""
        return self.data.removeprefix(BYTE_ORDER_MARK) if self.start == 0 else self.data

    def first_line(self) -> int:
        """Return the number of its first line; the file is read once more if it is unknown."""
        if self.lines_before is None:
            return 1 + count_lines(self.file, self.start)
        return 1 + self.lines_before

    def checked(self, text: bytes, place: int) -> bytes | FileError:
        """Return `text`, which begins at `place` in the data, if it is UTF-8."""
        bad_byte = _first_bad_byte(text)
        if bad_byte is None:
            return text
        line = self.first_line() + self.data.count(b"\n", 0, place + bad_byte)
        return _not_utf8(self.file, f"line {line:,}")


def _read_text(source: Source, start: int, stop: int | None, reading: _Reading) -> _Parts:
    hint = "separate its documents, or name their separator with --separator (separator=...)"
    limit = (reading.max_document_bytes, "document", hint)
    places = (start, stop)
    return _read_cut(source.files[0], places, reading, reading.separator, limit, _TextDocuments)


def _read_lines(source: Source, start: int, stop: int | None, reading: _Reading) -> _Parts:
    max_bytes = round(MAX_LINE_SHARE * reading.max_document_bytes)
    limit = (max_bytes, "line", "write one JSON object a line, or split its text into several")
    parse = partial(partial, _documents, _lines_of)
    return _read_cut(source.files[0], (start, stop), reading, b"\n", limit, parse)


def _read_cut(
    file: ListedFile,
    places: tuple[int, int | None],
    reading: _Reading,
    separator: bytes,
    limit: tuple[int, str, str],
    parser: Callable[[_Cut, _Reading], Callable[[], Documents]],
) -> _Parts:
    """Cut a file at the last separator of each part that is read.

    `limit` is the most bytes between two separators, the name of the text between them, and the
    hint for a longer one. Every byte is searched once, except the few in `edge`, and copied a fixed
    number of times, however long a document is.
    """
    # Searched from the right, a separator that overlaps itself is found elsewhere than by `split`:
    # "aaa" in "aaaaa".
    overlaps = overlaps_itself(separator)
    start, stop = places
    # Counting lines costs a third of the speed; only messages of skipped documents need them all.
    lines = count_lines(file, start) if reading.skips else None
    rest = BytesIO()  # the bytes after the last cut; getvalue() returns them without a copy
    edge = b""  # its last bytes, in which a separator may have begun
    disk_bytes = 0
    max_bytes, name, hint = limit
    part_bytes = reading.block_bytes
    for part, disk_bytes in read_parts(file, start=start, part_bytes=part_bytes, stop=stop):
        window = edge + part
        if overlaps:
            found = len(window) - len(window.split(separator)[-1]) - len(separator)
        else:
            found = window.rfind(separator)
        if found < 0:
            tail = 0
            rest.write(part)
            if rest.tell() > max_bytes:
                problem = f"has a {name} of more than {max_bytes:,} bytes, from byte {start:,} on"
                raise FileError(file.path, problem, hint)
        else:
            size = rest.tell() + found - len(edge)
            rest.write(memoryview(part)[: max(0, found - len(edge))])
            rest.truncate(size)
            cut = _Cut(file, start, rest.getvalue(), lines)
            start += size + len(separator)
            if lines is not None:
                lines += cut.data.count(b"\n") + separator.count(b"\n")
            yield start, disk_bytes, size, parser(cut, reading)
            del cut
            tail = found + len(separator)
            rest = BytesIO()
            rest.write(memoryview(part)[tail - len(edge) :])
        edge = window[max(tail, len(window) - len(separator) + 1) :]
    if rest.tell():
        cut = _Cut(file, start, rest.getvalue(), lines)
        size = len(cut.data)
        yield start + size, disk_bytes, size, parser(cut, reading)


def overlaps_itself(separator: bytes) -> bool:
    """Return whether two occurrences can overlap; if not, every occurrence separates documents."""
    return any(separator.startswith(separator[i:]) for i in range(1, len(separator)))


@dataclass(frozen=True)
class _TextDocuments:
    """Parses the documents of a part of a text file."""

    cut: _Cut
    reading: _Reading

    def __call__(self) -> Documents:
        parts = self.cut.text().split(self.reading.separator)
        # Checking each document is 10 times as fast as decoding the block: most English is ASCII.
        if all(_first_bad_byte(part) is None for part in filterfalse(bytes.isascii, parts)):
            return Documents([part for part in filterfalse(bytes.isspace, parts) if part], [])
        return _documents(_texts_of, self.cut, self.reading)


def _texts_of(cut: _Cut, reading: _Reading) -> _Found:
    place = len(cut.data) - len(cut.text())
    for part in cut.text().split(reading.separator):
        yield cut.checked(part, place)
        place += len(part) + len(reading.separator)


def _lines_of(cut: _Cut, reading: _Reading) -> _Found:
    decoder = json.JSONDecoder()
    for number, line in enumerate(cut.text().split(b"\n")):
        if line and not line.isspace():
            try:
                yield _field_of(decoder, line, reading.field)
            except ValueError as error:
                problem, hint = error.args
                where = f"on line {cut.first_line() + number:,}"
                yield FileError(cut.file.path, f"{problem} {where}", hint)


def _field_of(decoder: json.JSONDecoder, line: bytes, field: str) -> bytes:
    """Return the text of one line; the arguments of a ValueError are the problem and the hint."""
    hint = "correct the line, or leave such lines out with --on-error skip (on_error='skip')"
    if len(line) > MAX_JSON_VALUES and sum(map(line.count, b",[{")) > MAX_JSON_VALUES:
        raise ValueError(f"has more than {MAX_JSON_VALUES:,} values", hint)
    try:
        record: Any = decoder.decode(line.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8", hint) from None
    except RecursionError:
        raise ValueError("is nested too deeply", hint) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON ({error.msg} at column {error.colno})", hint) from None
    except ValueError as error:  # a number that is too long for Python
        raise ValueError(f"is not JSON that can be read ({error})", hint) from None
    if not isinstance(record, dict):
        raise ValueError(f"has {_json_name(record)} instead of an object", hint)
    if field not in record:
        names = ", ".join(map(repr, islice(record, SHOWN_NAMES))) or "none"
        hint = "name another with --field (field=...), or use --on-error skip (on_error='skip')"
        raise ValueError(f"has no field {field!r} (the fields are: {names})", hint)
    text = record[field]
    if not isinstance(text, str):
        raise ValueError(f"has {_json_name(text)} in the field {field!r} instead of a string", hint)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and UTF-8 cannot hold
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _json_name(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


# --- folders and Parquet --------------------------------------------------------------------------


def _read_folder(source: Source, start: int, stop: int | None, reading: _Reading) -> _Parts:
    disk_bytes = sum(file.size_bytes for file in source.files[:start])
    whole: list[_Cut] = []
    size = 0
    stop = len(source.files) if stop is None else stop
    for number, file in enumerate(source.files[start:stop], start + 1):
        whole.append(_Cut(file, 0, read_whole(file, reading.max_document_bytes), 0))
        size += len(whole[-1].data)
        disk_bytes += file.size_bytes
        if size >= reading.block_bytes or number == stop:
            yield number, disk_bytes, size, partial(_documents, _files_of, whole, reading)
            whole, size = [], 0


def _files_of(whole: list[_Cut], _reading: _Reading) -> _Found:
    for cut in whole:
        yield cut.checked(cut.text(), len(cut.data) - len(cut.text()))


def _read_parquet(source: Source, start: int, _stop: None, reading: _Reading) -> _Parts:
    file = source.files[0]
    for values, end, share in read_column(file, reading.field, start, reading.block_bytes):
        parse = partial(_documents, _rows_of, (file, end - len(values), values), reading)
        yield end, round(share * source.size_bytes), values.nbytes, parse
        del values, parse


def _rows_of(block: tuple[ListedFile, int, Any], reading: _Reading) -> _Found:
    file, row, values = block
    for number, text in enumerate(values.to_pylist(), row + 1):
        if text is None:
            problem = f"has nothing in the column {reading.field!r} of row {number:,}"
            hint = "fill it, or leave such rows out with --on-error skip (on_error='skip')"
            yield FileError(file.path, problem, hint)
        else:
            is_text = _first_bad_byte(text) is None
            yield text if is_text else _not_utf8(file, f"row {number:,}")


_READERS: dict[str, Callable[[Source, int, Any, _Reading], _Parts]] = {
    "text": _read_text,
    "json lines": _read_lines,
    "folder": _read_folder,
    "parquet": _read_parquet,
}


# --- checks of every document ---------------------------------------------------------------------


def _documents(find: Callable[[Any, _Reading], _Found], block: Any, reading: _Reading) -> Documents:  # noqa: ANN401, the argument of `find`
    """Return the documents of a block; a bad one raises its error, or is skipped."""
    texts: list[bytes] = []
    skipped: list[str] = []
    for found in find(block, reading):
        if isinstance(found, bytes):
            if found and not found.isspace():
                texts.append(found)
        elif reading.skips:
            path, problem, _ = found.args  # the hint says how to skip it
            skipped.append(f"{path} {problem}")
        else:
            raise found
    return Documents(texts, skipped)


def _first_bad_byte(text: bytes, step: int = 1 << 20) -> int | None:
    """Return the index of the first byte that is not UTF-8, or None."""
    if text.isascii():
        return None
    start = 0
    while start < len(text):  # in steps, as a decoded text takes up to four times its bytes
        end = start + step
        try:
            _, size = codecs.utf_8_decode(text[start:end], "strict", end >= len(text))
        except UnicodeDecodeError as error:
            return start + error.start
        start += size  # a character that the step cuts is left to the next one
    return None


def _not_utf8(file: ListedFile, where: str) -> FileError:
    hint = "convert it, or leave it out with --on-error skip (on_error='skip')"
    return FileError(file.path, f"is not UTF-8 on {where}", hint)
