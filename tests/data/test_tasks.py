"""Tokenizing in tasks: the bytes of one process, whatever the tasks, their order and their end."""

import gzip
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tilth.corpus import Corpus
from tilth.corpus.cutting import cut
from tilth.data import tasks, tokenize, tokenizing, verify_data
from tilth.data.token_files import VERSION, save_checked
from tilth.executors import Executor
from tilth.files import FileError, load_manifest
from tilth.tokenizer import train_tokenizer

END = "<|endoftext|>"
STORIES = [f"Story {n}: " + "the cat and the hat, naïve 🌱. " * (n % 7 + 1) for n in range(300)]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(texts=STORIES, vocab_size=300, special_tokens=[END])


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Every kind of source."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text("\ufeff" + f"\n{END}\n".join(STORIES))
    lines = "".join(json.dumps({"text": story}) + "\n" for story in STORIES)
    (folder / "b.jsonl").write_text(lines + "\n \n")
    (folder / "c.txt.gz").write_bytes(gzip.compress(END.join(STORIES[:50]).encode()))
    (folder / "books").mkdir()
    for number, story in enumerate(STORIES[:60]):
        (folder / "books" / f"{number:03}.txt").write_text(story)
    (folder / "empty.txt").write_text("")
    return [folder / name for name in ("a.txt", "b.jsonl", "empty.txt", "c.txt.gz", "books")]


@pytest.fixture
def in_order(monkeypatch):
    """Run tasks in this process, in an order of our choice."""

    def install(order):
        def run(function, arguments, _executor, _folder):
            for index in order([*range(len(arguments))]):
                function(arguments[index])
                yield index

        monkeypatch.setattr(tasks, "run_tasks", run)

    return install


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def expected(corpus, tokenizer, tmp_path_factory):
    return contents(tokenize(corpus, tokenizer, tmp_path_factory.mktemp("one") / "data").folder)


@pytest.mark.parametrize("number", [1, 2, 7, 30])
def test_any_number_of_tasks_writes_the_bytes_of_one_process(
    corpus, tokenizer, tmp_path, expected, in_order, number
):
    in_order(lambda indices: indices[::-1])
    data = tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=number)
    assert contents(data.folder) == expected
    assert verify_data(data.folder)


def test_a_validation_corpus_is_cut_too(corpus, tokenizer, tmp_path, in_order):
    in_order(lambda indices: indices)
    valid = {"valid_corpus": corpus[1]}
    one = tokenize(corpus[0], tokenizer, tmp_path / "one", **valid)
    many = tokenize(corpus[0], tokenizer, tmp_path / "many", **valid, executor=Executor(), tasks=9)
    assert contents(one.folder) == contents(many.folder)


@pytest.mark.parametrize("separator", ["\n\n", "ab", "aa", END, "-"])
def test_parts_have_the_documents_of_the_corpus(tmp_path, separator):
    text = "".join("ab-a\n"[(n * n * 7 + n // 3) % 5] for n in range(3000)) + separator * 5 + "aaa"
    (tmp_path / "a.txt").write_text(text)
    corpus = Corpus([tmp_path / "a.txt"] * 2, separator=separator, block_bytes=100)
    texts = [text.encode() for text in corpus]
    for number in (1, 2, 3, 50, 6000):
        parts = cut(corpus, number)
        assert parts[0][0] == (0, 0)
        assert parts[-1][1] == (2, 0)
        blocks = (block for part in parts for block in corpus.blocks(*part))
        assert [text for block in blocks for text in block.documents().texts] == texts


def test_a_second_call_runs_only_the_missing_tasks(
    corpus, tokenizer, tmp_path, expected, in_order, monkeypatch
):
    in_order(lambda indices: indices[:3])  # the others never end
    with pytest.raises(FileError, match="is missing, or is of another task; run the same"):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=8)
    ran = []
    in_order(lambda indices: ran.extend(indices) or indices)
    # A marker that is cut, as after a power cut, does not count.
    marker = tmp_path / "data" / ".partial" / "task-00001.json"
    marker.write_bytes(marker.read_bytes()[:-20])
    tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=8)
    assert len(ran) == 6
    assert contents(tmp_path / "data") == expected


def test_changed_arrays_of_a_task_are_found(corpus, tokenizer, tmp_path, expected, in_order):
    in_order(lambda indices: indices[:-1])
    with pytest.raises(FileError):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=5)
    array = tmp_path / "data" / ".partial" / "task-00002-train.ids"
    array.write_bytes(bytes(len(array.read_bytes())))
    in_order(lambda indices: indices)
    with pytest.raises(FileError, match="is damaged"):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=5)
    data = tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=5)
    assert contents(data.folder) == expected


def test_a_marker_of_a_source_that_is_not_there_is_refused(corpus, tokenizer, tmp_path, in_order):
    in_order(lambda indices: indices[:-1])
    with pytest.raises(FileError):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=5)
    marker = tmp_path / "data" / ".partial" / "task-00001.json"
    content = load_manifest(marker, kind=tasks.MARKER_KIND, version=VERSION)
    del content["checksum"]
    content["sources"].append([len(corpus), 1, 0])
    save_checked(marker, tasks.MARKER_KIND, content)
    in_order(lambda indices: indices)
    with pytest.raises(FileError, match=r"task-00001.json .* is of another task; run the same"):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=5)


def test_another_corpus_or_tokenizer_runs_all_tasks_again(tokenizer, corpus, tmp_path, in_order):
    in_order(lambda indices: indices[:-1])
    with pytest.raises(FileError):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=3)
    in_order(lambda indices: indices)
    other = train_tokenizer(texts=STORIES, vocab_size=310, special_tokens=[END])
    many = tokenize(corpus, other, tmp_path / "data", executor=Executor(), tasks=3)
    one = tokenize(corpus, other, tmp_path / "one")
    assert contents(one.folder) == contents(many.folder)


def test_a_bad_document_is_an_error_of_the_call(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"good" + END.encode() + b"\xff")
    with pytest.raises(FileError, match="is not UTF-8 on line 1"):
        tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "data", executor=Executor(), tasks=1)
    assert not (tmp_path / "data").exists()
    options = {"on_error": "skip", "valid": 0}
    one = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "one", **options)
    many = tokenize(tmp_path / "a.txt", tokenizer, tmp_path / "x", **options, executor=Executor())
    assert contents(one.folder) == contents(many.folder)


def test_processes_that_are_killed(corpus, tokenizer, tmp_path, expected, monkeypatch):
    """The call says so, and the next call runs what is missing."""
    monkeypatch.setattr(tokenizing, "run_all", killing(tokenizing.run_all))
    with pytest.raises(OSError, match="worker process was killed"):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(workers=2), tasks=20)
    monkeypatch.undo()
    data = tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(workers=2), tasks=20)
    assert contents(data.folder) == expected


def killing(run_all):
    """Kill a child process as soon as there is one."""

    def kill_one():
        children = f"/proc/{os.getpid()}/task"
        until = time.monotonic() + 30
        while time.monotonic() < until:
            for thread in Path(children).iterdir():
                for pid in (thread / "children").read_text().split():
                    line = Path("/proc", pid, "cmdline").read_text()
                    if "spawn_main" in line:
                        return os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)

    def run(*args):
        thread = threading.Thread(target=kill_one)
        thread.start()
        try:
            return run_all(*args)
        finally:
            thread.join()

    return run


def test_tasks_need_an_executor(corpus, tokenizer, tmp_path):
    with pytest.raises(ValueError, match="omit tasks"):
        tokenize(corpus, tokenizer, tmp_path / "data", tasks=3)
    with pytest.raises(ValueError, match="tasks must be at least 1"):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=0)
    with pytest.raises(ValueError, match="tasks must be at most 100000"):
        tokenize(corpus, tokenizer, tmp_path / "data", executor=Executor(), tasks=10**12)
