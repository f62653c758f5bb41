"""Read the rows of one column of a Parquet file with pyarrow, a few at a time.

Only this column is read, and never more than a few pages of a row group at once. The headers,
which are read first (`parquet_headers.py`), bound the memory that pyarrow allocates for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from tilth.corpus.compression import REMEDY, Expansion, open_listed
from tilth.corpus.listing import ListedFile
from tilth.corpus.parquet_headers import (
    MAX_BATCH_ROWS,
    MAX_FOOTER_ELEMENTS,
    TooLargeError,
    read_footer,
    safe_batch_rows,
)
from tilth.errors import first_line, import_extra
from tilth.files import FileError

TEXT_TYPES = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


def read_column(
    file: ListedFile, name: str, start: int, block_bytes: int
) -> Iterator[tuple[Any, int, float]]:
    """Yield values from row `start` on, the row after them, and its share of all rows.

    The values are an array of type `large_binary`, of about `block_bytes` or of one row.
    """
    with open_column(file, name) as (pyarrow, rows, raw):
        num_rows, groups = read_footer(raw)
        # pyarrow reads all of these for one name, and counts them as the row groups do.
        paths = [f"{rows.schema.column(index).path}." for index in range(len(rows.schema))]
        columns = [i for i, path in enumerate(paths) if path.startswith(f"{name}.")]
        expansion = Expansion(file)
        row = 0
        for number, group in enumerate(groups):
            group_end = row + group.num_rows
            if group_end <= start:
                row = group_end
                continue
            mean_bytes = max(1, group.size_bytes // max(1, group.num_rows))
            max_rows = max(1, min(MAX_BATCH_ROWS, block_bytes // mean_bytes))
            for column in columns:
                max_rows = min(max_rows, safe_batch_rows(raw, group, column))
            for batch in rows.iter_batches(
                max_rows, row_groups=[number], columns=[name], use_threads=False
            ):
                values = batch.column(name).cast(pyarrow.large_binary())
                values = values.slice(max(0, start - row))
                row += batch.num_rows
                del batch
                end = row - len(values)
                for part in _halved(values, block_bytes):
                    expansion.add(part.nbytes)
                    end += len(part)
                    yield part, end, min(1.0, end / max(1, num_rows))
                    del part
            if row != group_end:
                raise ValueError(f"row group {number + 1} ends at row {row:,}")
        if start > row:
            hint = "start again from its beginning"
            raise FileError(file.path, f"has only {row:,} rows now", hint)


@contextmanager
def open_column(file: ListedFile, name: str) -> Iterator[tuple[Any, Any, BinaryIO]]:
    """Yield pyarrow, its file and the raw file below it, if the named column holds texts."""
    pyarrow = import_extra("pyarrow", "A Parquet file")
    parquet = import_extra("pyarrow.parquet", "A Parquet file")
    try:
        with open_listed(file) as raw:
            read_footer(raw)  # before pyarrow does
            # With the first two, pyarrow reads page by page instead of a whole row group: it
            # holds 17 MB of a group of 400 MB.
            rows = parquet.ParquetFile(
                raw,
                buffer_size=1 << 20,
                pre_buffer=False,
                thrift_container_size_limit=MAX_FOOTER_ELEMENTS,
                page_checksum_verification=True,
                arrow_extensions_enabled=False,
            )
            _check_type(file, name, rows.schema_arrow)
            yield pyarrow, rows, raw
    except FileError:
        raise
    # For a damaged footer, pyarrow also raises Python's built-in exceptions.
    except (
        pyarrow.ArrowException,
        ArithmeticError,
        LookupError,
        MemoryError,
        OSError,
        ValueError,
    ) as error:
        raise FileError(file.path, *_problem_and_hint(error)) from None


def _check_type(file: ListedFile, name: str, schema: Any) -> None:  # noqa: ANN401, pyarrow has no types
    hint = "name another column with --field (in Python, field=...)"
    if schema.names.count(name) != 1:
        problem = f"has no column {name!r} among {', '.join(schema.names)}"
        raise FileError(file.path, problem, hint)
    kind = schema.field(name).type
    if str(kind).startswith("dictionary<"):
        kind = kind.value_type
    if str(kind) not in TEXT_TYPES:
        problem = f"has {kind} in the column {name!r}, not text"
        raise FileError(file.path, problem, hint)


def _problem_and_hint(error: Exception) -> tuple[str, str]:
    if isinstance(error, TooLargeError):
        return f"has {error}", "write it again with smaller pages and fewer row groups"
    if isinstance(error, MemoryError):
        hint = "free some memory, or write it again with smaller pages"
        return f"needs more memory than there is ({first_line(error)})", hint
    problem = "cannot be read" if isinstance(error, OSError) else "is damaged or is not Parquet"
    return f"{problem} ({first_line(error)})", REMEDY


def _halved(values: Any, block_bytes: int) -> Iterator[Any]:  # noqa: ANN401, pyarrow has no types
    """Yield slices of `values` in order, each of about `block_bytes` or of one row; no copies."""
    if values.nbytes <= 2 * block_bytes or len(values) < 2:
        yield values
    else:
        middle = len(values) // 2
        yield from _halved(values.slice(0, middle), block_bytes)
        yield from _halved(values.slice(middle), block_bytes)
