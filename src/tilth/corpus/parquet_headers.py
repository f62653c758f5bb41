"""Read the sizes in the headers of a Parquet file, before pyarrow allocates by them.

A page of a few bytes on disk can decompress to gigabytes. A value in a dictionary page can be
repeated in millions of rows. A footer can announce more structs than memory holds. The footer
and the page headers are structs in Thrift's compact protocol: `read_footer` and `safe_batch_rows`
read the few fields that matter and skip the rest. pyarrow exposes some of these fields, but aborts
the process if the metadata of a column is missing.

Malformed bytes are a ValueError, a size beyond its limit is a `TooLargeError`.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift numbers all
fields.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple, TypeAlias

MAX_BATCH_ROWS = 256
MAX_BATCH_BYTES = 256 << 20  # of one batch, if it has more than one row
# pyarrow holds a page three times: decompressed, decoded and in a batch. It writes pages of 1,024
# rows or more, so a page of long documents has hundreds of megabytes. Shared values are short.
MAX_PAGE_BYTES = 1 << 30
MAX_SHARED_PAGE_BYTES = 256 << 20
PAGE_HEADER_BYTES = [256 << shift for shift in range(0, 17, 4)]  # to try, to pyarrow's 16 MiB
MAX_FOOTER_BYTES = 64 << 20
MAX_FOOTER_ELEMENTS = 1 << 20  # of lists: a column of a row group takes 1 kB in pyarrow

MAGIC = b"PAR1"
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
# By kind of page: the field of the header of this kind, and the field of its encoding.
PAGE_FIELDS = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}
DELTA_LENGTHS, DELTA_STRINGS = 6, 7  # encodings: DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY

# The fields to keep of a struct, each with the fields of its value: {} for a number, None to skip.
Spec: TypeAlias = "dict[int, Spec] | None"
Struct: TypeAlias = dict[int, Any]

FOOTER_SPEC: Spec = {3: {}, 4: {1: {3: {5: {}, 9: {}, 11: {}}}, 2: {}, 3: {}}}
PAGE_SPEC: Spec = {1: {}, 2: {}, 3: {}, 5: {1: {}, 2: {}}, 7: {1: {}, 2: {}}, 8: {1: {}, 4: {}}}


class TooLargeError(ValueError):
    """A size is beyond its limit."""


class RowGroup(NamedTuple):
    """A part of the rows of a file."""

    num_rows: int
    size_bytes: int
    columns: list[Struct]


def read_footer(raw: BinaryIO) -> tuple[int, list[RowGroup]]:
    """Return the number of rows and the row groups."""
    end = os.fstat(raw.fileno()).st_size
    tail = os.pread(raw.fileno(), 8, max(0, end - 8))
    size_bytes = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or size_bytes > end - 8:
        raise ValueError("no footer at its end")
    if size_bytes > MAX_FOOTER_BYTES:
        limit = f"the limit is {MAX_FOOTER_BYTES:,}"
        raise TooLargeError(f"a footer of {size_bytes:,} bytes ({limit})")
    reader = _Reader(os.pread(raw.fileno(), size_bytes, end - 8 - size_bytes))
    try:
        footer = reader.read_struct(FOOTER_SPEC)
        groups = [
            RowGroup(group[3], group[2], [column.get(3, {}) for column in group[1]])
            for group in footer.get(4, [])
        ]
        if min([footer[3], *(group.num_rows for group in groups)]) < 0:
            raise ValueError("a negative number of rows")
    except (AttributeError, LookupError, TypeError):
        raise ValueError("a footer without the fields that it needs") from None
    return footer[3], groups


def safe_batch_rows(raw: BinaryIO, group: RowGroup, column: int) -> int:
    """Return how many rows pyarrow can decode at once in `MAX_BATCH_BYTES`, at least 1."""
    row_bytes = 0  # of the longest value that any number of rows can share
    largest = count = 0  # of the pages whose values belong to one row each
    fewest_rows = last_rows = MAX_BATCH_ROWS
    for page in _pages(raw, group, column):
        if page.is_shared:
            row_bytes = max(row_bytes, page.decoded_bytes)
        else:
            largest = max(largest, page.decoded_bytes)
            count += 1
            fewest_rows = min(fewest_rows, last_rows)  # the last page may be a short one
            last_rows = max(1, page.num_values)
    rows = MAX_BATCH_ROWS
    while rows > 1 and (
        rows * row_bytes + min(count, 2 + rows // fewest_rows) * largest > MAX_BATCH_BYTES
    ):
        rows //= 2
    return rows


class _Page(NamedTuple):
    is_shared: bool  # any number of rows can have the same value of it
    decoded_bytes: int
    num_values: int


def _pages(raw: BinaryIO, group: RowGroup, column: int) -> Iterator[_Page]:
    """Yield the pages of a column in a row group, as pyarrow will read them."""
    try:
        sizes = group.columns[column]
        values_left, offset = sizes[5], sizes[9]
        if 0 < sizes.get(11, 0) < offset:  # the dictionary page
            offset = sizes[11]
        while values_left > 0:
            header, size_bytes = _read_page_header(raw, offset)
            page = _page_of(header)
            offset += size_bytes + header[3]
            if header[1] != DICTIONARY_PAGE:
                values_left -= page.num_values
            yield page
    except (LookupError, TypeError):
        raise ValueError(f"no sizes of column {column + 1} or its pages") from None


def _page_of(header: Struct) -> _Page:
    kind, decoded_bytes = header[1], header[2]
    num_values = encoding = 0
    if kind in PAGE_FIELDS:
        own, encoding_field = PAGE_FIELDS[kind]
        num_values, encoding = header[own][1], header[own][encoding_field]
    if min(decoded_bytes, header[3], num_values) < 0:
        raise ValueError("a page of a negative size")
    if kind == DICTIONARY_PAGE or encoding in {DELTA_LENGTHS, DELTA_STRINGS}:
        decoded_bytes += 16 * num_values  # pyarrow makes an array of them at once
    is_shared = kind == DICTIONARY_PAGE or encoding == DELTA_STRINGS
    max_bytes = MAX_SHARED_PAGE_BYTES if is_shared else MAX_PAGE_BYTES
    if decoded_bytes > max_bytes:
        raise TooLargeError(f"a page of {decoded_bytes:,} bytes (the limit is {max_bytes:,})")
    return _Page(is_shared, decoded_bytes, num_values)


def _read_page_header(raw: BinaryIO, offset: int) -> tuple[Struct, int]:
    """Return the header at `offset` and its size."""
    for size_bytes in PAGE_HEADER_BYTES:
        reader = _Reader(os.pread(raw.fileno(), size_bytes, max(0, offset)))
        with suppress(IndexError):  # the header continues after these bytes
            return reader.read_struct(PAGE_SPEC), reader.tell()
    raise ValueError(f"no page header at byte {offset:,}")


class _Reader(BytesIO):
    """A reader of Thrift's compact protocol; truncated data is an IndexError."""

    num_elements = 0

    def read_struct(self, spec: Spec, depth: int = 0) -> Struct:
        """Return the fields that `spec` names."""
        struct: Struct = {}
        field = 0
        while head := self.read(1)[0]:
            field = field + (head >> 4) if head >> 4 else self._value(4, None, depth)
            kept = spec.get(field) if spec else None
            # True and false are part of a field's head, but take a byte each in a list.
            value = None if head & 15 in {1, 2} else self._value(head & 15, kept, depth)
            if kept is not None:
                if field in struct:
                    raise ValueError("a repeated field")
                struct[field] = value
        return struct

    def _value(self, kind: int, spec: Spec, depth: int) -> Any:  # noqa: ANN401, as spec says
        if depth > 16:
            raise ValueError("values nested too deeply")
        match kind:
            case 1 | 2 | 3:
                self.seek(1, os.SEEK_CUR)
            case 4 | 5 | 6:
                number = self._varint()
                return number >> 1 ^ -(number & 1)
            case 7:
                self.seek(8, os.SEEK_CUR)
            case 8:
                self.seek(self._varint(), os.SEEK_CUR)
            case 9 | 10:  # a list or a set
                head = self.read(1)[0]
                size = self._varint() if head >> 4 == 15 else head >> 4
                return self._values(size, [head & 15], spec, depth)
            case 11:  # a map
                size = self._varint()
                kinds = self.read(1)[0] if size else 0
                self._values(size, [kinds >> 4, kinds & 15], None, depth)
            case 12:
                return self.read_struct(spec, depth + 1)
            case _:
                raise ValueError(f"a value of the unknown type {kind}")
        return None

    def _values(self, size: int, kinds: list[int], spec: Spec, depth: int) -> list[Any]:
        self.num_elements += size * len(kinds)
        if self.num_elements > MAX_FOOTER_ELEMENTS:
            raise TooLargeError(f"more than {MAX_FOOTER_ELEMENTS:,} elements in its footer")
        values = (self._value(kind, spec, depth + 1) for _ in range(size) for kind in kinds)
        return [value for value in values if spec is not None]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self.read(1)[0]) >= 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return number | byte << shift
