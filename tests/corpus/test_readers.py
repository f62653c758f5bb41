"""Reading returns what was written, however it is split, compressed or resumed."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from pathlib import Path

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tilth.corpus import Corpus, Position, compression, readers
from tilth.files import FileError

END = "<|endoftext|>"
# With the letters of the separator: parts of it are everywhere.
TEXT = st.text(st.sampled_from("<|endoftext|>ab \n\r\té🌱\u3000"), max_size=25)
SEPARATORS = [END, "aaa", "aba", "\n", "é", "\n\n", "<|end<|"]
COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
BLOCK_BYTES = st.one_of(st.integers(1, 50), st.just(1 << 20))
COMPRESSED = st.tuples(st.sampled_from(list(COMPRESSIONS)), st.integers(0, 100))


def has_text(text):
    return text.strip(" \t\n\r\v\f") != ""


def compressed(data, ending, cut):
    """The data in two gzip members or zstd frames."""
    return COMPRESSIONS[ending](data[:cut]) + COMPRESSIONS[ending](data[cut:])


def assert_reads(paths, expected, block_bytes, **options):
    """Check all documents, the rest from any block's end, each block alone, positions as JSON."""
    corpus = Corpus(paths, block_bytes=block_bytes, **options)
    assert list(corpus) == expected
    blocks = list(corpus.blocks())
    found = [[text.decode() for text in block.documents().texts] for block in reversed(blocks)]
    found.reverse()
    assert list(chain(*found)) == expected
    read = [block.read_bytes for block in blocks]
    assert read == sorted(read)
    assert all(number <= corpus.size_bytes for number in read)
    for before, after in pairwise(blocks):
        assert after.start == before.end or (after.start > before.end and after.start.place == 0)
    for number in range(0, len(blocks), max(1, len(blocks) // 4)):
        start = Position(*json.loads(json.dumps(blocks[number].end)))
        rest = [text for block in corpus.blocks(start) for text in block.documents().texts]
        assert [text.decode() for text in rest] == list(chain(*found[number + 1 :]))
    return blocks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("corpus")


@st.composite
def separated_texts(draw):
    """A separator, and a text full of it, its prefixes and its suffixes."""
    separator = draw(st.sampled_from(SEPARATORS))
    cuts = st.integers(0, len(separator))
    parts = st.one_of(
        TEXT,
        st.just(separator),
        cuts.map(lambda cut: separator[:cut]),
        cuts.map(lambda cut: separator[cut:]),
    )
    return separator, "".join(draw(st.lists(parts, max_size=12)))


@given(separated_text=separated_texts(), block_bytes=BLOCK_BYTES, compression=COMPRESSED)
@settings(max_examples=120)
def test_any_text_file(folder, separated_text, block_bytes, compression):
    separator, text = separated_text
    ending, cut = compression
    file = folder / f"text.txt{ending}"
    file.write_bytes(compressed(text.encode(), ending, cut))
    expected = [part for part in text.split(separator) if has_text(part)]
    assert_reads(file, expected, block_bytes, separator=separator)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_a_separator_cut_anywhere(tmp_path, separator):
    parts = ["a", "", separator[:-1], "b", separator[1:], "\n", "c"]
    text = separator.join(parts)
    (tmp_path / "a.txt").write_text(text, newline="")
    expected = [part for part in text.split(separator) if has_text(part)]
    for block_bytes in range(1, len(text.encode()) + 1):
        assert (
            list(Corpus(tmp_path / "a.txt", separator=separator, block_bytes=block_bytes))
            == expected
        )


@given(
    records=st.lists(st.one_of(TEXT, st.none()), max_size=12),
    ascii_only=st.booleans(),
    line_ends=st.sampled_from([("\n", ""), ("\n", "\n"), ("\r\n", "\r\n")]),
    block_bytes=BLOCK_BYTES,
    compression=COMPRESSED,
)
@settings(max_examples=80)
def test_any_json_lines(folder, records, ascii_only, line_ends, block_bytes, compression):
    ending, cut = compression
    lines = [
        "  " if text is None else json.dumps({"n": 1, "content": text}, ensure_ascii=ascii_only)
        for text in records
    ]
    data = (line_ends[0].join(lines) + line_ends[1]).encode()
    file = folder / f"lines.jsonl{ending}"
    file.write_bytes(compressed(data, ending, cut))
    expected = [text for text in records if text is not None and has_text(text)]
    assert_reads(file, expected, block_bytes, field="content")


@given(
    texts=st.lists(TEXT, max_size=30),
    group=st.integers(1, 10),
    kind=st.sampled_from(
        [pyarrow.string(), pyarrow.large_string(), pyarrow.binary(), pyarrow.string_view()]
    ),
    block_bytes=BLOCK_BYTES,
)
@settings(max_examples=40)
def test_any_parquet(folder, texts, group, kind, block_bytes):
    values = [text.encode() for text in texts] if kind == pyarrow.binary() else texts
    table = pyarrow.table({"n": list(range(len(texts))), "text": pyarrow.array(values, kind)})
    parquet.write_table(table, folder / "rows.parquet", row_group_size=group)
    assert_reads(folder / "rows.parquet", list(filter(has_text, texts)), block_bytes)


@given(
    files=st.dictionaries(
        st.sampled_from(["a", "b/c.txt", "b/.x/e", "b/d", "z.md.gz", "b.d/e.zst", ".h"]), TEXT
    ),
    block_bytes=BLOCK_BYTES,
)
@settings(max_examples=40)
def test_any_folder(tmp_path_factory, files, block_bytes):
    folder = tmp_path_factory.mktemp("folder")
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(COMPRESSIONS.get(file.suffix, bytes)(text.encode()))
    seen = {
        name: text
        for name, text in files.items()
        if not any(part.startswith(".") for part in Path(name).parts)
    }
    if not seen:
        with pytest.raises(FileError, match="has no files"):
            Corpus(folder)
        return
    expected = [seen[name] for name in sorted(seen, key=lambda name: name.split("/"))]
    assert_reads(folder, list(filter(has_text, expected)), block_bytes)


def test_several_sources_at_once(tmp_path):
    (tmp_path / "a.txt").write_text(f"one{END}two")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "b.JSONL").write_text('{"text": "three"}\n')
    parquet.write_table(pyarrow.table({"text": ["four", "five"]}), tmp_path / "c.parquet")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "1").write_text("six")
    (tmp_path / "d" / "0.ndjson.gz").write_bytes(gzip.compress(b'{"text": "seven"}'))
    names = ["a.txt", "empty.txt", "b.JSONL", "c.parquet", "d"]
    paths = [tmp_path / name for name in names]
    blocks = assert_reads(paths, ["one", "two", "three", "four", "five", "six", "seven"], 4)
    corpus = Corpus(paths)
    kinds = ["text", "text", "json lines", "parquet", "folder", "json lines"]
    assert [source.kind for source in corpus.sources] == kinds
    assert blocks[-1].read_bytes == corpus.size_bytes
    assert corpus.size_bytes == sum(
        file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()
    )
    assert list(Corpus(str(paths[0]))) == ["one", "two"]


def test_blocks_are_parsed_in_other_threads(tmp_path):
    texts = [f"{number} é" for number in range(5000)]
    (tmp_path / "a.txt").write_text(END.join(texts))
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    parquet.write_table(pyarrow.table({"text": texts}), tmp_path / "c.parquet")
    blocks = Corpus(sorted(tmp_path.iterdir()), block_bytes=1000).blocks()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda block: block.documents().texts, blocks))
    assert [text.decode() for texts in found for text in texts] == texts * 3


def test_nothing_is_stripped_except_the_byte_order_mark(tmp_path):
    mark = "\ufeff"
    (tmp_path / "a.txt").write_text(f"{mark}\n one \n{END}{mark}two")
    (tmp_path / "b.jsonl").write_text(f'{mark}{{"text": "{mark}three"}}')
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x").write_text(f"{mark}four")
    (tmp_path / "d.txt").write_text(mark)
    expected = ["\n one \n", f"{mark}two", f"{mark}three", "four"]
    for block_bytes in (1, 1000):
        assert_reads(sorted(tmp_path.iterdir()), expected, block_bytes)


def test_a_lone_surrogate_becomes_the_replacement_character(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(r'{"text": "a\ud83cb"}' + "\n" + r'{"text": "\ud83c\udf31"}')
    assert list(Corpus(file)) == ["a\ufffdb", "🌱"]


# --- bad documents --------------------------------------------------------------------------------


def assert_bad(path, sentences, others, **options):
    """Check the first sentence when stopping; all sentences and documents when skipping."""
    for block_bytes in (1, 7, 1 << 20):
        with pytest.raises(FileError) as caught:
            list(Corpus(path, block_bytes=block_bytes, **options))
        assert str(caught.value).startswith(f"{path} {sentences[0]}"), str(caught.value)
        assert "--on-error skip" in str(caught.value)
        corpus = Corpus(path, on_error="skip", block_bytes=block_bytes, **options)
        blocks = list(corpus.blocks())
        found = [block.documents() for block in blocks]
        assert [text.decode() for block in found for text in block.texts] == others
        skipped = [sentence for block in found for sentence in block.skipped]
        assert len(skipped) == len(sentences)
        for sentence, beginning in zip(skipped, sentences, strict=True):
            assert f"{sentence};".startswith(f"{path} {beginning}"), sentence
            assert "--on-error" not in sentence  # which is what was done
        # The lines are right as well when reading begins in the middle.
        for number, block in enumerate(blocks):
            rest = [later.documents().skipped for later in corpus.blocks(block.end)]
            expected = [later.skipped for later in found[number + 1 :]]
            assert list(chain(*rest)) == list(chain(*expected))


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_bad_bytes_in_a_text_file(tmp_path, ending):
    file = tmp_path / f"a.txt{ending}"
    data = f"on\n\ne{END}tw\n\xe9{END}\nthree{END}x\n".encode() + b"\n\n\xff\n" + END.encode()
    data += "fé".encode() + END.encode() + b"cut \xc3"
    data = data.replace("\xe9".encode(), b"\xe9", 1)
    file.write_bytes(compressed(data, ending, 20))
    bad = [f"is not UTF-8 on line {line}" for line in (4, 8, 9)]
    assert_bad(file, bad, ["on\n\ne", "\nthree", "fé"])


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_bad_lines(tmp_path, ending):
    file = tmp_path / f"a.jsonl{ending}"
    lines = [
        b'{"text": "one"}',
        b"",
        b"{'text': 1}",
        b"[1]",
        b'{"txt": "x", "n": 1}',
        b'{"text": null}',
        b'{"text": ["x"]}',
        b'{"text": "two", "number": 1e999}',
        b'{"text": "\xff"}',
        b'{"text": ' + b"[" * 3000,
        b'{"text": ' + b"1" * 5000 + b"}",
        b'{"text": "half',
        b'{"text": "three"}',
    ]
    file.write_bytes(compressed(b"\n".join(lines), ending, 30))
    bad = [
        "is not JSON (Expecting property name enclosed in double quotes at column 2) on line 3;",
        "has an array instead of an object on line 4;",
        "has no field 'text' (the fields are: 'txt', 'n') on line 5;",
        "has null in the field 'text' instead of a string on line 6;",
        "has an array in the field 'text' instead of a string on line 7;",
        "is not UTF-8 on line 9;",
        "is nested too deeply on line 10;",
        "is not JSON that can be read (Exceeds the limit (4300 digits)",
        "is not JSON (Unterminated string starting at at column 10) on line 12;",
    ]
    assert_bad(file, bad, ["one", "two", "three"])


def test_bad_rows_and_files(tmp_path):
    rows = tmp_path / "a.parquet"
    values = pyarrow.array([b"one", None, b"\xff", b"two"], pyarrow.binary())
    parquet.write_table(pyarrow.table({"text": values}), rows)
    assert_bad(
        rows,
        ["has nothing in the column 'text' of row 2;", "is not UTF-8 on row 3;"],
        ["one", "two"],
    )
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "1").write_text("one")
    (folder / "2").write_bytes(b"1\n2\n\xff")
    (folder / "3").write_text("two")
    corpus = Corpus(folder, on_error="skip")
    (block,) = corpus.blocks()
    assert block.documents().texts == [b"one", b"two"]
    assert block.documents().skipped == [f"{folder / '2'} is not UTF-8 on line 3"]
    with pytest.raises(FileError, match="2 is not UTF-8 on line 3"):
        list(Corpus(folder))


def test_skipped_documents_are_logged(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\nx\n')
    assert list(Corpus(tmp_path / "a.jsonl", on_error="skip")) == ["one"]
    assert "a.jsonl is not JSON" in caplog.text
    assert "on line 2" in caplog.text


@given(st.binary(max_size=40), st.integers(4, 9))
@settings(max_examples=200)
def test_the_first_bad_byte_is_where_python_finds_it(data, step):
    data = data.replace(b"\x01", "🌱".encode()).replace(b"\x02", "é€".encode())
    try:
        data.decode()
        expected = None
    except UnicodeDecodeError as error:
        expected = error.start
    assert readers._first_bad_byte(data, step) == expected


# --- files that cannot be read --------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_every_truncation_and_any_damage_is_found(tmp_path, ending):
    text = END.join(f"{number} and {number * number}" for number in range(300))
    data = COMPRESSIONS[ending](text.encode())
    file = tmp_path / f"a.txt{ending}"
    for size in range(0, len(data), 7):
        file.write_bytes(data[:size])
        with pytest.raises(FileError, match=r"a\.txt.* (ends in the middle|is damaged)"):
            list(Corpus(file))
    file.write_bytes(b"no such thing")
    with pytest.raises(FileError, match="is damaged or is not"):
        list(Corpus(file))
    if ending == ".gz":  # zstd frames of one piece have no checksum by default
        middle = len(data) // 2
        file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        with pytest.raises(FileError, match="is damaged"):
            list(Corpus(file))


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_documents_before_a_truncation_are_read(tmp_path, on_error):
    file = tmp_path / "a.txt.gz"
    with file.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb") as stream:
        stream.write(f"one{END}".encode())
        stream.flush()  # ends a deflate block
        complete = raw.tell()
        stream.write(b"two")
    file.write_bytes(file.read_bytes()[:complete])
    blocks = Corpus(file, on_error=on_error, block_bytes=len(f"one{END}")).blocks()
    assert next(blocks).documents().texts == [b"one"]
    with pytest.raises(FileError, match="ends in the middle"):
        next(blocks)


def test_skippable_and_empty_frames(tmp_path):
    skippable = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"xyz"
    frames = [b"on", b"", f"e{END}".encode(), b"two"]
    file = tmp_path / "a.txt.zst"
    file.write_bytes(skippable.join(map(COMPRESSIONS[".zst"], frames)) + skippable)
    assert list(Corpus(file)) == ["one", "two"]


def test_damaged_parquet_and_wrong_columns(tmp_path):
    file = tmp_path / "a.parquet"
    table = pyarrow.table({"body": ["x"], "number": [1]})
    parquet.write_table(table, file)
    with pytest.raises(
        FileError, match=r"a\.parquet has no column 'text' among body, number; .*--field"
    ):
        Corpus(file)
    with pytest.raises(FileError, match="has int64 in the column 'number', not text"):
        Corpus(file, field="number")
    assert list(Corpus(file, field="body")) == ["x"]
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FileError, match=r"a\.parquet is damaged or is not Parquet"):
        Corpus(file, field="body")
    file.write_bytes(b"")
    with pytest.raises(FileError, match="is damaged or is not Parquet"):
        Corpus(file)
    texts = pyarrow.array(["x", "y", "x"]).dictionary_encode()
    parquet.write_table(pyarrow.table({"text": texts}), file)
    assert list(Corpus(file)) == ["x", "y", "x"]
    data = bytearray(file.read_bytes())
    data[4:40] = b"\xff" * 36
    file.write_bytes(data)
    with pytest.raises(FileError, match=r"is damaged or is not Parquet|cannot be read"):
        list(Corpus(file))


def test_damaged_indices_in_parquet(tmp_path):
    """Dictionary indices out of bounds; the cast raised an ArrowIndexError."""
    file = tmp_path / "a.parquet"
    texts = pyarrow.array(["x", "y", "z"] * 50).dictionary_encode()
    parquet.write_table(pyarrow.table({"text": texts}), file, compression="none")
    data = file.read_bytes()
    found = set()
    for place in range(4, len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        try:
            list(Corpus(file, on_error="skip"))
        except FileError as error:
            found.add(str(error).split(" ", 1)[1])
    assert any("ndex" in sentence and "bounds" in sentence for sentence in found), found


def test_a_parquet_footer_that_counts_no_rows(tmp_path):
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["x", "y"]}), file)
    data = file.read_bytes()
    # The second field of the footer is the schema, the third the number of rows: 2 is 04 in Thrift.
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in range(footer, len(data)):
        if data[place : place + 2] == b"\x16\x04":
            file.write_bytes(data[: place + 1] + b"\0" + data[place + 2 :])
            if parquet.read_metadata(file).num_rows == 0:
                break
    else:
        pytest.fail("the number of rows was not found")
    assert list(Corpus(file)) == ["x", "y"]


def test_flipped_bits_are_found_by_the_checksums_of_pages(tmp_path):
    file = tmp_path / "a.parquet"
    table = pyarrow.table({"text": ["one day", "one night"]})
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    parquet.write_table(table, file, write_page_checksum=True, **options)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"one day", b"one dax", 1))
    with pytest.raises(FileError, match=r"a\.parquet .*(CRC|checksum)"):
        list(Corpus(file))


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet", "a.txt.gz"])
def test_a_file_that_changed_since_it_was_listed(tmp_path, name):
    file = tmp_path / name
    write = {
        "a.parquet": lambda: parquet.write_table(pyarrow.table({"text": ["x"] * 9}), file),
        "a.txt.gz": lambda: file.write_bytes(gzip.compress(b"x" * 50)),
    }.get(name, lambda: file.write_text('{"text": "x"}\n' * 9))
    write()
    corpus = Corpus(file)
    blocks = corpus.blocks()
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(FileError, match=f"{name} has changed since it was listed .* 20 now"):
        list(blocks)
    file.unlink()
    with pytest.raises(FileError, match=f"{name} was removed since it was listed"):
        list(corpus)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.zst", "a.parquet"])
def test_a_pipe_or_a_folder_in_place_of_a_listed_file(tmp_path, name):
    file = tmp_path / name
    parquet.write_table(pyarrow.table({"text": ["x"]}), tmp_path / "a.parquet")
    if name != "a.parquet":
        file.write_bytes(COMPRESSIONS[file.suffix if file.suffix == ".zst" else ""](b"one"))
    corpus = Corpus(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FileError, match=f"{name} is a pipe or a device; copy it to a file"):
        list(corpus)
    file.unlink()
    file.mkdir()
    with pytest.raises(FileError, match=f"{name} is a folder"):
        list(corpus)


def test_a_file_that_changes_while_it_is_read(tmp_path):
    file = tmp_path / "a.txt"
    for other in ("x", f"one{END}" * 200):
        file.write_text(f"one{END}" * 100)
        blocks = Corpus(file, block_bytes=20).blocks()
        next(blocks)
        file.write_text(other)
        with pytest.raises(FileError, match="has changed since it was listed"):
            list(blocks)


def test_a_start_after_the_end(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one"))
    parquet.write_table(pyarrow.table({"text": ["x"]}), tmp_path / "a.parquet")
    for file in tmp_path.iterdir():
        with pytest.raises(FileError, match=r"is shorter than it was|has only 1 rows now"):
            list(Corpus(file).blocks(Position(0, 4)))


def test_a_stamp_changes_with_the_files(tmp_path):
    def stamps():
        stamps = [source.stamp() for source in Corpus([tmp_path / "a.txt", tmp_path]).sources]
        assert json.loads(json.dumps(stamps)) == stamps
        return stamps

    (tmp_path / "a.txt").write_text("one")
    first = stamps()
    assert stamps() == first
    os.utime(tmp_path / "a.txt", ns=(1, 1))
    second = stamps()
    assert second[0] != first[0]
    assert second[1] != first[1]
    (tmp_path / "b.txt").write_text("two")
    third = stamps()
    assert third[0] == second[0]
    assert third[1] != second[1]
    (tmp_path / "b.txt").rename(tmp_path / "c.txt")
    assert stamps()[1] != third[1]


# --- errors before anything is read ---------------------------------------------------------------


def test_paths_that_cannot_be_read(tmp_path):
    (tmp_path / "stories.txt").touch()
    with pytest.raises(
        FileNotFoundError, match=r"story\.txt does not exist; did you mean .*stories"
    ):
        Corpus([tmp_path / "stories.txt", tmp_path / "story.txt"])
    with pytest.raises(FileNotFoundError, match=r"z\.jsonl does not exist; check the path"):
        Corpus(tmp_path / "z.jsonl")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        Corpus(tmp_path / "nowhere" / "a.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileError, match="empty has no files"):
        Corpus(tmp_path / "empty")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/null"):
        with pytest.raises(FileError, match="is a pipe or a device; copy it to a file"):
            Corpus(path)
    (tmp_path / "a.parquet.gz").touch()
    with pytest.raises(FileError, match="is a compressed Parquet file; decompress it"):
        Corpus(tmp_path / "a.parquet.gz")
    with pytest.raises(FileError, match="cannot be read"):
        Corpus(f"{tmp_path}/\0")


def test_links_are_followed_but_not_in_circles(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_text("one")
    (tmp_path / "a" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a" / "one")
    assert list(Corpus(tmp_path)) == ["one", "one"]
    (tmp_path / "c").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileError, match="c is a broken link"):
        Corpus(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"separator": ""}, "The separator ''"),
        ({"separator": b"x"}, "The separator b'x'"),
        ({"separator": "\ud800"}, "is not Unicode text"),
        ({"on_error": "ignore"}, "on_error 'ignore' is unknown; choose one of stop, skip"),
        ({"block_bytes": 0}, "block_bytes must be at least 1"),
        ({"field": 3}, "The field 3 is not a string"),
        ({"paths": []}, "at least one path"),
        ({"paths": [3]}, "a string or a Path"),
        ({"paths": b"a.txt"}, "a string or a Path"),
    ],
)
def test_invalid_options(tmp_path, arguments, message):
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match=message):
        Corpus(**{"paths": tmp_path / "a.txt", **arguments})


@pytest.mark.parametrize(("name", "extra"), [("a.parquet", "parquet"), ("a.jsonl.zst", "zstd")])
def test_a_missing_extra(tmp_path, monkeypatch, name, extra):
    (tmp_path / name).touch()
    for module in ("pyarrow", "pyarrow.parquet", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=rf'pip install "tilth\[{extra}\]"'):
        Corpus(tmp_path / name)
    (tmp_path / "b.txt").write_text("one")
    assert list(Corpus(tmp_path / "b.txt")) == ["one"]


# --- size and speed -------------------------------------------------------------------------------


def test_one_long_document_takes_linear_time_and_is_held_once(tmp_path):
    def seconds_and_peak(size, block_bytes):
        file = tmp_path / "a.txt"
        long = b"<|endoftext" * (size // 11) + END.encode()
        file.write_bytes(long + long + b"short")
        del long
        start = time.process_time()
        tracemalloc.start()
        lengths = []
        for block in Corpus(file, block_bytes=block_bytes).blocks():
            assert sum(map(len, block.documents().texts)) <= block.size_bytes
            lengths += map(len, block.documents().texts)
            del block
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert lengths == [size // 11 * 11, size // 11 * 11, 5]
        return time.process_time() - start, peak

    size = 32 << 20
    seconds, peak = seconds_and_peak(size, 1 << 16)
    assert peak < 1.3 * size + 4 * (1 << 16)
    assert seconds < 20 * seconds_and_peak(size // 8, 1 << 16)[0] + 1


def test_long_non_ascii_text_is_checked_in_little_memory(tmp_path):
    text = "ж" * (4 << 20)
    (tmp_path / "a.txt").write_text(text)
    (block,) = Corpus(tmp_path / "a.txt").blocks()
    tracemalloc.start()
    assert len(block.documents().texts) == 1
    assert tracemalloc.get_traced_memory()[1] < 6 << 20
    tracemalloc.stop()


def test_a_large_row_group_is_read_in_little_memory(tmp_path):
    program = """
import re, sys
from pathlib import Path
from tilth.corpus import Corpus
def peak():  # not ru_maxrss, which begins with that of the parent
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
blocks = Corpus(sys.argv[1]).blocks()
before = peak()
count = sum(len(block.documents().texts) for block in blocks)
print(count, peak() - before)
"""
    table = pyarrow.table({"text": ["x" * 10_000] * 15_000})
    file = tmp_path / "a.parquet"
    parquet.write_table(table, file, compression="none", use_dictionary=False)
    assert parquet.read_metadata(file).num_row_groups == 1
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    count, grown_kilobytes = map(int, done.stdout.split())
    assert count == 15_000
    # Of 150 MB; measured: 84 MB, and 209 MB where pyarrow reads a row group at once.
    assert grown_kilobytes < 120_000


def test_no_numpy_for_text(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    program = (
        "import sys; from tilth.corpus import Corpus\n"
        f"assert list(Corpus({str(tmp_path)!r})) == ['one']\n"
        "assert not {'torch', 'numpy', 'pyarrow', 'zstandard'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_zstd_that_expands_ten_thousandfold(tmp_path):
    raw = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as writer:
        for _ in range(50):
            writer.write((b"hello " * 100 + END.encode()) * 1000)
    file = tmp_path / "a.txt.zst"
    file.write_bytes(raw.getvalue())
    tracemalloc.start()
    count = sum(len(block.documents().texts) for block in Corpus(file).blocks())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 50_000
    assert peak < 100e6


# --- files that expand ----------------------------------------------------------------------------

READ_IN_LITTLE_MEMORY = """
import re, sys
from pathlib import Path
from tilth.corpus import Corpus
def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
try:
    for block in Corpus(sys.argv[1]).blocks():
        block.documents()
        del block
except ValueError as error:
    print(str(error).replace(sys.argv[1], "FILE"))
print((peak() - before) // 1000)
"""


def sentence_and_megabytes(file):
    done = subprocess.run(
        [sys.executable, "-c", READ_IN_LITTLE_MEMORY, str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    *sentence, megabytes = done.stdout.splitlines()
    return " ".join(sentence), int(megabytes)


@pytest.mark.parametrize("stores_schema", [True, False])
def test_one_long_value_in_many_rows_of_parquet(tmp_path, stores_schema):
    """900 bytes on disk, 200 GB of text; 12 GB were in memory."""
    file = tmp_path / "a.parquet"
    indices = pyarrow.array([0] * 10_240, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, ["x" * 20_000_000])
    table = pyarrow.table({"text": texts})
    parquet.write_table(table, file, compression="zstd", store_schema=stores_schema)
    del table, texts
    assert file.stat().st_size < 2000
    sentence, megabytes = sentence_and_megabytes(file)
    assert sentence.startswith("FILE expands to more than 4,096 times its size; if you trust it")
    assert megabytes < 900


@pytest.mark.parametrize("name", ["a.txt.zst", "a.txt.gz", "a.jsonl.zst", "folder"])
def test_a_document_has_a_size_limit(tmp_path, name):
    """131 kB of .zst took 4.5 GB of memory, without any document."""
    raw = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as writer:
        for _ in range(60):
            writer.write(b" " * (1 << 20))
    data = gzip.compress(b" " * (60 << 20)) if name.endswith(".gz") else raw.getvalue()
    file = tmp_path / name
    if name == "folder":
        file.mkdir()
    (file / "a.zst" if name == "folder" else file).write_bytes(data)
    problem = {
        "a.jsonl.zst": "has a line of more than 5,000,000 bytes, from byte 0 on; write one JSON",
        "folder": "is a document of more than 20,000,000 bytes; split it into several files",
    }.get(name, "has a document of more than 20,000,000 bytes, from byte 0 on; separate its")
    tracemalloc.start()
    with pytest.raises(FileError, match=f"{name}.* {problem}"):
        list(Corpus(file, max_document_bytes=20_000_000))
    assert tracemalloc.get_traced_memory()[1] < 130e6  # some of it zstd's, for 4 KiB of input
    tracemalloc.stop()
    assert list(Corpus(file)) == []


def test_plain_text_without_separators_has_a_size_limit(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 5000)
    with pytest.raises(FileError, match="name their separator with --separator"):
        list(Corpus(tmp_path / "a.txt", block_bytes=100, max_document_bytes=4000))
    assert list(Corpus(tmp_path / "a.txt", block_bytes=100, max_document_bytes=5000))


def test_the_ratio_of_expansion_has_a_limit(tmp_path, monkeypatch):
    file = tmp_path / "a.txt.zst"
    file.write_bytes(zstandard.compress(f"a{END}".encode() * 2_000_000))
    assert sum(1 for _ in Corpus(file)) == 2_000_000
    monkeypatch.setattr(compression, "FREE_EXPANSION_BYTES", 1 << 20)
    monkeypatch.setattr(compression, "MAX_EXPANSION", 1000)
    with pytest.raises(FileError, match=r"a\.txt\.zst expands to more than 1,000 times its size"):
        list(Corpus(file))


def test_the_output_of_one_zstd_call_is_split_into_blocks(tmp_path):
    file = tmp_path / "a.txt.zst"
    file.write_bytes(zstandard.compress(f"a{END}".encode() * 2_000_000))
    blocks = Corpus(file, block_bytes=100_000).blocks()
    assert max(block.size_bytes for block in blocks) < 200_000


@pytest.mark.parametrize("value", ["[]", "-9", '{"":{}}'])
def test_json_that_takes_much_more_memory_than_text(tmp_path, monkeypatch, value):
    monkeypatch.setattr(readers, "MAX_JSON_VALUES", 1000)
    file = tmp_path / "a.jsonl"
    file.write_text(f'{{"text": "one"}}\n{{"text": "two", "x": [{",".join([value] * 1000)}]}}\n')
    with pytest.raises(FileError, match=r"a\.jsonl has more than 1,000 values on line 2; correct"):
        list(Corpus(file))
    assert list(Corpus(file, on_error="skip")) == ["one"]
    file.write_text(json.dumps({"text": "long, " * 900}))
    assert len(list(Corpus(file))) == 1
