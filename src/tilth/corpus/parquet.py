"""The rows of one column of a Parquet file, through pyarrow, a few at a time.

Only that column is read, and of a row group never more than some pages at once. What pyarrow
allocates for them is bounded by the headers, which are read first (`parquet_headers.py`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from tilth.corpus.compression import REMEDY, Expansion, check_unchanged, opened
from tilth.corpus.listing import ListedFile
from tilth.corpus.parquet_headers import (
    MAX_BATCH_ROWS,
    MAX_FOOTER_ELEMENTS,
    DamagedError,
    TooLargeError,
    read_footer,
    safe_batch_rows,
)
from tilth.errors import import_extra
from tilth.files import FileError


class Column:
    """One column of texts in one Parquet file."""

    def __init__(self, file: ListedFile, name: str) -> None:
        self._file = file
        self._name = name
        with self._rows():  # what is wrong with the file is said now, not after hours of reading
            pass

    def blocks(self, start: int, block_bytes: int) -> Iterator[tuple[Any, int, float]]:
        """Values from row `start` on, the row behind them, and its share of the file.

        The values are an array of type `large_binary`, of about `block_bytes` or of one row.
        """
        with self._rows() as (rows, raw):
            large_binary = import_extra("pyarrow", "A Parquet file").large_binary()
            num_rows, groups = read_footer(raw)
            schema = rows.schema
            # pyarrow reads all of these for one name, and counts them as the row groups do.
            columns = [
                index
                for index in range(len(schema))
                if f"{schema.column(index).path}.".startswith(f"{self._name}.")
            ]
            expansion = Expansion(self._file)
            row = 0
            for number, group in enumerate(groups):
                group_end = row + group.num_rows
                if group_end <= start:
                    row = group_end
                    continue
                mean_bytes = group.size_bytes // max(1, group.num_rows)
                most_rows = max(1, min(MAX_BATCH_ROWS, block_bytes // max(1, mean_bytes)))
                for column in columns:
                    most_rows = min(most_rows, safe_batch_rows(raw, group, column))
                for batch in rows.iter_batches(
                    most_rows, row_groups=[number], columns=[self._name], use_threads=False
                ):
                    values = batch.column(self._name).cast(large_binary)
                    values = values.slice(max(0, start - row))
                    row += batch.num_rows
                    del batch
                    behind = row - len(values)
                    for part in _halved(values, block_bytes):
                        expansion.add(part.nbytes)
                        behind += len(part)
                        yield part, behind, min(1.0, behind / max(1, num_rows))
                        del part
                if row != group_end:
                    raise DamagedError(f"row group {number + 1} ends at row {row:,}")
            if start > row:
                hint = "start again from its beginning"
                raise FileError(self._file.path, f"has only {row:,} rows now", hint)

    @contextmanager
    def _rows(self) -> Iterator[tuple[Any, BinaryIO]]:
        """A file of pyarrow, and the open file below it."""
        pyarrow = import_extra("pyarrow", "A Parquet file")
        parquet = import_extra("pyarrow.parquet", "A Parquet file")
        with opened(self._file) as raw:
            check_unchanged(self._file, raw)
            try:
                read_footer(raw)  # before pyarrow does
                # The first two are needed for pyarrow to read page by page instead of a whole row
                # group: of one of 400 MB it then holds 17 MB.
                rows = parquet.ParquetFile(
                    raw,
                    buffer_size=1 << 20,
                    pre_buffer=False,
                    thrift_container_size_limit=MAX_FOOTER_ELEMENTS,
                    page_checksum_verification=True,
                    arrow_extensions_enabled=False,
                )
                self._check(rows.schema_arrow, pyarrow.types)
                yield rows, raw
                check_unchanged(self._file, raw)
            except FileError:
                raise
            except MemoryError as error:
                hint = "free some memory, or write it again with smaller pages"
                problem = f"needs more memory than there is ({_first_line(error)})"
                raise FileError(self._file.path, problem, hint) from None
            except TooLargeError as error:
                hint = "write it again with smaller pages and fewer row groups"
                raise FileError(self._file.path, f"has {error}", hint) from None
            except OSError as error:
                problem = f"cannot be read ({_first_line(error)})"
                raise FileError(self._file.path, problem, REMEDY) from None
            # Beside its own exceptions, pyarrow raises those of Python for a damaged footer.
            except (
                DamagedError,
                pyarrow.ArrowException,
                ArithmeticError,
                LookupError,
                ValueError,
            ) as error:
                problem = f"is damaged or is not Parquet ({_first_line(error)})"
                raise FileError(self._file.path, problem, REMEDY) from None

    def _check(self, schema: Any, types: Any) -> None:  # noqa: ANN401, pyarrow has no types
        hint = "name another column with --field (in Python, field=...)"
        if schema.names.count(self._name) != 1:
            names = ", ".join(schema.names)
            problem = f"has no column {self._name!r} among {names}"
            raise FileError(self._file.path, problem, hint)
        kind = schema.field(self._name).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        if not any(
            test(kind)
            for test in (
                types.is_string,
                types.is_large_string,
                types.is_string_view,
                types.is_binary,
                types.is_large_binary,
                types.is_binary_view,
            )
        ):
            problem = f"has {kind} in the column {self._name!r}, not text"
            raise FileError(self._file.path, problem, hint)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _halved(values: Any, block_bytes: int) -> Iterator[Any]:  # noqa: ANN401, pyarrow has no types
    """Parts of `values` in order, each of about `block_bytes` or of one row; nothing is copied."""
    if values.nbytes <= 2 * block_bytes or len(values) < 2:
        yield values
    else:
        middle = len(values) // 2
        yield from _halved(values.slice(0, middle), block_bytes)
        yield from _halved(values.slice(middle), block_bytes)
