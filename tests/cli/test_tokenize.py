"""`tilth tokenize` and `tilth verify`, called as commands."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.command_line import tilth
from tilth.data import open_data
from tilth.tokenizer import Tokenizer, train_tokenizer

END = "<|endoftext|>"
STORIES = [f"Story {n}: the cat and the hat." for n in range(200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenize")
    (folder / "stories.txt").write_text(END.join(STORIES))
    tokenizer = train_tokenizer(texts=STORIES, vocab_size=300, special_tokens=[END])
    tokenizer.save(folder / "tokenizer.json")
    return folder


def tokenize(folder, out, *words):
    tokenizer = folder / "tokenizer.json"
    return tilth("tokenize", folder / "stories.txt", "--tokenizer", tokenizer, "--out", out, *words)


def test_tokenize_then_verify(folder, tmp_path):
    done = tokenize(folder, tmp_path / "data")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("train ")
    assert lines[-1] == f"Wrote {tmp_path / 'data'}"
    data = open_data(tmp_path / "data")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    decoded = tokenizer.decode(np.concatenate([data.train, data.valid])).split(END)
    assert sorted(decoded[:-1]) == sorted(STORIES)

    done = tilth("verify", tmp_path / "data")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{tmp_path / 'data'} is whole"

    again = tokenize(folder, tmp_path / "data")
    assert again.returncode == 2
    assert "already holds token files" in again.stderr
    again = tokenize(folder, tmp_path / "data", "--overwrite", "--valid", 0, "--json")
    assert json.loads(again.stdout)["splits"]["valid"]["tokens"] == 0


def test_tokenizers_of_other_formats(folder, tmp_path):
    """A folder of GPT-2 has its end token, which was text; ranks get theirs by options."""
    source = Tokenizer.load(folder / "tokenizer.json")
    (tmp_path / "gpt2").mkdir()
    source.save_files(tmp_path / "gpt2" / "vocab.json", tmp_path / "gpt2" / "merges.txt")
    source.save_tiktoken(tmp_path / "ranks.tiktoken")
    tokenize(folder, tmp_path / "data")
    expected = open_data(tmp_path / "data").train
    options = ("--pattern", "gpt2", "--special", END)
    for name, words in (("gpt2", ()), ("ranks.tiktoken", options)):
        out = tmp_path / f"data {name}"
        given = ("--tokenizer", tmp_path / name, "--out", out)
        done = tilth("tokenize", folder / "stories.txt", *given, *words)
        assert done.returncode == 0, done.stderr
        # The special token of the ranks is the last id instead of the first.
        assert (open_data(out).train % source.vocab_size == expected).all()
    done = tilth("tokenize", folder / "stories.txt", *given[:2], "--out", tmp_path / "no")
    assert done.returncode == 2
    assert "name its pattern with --pattern" in done.stderr


def test_verify_names_the_damaged_file(folder, tmp_path):
    tokenize(folder, tmp_path / "data")
    damaged = bytearray((tmp_path / "data" / "valid.npy").read_bytes())
    damaged[-1] ^= 1
    (tmp_path / "data" / "valid.npy").write_bytes(damaged)
    done = tilth("verify", tmp_path / "data")
    assert done.returncode == 2
    assert "valid.npy, block 1 of 1: the bytes from 0 on are damaged" in done.stdout
    assert done.stderr.count("\n") == 1
    assert "is damaged: valid.npy" in done.stderr
    done = tilth("verify", tmp_path / "data", "--json")
    assert done.returncode == 2
    found = json.loads(done.stdout)
    assert not found["is_whole"]
    assert [f["file"] for f in found["found"] if f["problem"]] == ["valid.npy"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--valid", "2"], "valid is 2.0; give the share"),
        (["--end-token", "<end>"], "no special token '<end>'"),
        (["--on-error", "maybe"], "on-error"),
        (["--threads", "0"], "threads is 0"),
    ],
)
def test_bad_options(folder, tmp_path, words, sentence):
    done = tokenize(folder, tmp_path / "data", *words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_missing_files(folder, tmp_path):
    done = tilth(
        "tokenize", folder / "storys.txt", "--tokenizer", folder / "tokenizer.json", "--out", "x"
    )
    assert done.returncode == 2
    assert "did you mean" in done.stderr
    done = tilth("verify", tmp_path / "nothing")
    assert done.returncode == 2
    assert "is not a data folder" in done.stderr


def test_resume_after_ctrl_c(folder, tmp_path):
    """An interrupted command prints one line; the same command resumes."""
    with (tmp_path / "long.jsonl").open("w") as file:
        line = json.dumps({"text": " ".join(STORIES)}) + "\n"
        file.write(line * 20_000)  # takes a second or more
    command = [sys.executable, "-m", "tilth", "tokenize", tmp_path / "long.jsonl", "--threads", "1"]
    command += ["--tokenizer", folder / "tokenizer.json", "--out", tmp_path / "data"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    partial = tmp_path / "data" / ".partial" / "train.npy"
    while not (partial.exists() and partial.stat().st_size > 1000):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "tilth: interrupted"
    assert not (tmp_path / "data" / "manifest.json").exists()
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    data = open_data(tmp_path / "data")
    assert data.num_documents("train") + data.num_documents("valid") == 20_000
