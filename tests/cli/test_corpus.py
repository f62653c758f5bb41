"""`tilth corpus`, called as a command."""

import gzip
import json
import os
import subprocess
import sys

import pytest

from tests.command_line import assert_one_sentence, program_without
from tests.command_line import tilth as run_tilth
from tilth.formatting import parse_bytes

END = "<|endoftext|>"


def tilth(*words, **options):
    return run_tilth("corpus", *words, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text(
        f"\n\nOne day.\nIt rained.{END}Two \x1b[0m{END} \n{END}ж" + "x" * 200
    )
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Three."}\n' + b"no JSON\n" * 9))
    return folder


def test_info(folder):
    done = tilth("info", folder / "a.txt", folder / "b.jsonl.gz")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("note: Skipped: ") == 5
    assert f"{folder / 'b.jsonl.gz'} is not JSON" in done.stderr
    assert "on line 2.\n" in done.stderr
    size = (folder / "a.txt").stat().st_size + (folder / "b.jsonl.gz").stat().st_size
    lines = done.stdout.splitlines()
    assert lines[:5] == [
        "documents  4",
        f"bytes      237 of text, {size:,} on disk",
        "mean       59 bytes",
        f"longest    202 bytes: document 3 of {folder / 'a.txt'}",
        "skipped    9 that are not valid text",
    ]
    assert f"           3 in {folder / 'a.txt'} (text)" in lines
    assert f"           1 in {folder / 'b.jsonl.gz'} (json lines)" in lines
    assert "    One day." in lines
    assert "    It rained." in lines
    assert "    ж" + "x" * 99 + "…" in lines


def test_info_as_json(folder):
    done = tilth("info", folder / "a.txt", folder / "b.jsonl.gz", "--json")
    found = json.loads(done.stdout)
    assert found["documents"] == 4
    assert found["text_bytes"] == len("\n\nOne day.\nIt rained.Two \x1b[0mThree.") + 202
    assert found["longest_bytes"] == 202
    assert found["skipped"] == 9
    assert found["sample"]["first"] == ["One day.", "It rained."]
    assert [source["documents"] for source in found["sources"]] == [3, 1]
    separated = tilth("info", folder / "a.txt", "--separator", "day", "--json")
    assert json.loads(separated.stdout)["documents"] == 2


def test_info_of_an_empty_corpus(tmp_path):
    (tmp_path / "a.txt").touch()
    done = tilth("info", tmp_path / "a.txt")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "documents  0",
        "bytes      0 of text, 0 on disk",
        "mean       0 bytes",
    ]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["info"], ["PATHS"]),
        (["info", "b.json"], ["b.json does not exist; did you mean b.jsonl.gz?"]),
        (["info", "b.jsonl.gz", "--on-error", "stop"], ["b.jsonl.gz is not JSON", "on line 2"]),
        (["info", "a.txt", "--on-error", "ignore"], ["--on-error"]),
        (["info", "a.txt", "--separator", ""], ["separator"]),
        (["fetch", "tinystorys", "--out", "x"], ["did you mean tinystories?"]),
        (["stories", "--out", "no/a.txt"], ["does not exist; create it"]),
        (["stories", "--out", "a.txt"], ["a.txt already exists", "--overwrite"]),
        (["stories", "--out", "x.txt", "--size", "much"], ["'much' is not a size; write 500kB"]),
    ],
)
def test_errors_are_one_sentence(folder, words, parts):
    assert_one_sentence(tilth(*words, cwd=folder), *parts)


def test_fetch_without_a_network(tmp_path):
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    done = tilth("fetch", "tinystories", "--out", tmp_path / "data", env=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Cannot fetch" in done.stderr
    assert "tilth corpus stories" in done.stderr


def test_stories(tmp_path):
    out = tmp_path / "stories.txt"
    done = tilth("stories", "--size", "20kB", "--seed", 3, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Wrote {out}"
    assert out.stat().st_size >= 20_000
    first = out.read_bytes()
    again = tilth("stories", "--size", 20_000, "--seed", 3, "--out", out, "--overwrite", "--json")
    assert out.read_bytes() == first
    found = json.loads(again.stdout)
    assert found["bytes"] == len(first)
    information = json.loads(tilth("info", out, "--json").stdout)
    assert information["documents"] == found["stories"]


def test_without_torch_or_numpy(folder):
    program = program_without({"torch", "numpy", "pyarrow"}, "corpus", "info", folder)
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("500kB", 500_000),
        ("50MB", 50_000_000),
        ("50 mb", 50_000_000),
        ("1.1GB", 1_100_000_000),
        ("2KiB", 2048),
        ("1MiB", 1 << 20),
        ("1.5GiB", 3 << 29),
        ("1TB", 10**12),
    ],
)
def test_sizes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "-1", "1.2.3MB", "1e6", "5 apples", "1 000", "٣MB"])
def test_invalid_sizes(text):
    with pytest.raises(ValueError, match="is not a size; write 500kB, 50MB"):
        parse_bytes(text)


def test_a_separator_is_utf8_in_every_locale(tmp_path):
    (tmp_path / "a.txt").write_text("One dayнOne night", encoding="utf-8")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = tilth("info", tmp_path / "a.txt", "--separator", "н", "--json", env=environment)
    assert json.loads(done.stdout)["documents"] == 2
