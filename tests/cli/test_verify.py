"""`tilth verify`: integrity of runs."""

import json
import subprocess
import sys

import pytest

from tests.command_line import program_without
from tilth.cli.verify import verify
from tilth.config.model import ModelConfig
from tilth.config.training import TrainingConfig
from tilth.files import FileError
from tilth.runs.run import create_run
from tilth.tokenizer import train_tokenizer


@pytest.fixture
def run(tmp_path):
    tokenizer = train_tokenizer(texts=["the cat and the hat"], vocab_size=260)
    model = ModelConfig(260, context_length=8, d_model=16, num_layers=1, num_heads=2)
    config = TrainingConfig("data", model, steps=9).resolve(
        device="cpu", dtype="float32", compile=False, threads=1
    )
    return create_run(tmp_path / "run", config, tokenizer, "0" * 64)


def test_a_whole_run(run, capsys):
    verify(run.folder)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:-1]] == [
        ["config.toml", "whole"],
        ["tokenizer.json", "whole"],
        ["metrics.jsonl", "whole"],
    ]
    assert lines[-1] == f"{run.folder} is whole"
    verify(run.folder, json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["is_whole"]
    assert {each["problem"] for each in found["found"]} == {None}


def test_a_damaged_run(run, capsys):
    (run.folder / "metrics.jsonl").write_bytes(b"x\n")
    (run.folder / "checkpoints" / "step-000003").mkdir()
    for as_json in (False, True):
        with pytest.raises(ValueError, match=r"run is damaged: .*damaged line 1 .*that line\.$"):
            verify(run.folder, json=as_json)
    *table, last = capsys.readouterr().out.splitlines()
    assert "damaged line 1" in table[2]
    assert table[3].startswith("checkpoints/step-000003")
    assert "state.json does not exist" in table[3]
    found = json.loads(last)
    assert not found["is_whole"]
    problems = {each["file"]: bool(each["problem"]) for each in found["found"]}
    assert problems == {
        "config.toml": False,
        "tokenizer.json": False,
        "metrics.jsonl": True,
        "checkpoints/step-000003": True,
    }


def test_a_run_without_a_manifest(run):
    (run.folder / "manifest.json").unlink()
    with pytest.raises(FileError, match=r"manifest\.json does not exist"):
        verify(run.folder)


def test_a_folder_that_is_neither_a_run_nor_data(tmp_path):
    with pytest.raises(ValueError, match=r"manifest\.json"):
        verify(tmp_path)


def test_as_a_command_without_torch(run):
    program = program_without({"torch"}, "verify", run.folder)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (run.folder / "metrics.jsonl").write_bytes(b"x\n")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"tilth: ")
    assert done.stderr.count(b"\n") == 1
