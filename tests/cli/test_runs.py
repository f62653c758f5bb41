"""`tilth runs`: the table equals the run directories."""

import json
import math
import os
import subprocess
import sys
import time

import pytest

from tests.command_line import program_without
from tilth.cli.runs import runs
from tilth.config.model import ModelConfig
from tilth.config.training import TrainingConfig
from tilth.runs.metrics import Evaluation, Log, StepRecord
from tilth.runs.run import create_run
from tilth.tokenizer import train_tokenizer

TOKENIZER = train_tokenizer(texts=["the cat and the hat"], vocab_size=260)
MODEL = ModelConfig(260, context_length=8, d_model=16, num_layers=1, num_heads=2)
STEPS = 1200


@pytest.fixture
def lines_of(capsys):
    """Return the lines printed for a folder."""

    def lines_of(folder, **options):
        runs(folder, **options)
        return capsys.readouterr().out.splitlines()

    return lines_of


@pytest.fixture
def rows_of(lines_of):
    """Return the rows of the JSON output, by name."""

    def rows_of(folder):
        (line,) = lines_of(folder, json=True)
        return {row["name"]: row for row in json.loads(line)["runs"]}

    return rows_of


def make_run(folder, records=(), checkpoints=()):
    config = TrainingConfig("data", MODEL, steps=STEPS).resolve(
        device="cpu", dtype="float32", compile=False, threads=1
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    run = create_run(folder, config, TOKENIZER, "0" * 64)
    with Log(folder / "metrics.jsonl") as log:
        for record in records:
            log.append(record.to_dict())
    for step in checkpoints:
        (folder / "checkpoints" / f"step-{step:06}").mkdir()
    return run


def record(step, loss, **more):
    return StepRecord(step, step * 256, step * 0.5, loss, 1e-3, 0.5, 512.0 + step, 0.7, **more)


def line(**changes):
    """A line of metrics.jsonl with changed values."""
    return json.dumps({**record(1, 6.5).to_dict(), **changes}).encode() + b"\n"


def manifest(**changes):
    """The manifest of a run with changed values."""
    values = {"format": "run", "version": 1, "data_fingerprint": "0", "tokenizer_fingerprint": "0"}
    return json.dumps({**values, **changes}).encode()


RECORDS = [
    record(1, 6.5),
    record(2, 5.0, evaluation=Evaluation(5.25, 190.57, 2.5, 1024)),
    record(3, 4.0, evaluation=Evaluation(4.75, 115.58, 2.25, 1024), saved="step-000003"),
    record(4, 4.5, evaluation=Evaluation(4.875, 130.97, 2.375, 1024)),
    record(5, None, was_skipped=True),
]


def test_rows(tmp_path, rows_of, lines_of):
    make_run(tmp_path / "first", RECORDS, checkpoints=[3])
    make_run(tmp_path / "new")
    make_run(tmp_path / "sweep" / "a", [record(STEPS, 1.5)], checkpoints=[600, STEPS])
    make_run(tmp_path / "sweep" / "deeper" / "b")
    make_run(tmp_path / ".hidden")
    (tmp_path / "notes.txt").write_text("not a run")
    (tmp_path / "empty").mkdir()
    rows = rows_of(tmp_path)
    assert list(rows) == ["first", "new", "sweep/a"]
    first = rows["first"]
    age = first.pop("age_seconds")
    assert 0 <= age < 60
    assert first == {
        "name": "first",
        "state": "stopped",
        "step": 5,
        "steps": STEPS,
        "checkpoint_step": 3,
        "loss": 4.5,  # the last finite one
        "valid_loss": 4.875,
        "best_valid_loss": 4.75,
        "bits_per_byte": 2.375,
        "tokens_per_second": 517.0,
    }
    assert (rows["new"]["state"], rows["new"]["step"], rows["new"]["loss"]) == ("stopped", 0, None)
    assert rows["sweep/a"]["state"] == "finished"

    heading, *lines = lines_of(tmp_path)
    words = [" ".join(line.split()[:-2]) for line in lines]  # without the age
    assert words[0] == "first stopped 5 of 1,200 4.5000 4.8750 4.7500 2.3750 517"
    assert words[1] == "new stopped 0 of 1,200 - - - - -"
    assert " ".join(heading.split()) == "name state step loss valid best bits/byte tokens/s age"
    assert len({len(line) for line in [heading, *lines]}) == 1, "columns end together"


def test_a_run_directory_lists_itself(tmp_path, rows_of):
    make_run(tmp_path / "first", RECORDS)
    assert list(rows_of(tmp_path / "first")) == ["first"]


def test_a_locked_run_is_running(tmp_path, rows_of):
    run = make_run(tmp_path / "first", RECORDS)
    with run.locked():
        assert rows_of(tmp_path)["first"]["state"] == "running"
    assert rows_of(tmp_path)["first"]["state"] == "stopped"


def test_age_is_the_time_since_the_last_step(tmp_path, lines_of):
    make_run(tmp_path / "first", RECORDS)
    hours_ago = time.time() - 3 * 3600 - 60
    os.utime(tmp_path / "first" / "metrics.jsonl", (hours_ago, hours_ago))
    assert lines_of(tmp_path)[1].endswith("  3.0 hours")


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("config.toml", b"steps = [", "config.toml"),
        ("config.toml", b"\xff", "config.toml"),
        ("config.toml", b"data = 'd'\nstep = 3\n", "did you mean steps"),
        ("manifest.json", b'{"format": "ru', "manifest.json"),
        ("manifest.json", b'{"format": "data", "version": 1}', "'data' manifest"),
        ("metrics.jsonl", b'{"step": 1, "lo\n{"step": 2}\n', "line 1"),
        ("metrics.jsonl", b'{"step": 1}\n', "the key tokens is missing from the line"),
        ("metrics.jsonl", line(loss="low"), "loss must be a number, not 'low'"),
        ("metrics.jsonl", line(tokens_per_second=10**400), "tokens_per_second is inf"),
        ("metrics.jsonl", line(tokens=10**400), "tokens must be at most"),
        ("metrics.jsonl", line(evaluation=3), "evaluation must be a table, not 3"),
        ("metrics.jsonl", line(evaluation={"loss": 1.0, "bits_per_byte": {}}), "bits_per_byte"),
        ("metrics.jsonl", line(evaluation={}), "loss is missing from the line"),
        ("metrics.jsonl", line(norms={"weights": []}), "norms.weights must be a table"),
        ("metrics.jsonl", line() + line(), "damaged line 2 (step 1 follows step 1)"),
        ("manifest.json", manifest(versions=[]), "versions must be a table"),
        ("manifest.json", manifest(data_fingerprint=3), "data_fingerprint must be text"),
        ("manifest.json", manifest(checksums={"tokenizer.json": None}), "checksums"),
    ],
)
def test_a_damaged_run_is_listed_with_its_problem(tmp_path, rows_of, lines_of, file, content, part):
    make_run(tmp_path / "a", RECORDS)
    make_run(tmp_path / "b", RECORDS)
    (tmp_path / "a" / file).write_bytes(content)
    rows = rows_of(tmp_path)
    assert rows["a"]["state"] == "damaged"
    assert part in rows["a"]["problem"]
    assert rows["b"]["state"] == "stopped"
    _, damaged, whole = lines_of(tmp_path)
    assert damaged.startswith("a     damaged: ")
    assert part in damaged
    assert whole.startswith("b     stopped ")


def test_a_torn_last_line_is_ignored(tmp_path, rows_of):
    make_run(tmp_path / "a", RECORDS)
    with (tmp_path / "a" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 6, "lo')
    assert rows_of(tmp_path)["a"]["step"] == 5


def test_no_runs(tmp_path, rows_of, lines_of):
    assert lines_of(tmp_path) == [f"There are no runs in {tmp_path}; `tilth train` creates them."]
    assert rows_of(tmp_path) == {}
    with pytest.raises(FileNotFoundError, match=r"no folder .*missing; name the folder"):
        runs(tmp_path / "missing")


def test_control_characters_in_names_are_escaped(tmp_path, lines_of):
    make_run(tmp_path / "a\x1b[2Jb\n")
    make_run(tmp_path / "c\x1b[2Jd\n")
    (tmp_path / "c\x1b[2Jd\n" / "config.toml").write_bytes(b"?")
    _, whole, damaged = lines_of(tmp_path)
    assert whole.startswith("a\\x1b[2Jb\\n  stopped")
    assert damaged.count("c\\x1b[2Jd\\n") == 2, "in its name, and in what is wrong"


def test_as_a_command_without_torch(tmp_path):
    make_run(tmp_path / "a", RECORDS, checkpoints=[3])
    program = program_without({"torch"}, "runs", tmp_path, "--json")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["checkpoint_step"] == 3


def test_a_validation_set_without_text(tmp_path, rows_of, lines_of):
    evaluation = Evaluation(5.0, 148.41, float("inf"), 1)  # no bytes: null in the log
    make_run(tmp_path / "run", [record(1, 5.0, evaluation=evaluation)])
    row = rows_of(tmp_path)["run"]
    assert (row["state"], row["valid_loss"], row["bits_per_byte"]) == ("stopped", 5.0, None)
    assert "damaged" not in "".join(lines_of(tmp_path))


def test_non_finite_values_are_null(tmp_path, rows_of, lines_of):
    make_run(
        tmp_path / "a", [record(1, 6.5, evaluation=Evaluation(math.inf, math.inf, math.inf, 9))]
    )
    row = rows_of(tmp_path)["a"]
    assert (row["valid_loss"], row["best_valid_loss"], row["bits_per_byte"]) == (None, None, None)
    assert " ".join(lines_of(tmp_path)[1].split()[5:9]) == "6.5000 - - -"
