"""`tilth tokenizer`, called as a command."""

import gzip
import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace

import pytest
import tokenizers
from rich.console import Console

from tests.command_line import tilth as run_tilth
from tilth.cli.tokenizer import print_pieces
from tilth.tokenizer import Template, Tokenizer, reference, tasks

TILTH = [sys.executable, "-m", "tilth", "tokenizer"]
END = "<|endoftext|>"
TEXT = f"the cat sat on the mat{END}the hat of the cat, naïve 🌱\n" * 20


def tilth(*words, **options):
    return run_tilth("tokenizer", *words, **{"text": False, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "text.txt").write_text(TEXT)
    (folder / "other.txt").write_text("der Hund und die Katze ärgern den Bären\n" * 20)
    done = tilth(
        "train",
        folder / "text.txt",
        "--vocab-size",
        280,
        "--special",
        END,
        "--out",
        folder / "tokenizer.json",
    )
    assert done.returncode == 0, done.stderr.decode()
    (folder / "train.out").write_bytes(done.stdout)
    tilth("train", folder / "other.txt", "--vocab-size", 280, "--out", folder / "german.json")
    return folder


def test_train(folder):
    output = (folder / "train.out").read_text()
    for word in (
        "tokens",
        "seconds",
        "count",
        "merge",
        "peak memory",
        "bytes per token",
        "longest",
    ):
        assert word in output
    assert output.splitlines()[-1] == f"Wrote {folder / 'tokenizer.json'}"
    trained = Tokenizer.load(folder / "tokenizer.json")
    assert list(trained.merges) == reference.train([TEXT], 280, [END])[1]
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert theirs.encode(TEXT).ids == trained.encode(TEXT)


def test_train_errors(folder):
    out = ["--out", folder / "tokenizer.json"]
    existing = tilth("train", folder / "text.txt", *out)
    assert existing.returncode == 2
    assert b"--overwrite" in existing.stderr
    for words, part in [
        ([folder / "missing.txt", "--out", folder / "x.json"], b"missing.txt"),
        ([folder / "text.txt", "--vocab-size", 100, "--out", folder / "x.json"], b"at least 256"),
        ([folder / "text.txt", "--threads", 0, "--out", folder / "x.json"], b"1 or more"),
        ([folder / "text.txt", "--out", folder / "no" / "x.json"], b"does not exist"),
        ([folder / "text.txt", "--vocab-sice", 300, "--out", folder / "x.json"], b"--vocab-size"),
        ([folder / "text.txt", "--pattern", "a$", "--out", folder / "x.json"], b"differently"),
        (["--out", folder / "x.json"], b"CORPUS"),
    ]:
        done = tilth("train", *words)
        assert done.returncode == 2, words
        assert part in done.stderr, done.stderr
        assert done.stderr.count(b"\n") == 1
        assert not (folder / "x.json").exists()


def test_train_on_other_forms_of_a_corpus(folder):
    lines = [json.dumps({"story": text}) for text in TEXT.split(END)]
    (folder / "text.jsonl.gz").write_bytes(gzip.compress("\n".join([*lines, "no JSON"]).encode()))
    out = ["--special", END, "--vocab-size", 280, "--out", folder / "lines.json"]
    words = ["train", folder / "text.jsonl.gz", "--field", "story", *out]
    done = tilth(*words)
    assert done.returncode == 2
    assert b"text.jsonl.gz is not JSON" in done.stderr
    assert b"on line 22; " in done.stderr
    assert not (folder / "lines.json").exists()
    done = tilth(*words, "--on-error", "skip", "--json")
    assert done.returncode == 0
    assert b"note: Skipped 1 documents in all." in done.stderr
    assert json.loads(done.stdout)["bytes_per_token"] > 1
    assert Tokenizer.load(folder / "lines.json") == Tokenizer.load(folder / "tokenizer.json")


def test_train_on_a_pipe(folder):
    out = folder / "pipe.json"
    words = ["--special", END, "--vocab-size", 280, "--out", out]
    done = tilth("train", "/dev/stdin", *words, input=TEXT.encode())
    assert done.returncode == 0, done.stderr
    assert b"bytes per token" not in done.stdout  # a pipe is read once
    assert Tokenizer.load(out) == Tokenizer.load(folder / "tokenizer.json")


def test_train_in_tasks(folder, monkeypatch):
    """The file of one process; a file that has the former name of the counts stays."""

    def run(function, arguments, _executor, _folder):
        for index, each in enumerate(arguments):
            function(each)
            yield index

    monkeypatch.setattr(tasks, "run_tasks", run)
    other = folder / ".tasks.json.counts"
    other.write_text("mine")
    words = ["--special", END, "--vocab-size", 280, "--cluster", "local", "--tasks", 1]
    done = tilth("train", folder / "text.txt", *words, "--out", folder / "tasks.json", "--json")
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["seconds"]) == {"count", "read", "merge"}
    assert (folder / "tasks.json").read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert other.read_text() == "mine"
    assert not (folder / ".tasks.json.tasks").exists()
    done = tilth("train", *words, "--from-counts", "x", "--out", folder / "x.json")
    assert done.returncode == 2
    assert b"give one" in done.stderr


def test_train_notes_a_vocabulary_that_is_not_full(folder):
    done = tilth(
        "train", folder / "text.txt", "--vocab-size", 9000, "--out", folder / "early.json", "--json"
    )
    assert b"note: No pair is left" in done.stderr
    assert json.loads(done.stdout)["tokens"] < 9000


def test_count_merge_and_train_from_counts(folder):
    first, second = TEXT[: len(TEXT) // 2], TEXT[len(TEXT) // 2 :]
    (folder / "first.txt").write_text(first)
    lines = "\n".join(json.dumps({"story": text}) for text in second.split(END))
    (folder / "second.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    options = ["--special", END]
    done = tilth("count", folder / "first.txt", *options, "--out", folder / "a.counts")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[-1] == f"Wrote {folder / 'a.counts'}"
    words = [folder / "second.jsonl.gz", "--field", "story", "--threads", 1]
    tilth("count", *words, *options, "--out", folder / "b.counts")
    tilth("count", folder / "text.txt", *options, "--out", folder / "whole.counts")
    merged = tilth(
        "merge-counts",
        folder / "a.counts",
        folder / "b.counts",
        "--out",
        folder / "all.counts",
        "--json",
    )
    assert merged.returncode == 0, merged.stderr
    pieces = json.loads(merged.stdout)["pieces"]
    assert pieces == sum(len(reference.split(text)) for text in TEXT.split(END))
    assert (folder / "all.counts").read_bytes() == (folder / "whole.counts").read_bytes()
    words = ["--from-counts", folder / "all.counts", "--vocab-size", 280]
    trained = tilth("train", *words, "--out", folder / "counted.json")
    assert trained.returncode == 0, trained.stderr
    assert b"bytes per token" not in trained.stdout
    assert (folder / "counted.json").read_bytes() == (folder / "tokenizer.json").read_bytes()

    tilth("count", folder / "text.txt", "--out", folder / "other.counts")
    (folder / "bad.counts").write_bytes((folder / "all.counts").read_bytes()[:-1])
    out = ["--out", folder / "x"]
    for words, part in [
        (["merge-counts", folder / "all.counts", folder / "other.counts"], b"special tokens"),
        (["merge-counts", folder / "bad.counts"], b"bad.counts is "),
        (["merge-counts", folder / "text.txt"], b"text.txt is not a file of piece counts"),
        (["merge-counts", folder / "missing"], b"missing does not exist"),
        (["merge-counts"], b"COUNTS"),
        (["count", folder / "missing.txt"], b"missing.txt"),
        (["count", folder / "text.txt", "--pattern", "a$"], b"differently"),
        (["train", "--from-counts", folder / "bad.counts"], b"bad.counts is "),
        (["train", "--from-counts", folder / "all.counts", "--special", "<a>"], b"special tokens"),
        (["train", "--from-counts", folder / "all.counts", "--pattern", "o200k"], b"patterns"),
        (["train", folder / "text.txt", "--from-counts", folder / "all.counts"], b"both counts"),
    ]:
        done = tilth(*words, *out)
        assert done.returncode == 2, words
        assert part in done.stderr, done.stderr
        assert done.stderr.count(b"\n") == 1
        assert not (folder / "x").exists()


def test_inspect(folder):
    done = tilth("inspect", folder / "tokenizer.json", "--text", "the cat 🌱")
    output = done.stdout.decode()
    assert "280 (23 merges)" in output
    assert "the| cat| 🌱" in output
    found = json.loads(
        tilth("inspect", folder / "tokenizer.json", "--text", "the", "--json").stdout
    )
    assert found["special_tokens"] == {END: 0}
    assert sum(found["lengths"].values()) == 280
    assert [piece["token"] for piece in found["text"]] == ["the"]


def test_inspect_colours_on_a_terminal(folder):
    controller, terminal = pty.openpty()
    subprocess.run(
        [*TILTH, "inspect", str(folder / "tokenizer.json"), "--text", "the cat"],
        stdout=terminal,
        check=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(terminal)
    assert b"\x1b[" in os.read(controller, 65536)
    os.close(controller)


@pytest.mark.parametrize(
    ("environment", "shown"),
    [
        ({"TERM": "xterm-256color"}, "\x1b"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "the| cat\n"),
        ({"TERM": "dumb"}, "the| cat\n"),
    ],
)
def test_a_terminal_without_colours(monkeypatch, environment, shown):
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    console = Console(file=io.StringIO(), force_terminal=True)
    print_pieces(console, [b"the", b" cat"])
    written = console.file.getvalue()
    assert written.startswith(shown)
    assert ("|" in written) == ("\x1b" not in written)


def test_compare(folder):
    names = [folder / "tokenizer.json", folder / "german.json"]
    texts = [folder / "text.txt", folder / "other.txt"]
    done = tilth("compare", *names, "--text", texts[0], "--text", texts[1], "--json")
    found = json.loads(done.stdout)
    english, german = (found["bytes_per_token"][str(name)] for name in names)
    assert english[str(texts[0])] > german[str(texts[0])]
    assert german[str(texts[1])] > english[str(texts[1])]
    (shared,) = found["shared_merges"].values()
    merges = [set(Tokenizer.load(name).merges) for name in names]
    assert shared == len(merges[0] & merges[1])
    speed = found["bytes_per_second"][str(names[0])]
    assert found["hours_for_the_pile"][str(names[0])] == pytest.approx(825e9 / speed / 3600)
    assert b"share" in tilth("compare", *names, "--text", texts[0]).stdout
    assert tilth("compare", names[0], "--text", texts[0]).returncode == 2


def test_encode_and_decode_on_pipes(folder):
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    for allow in ([], ["--allow-special"]):
        done = tilth("encode", folder / "tokenizer.json", *allow, input=TEXT.encode())
        ids = [int(word) for word in done.stdout.split()]
        assert ids == (tokenizer.encode(TEXT) if allow else tokenizer.encode_ordinary(TEXT))
        assert tilth("decode", folder / "tokenizer.json", input=done.stdout).stdout == TEXT.encode()
    assert tilth("encode", folder / "tokenizer.json", input=b"").stdout == b"\n"
    large = b"the cat " * 20_000
    done = tilth("encode", folder / "tokenizer.json", input=large)
    assert [int(word) for word in done.stdout.split()] == tokenizer.encode(large)
    assert b"9999" in tilth("decode", folder / "tokenizer.json", input=b"5 9999").stderr
    assert b"five" in tilth("decode", folder / "tokenizer.json", input=b"five").stderr


def test_convert_round_trips(folder):
    source = Tokenizer.load(folder / "tokenizer.json")
    gpt2, ranks = folder / "gpt2", folder / "ranks.tiktoken"
    assert tilth("convert", folder / "tokenizer.json", "--out", gpt2).returncode == 0
    done = tilth("convert", folder / "tokenizer.json", "--out", ranks)
    assert done.stdout.decode().splitlines()[-1] == f"Wrote {ranks}"
    assert Tokenizer.from_files(gpt2 / "vocab.json", gpt2 / "merges.txt", [END]) == source
    tilth("convert", gpt2, "--special", END, "--out", folder / "back.json")
    assert Tokenizer.load(folder / "back.json") == source
    again = tilth("convert", gpt2, "--special", END, "--out", folder / "back.json")
    assert again.returncode == 2
    assert b"--overwrite" in again.stderr
    done = tilth("encode", ranks, "--pattern", "gpt2", input=b"the cat sat")
    assert [int(word) for word in done.stdout.split()] == source.encode("the cat sat")
    for verb in ("encode", "inspect", "convert"):
        out = ["--out", folder / "ranks.json"] if verb == "convert" else []
        done = tilth(verb, ranks, *out, input=b"the cat sat")
        assert done.returncode == 2
        assert b"ranks.tiktoken does not say how text is split into pieces" in done.stderr
        assert b"gpt2, cl100k" in done.stderr
    assert not (folder / "ranks.json").exists()


def test_add_special_tokens(folder):
    source = Tokenizer.load(folder / "tokenizer.json")
    template = Template(before=(END,))
    framed = Tokenizer.from_vocabulary(replace(source.vocabulary, template=template))
    framed.save(folder / "framed.json")
    done = tilth("encode", folder / "framed.json", "--add-special-tokens", input=b"the cat")
    assert [int(word) for word in done.stdout.split()] == [0, *source.encode("the cat")]
    done = tilth("convert", folder / "framed.json", "--out", folder / "framed.tiktoken")
    assert b"note: " in done.stderr
    assert b"does not store the pattern gpt2, the 1 special tokens and the template" in done.stderr
    done = tilth("convert", folder / "framed.json", "--out", folder / "tekken.json")
    assert done.returncode == 2
    assert b"the template of the file would be (), not its own" in done.stderr
    tilth("convert", folder / "tokenizer.json", "--out", folder / "tekken.json")
    again = Tokenizer.load(folder / "tekken.json")
    assert again.encode(TEXT) == source.encode(TEXT)


def test_damaged_file(folder):
    (folder / "broken.json").write_text("{")
    done = tilth("inspect", folder / "broken.json")
    assert done.returncode == 2
    assert b"broken.json" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_arguments_are_utf8_in_every_locale(folder):
    """Python decodes other bytes to surrogates, which would become U+FFFD."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    words = ["inspect", folder / "tokenizer.json", "--json", "--text", "naïve"]
    expected = Tokenizer.load(folder / "tokenizer.json").encode("naïve")
    done = tilth(*words, env=environment)
    assert [entry["id"] for entry in json.loads(done.stdout)["text"]] == expected
    assert tilth(*words).stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inspect", "tokenizer.json", "--text", b"a\xffb"], b"--text 'a\\udcffb' is not UTF-8"),
        (["train", "text.txt", "--special", b"\xff\xfe"], b"--special '\\udcff\\udcfe' is not UTF"),
        (["train", "text.txt", "--pattern", b"\xff+"], b"--pattern '\\udcff+' is not UTF-8"),
        (["train", "text.txt", "--vocab-size", "9" * 23], b"vocab_size is too large"),
        (["train", "text.txt", "--threads", str(2**64)], b"and this machine has"),
        (["compare", "tokenizer.json", "german.json", "--text", "pipe"], b"pipe is a pipe or a de"),
        (["compare", "tokenizer.json", "german.json", "--text", "empty"], b"empty; give a file"),
    ],
)
def test_odd_arguments_are_one_sentence(folder, words, said):
    if not (folder / "pipe").exists():
        os.mkfifo(folder / "pipe")
        (folder / "empty").touch()
    out = ["--out", "odd.json"] if words[0] == "train" else []
    done = subprocess.run(
        [*TILTH, *words, *out], cwd=folder, capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert not (folder / "odd.json").exists()


def test_control_characters_of_a_tokenizer_are_escaped(folder):
    hostile = Tokenizer({0: b"a"}, [], ["<\x1b]0;owned\x07>"])
    hostile.save(folder / "hostile.json", overwrite=True)
    done = tilth("inspect", folder / "hostile.json")
    assert b"<\\x1b]0;owned\\x07> (1)" in done.stdout
    assert b"\x1b" not in done.stdout
