"""Token files: their content, and that no interruption changes a byte of it."""

import itertools
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilth import files
from tilth.corpus import readers
from tilth.data import open_data, partial, tokenize
from tilth.files import FileError
from tilth.tokenizer import Tokenizer, train_tokenizer
from tilth.tokenizer._core import text_hashes

END = "<|endoftext|>"
STORIES = [f"Story {n}: " + "the cat and the hat, naïve 🌱. " * (n % 7 + 1) for n in range(300)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=STORIES, vocab_size=300, special_tokens=[END])


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "stories.txt"
    path.write_text(f"\n{END}\n".join(STORIES))
    return path


@pytest.fixture
def small_blocks(monkeypatch):
    """Split even a small corpus into many blocks, and wait for a journal after each."""

    def advance(arrays, state):
        arrays.state = state
        arrays.journal()
        arrays._journaled.result()

    set_block_bytes(monkeypatch, 8000)
    monkeypatch.setattr(partial.PartialArrays, "advance", advance)


def set_block_bytes(monkeypatch, size):
    defaults = {**readers.Corpus.__init__.__kwdefaults__, "block_bytes": size}
    monkeypatch.setattr(readers.Corpus.__init__, "__kwdefaults__", defaults)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def documents_of(data, split):
    """Return the ids of each document, without its end token."""
    starts = data.documents(split).tolist()
    ids = getattr(data, split)
    assert starts[0] == 0
    assert starts[-1] == len(ids)
    assert all(ids[end - 1] == data.end_token_id for end in starts[1:])
    return [ids[start : end - 1].tolist() for start, end in itertools.pairwise(starts)]


def reference_hash(text):
    """The definition in core/bpe/text_hash.hpp, in Python integers."""

    def fold(value):
        product = value * 0x9E3779B97F4A7C15
        return (product & (2**64 - 1)) ^ (product >> 64)

    state = fold(len(text))
    for place in range(0, len(text), 8):
        state = fold(state ^ int.from_bytes(text[place : place + 8], "little"))
    return fold(state ^ len(text))


@given(st.lists(st.text(max_size=40), max_size=5))
def test_the_hash_equals_its_definition(texts):
    assert text_hashes(texts).tolist() == [reference_hash(text.encode()) for text in texts]


def test_the_hash_is_uniform():
    """Chi-square over 256 bins, for texts that differ in little; 99.99% lie below 340."""
    for shift in (0, 24, 56):
        hashes = text_hashes([f"document {number}" for number in range(100_000)])
        counts = np.bincount((hashes >> np.uint64(shift)) & np.uint64(255), minlength=256)
        expected = 100_000 / 256
        assert ((counts - expected) ** 2 / expected).sum() < 340


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    texts=st.lists(st.text(max_size=30), min_size=1, max_size=12),
    valid=st.sampled_from([0.0, 0.01, 0.5, 0.99]),
    threads=st.integers(1, 4),
    block_bytes=st.integers(1, 100),
)
def test_ids_are_those_of_each_document(
    tokenizer, tmp_path_factory, monkeypatch, texts, valid, threads, block_bytes
):
    """Compared with the encoder for each document, and with the definition of the split."""
    texts = [text for text in texts if text.strip(" \t\n\r\v\f")]
    if not texts:
        return
    folder = tmp_path_factory.mktemp("any")
    (folder / "any.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    set_block_bytes(monkeypatch, block_bytes)
    data = tokenize(folder / "any.jsonl", tokenizer, folder / "data", valid=valid, threads=threads)
    utf8 = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    is_valid = [reference_hash(text.encode()) >> 32 < round(valid * 2**32) for text in utf8]
    for split, wanted in (("train", False), ("valid", True)):
        here = [text for text, side in zip(utf8, is_valid, strict=True) if side == wanted]
        assert documents_of(data, split) == [tokenizer.encode_ordinary(text) for text in here]
        assert data.num_documents(split) == len(here)
        assert data.text_bytes(split) == sum(len(text.encode()) for text in here)


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("block_bytes", [1, 100, 10_000, 1 << 20])
def test_neither_threads_nor_blocks_change_a_byte(
    tokenizer, corpus, tmp_path, monkeypatch, threads, block_bytes
):
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    set_block_bytes(monkeypatch, block_bytes)
    tokenize(corpus, tokenizer, tmp_path / "cut", valid=0.2, threads=threads)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_order_does_not_decide_the_split(tokenizer, tmp_path):
    (tmp_path / "there.txt").write_text(END.join(STORIES))
    (tmp_path / "back.txt").write_text(END.join(STORIES[::-1] + STORIES[:50]))
    there = tokenize(tmp_path / "there.txt", tokenizer, tmp_path / "there", valid=0.3)
    back = tokenize(tmp_path / "back.txt", tokenizer, tmp_path / "back", valid=0.3)
    sides = [{tuple(ids) for ids in documents_of(there, split)} for split in ("train", "valid")]
    assert sides == [
        {tuple(ids) for ids in documents_of(back, split)} for split in ("train", "valid")
    ]
    assert not sides[0] & sides[1]
    assert 0.2 < len(sides[1]) / 300 < 0.4


def test_text_cannot_pose_as_a_special_token(tokenizer, tmp_path):
    (tmp_path / "sly.jsonl").write_text(json.dumps({"text": f"a{END}b"}))
    data = tokenize(tmp_path / "sly.jsonl", tokenizer, tmp_path / "data", valid=0)
    assert np.count_nonzero(data.train == data.end_token_id) == 1
    assert tokenizer.decode(data.train[:-1]) == f"a{END}b"


def test_a_separate_validation_corpus(tokenizer, corpus, tmp_path):
    (tmp_path / "valid.txt").write_text(END.join(STORIES[:3]))
    data = tokenize(corpus, tokenizer, tmp_path / "data", valid_corpus=tmp_path / "valid.txt")
    assert data.num_documents("train") == 300
    assert documents_of(data, "valid") == [tokenizer.encode_ordinary(s) for s in STORIES[:3]]
    assert [source.documents for source in data.manifest.sources] == [300, 3]


def test_the_dtype_holds_every_id(tmp_path):
    (tmp_path / "a.txt").write_text("aaa")
    for last_id, dtype in ((65_535, "uint16"), (65_536, "uint32")):
        vocab = {0: b"a", last_id: END.encode()}
        tokenizer = Tokenizer(vocab, [], [END])
        data = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / dtype, valid=0)
        assert data.train.dtype == dtype
        assert data.train.tolist() == [0, 0, 0, last_id]


def test_a_custom_pattern(tmp_path):
    vocab = dict(enumerate([b"a", b"b", b" ", b"a b", b"a "]))
    merges = [(b"a", b" "), (b"a ", b"b")]
    tokenizer = Tokenizer(vocab, merges, [END], pattern=r".+")
    (tmp_path / "ab.txt").write_text(f"a b{END}b a")
    ids, ends = tokenizer.encode_documents(["a b", "b a"])
    assert ids.tolist() == [3, 5, 1, 2, 0, 5]
    assert ends.tolist() == [2, 6]


# --- interruptions and errors ---------------------------------------------------------------------

FILE_EVENTS = {"open", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir", "os.link"}


def killed_at(event_number, work):
    """Fork, do the work, and die by SIGKILL at that file event; return whether it was reached."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event, _arguments):
            nonlocal count
            if event in FILE_EVENTS:
                count += 1
                if count == event_number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_killed_anywhere_it_resumes_to_the_same_bytes(tokenizer, corpus, tmp_path, small_blocks):
    """Killed at every open, rename and removal, until one call completes."""
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    whole = contents(tmp_path / "whole")
    for event_number in range(1, 10_000, 4):
        out = tmp_path / f"killed{event_number}"
        work = lambda out=out: tokenize(corpus, tokenizer, out, valid=0.2)  # noqa: E731
        was_killed = killed_at(event_number, work)
        if not was_killed:
            break
        if not (out / "manifest.json").exists():
            with pytest.raises(FileError):
                open_data(out)
            tokenize(corpus, tokenizer, out, valid=0.2)
        assert contents_without_partial(out) == whole
    assert event_number > 30  # else the hook counted nothing


def contents_without_partial(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_killed_again_and_again(tokenizer, corpus, tmp_path, small_blocks):
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    out = tmp_path / "data"
    deaths = 0
    for event_number in range(20, 10_000, 10):
        if not killed_at(event_number, lambda: tokenize(corpus, tokenizer, out, valid=0.2)):
            break
        deaths += 1
    assert deaths > 2
    assert contents_without_partial(out) == contents(tmp_path / "whole")


def test_it_resumes_where_it_stopped(tokenizer, corpus, tmp_path, monkeypatch, small_blocks):
    """Documents before the interruption are not read again."""

    class Interrupt(Exception):
        pass

    def interrupt(_phase, done, total):
        if done > total // 2:
            raise Interrupt

    with pytest.raises(Interrupt):
        tokenize(corpus, tokenizer, tmp_path / "data", progress=interrupt)
    assert not (tmp_path / "data" / "manifest.json").exists()
    starts = []
    original = readers.Corpus.blocks
    monkeypatch.setattr(
        readers.Corpus,
        "blocks",
        lambda self, start: starts.append(start) or original(self, start),
    )
    data = tokenize(corpus, tokenizer, tmp_path / "data")
    assert starts[0].place > corpus.stat().st_size // 3
    assert data.num_documents("train") + data.num_documents("valid") == 300
    assert not (tmp_path / "data" / ".partial").exists()


@pytest.mark.parametrize("change", ["source", "tokenizer", "options"])
def test_changed_work_starts_again(tokenizer, corpus, tmp_path, caplog, small_blocks, change):
    assert killed_at(30, lambda: tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2))
    valid = 0.2
    if change == "source":
        corpus.write_text(END.join(STORIES[::-1]))
    elif change == "tokenizer":
        tokenizer = train_tokenizer(texts=STORIES, vocab_size=290, special_tokens=[END])
    else:
        valid = 0.3
    caplog.set_level(logging.WARNING)
    tokenize(corpus, tokenizer, tmp_path / "data", valid=valid)
    assert f"discarded because the {change}" in caplog.text
    caplog.clear()
    tokenize(corpus, tokenizer, tmp_path / "fresh", valid=valid)
    assert caplog.text == ""
    assert contents(tmp_path / "data") == contents(tmp_path / "fresh")


def test_a_damaged_journal_is_discarded(tokenizer, corpus, tmp_path, caplog, small_blocks):
    assert killed_at(30, lambda: tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2))
    (tmp_path / "data" / ".partial" / "journal.json").write_text("{")
    tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2)
    assert "journal is truncated" in caplog.text
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


@pytest.mark.parametrize("change", ["cut", "remove"])
def test_arrays_shorter_than_their_journal_are_discarded(
    tokenizer, corpus, tmp_path, caplog, small_blocks, change
):
    """As after a power failure with lost writes; zeros in their place would pass every check."""
    assert killed_at(30, lambda: tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2))
    array = tmp_path / "data" / ".partial" / "train.npy"
    if change == "cut":
        os.truncate(array, 200)
    else:
        array.unlink()
    tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2)
    assert "arrays are shorter than its journal says" in caplog.text
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


def test_killed_after_the_last_rename(tokenizer, corpus, tmp_path, monkeypatch):
    """The data is complete; leftovers affect neither it nor a call that overwrites it."""
    with monkeypatch.context() as patch:
        patch.setattr("tilth.data.tokenizing.clear", lambda _folder: None)
        tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2)
    assert (tmp_path / "data" / ".partial" / "journal.json").exists()
    whole = contents_without_partial(tmp_path / "data")
    with pytest.raises(FileExistsError, match="already holds token files"):
        tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2)
    tokenize(corpus, tokenizer, tmp_path / "data", valid=0.2, overwrite=True)
    assert contents(tmp_path / "data") == whole


def test_a_lock_on_a_removed_file_is_taken_again(tmp_path, monkeypatch):
    """The folder is removed between opening the lock and taking it: it must be taken again."""
    original = files.fcntl.flock
    calls = []

    def flock(file, operation):
        calls.append(operation)
        if len(calls) == 1:
            (tmp_path / "data" / ".partial" / "lock").unlink()
            (tmp_path / "data" / ".partial" / "lock").touch()
        original(file, operation)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with (
        partial.partial_folder(tmp_path / "data"),
        pytest.raises(ValueError, match="Another process"),
        partial.partial_folder(tmp_path / "data"),
    ):
        pass
    assert len(calls) == 3
    assert not (tmp_path / "data").exists()


def test_other_files_are_kept(tokenizer, corpus, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.npy").write_text("precious")
    with pytest.raises(FileExistsError, match=r"train\.npy already exists"):
        tokenize(corpus, tokenizer, tmp_path / "data")
    assert (tmp_path / "data" / "train.npy").read_text() == "precious"
    (tmp_path / "mine").mkdir()
    (tmp_path / "blank.txt").write_text(" ")
    with pytest.raises(ValueError, match="no document"):
        tokenize(tmp_path / "blank.txt", tokenizer, tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []


def test_only_token_files_are_overwritten(tokenizer, corpus, tmp_path):
    """A run has a manifest.json and a tokenizer.json too."""
    run = tmp_path / "run"
    run.mkdir()
    manifest, own = run / "manifest.json", run / "tokenizer.json"
    own.write_text("precious")
    for content in ('{"format": "run", "version": 1}', '{"name": "my web page"}', "[]"):
        manifest.write_text(content)
        with pytest.raises(FileError, match=r"run has a manifest\.json that is not of token files"):
            tokenize(corpus, tokenizer, run, overwrite=True)
        assert (manifest.read_text(), own.read_text()) == (content, "precious")
    manifest.write_text('{"format": "token fi')
    tokenize(corpus, tokenizer, run, overwrite=True)
    tokenize(corpus, tokenizer, run, overwrite=True)


def test_many_small_sources(tokenizer, tmp_path):
    """In linear time: not all sources are visited for each."""
    (tmp_path / "many").mkdir()
    for number in range(1000):
        (tmp_path / "many" / f"{number:04}.jsonl").write_text('{"text": "the cat"}')
    data = tokenize(tmp_path / "many", tokenizer, tmp_path / "data")
    assert len(data.manifest.sources) == 1000
    assert data.num_documents("train") + data.num_documents("valid") == 1000


@pytest.mark.parametrize("text", ["the cat sat ", "w%x "], ids=["cached", "uncached"])
def test_check_interrupts_a_long_document(tokenizer, text):
    """Ctrl-C does not wait for the end of a document."""
    calls = []

    def check():
        calls.append(1)
        raise KeyboardInterrupt

    # `check` is called every 50 ms; both texts take 350 ms or more on one thread.
    text = text * 20_000_000 if "%" not in text else "".join(text % n for n in range(6_000_000))
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode_documents([text], check=check, threads=1)
    assert len(calls) == 1


def test_a_full_disk(tokenizer, corpus, tmp_path, small_blocks):
    out = tmp_path / "data"
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            tokenize(corpus, tokenizer, out, valid=0.2)
        except OSError as error:
            os._exit(7 if "free some space and run the same command" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not (out / "manifest.json").exists()
    assert not list(out.glob("*.npy"))
    tokenize(corpus, tokenizer, out, valid=0.2)
    tokenize(corpus, tokenizer, tmp_path / "whole", valid=0.2)
    assert contents(out) == contents(tmp_path / "whole")


def test_a_source_that_changes_meanwhile(tokenizer, corpus, tmp_path, caplog, small_blocks):
    def touch(_phase, _done, _total):
        os.utime(corpus, ns=(1, 1))

    with pytest.raises(FileError, match=r"stories\.txt has changed since it was listed"):
        tokenize(corpus, tokenizer, tmp_path / "data", progress=touch)
    assert not (tmp_path / "data" / "manifest.json").exists()
    assert tokenize(corpus, tokenizer, tmp_path / "data").num_documents("train") > 200


def test_a_source_that_is_removed(tokenizer, corpus, tmp_path, small_blocks):
    (tmp_path / "second.txt").write_text("two")
    with pytest.raises((ValueError, OSError), match=r"second\.txt"):
        tokenize(
            [corpus, tmp_path / "second.txt"],
            tokenizer,
            tmp_path / "data",
            progress=lambda *_: (tmp_path / "second.txt").unlink(missing_ok=True),
        )
    assert not (tmp_path / "data" / "manifest.json").exists()


def test_only_one_process_writes(tokenizer, corpus, tmp_path):
    def second(_phase, _done, _total):
        with pytest.raises(ValueError, match="Another process is tokenizing into"):
            tokenize(corpus, tokenizer, tmp_path / "data")

    tokenize(corpus, tokenizer, tmp_path / "data", progress=second)


def test_bad_documents_are_an_error_or_counted(tokenizer, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"text": "one"}\nnot JSON\n{"text": "two"}\n')
    with pytest.raises(FileError, match=r"bad\.jsonl is not JSON .* on line 2"):
        tokenize(path, tokenizer, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    data = tokenize(path, tokenizer, tmp_path / "data", valid=0, on_error="skip")
    assert data.num_documents("train") == 2
    assert data.manifest.sources[0].skipped == 1


def test_errors_before_any_work(tokenizer, corpus, tmp_path):
    out = tmp_path / "data"
    with pytest.raises(ValueError, match="no special token '<end>'"):
        tokenize(corpus, tokenizer, out, end_token="<end>")
    with pytest.raises(ValueError, match=r"valid is 1; give the share"):
        tokenize(corpus, tokenizer, out, valid=1)
    with pytest.raises(FileNotFoundError, match=r"no_such\.txt does not exist"):
        tokenize(tmp_path / "no_such.txt", tokenizer, out)
    (tmp_path / "empty.txt").write_text(" \n")
    with pytest.raises(ValueError, match=r"There is no document in .*empty\.txt"):
        tokenize(tmp_path / "empty.txt", tokenizer, out)
    assert not out.exists()
    with pytest.raises(NotADirectoryError, match="is a file; name a folder"):
        tokenize(corpus, tokenizer, corpus)
    with pytest.raises(ValueError, match="in two ways; give one"):
        tokenize(corpus, tokenizer, out, valid=0.5, valid_corpus=corpus)
    with pytest.raises(ValueError, match="is inside the corpus"):
        tokenize(tmp_path, tokenizer, out)
    tokenize(corpus, tokenizer, out)
    with pytest.raises(FileExistsError, match="already holds token files"):
        tokenize(corpus, tokenizer, out)
    assert tokenize(corpus, tokenizer, out, valid=0, overwrite=True).num_documents("valid") == 0


def test_a_byte_without_a_token(tmp_path):
    tokenizer = Tokenizer({0: b"a"}, [], [END])
    (tmp_path / "ab.txt").write_text("aba")
    with pytest.raises(FileError, match=r"ab\.txt .*0x62.* has no token.*all 256 bytes"):
        tokenize(tmp_path / "ab.txt", tokenizer, tmp_path / "data")


def test_torch_is_not_imported(corpus, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    code = (
        "import sys, tilth; tilth.tokenize(sys.argv[1], tilth.Tokenizer.load(sys.argv[2]), "
        "sys.argv[3]); assert 'torch' not in sys.modules"
    )
    subprocess.run(
        [sys.executable, "-c", code, corpus, tmp_path / "tokenizer.json", tmp_path / "data"],
        check=True,
    )


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tokenizer, tmp_path):
    """A gigabyte of short documents, then one document of 300 MB, in separate processes."""
    tokenizer.save(tmp_path / "tokenizer.json")
    code = """
import re, sys, tilth
tilth.tokenize(sys.argv[1], tilth.Tokenizer.load(sys.argv[2]), sys.argv[3])
# Not ru_maxrss, which begins as what the parent had.
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""
    text = "".join(STORIES).encode()
    with (tmp_path / "many.txt").open("wb") as file:
        while file.tell() < 1_000_000_000:
            file.write(END.encode().join(story.encode() for story in STORIES) + END.encode())
    (tmp_path / "long.txt").write_bytes(text * (300_000_000 // len(text)))
    for name, most_bytes in (("many", 256e6), ("long", 256e6 + 3 * 300e6)):
        arguments = [tmp_path / f"{name}.txt", tmp_path / "tokenizer.json", tmp_path / name]
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], check=True, capture_output=True
        )
        assert int(done.stdout) < most_bytes


@pytest.mark.slow
def test_killed_at_any_time(tokenizer, tmp_path):
    """At random times, 100 times, with the default blocks and journals."""
    tokenizer.save(tmp_path / "tokenizer.json")
    path = tmp_path / "stories.txt"
    path.write_text(END.join(STORIES * 1500))
    tokenize(path, tokenizer, tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    random = np.random.default_rng(0)
    command = [sys.executable, "-m", "tilth", "tokenize", path, "--tokenizer"]
    for attempt in range(100):
        out = tmp_path / f"out{attempt}"
        for _ in range(3):
            process = subprocess.Popen(
                [*command, tmp_path / "tokenizer.json", "--out", out],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(random.uniform(0.1, 1.5))
            process.kill()
            process.wait()
        if not (out / "manifest.json").exists():
            tokenize(path, tokenizer, out)
        assert contents_without_partial(out) == whole
