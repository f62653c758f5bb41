"""Counts of pieces: equal to `regex` and a Counter, independent of the cut, exact in files."""

import doctest
import gzip
import hashlib
import json
import pickle
import random
import struct
from collections import Counter
from itertools import pairwise

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.mutations import mutate_bytes
from tests.tokenizer.texts import ALPHABET, TRICKY
from tilth.files import FileError
from tilth.tokenizer import (
    PieceCounts,
    Tokenizer,
    _core,
    count_pieces,
    counts,
    merge_counts,
    reference,
    train_tokenizer,
)

END = "<|endoftext|>"
PATTERNS = ["gpt2", "cl100k", "o200k", ("\\p{N}", "gpt2"), r"\p{L}+|\s+", r"(?:\p{L}\p{N}?)+|\s+?"]


def documents(number=120):
    generator = random.Random(3)
    words = [
        "".join(generator.choices("etaoinsé1", k=generator.randrange(1, 20))) for _ in "x" * 200
    ]
    return [
        " ".join(generator.choices(words, k=generator.randrange(1, 60)))
        + "".join(generator.choices(ALPHABET, k=5))
        for _ in range(number)
    ]


def counted_with_regex(texts, pattern, special_tokens):
    """Count pieces with `regex`: the pattern's matches between special tokens."""
    compiled = regex.compile(reference.PATTERNS[pattern])
    specials = regex.compile("|".join(map(regex.escape, special_tokens)) or r"(?!)")
    parts = [part for text in texts for part in specials.split(text)]
    return Counter(piece.encode() for part in parts for piece in compiled.findall(part))


def test_docstring():
    assert doctest.testmod(counts).failed == 0


@given(st.lists(TRICKY, max_size=5))
@settings(max_examples=100)
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
def test_counts_equal_regex(pattern, texts):
    found = count_pieces(texts=texts, special_tokens=[END], pattern=pattern)
    expected = counted_with_regex(texts, pattern, [END])
    assert dict(found.items()) == expected
    assert list(found.items()) == sorted(expected.items())
    assert (len(found), found.total) == (len(expected), expected.total())


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """One corpus in several files and formats; the parts of each list make up the corpus."""
    folder, texts = tmp_path_factory.mktemp("forms"), documents()
    whole = folder / "whole.txt"
    whole.write_text(END.join(texts), newline="")
    halves = []
    for name, part in (("a.jsonl", texts[:40]), ("b.jsonl.gz", texts[40:])):
        data = "\n".join(json.dumps({"text": text}) for text in part).encode()
        halves.append(folder / name)
        halves[-1].write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    shares = []
    for first, last in pairwise([0, 1, 2, 60, 119, 120]):
        shares.append(folder / f"{first}.txt")
        shares[-1].write_text(END.join(texts[first:last]), newline="")
    shares[-1] = folder / "last.txt.gz"
    shares[-1].write_bytes(gzip.compress((folder / "119.txt").read_bytes()))
    return texts, [[whole], halves, shares]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_any_cut_gives_the_same_bytes(forms, tmp_path, pattern):
    texts, cuts = forms
    expected = train_tokenizer(cuts[0], 400, [END], pattern=pattern)
    expected.save(tmp_path / "expected.json")
    saved = set()
    for number, cut in enumerate(cuts):
        for threads in (1, 2, 5):
            parts = [
                count_pieces(path, [END], pattern=pattern, threads=threads)
                for path in random.Random(threads).sample(cut, len(cut))
            ]
            merged = parts[0].merge(*parts[1:])
            files = [tmp_path / f"{index}.counts" for index in range(len(parts))]
            for file, part in zip(files, parts, strict=True):
                part.save(file, overwrite=True)
            out = tmp_path / "merged.counts"
            totals = merge_counts(files, out, overwrite=True)
            assert totals == (len(merged), merged.total)
            assert PieceCounts.load(out) == merged
            saved.add(out.read_bytes())
            for given_counts in (merged, out, str(out)):
                trained = train_tokenizer(counts=given_counts, vocab_size=400)
                assert trained == expected
                trained.save(tmp_path / "trained.json", overwrite=True)
                assert (tmp_path / "trained.json").read_bytes() == (
                    tmp_path / "expected.json"
                ).read_bytes(), number
    count_pieces(texts=texts, special_tokens=[END], pattern=pattern).save(tmp_path / "texts.counts")
    saved.add((tmp_path / "texts.counts").read_bytes())
    assert len(saved) == 1


@given(st.lists(st.lists(TRICKY, max_size=3), min_size=1, max_size=5))
@settings(max_examples=50)
def test_merged_parts_equal_the_whole(parts):
    whole = count_pieces(texts=[text for part in parts for text in part])
    first, *others = [count_pieces(texts=part) for part in parts]
    assert first.merge(*others) == whole
    assert pickle.loads(pickle.dumps(whole)) == whole


def test_the_documented_format(tmp_path):
    """Read a file by its description, without tilth."""
    file = tmp_path / "a.counts"
    texts = ["low low lower " * 200, "é" * 300]
    count_pieces(texts=texts, special_tokens=[END]).save(file)
    data = file.read_bytes()
    magic, version, size = struct.unpack("<8sII", data[:16])
    assert (magic, version) == (b"\x89tilthPC", 1)
    header = json.loads(data[16 : 16 + size])
    assert header == {"pattern": "gpt2", "special_tokens": [END], "unicode": _core.unicode_version}
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    records, found = data[16 + size : -48], {}

    def number():
        nonlocal records
        value = shift = 0
        while True:
            byte, records = records[0], records[1:]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while records:
        length = number()
        piece, records = records[:length], records[length:]
        found[piece] = number()
    assert found == counted_with_regex(texts, "gpt2", [END])
    assert struct.unpack("<QQ", data[-48:-32]) == (len(found), sum(found.values()))


def test_empty_counts(tmp_path):
    empty = count_pieces(texts=[])
    assert (len(empty), empty.total, list(empty.items())) == (0, 0, [])
    empty.save(tmp_path / "empty.counts")
    assert PieceCounts.load(tmp_path / "empty.counts") == empty
    other = count_pieces(texts=["low"])
    assert empty.merge(other) == other
    assert train_tokenizer(counts=empty, vocab_size=256) == train_tokenizer(
        texts=[], vocab_size=256
    )


# --- damaged and hostile files --------------------------------------------------------------------


def file_of(records, *, pieces=1, total=1, header=None, version=1, magic=counts.MAGIC):
    """A file with a correct checksum, as an attacker could make it."""
    if header is None:
        header = counts.Counting().header()
    data = struct.pack("<8sII", magic, version, len(header)) + header + records
    data += struct.pack("<QQ", pieces, total)
    return data + hashlib.sha256(data).digest()


ONES = b"\xff" * 9
GOOD = b"\x01a\x01"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is not a file of piece counts; check the path"),
        (b"low low", "is not a file of piece counts"),
        (counts.MAGIC, "is truncated"),
        (file_of(GOOD)[:50], "is truncated"),
        (file_of(GOOD)[:-1], "is truncated or damaged|is damaged"),
        (file_of(GOOD)[:-9] + b"x" * 9, r"is damaged \(its checksum differs\); count"),
        (file_of(GOOD, version=2), "has version 2; this tilth reads version 1; upgrade"),
        (file_of(GOOD, pieces=2, total=1), "too short for 2 pieces"),
        (file_of(GOOD, pieces=2**64 - 1), "too short for 18,446,744,073,709,551,615 pieces"),
        (file_of(GOOD + b"\x01b\x01", pieces=1, total=2), "its numbers differ from its records"),
        (file_of(GOOD, total=2), "its numbers differ from its records"),
        (file_of(b"\x01b\x01" + GOOD, pieces=2, total=2), "the text of piece 2 is not sorted"),
        (file_of(GOOD * 2, pieces=2, total=2), "the text of piece 2 is that of the piece before"),
        (file_of(b"\x01a\x00"), "the count of piece 1 is 0"),
        (file_of(b"\x00\x01\x01"), "the size of piece 1 is 0"),
        (file_of(b"\x01a\x81\x00"), "ends with a zero byte"),
        (file_of(b"\x01a" + ONES + b"\x02"), "the count of piece 1 exceeds 64 bits"),
        (file_of(b"\x01a" + ONES + b"\x01\x01b\x01", pieces=2), "the total exceed 64 bits"),
        (file_of(ONES + b"\x01a"), "the size of piece 1 exceeds 32 bits"),
        (file_of(b"\xff\xff\xff\xff\x0fa\x01"), "it ends in the text of piece 1"),
        (file_of(b"\x01a\xff"), "it ends in the count of piece 1"),
        (file_of(GOOD, header=b"{"), "has a damaged header"),
        (file_of(GOOD, header=b"[" * 100_000), "has a damaged header"),
        (file_of(GOOD, header=b"\xff"), "has a damaged header"),
        (file_of(GOOD, header=b" " * (1 << 21)), "damaged .the size of its header"),
        (file_of(GOOD, header=b'{"pattern":"gpt2","special_tokens":[""],"unicode":""}'), "header"),
        (file_of(GOOD, header=b'{"pattern":3,"special_tokens":[],"unicode":""}'), "pattern"),
        (file_of(GOOD, header=b'{"pattern":["gpt2"],"special_tokens":[],"unicode":""}'), "canoni"),
        (
            file_of(GOOD, header=b'{"pattern":"gpt2","special_tokens":["\\ud800"],"unicode":"1"}'),
            "h",
        ),
    ],
)
def test_damaged_files_are_one_sentence(tmp_path, data, problem):
    file, good, out = tmp_path / "bad.counts", tmp_path / "good.counts", tmp_path / "out.counts"
    file.write_bytes(data)
    good.write_bytes(file_of(GOOD))
    for use in (
        lambda: PieceCounts.load(file),
        lambda: merge_counts([good, file], out),
        lambda: train_tokenizer(counts=file, vocab_size=300),
    ):
        with pytest.raises(FileError, match=problem) as raised:
            use()
        assert str(raised.value).startswith(f"{file} ")
        assert "\n" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) == [file, good]


def test_random_damage(tmp_path):
    """Every mutation either is found, or leaves the file as it was."""
    good = tmp_path / "good.counts"
    count_pieces(texts=documents(5), special_tokens=[END]).save(good)
    data, file = good.read_bytes(), tmp_path / "bad.counts"
    for seed in range(500):
        chance = random.Random(seed)
        changed = mutate_bytes(chance, data)
        if seed % 2:  # as an attacker who recomputes the checksum
            changed = changed[:-32] + hashlib.sha256(changed[:-32]).digest()
        file.write_bytes(changed)
        try:
            loaded = PieceCounts.load(file)
        except FileError:
            continue
        assert (len(loaded), loaded.total) == (
            len(dict(loaded.items())),
            sum(dict(loaded.items()).values()),
        )
        loaded.save(tmp_path / "again.counts", overwrite=True)
        assert (tmp_path / "again.counts").read_bytes() == changed
        assert seed % 2 or changed == data


def test_sums_beyond_64_bits_are_errors(tmp_path):
    file = tmp_path / "full.counts"
    file.write_bytes(file_of(b"\x02ab" + ONES + b"\x01", total=2**64 - 1))
    full = PieceCounts.load(file)
    assert list(full.items()) == [(b"ab", 2**64 - 1)]
    for use in (
        lambda: full.merge(full),
        lambda: full.merge(count_pieces(texts=["c"])),
        lambda: merge_counts([file, file], tmp_path / "out"),
        lambda: train_tokenizer(counts=full, vocab_size=300),
    ):
        with pytest.raises(
            ValueError, match="the counts of the pieces add up to more than 64 bits"
        ):
            use()
    assert list(tmp_path.iterdir()) == [file]


def test_large_counts_are_exact():
    """A 32-bit sum would overflow: the counts double 40 times."""
    found = count_pieces(texts=["ab ab cd"])
    for _ in range(40):
        found = found.merge(found)
    assert dict(found.items()) == {b"ab": 2**40, b" ab": 2**40, b" cd": 2**40}
    assert found.total == 3 * 2**40
    trained = train_tokenizer(counts=found, vocab_size=258)
    assert trained == train_tokenizer(texts=["ab ab cd"], vocab_size=258)


def test_different_settings_do_not_merge(tmp_path):
    text = ["the cat"]
    plain = count_pieces(texts=text)
    for name, other, problem in (
        ("pattern", count_pieces(texts=text, pattern="cl100k"), "patterns, 'gpt2' and 'cl100k'"),
        (
            "tokens",
            count_pieces(texts=text, special_tokens=[END]),
            r"special tokens, \[\] and \['<.*'\]",
        ),
        (
            "unicode",
            PieceCounts(counts.Counting(unicode="1.1"), plain.total, len(plain), plain._records),
            "versions of Unicode, '.*' and '1.1'",
        ),
    ):
        plain.save(tmp_path / "plain", overwrite=True)
        other.save(tmp_path / name)
        with pytest.raises(ValueError, match=f"The counts have different {problem}; count all"):
            plain.merge(other)
        with pytest.raises(ValueError, match=f"plain and .*{name} have different {problem}"):
            merge_counts([tmp_path / "plain", tmp_path / name], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_training_arguments(caplog):
    found = count_pieces(texts=["the cat the cat"], special_tokens=[END], pattern="cl100k")
    trained = train_tokenizer(None, 260, [END], counts=found, pattern="cl100k")
    assert trained == train_tokenizer(None, 260, [END], texts=["the cat the cat"], pattern="cl100k")
    assert trained.special_tokens == {END: 0}
    for arguments, problem in (
        ({"texts": ["a"]}, "both counts and a corpus"),
        ({"paths": "a.txt"}, "both counts and a corpus"),
        ({"pattern": "gpt2"}, "patterns, 'cl100k' and 'gpt2'; leave the argument out"),
        ({"special_tokens": []}, "different special tokens"),
        ({"vocab_size": 256}, "at least 257"),
    ):
        with pytest.raises(ValueError, match=problem):
            train_tokenizer(**{"vocab_size": 300, **arguments}, counts=found)
    assert not caplog.text.replace("No pair is left", "") or "Unicode" not in caplog.text
    old = PieceCounts(counts.Counting(unicode="1.1"), found.total, len(found), found._records)
    train_tokenizer(counts=old, vocab_size=256)
    assert "counted with Unicode 1.1" in caplog.text


def test_merging_more_files_than_may_be_open(tmp_path):
    import resource

    whole, files = [], []
    for number in range(80):
        text = f"the {number} cats"
        whole.append(text)
        files.append(tmp_path / f"{number}.counts")
        count_pieces(texts=[text]).save(files[-1])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        merge_counts(files, tmp_path / "all.counts")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert PieceCounts.load(tmp_path / "all.counts") == count_pieces(texts=whole)


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    file = tmp_path / "a.counts"
    count_pieces(texts=documents(5)).save(file)
    opened = counts.CountsFile(file)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FileError, match="became shorter while it was read"):
        opened.add_to(_core.Trainer([], [], 1, None), lambda *_: None)


def test_progress_and_overwriting(tmp_path):
    told = []
    first, out = tmp_path / "a.counts", tmp_path / "b.counts"
    count_pieces(texts=documents(5), progress=lambda *report: told.append(report)).save(first)
    assert {phase for phase, _, _ in told} == {"count"}
    told.clear()
    merge_counts([first, first], out, progress=lambda *report: told.append(report))
    size = told[-1][2]
    assert told[0] == ("read", 0, size)
    assert told[-1] == ("read", size, size)
    with pytest.raises(FileExistsError, match="already exists"):
        merge_counts([first], out)
    merge_counts([first], out, overwrite=True)
    assert out.read_bytes() == first.read_bytes()
    merge_counts([out, out], out, overwrite=True)  # an input is replaced at the end
    assert PieceCounts.load(out).total == 2 * PieceCounts.load(first).total
    with pytest.raises(ValueError, match="no counts to merge"):
        merge_counts([], out)
    told.clear()
    trained = train_tokenizer(counts=out, vocab_size=300, progress=lambda *r: told.append(r))
    assert {phase for phase, _, _ in told} == {"read", "merge"}
    assert isinstance(trained, Tokenizer)


def test_a_callback_can_stop_a_merge(tmp_path):
    count_pieces(texts=documents(5)).save(tmp_path / "a.counts")

    def stop(_phase, done, _total):
        if done:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        merge_counts([tmp_path / "a.counts"], tmp_path / "b.counts", progress=stop)
    assert [file.name for file in tmp_path.iterdir()] == ["a.counts"]
