"""Parquet headers: compared with pyarrow, and the limits derived from them."""

import pyarrow
import pytest
from pyarrow import parquet

from tilth.corpus import Corpus, parquet_headers
from tilth.corpus.parquet_headers import read_footer, safe_batch_rows
from tilth.files import FileError

LONG = "x" * 100_000


def written(path, texts, **options):
    parquet.write_table(pyarrow.table({"n": range(len(texts)), "text": texts}), path, **options)
    return path


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "compression": "none"},
        {"row_group_size": 7, "data_page_version": "2.0", "compression": "zstd"},
        {"data_page_size": 10, "write_page_index": True, "write_page_checksum": True},
    ],
)
def test_footer_and_pages_equal_those_of_pyarrow(tmp_path, options):
    path = written(tmp_path / "a.parquet", ["one", None, "", "two" * 300] * 500, **options)
    expected = parquet.read_metadata(path)
    with path.open("rb", buffering=0) as raw:
        num_rows, groups = read_footer(raw)
        assert num_rows == expected.num_rows == 2000
        assert len(groups) == expected.num_row_groups
        for number, group in enumerate(groups):
            of_pyarrow = expected.row_group(number)
            assert group.num_rows == of_pyarrow.num_rows
            assert group.size_bytes == of_pyarrow.total_byte_size
            for index, column in enumerate(group.columns):
                assert column[5] == of_pyarrow.column(index).num_values
                assert column[9] == of_pyarrow.column(index).data_page_offset
                assert column.get(11) == of_pyarrow.column(index).dictionary_page_offset
                pages = list(parquet_headers._pages(raw, group, index))
                values = [page.num_values for page in pages if not page.is_shared]
                assert sum(values) == group.num_rows
                headers = of_pyarrow.column(index).total_uncompressed_size - sum(
                    page.decoded_bytes - page.is_shared * 16 * page.num_values for page in pages
                )
                assert 0 < headers < 2000 * len(pages)  # with the least and the greatest value


@pytest.mark.parametrize(
    ("texts", "options", "rows"),
    [
        (["short"] * 1000, {}, 256),
        ([LONG] * 1000, {}, 8),  # one value in the dictionary
        ([LONG] * 1000, {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}, 8),
        ([LONG, "short"] * 4, {"data_page_size": 10, "write_batch_size": 1}, 256),
        # Each page has its value only once, and a batch touches all of them or some.
        ([LONG] * 5 + ["short"] * 300, {"data_page_size": 10, "write_batch_size": 1}, 4),
    ],
)
def test_batch_rows_fit_the_memory_limit(tmp_path, monkeypatch, texts, options, rows):
    monkeypatch.setattr(parquet_headers, "MAX_BATCH_BYTES", 1_000_000)
    options = {"use_dictionary": not options, "compression": "zstd", **options}
    path = written(tmp_path / "a.parquet", texts, **options)
    with path.open("rb", buffering=0) as raw:
        _, (group,) = read_footer(raw)
        assert safe_batch_rows(raw, group, 1) == rows
    assert list(Corpus(path)) == texts


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ("MAX_PAGE_BYTES", r"has a page of 1,511 bytes \(the limit is 9\); write it again with"),
        ("MAX_SHARED_PAGE_BYTES", r"has a page of 56 bytes \(the limit is 9\)"),
        ("MAX_FOOTER_BYTES", r"has a footer of \d+ bytes \(the limit is 9\)"),
        ("MAX_FOOTER_ELEMENTS", r"has more than 9 elements in its footer"),
    ],
)
def test_limits(tmp_path, monkeypatch, limit, problem):
    path = written(tmp_path / "a.parquet", ["one day", "one night"] * 50, use_dictionary=["text"])
    assert len(list(Corpus(path))) == 100
    monkeypatch.setattr(parquet_headers, limit, 9)
    if limit == "MAX_PAGE_BYTES":
        written(path, ["one day", "one night"] * 50 + ["x" * 300], use_dictionary=False)
    with pytest.raises(FileError, match=rf"a\.parquet {problem}"):
        list(Corpus(path))


def test_missing_metadata_of_a_column(tmp_path):
    """pyarrow aborts the process when it reads them."""
    path = written(tmp_path / "a.parquet", ["one"])
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found = set()
    for place in range(footer, len(data) - 8):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :])
        try:
            list(Corpus(path))
        except FileError as error:
            found.add(str(error).split("(", 1)[-1])
    assert any("no sizes of column" in sentence for sentence in found), found
    assert any("a footer without the fields" in sentence for sentence in found), found


def test_lists_nested_too_deeply(tmp_path):
    """A footer of nested lists once ended in a RecursionError."""
    path = tmp_path / "a.parquet"
    footer = b"\x19" * 5000 + bytes(2)  # a list of one list of one list ...
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FileError, match=r"a\.parquet is damaged or is not Parquet \(values nested"):
        Corpus(path)
