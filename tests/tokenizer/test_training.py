"""Compare training with the specification; test the contract of `train_tokenizer`."""

import contextlib
import doctest
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from tests.tokenizer.texts import ALPHABET, TRICKY
from tilth.files import FileError
from tilth.tokenizer import Tokenizer, reference, train_bpe, train_tokenizer, training

END = "<|endoftext|>"
# Few letters, so ties and repetitions are frequent.
SMALL = st.text(st.sampled_from("aab bc\n'sé"), max_size=60)


def test_docstring():
    assert doctest.testmod(training).failed == 0


@given(
    st.lists(st.one_of(SMALL, TRICKY), max_size=5), st.integers(0, 30), st.sampled_from([1, 2, 8])
)
@settings(max_examples=200)
@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
def test_merges_equal_the_reference(pattern, texts, num_merges, threads):
    trained = train_tokenizer(
        texts=texts, vocab_size=256 + num_merges, pattern=pattern, threads=threads
    )
    vocab, merges = reference.train(texts, 256 + num_merges, pattern=pattern)
    assert list(trained.merges) == merges
    assert dict(trained.vocab) == vocab


@given(st.lists(st.sampled_from([END, "<|", "|>", "a", "b", " ", "<|end|>", "é"]), max_size=40))
@settings(max_examples=200)
def test_special_tokens_separate_pieces(parts):
    text = "".join(parts)
    special = [END, "<|end|>", END + END]
    trained = train_tokenizer(texts=[text], vocab_size=280, special_tokens=special)
    vocab, merges = reference.train([text], 280, special)
    assert list(trained.merges) == merges
    assert dict(trained.vocab) == vocab
    assert list(trained.vocab.values())[:3] == [token.encode() for token in special]
    assert not any(END.encode() in token for token in list(trained.vocab.values())[3:])


def corpus(seed=0, num_documents=200):
    generator = random.Random(seed)
    words = [
        "".join(generator.choices("etaoinshrdlu", k=generator.randrange(1, 9))) for _ in range(300)
    ]
    documents = []
    for _ in range(num_documents):
        document = " ".join(generator.choices(words, k=generator.randrange(60)))
        documents.append(document + "".join(generator.choices(ALPHABET, k=20)))
    return documents


def test_result_is_independent_of_files_threads_and_order(tmp_path):
    documents = corpus()
    files = []
    for number in range(3):
        file = tmp_path / f"{number}.txt"
        file.write_text(END.join(documents[number::3]), newline="")
        files.append(file)
    expected = reference.train(documents, 600, [END])[1]
    for threads in (1, 2, 8):
        assert list(train_tokenizer(files, 600, [END], threads=threads).merges) == expected
    assert list(train_tokenizer(reversed(files), 600, [END]).merges) == expected
    assert (
        list(train_tokenizer(texts=iter(documents), vocab_size=600, special_tokens=[END]).merges)
        == expected
    )
    assert (
        list(
            train_tokenizer(
                files[:1], 600, [END], texts=[*documents[1::3], *documents[2::3]]
            ).merges
        )
        == expected
    )


@pytest.mark.parametrize("pattern", ["gpt2", "cl100k"])
@pytest.mark.parametrize("separator", ["\n", " ", "", "\u3000", "  \n"])
def test_a_large_file_without_special_tokens(tmp_path, pattern, separator):
    """The file is larger than a chunk."""
    text = separator.join(corpus(num_documents=100)) * 600
    assert len(text.encode()) > 9_000_000
    file = tmp_path / "text.txt"
    file.write_text(text, newline="")
    one = train_tokenizer(texts=[text], vocab_size=500, pattern=pattern, threads=1)
    for threads in (1, 2):
        assert train_tokenizer(file, 500, pattern=pattern, threads=threads) == one


def test_a_pipe_is_opened_only_once(tmp_path, monkeypatch):
    """Opening it to check it would break the pipe for its writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.delattr(Path, "open")
    assert training.plain_and_others(pipe, need_corpus=False) == ([pipe], [])


def test_malformed_bytes_count_as_replacement_characters(tmp_path):
    data = b"caf\xe9 \xff\xfe na\xc3\xafve \xf0\x9f\x8c \xed\xa0\x80 " * 50
    file = tmp_path / "latin1.txt"
    file.write_bytes(data)
    text = data.decode("utf-8", "replace")
    assert list(train_tokenizer(file, 300).merges) == reference.train([text], 300)[1]


def test_the_example_of_sennrich():
    words = ["low"] * 5 + ["lower"] * 2 + ["widest"] * 3 + ["newest"] * 6
    trained = train_tokenizer(texts=[" ".join(words)], vocab_size=256 + 12, pattern=r"\w+|\s")
    expected = "s t, e st, o w, l ow, w est, n e, ne west, w i, wi d, wid est, low e, lowe r"
    assert ", ".join(b" ".join(pair).decode() for pair in trained.merges) == expected
    six = Tokenizer(trained.vocab, trained.merges[:6])
    assert [six.decode([i]) for i in six.encode("newest")] == ["ne", "west"]


def test_ties_go_to_the_greater_pair():
    counts = {b"AB": 1, b"AC": 1, b"BZ": 1, b"BA": 1}
    assert reference.learn_merges(counts, 1) == [(b"B", b"Z")]
    # After ZZ and BA: of (A, B), (A, C), (B, ZZ), (BA, A), it takes (BA, A).
    texts = ["ZZ"] * 9 + ["BA"] * 8 + ["AB", "AC", "BZZ", "BAA"]
    merges = train_tokenizer(texts=texts, vocab_size=259).merges
    assert merges == ((b"Z", b"Z"), (b"B", b"A"), (b"BA", b"A"))


def test_train_bpe_returns_plain_values(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("low low low lower lower")
    vocab, merges = train_bpe(str(file), 260, [END])
    assert vocab[0] == END.encode()
    assert vocab[1] == b"\x00"
    assert merges == [(b"o", b"w"), (b"l", b"ow"), (b" ", b"low")]
    assert type(vocab) is dict
    assert type(merges) is list


def test_stops_early_with_a_warning(caplog):
    trained = train_tokenizer(texts=["ab"], vocab_size=1000)
    assert len(trained.vocab) == 257
    assert "No pair is left after 1 merges" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vocab_size": 255}, "cannot hold the 256 bytes"),
        ({"vocab_size": 10**23}, "vocab_size is too large; give 1,048,320 at most"),
        ({"vocab_size": 300, "threads": 2**64}, "and this machine has"),
        ({"vocab_size": 256, "special_tokens": [END]}, "at least 257"),
        ({"vocab_size": 300, "special_tokens": [""]}, "one character or more"),
        ({"vocab_size": 300, "special_tokens": ["A"]}, "choose a longer one"),
        ({"vocab_size": 300, "special_tokens": [END, END]}, "twice"),
        ({"vocab_size": 300, "special_tokens": [3]}, "one character or more"),
        ({"vocab_size": 300, "special_tokens": ["\ud800"]}, "lone surrogate"),
        ({"vocab_size": 300, "special_tokens": END}, "one string"),
        ({"vocab_size": 300, "texts": "one text"}, "one string"),
        ({"vocab_size": 300, "threads": 0}, "1 or more"),
        ({"vocab_size": 300, "pattern": "("}, "not one that regex reads"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(**{"texts": ["text"], **arguments})


def test_a_misspelt_file_is_an_error(tmp_path):
    for name in ("missing.txt", "missing.jsonl"):
        with pytest.raises(FileNotFoundError, match=f"{name} does not exist; check the path"):
            train_tokenizer([tmp_path / name], 300)
    with pytest.raises(FileError, match="has no files in it"):
        train_tokenizer(tmp_path, 300)
    (tmp_path / "a.txt").touch()
    with pytest.raises(FileNotFoundError, match=r"did you mean .*a\.txt"):
        train_tokenizer(tmp_path / "b.txt", 300)


@pytest.fixture(scope="module")
def one_corpus_in_many_forms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    documents = [*corpus(), f"one that holds {END} itself", "naïve 🌱 \n"]
    data = END.join(documents).encode()
    (folder / "a.txt").write_bytes(data)
    (folder / "a.txt.gz").write_bytes(gzip.compress(data))
    (folder / "a.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(data))
    lines = "\n".join(json.dumps({"story": text}) for text in documents).encode()
    (folder / "a.jsonl").write_bytes(lines)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    parquet.write_table(pyarrow.table({"story": documents}), folder / "a.parquet")
    for name, number in (("one", 1), ("many", len(documents))):
        (folder / name).mkdir()
        for part in range(number):
            (folder / name / f"{part}.txt").write_text(
                END.join(documents[part::number]), newline=""
            )
    return folder, documents


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
def test_every_file_format_gives_the_same_tokenizer(one_corpus_in_many_forms, pattern):
    folder, documents = one_corpus_in_many_forms
    expected = train_tokenizer(
        texts=documents, vocab_size=500, special_tokens=[END], pattern=pattern
    )
    if pattern == "gpt2":
        assert list(expected.merges) == reference.train(documents, 500, [END])[1]
    forms = sorted(folder.iterdir())
    assert len(forms) == 8
    options = {"vocab_size": 500, "special_tokens": [END], "pattern": pattern, "field": "story"}
    for path in forms:
        assert train_tokenizer(path, **options) == expected, path
    told = []
    several = train_tokenizer(
        [folder / "a.jsonl", folder / "a.txt", folder / "many"],
        **options,
        progress=lambda *report: told.append(report),
    )
    thrice = train_tokenizer(
        texts=documents * 3, vocab_size=500, special_tokens=[END], pattern=pattern
    )
    assert several == thrice
    counted = [(done, total) for phase, done, total in told if phase == "count"]
    files = [folder / "a.jsonl", folder / "a.txt", *(folder / "many").iterdir()]
    size = sum(file.stat().st_size for file in files)
    assert counted == sorted(counted)
    assert {total for _, total in counted} == {size}
    assert counted[-1] == (size, size)


def test_bad_documents_stop_training_or_are_reported(tmp_path, caplog):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "low low lower"}\n' + "x\n" * 20 + '{"text": "low"}')
    with pytest.raises(FileError, match=r"a\.jsonl is not JSON .* on line 2;"):
        train_tokenizer(file, 258)
    trained = train_tokenizer(file, 258, on_error="skip")
    assert trained == train_tokenizer(texts=["low low lower", "low"], vocab_size=258)
    assert caplog.text.count("a.jsonl is not JSON") == 5
    assert "Skipped 20 documents in all." in caplog.text


def test_custom_separator(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"low low low###lower lower"))
    expected = train_tokenizer(texts=["low low low", "lower lower"], vocab_size=260)
    assert train_tokenizer(tmp_path / "a.txt.gz", 260, separator="###") == expected


def test_progress_is_reported_and_can_stop_training(tmp_path):
    told = []
    file = tmp_path / "text.txt"
    file.write_text(" ".join(corpus()) * 20)
    train_tokenizer(file, 500, progress=lambda *report: told.append(report))
    assert {phase for phase, _, _ in told} == {"count", "merge"}
    size = file.stat().st_size
    assert ("count", size, size) in told

    def stop(*_):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        train_tokenizer(file, 500, progress=stop)


@pytest.mark.alone
def test_ctrl_c_within_a_second(tmp_path, ctrl_c_within):
    file = tmp_path / "text.txt"
    file.write_text("".join(corpus(num_documents=2000)) * 300)
    program = f"""
from tilth.tokenizer import train_tokenizer
print("ready", flush=True)
train_tokenizer([{str(file)!r}] * 50, 5000)  # 5 GB, half a minute
"""
    # One second to respond, the rest for the interpreter to exit.
    _, errors = ctrl_c_within(1.5, program)
    assert errors.endswith("KeyboardInterrupt\n")


def test_ctrl_c_while_a_pipe_has_no_writer(tmp_path):
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    code = (
        "import sys; from tilth import train_tokenizer; print('go', flush=True); "
        "train_tokenizer(sys.argv[1])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, pipe], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        process.stdout.readline()
        for _ in range(100):  # until it waits in open
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
                break
        assert process.poll() == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("pattern", ["gpt2", r"\w+|\W"])
@pytest.mark.parametrize("change", [lambda text: text[:99], lambda text: text[::-1]])
def test_file_that_changes_while_it_is_counted_is_an_error(tmp_path, pattern, change):
    path = tmp_path / "text.txt"
    path.write_text("one two three " * 1000)

    def change_it(phase, done, _total):
        if phase == "count" and done == 0:
            path.write_text(change(path.read_text()))

    with pytest.raises(ValueError, match="has changed since it was listed"):
        train_tokenizer(path, 270, pattern=pattern, progress=change_it)
