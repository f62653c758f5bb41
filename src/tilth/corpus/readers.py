"""Users' own texts as a stream of documents.

What enters: text files with a separator, folders of files, JSON lines, Parquet, and `.gz` and
`.zst` of these; see `listing.py` for how a name tells which. What leaves: the documents in order,
byte for byte as they stand, in blocks. A block knows where it begins and ends, so that reading can
go on there another day, and is taken apart by a function that any thread may call. A document is
never only white space: what would be one is left out.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import filterfalse, islice
from typing import Any, NamedTuple

from tilth.corpus.compression import count_lines, import_zstandard, read_parts, read_whole
from tilth.corpus.listing import ListedFile, Source, listed
from tilth.corpus.parquet import Column
from tilth.files import FileError, StrPath

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors begin a file with it; it is no part of the text
SHOWN_NAMES = 20  # of the fields that are there instead of the one that is asked for
# A line of JSON is also held as text, which takes up to 4 bytes a character.
MAX_LINE_SHARE = 1 / 4  # of the longest document
MAX_JSON_VALUES = 1 << 24  # on a line: each takes up to 100 bytes in memory, and 2 as JSON

log = logging.getLogger(__name__)


class Position(NamedTuple):
    """A place in a corpus, behind a document."""

    source: int
    """The number of the source."""
    place: int
    """In it: decompressed bytes of text and JSON lines, files of a folder, rows of Parquet."""


BEGINNING = Position(0, 0)


class Documents(NamedTuple):
    """What a block holds."""

    texts: list[bytes]
    """The documents in order, each valid UTF-8."""
    skipped: list[str]
    """A sentence for each document that was left out because something is wrong with it."""


@dataclass(frozen=True)
class Block:
    """Some documents that stand side by side in one source, read but not yet taken apart."""

    start: Position
    end: Position
    read_bytes: int
    """Bytes on disk, of the whole corpus, up to the end of this block."""
    size_bytes: int
    """Bytes of text that it holds in memory."""
    _take_apart: Callable[[], Documents]

    def documents(self) -> Documents:
        """Parse and check them: safe in any thread."""
        return self._take_apart()


class Corpus:
    """Documents of several sources, one after the other.

    `separator` stands between the documents of a text file, and `field` is where JSON lines and
    Parquet have theirs. A bad document (not UTF-8, not JSON, no such field) is an error that names
    the file and the line, or with `on_error="skip"` a sentence in `Documents.skipped`. Memory holds
    the longest document and a few blocks of about `block_bytes`. A document of more than
    `max_document_bytes` is always an error, as is a line of JSON of a quarter of that.
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
        if on_error not in {"stop", "skip"}:
            raise ValueError(f'on_error is "stop" or "skip", not {on_error!r}.')
        if block_bytes < 1:
            raise ValueError(f"block_bytes is {block_bytes}; make it 1 or more.")
        if not isinstance(field, str):
            raise ValueError(f"The field {field!r} is not a text; name one, such as 'text'.")
        self._reading = _Reading(
            _encoded_separator(separator),
            field,
            on_error == "skip",
            block_bytes,
            max_document_bytes,
        )
        self.sources: tuple[Source, ...] = listed(paths)
        self.size_bytes = sum(source.size_bytes for source in self.sources)  # on disk
        if any(file.compression == "zst" for source in self.sources for file in source.files):
            import_zstandard()
        for source in self.sources:
            if source.kind == "parquet":
                Column(source.files[0], field)  # made to be checked

    def blocks(self, start: Position = BEGINNING) -> Iterator[Block]:
        """Read on from `start`, which is the end of an earlier block."""
        first, place = start
        before = sum(source.size_bytes for source in self.sources[:first])
        for number in range(first, len(self.sources)):
            source = self.sources[number]
            for part in _READERS[source.kind](source, place, self._reading):
                yield Block(
                    Position(number, place),
                    Position(number, part.end),
                    before + part.disk_bytes,
                    part.size_bytes,
                    part.take_apart,
                )
                place = part.end
                del part  # it holds the block, which may be large, while the next one is read
            before += source.size_bytes
            place = 0

    def __iter__(self) -> Iterator[str]:
        """The documents; those that are skipped are logged."""
        for block in self.blocks():
            texts, skipped = block.documents()
            for sentence in skipped:
                log.warning("Skipped: %s.", sentence)
            for text in texts:
                yield text.decode()


class _Reading(NamedTuple):
    """How a corpus is read."""

    separator: bytes
    field: str
    skips: bool
    block_bytes: int
    max_document_bytes: int


def _encoded_separator(separator: str) -> bytes:
    hint = "choose the text that stands between documents, such as '<|endoftext|>'"
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"The separator {separator!r} is not a text that can be found; {hint}.")
    try:
        return separator.encode()
    except UnicodeEncodeError:
        raise ValueError(f"The separator {separator!r} cannot stand in UTF-8; {hint}.") from None


class _Part(NamedTuple):
    """What a reader yields for each block."""

    end: int
    """The place behind it."""
    disk_bytes: int
    """Bytes of the source on disk so far."""
    size_bytes: int
    take_apart: Callable[[], Documents]


_Parts = Iterator[_Part]
_Found = Iterator[bytes | FileError]
"""Documents in order, and what is wrong with those that are none."""


# --- text files, and JSON lines -------------------------------------------------------------------


class _Cut(NamedTuple):
    """A part of a file between two separators."""

    file: ListedFile
    start: int
    data: bytes
    lines_before: int | None

    def first_line(self) -> int:
        """The number of its first line: where nobody counted, the file is read once more."""
        if self.lines_before is None:
            return 1 + count_lines(self.file, self.start)
        return 1 + self.lines_before


def _read_text(source: Source, start: int, reading: _Reading) -> _Parts:
    hint = "separate its documents, or name their separator with --separator (separator=...)"
    limit = (reading.max_document_bytes, "document", hint)
    return _read_cut(source.files[0], start, reading, reading.separator, limit, _take_text_apart)


def _read_lines(source: Source, start: int, reading: _Reading) -> _Parts:
    most_bytes = round(MAX_LINE_SHARE * reading.max_document_bytes)
    limit = (most_bytes, "line", "write one JSON object a line, or split its text into several")
    take_apart = partial(_documents, _lines_of)
    return _read_cut(source.files[0], start, reading, b"\n", limit, take_apart)


def _read_cut(
    file: ListedFile,
    start: int,
    reading: _Reading,
    separator: bytes,
    limit: tuple[int, str, str],
    take_apart: Callable[[_Cut, _Reading], Documents],
) -> _Parts:
    """Cut a file at the last separator of each part that is read.

    `limit` is the most bytes between two separators, the name of what stands there, and what to do
    about a longer one.

    Every byte is searched once, but for the few in `edge`, and copied a fixed number of times,
    however long a document is.
    """
    last_separator = _finder(separator)
    # Counting costs a third of the speed: worth it where any number of sentences may need it.
    lines = count_lines(file, start) if reading.skips else None
    rest = BytesIO()  # what was read behind the last cut; getvalue() hands it over without a copy
    edge = b""  # its last bytes, in which a separator may have begun
    disk_bytes = 0
    most_bytes, name, hint = limit
    for part, disk_bytes in read_parts(file, start=start, part_bytes=reading.block_bytes):
        found = last_separator(edge, part)
        if found is None:
            rest.write(part)
            if rest.tell() > most_bytes:
                problem = f"has a {name} of more than {most_bytes:,} bytes"
                raise FileError(file.path, f"{problem}, from byte {start:,} on", hint)
            edge = _last_bytes(edge + _last_bytes(part, len(separator) - 1), len(separator) - 1)
            continue
        size = rest.tell() + found
        rest.write(memoryview(part)[: max(0, found)])
        rest.truncate(size)
        cut = _Cut(file, start, rest.getvalue(), lines)
        start += size + len(separator)
        if lines is not None:
            lines += cut.data.count(b"\n") + separator.count(b"\n")
        yield _Part(start, disk_bytes, size, partial(take_apart, cut, reading))
        del cut
        rest = BytesIO()
        rest.write(memoryview(part)[found + len(separator) :])
        edge = _last_bytes(part[found + len(separator) :], len(separator) - 1)
    if rest.tell():
        cut = _Cut(file, start, rest.getvalue(), lines)
        size = len(cut.data)
        yield _Part(start + size, disk_bytes, size, partial(take_apart, cut, reading))


def _last_bytes(data: bytes, size: int) -> bytes:
    return data[max(0, len(data) - size) :]


def _finder(separator: bytes) -> Callable[[bytes, bytes], int | None]:
    """The function that finds the last separator in an edge and a part, counted as `split` does.

    What it returns is relative to the part: negative where the separator begins in the edge, which
    is shorter than a separator.
    """

    def search_part_then_edge(edge: bytes, part: bytes) -> int | None:
        found = part.rfind(separator)
        if found < 0:
            found = (edge + part[: len(separator) - 1]).find(separator)
            return None if found < 0 else found - len(edge)
        return found

    def search_from_the_left(edge: bytes, part: bytes) -> int | None:
        window = edge + part
        behind = len(window) - len(window.split(separator)[-1])
        return behind - len(separator) - len(edge) if behind else None

    # One that can overlap itself is found elsewhere from the right: "aaa" in "aaaaa".
    overlaps = any(separator.startswith(separator[i:]) for i in range(1, len(separator)))
    return search_from_the_left if overlaps else search_part_then_edge


def _take_text_apart(cut: _Cut, reading: _Reading) -> Documents:
    parts = _without_mark(cut).split(reading.separator)
    # To ask each document is 10 times as fast as to decode the block: most of English is ASCII.
    if all(_first_bad_byte(part) is None for part in filterfalse(bytes.isascii, parts)):
        return Documents([part for part in filterfalse(bytes.isspace, parts) if part], [])
    return _documents(_texts_of, cut, reading)


def _texts_of(cut: _Cut, reading: _Reading) -> _Found:
    text = _without_mark(cut)
    place = len(cut.data) - len(text)
    for part in text.split(reading.separator):
        if (bad_byte := _first_bad_byte(part)) is None:
            yield part
        else:
            line = cut.first_line() + cut.data.count(b"\n", 0, place + bad_byte)
            yield _not_utf8(cut.file, f"line {line:,}")
        place += len(part) + len(reading.separator)


def _lines_of(cut: _Cut, reading: _Reading) -> _Found:
    decoder = json.JSONDecoder()
    for number, line in enumerate(_without_mark(cut).split(b"\n")):
        if line and not line.isspace():
            try:
                yield _field_of(decoder, line, reading.field)
            except ValueError as error:
                problem, hint = error.args
                where = f"on line {cut.first_line() + number:,}"
                yield FileError(cut.file.path, f"{problem} {where}", hint)


def _field_of(decoder: json.JSONDecoder, line: bytes, field: str) -> bytes:
    """The text of one line; a ValueError has what is wrong and what to do."""
    hint = "mend the line, or leave such lines out with --on-error skip (on_error='skip')"
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
        raise ValueError(f"has {_json_name(text)} in the field {field!r} instead of a text", hint)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and UTF-8 cannot hold
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _json_name(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


# --- folders and Parquet --------------------------------------------------------------------------


def _read_folder(source: Source, start: int, reading: _Reading) -> _Parts:
    disk_bytes = sum(file.size_bytes for file in source.files[:start])
    gathered: list[tuple[ListedFile, bytes]] = []
    size = 0
    for number, file in enumerate(source.files[start:], start + 1):
        gathered.append((file, read_whole(file, reading.max_document_bytes)))
        size += len(gathered[-1][1])
        disk_bytes += file.size_bytes
        if size >= reading.block_bytes or number == len(source.files):
            yield _Part(number, disk_bytes, size, partial(_documents, _files_of, gathered, reading))
            gathered, size = [], 0


def _files_of(gathered: list[tuple[ListedFile, bytes]], _reading: _Reading) -> _Found:
    for file, data in gathered:
        text = data.removeprefix(BYTE_ORDER_MARK)
        if (bad_byte := _first_bad_byte(text)) is None:
            yield text
        else:
            line = 1 + text.count(b"\n", 0, bad_byte)
            yield _not_utf8(file, f"line {line:,}")


def _read_parquet(source: Source, start: int, reading: _Reading) -> _Parts:
    file = source.files[0]
    row = start
    for values, end, share in Column(file, reading.field).blocks(start, reading.block_bytes):
        take_apart = partial(_documents, _rows_of, (file, row, values), reading)
        disk_bytes = round(share * source.size_bytes)
        yield _Part(end, disk_bytes, values.nbytes, take_apart)
        del values, take_apart
        row = end


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


_READERS: dict[str, Callable[[Source, int, _Reading], _Parts]] = {
    "text": _read_text,
    "json lines": _read_lines,
    "folder": _read_folder,
    "parquet": _read_parquet,
}


# --- what every kind asks of a document -----------------------------------------------------------


def _documents(find: Callable[[Any, _Reading], _Found], block: Any, reading: _Reading) -> Documents:  # noqa: ANN401, what `find` takes
    """The documents of a block; a bad one ends the reading, or is counted."""
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


def _without_mark(cut: _Cut) -> bytes:
    return cut.data.removeprefix(BYTE_ORDER_MARK) if cut.start == 0 else cut.data


def _first_bad_byte(text: bytes, step: int = 1 << 20) -> int | None:
    """Where a text stops being UTF-8."""
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
