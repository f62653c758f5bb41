"""The rows of one column of a Parquet file, through pyarrow, a few at a time.

What enters: a file as it was listed, and the name of a column. What leaves: lists of its values as
bytes, None where there is none. Only that column is read, and of a row group never more than some
pages at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilth.corpus.compression import check_unchanged, opened
from tilth.corpus.listing import ListedFile
from tilth.files import FileError

# Rows of a block at most: pages hold each different value once, so that a few bytes on disk may be
# any number of long rows.
MOST_ROWS = 256


class Column:
    """One column of texts in one Parquet file."""

    def __init__(self, file: ListedFile, name: str) -> None:
        self._file = file
        self._name = name
        with self._rows():  # what is wrong with the file is said now, not after hours of reading
            pass

    def blocks(self, start: int, block_bytes: int) -> Iterator[tuple[Any, int, float]]:
        """Values from row `start` on, the row behind them, and its share of the file."""
        with self._rows() as rows:
            metadata = rows.metadata
            row = 0
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                if row + group.num_rows <= start:
                    row += group.num_rows
                    continue
                mean_bytes = group.total_byte_size // max(1, group.num_rows)
                most_rows = max(1, min(MOST_ROWS, block_bytes // max(1, mean_bytes)))
                for batch in rows.iter_batches(
                    most_rows, row_groups=[number], columns=[self._name], use_threads=False
                ):
                    behind = row + batch.num_rows
                    if behind > start:
                        values = batch.column(0).slice(max(0, start - row))
                        yield values, behind, behind / metadata.num_rows
                    row = behind
            if start > row:
                hint = "start again from its beginning"
                raise FileError(self._file.path, f"has only {row:,} rows now", hint)

    @contextmanager
    def _rows(self) -> Iterator[Any]:
        pyarrow, parquet = import_pyarrow()
        path = self._file.path
        with opened(self._file) as raw:
            check_unchanged(self._file, raw)
            try:
                # Both are needed for pyarrow to read page by page instead of a whole row group: of
                # one of 400 MB it then holds 17 MB.
                rows = parquet.ParquetFile(raw, buffer_size=1 << 20, pre_buffer=False)
                self._check(rows.schema_arrow, pyarrow.types)
                yield rows
                check_unchanged(self._file, raw)
            except pyarrow.ArrowException as error:
                reason = str(error).splitlines()[0]
                hint = "restore a copy, or make it again"
                raise FileError(path, f"is damaged or is not Parquet ({reason})", hint) from None
            except OSError as error:
                hint = "restore a copy, or make it again"
                raise FileError(path, f"cannot be read ({error})", hint) from None

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


def values_as_bytes(values: Any) -> list[bytes | None]:  # noqa: ANN401, pyarrow has no types
    """What `Column.blocks` gives, as Python's objects: apart from it, for another thread to do."""
    pyarrow, _ = import_pyarrow()
    found: list[bytes | None] = values.cast(pyarrow.large_binary()).to_pylist()
    return found


def import_pyarrow() -> tuple[Any, Any]:
    """The package that reads Parquet, or a sentence that says how to get it."""
    try:
        import pyarrow  # type: ignore[import-untyped]  # noqa: PLC0415, an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ValueError('A Parquet file needs an extra: pip install "tilth[parquet]".') from None
    return pyarrow, parquet
