"""Logs read from where the last read ended: their numbers are those of `tilth.runs`."""

import json
import random

import numpy as np
import pytest

from tilth.files import FileError
from tilth.runs.metrics import read_samples, read_steps
from tilth.studio import run_logs
from tilth.studio.run_logs import COLUMNS, MetricsLog, SamplesLog, Tail


def line(step, **values):
    record = {"step": step, "tokens": 512 * step, "seconds": 0.1 * step, "loss": 9 / (step + 1)}
    record |= {"lr": 1e-3, "grad_norm": 1.5, "tokens_per_second": 10.5, "utilisation": 0}
    return json.dumps(record | values) + "\n"


def evaluation(step):
    return {"loss": 1 / step, "perplexity": 2.0, "bits_per_byte": 0.5, "tokens": 3}


def some_lines(number=2000):
    chance = random.Random(0)
    lines = []
    for step in range(1, number + 1):
        values = {"loss": chance.choice([chance.random(), None, 3])}
        if step % 7 == 0:
            values["evaluation"] = evaluation(step)
        if step % 50 == 0:
            values["evaluation"] = {"loss": None, "tokens": 3}
            values["norms"] = {"activations": {"layers.0": step / 2, "layers.1": None}}
        if step % 3:
            values["step_seconds"] = chance.random()
        lines.append(line(step, **values))
    return lines


def equals_reading(log, path):
    records = read_steps(path)
    for name in COLUMNS:
        expected = np.array([getattr(record, name) for record in records], np.float64)
        np.testing.assert_array_equal(log.columns[name], expected)
    rows = [row for row, record in enumerate(records) if record.evaluation]
    assert log.evaluations["row"].tolist() == rows
    for name in ("loss", "perplexity", "bits_per_byte"):
        expected = [getattr(records[row].evaluation, name) for row in rows]
        assert log.evaluations[name].tolist() == expected
    steps, values = log.norms
    normed = [record for record in records if record.norms]
    assert steps.tolist() == [record.step for record in normed]
    expected = [[record.norms[kind][name] for kind, name in log.norm_names] for record in normed]
    np.testing.assert_array_equal(
        values, np.array(expected, np.float64).reshape(len(expected), len(log.norm_names))
    )


@pytest.mark.parametrize("chunk", [1000, 1 << 18])
def test_columns_equal_read_steps(tmp_path, monkeypatch, chunk):
    """However the log grows, and wherever a read ends."""
    monkeypatch.setattr(run_logs, "CHUNK_BYTES", chunk)
    path = tmp_path / "metrics.jsonl"
    content = "".join(some_lines()).encode()
    log = MetricsLog(path)
    assert not log.update()
    chance = random.Random(1)
    with path.open("wb", buffering=0) as file:
        done = 0
        while done < len(content):
            size = chance.choice([1, 100, 5000, 60_000])
            file.write(content[done : done + size])
            done += size
            log.update()
            assert len(log.columns["step"]) == content[:done].count(b"\n")
    equals_reading(log, path)
    assert log.problem is None
    assert not log.update()


def test_old_bytes_are_not_read_again(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(some_lines()))
    log = MetricsLog(path)
    log.update()
    read = []
    own = Tail._lines
    monkeypatch.setattr(
        Tail, "_lines", lambda tail, content: own(tail, read.append(content) or content)
    )
    with path.open("a") as file:
        file.write(line(2001))
    assert log.update()
    assert sum(map(len, read)) == len(line(2001))
    assert not log.update()
    assert sum(map(len, read)) == len(line(2001))


def test_a_log_that_is_cut_back_begins_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(map(line, range(1, 100))))
    log = MetricsLog(path)
    log.update()
    new = tmp_path / "new"
    new.write_text("".join(map(line, range(1, 51))))
    new.rename(path)  # as a resumed run does
    assert log.update()
    equals_reading(log, path)
    path.write_text("".join(line(step, loss=1.0) for step in range(1, 200)))  # in place, longer
    assert log.update()
    equals_reading(log, path)
    path.unlink()
    assert log.update()
    assert len(log.columns["step"]) == 0


@pytest.mark.parametrize(
    ("damaged", "sentence"),
    [
        ('{"step": 3}\n', "line 3"),
        ("[]\n", "it has no step"),
        ("\n", "line 3"),
        ("[" * 100_000 + "\n", "line 3"),
        ("\xff\n", "line 3"),
        (line(2), "step 2 follows step 2"),
        (line(0), "step"),
        (line(3, loss="9"), "loss"),
        (line(3, loss=True), "loss"),
        (line(3, loss=float("nan")), "loss"),
        (line(3, loss=float("inf")), "loss"),
        (line(3, loss=1e39), "loss"),
        (line(3, lr=None), "lr"),
        (line(3, tokens=1.5), "tokens"),
        (line(3, tokens=2**63), "tokens"),
        (line(3, tokens=10**400), "line 3"),
        (line(3, seconds=-1), "seconds"),
        (line(3, seconds=10**400), "line 3"),
        (line(3, evaluation=3), "evaluation"),
        (line(3, evaluation={"loss": "a"}), "loss"),
        (line(3, norms={"a": 3}), "norms"),
        (line(3, norms=[]), "norms"),
        ('{"step": 3},{"step": 4}\n', "line 3"),
    ],
)
def test_damaged_lines(tmp_path, damaged, sentence):
    """What `tilth.runs` refuses is a sentence that names no path; the lines before it are shown."""
    path = tmp_path / "metrics.jsonl"
    path.write_bytes((line(1) + line(2)).encode() + damaged.encode("latin-1") + line(5).encode())
    with pytest.raises(FileError):
        read_steps(path)
    log = MetricsLog(path)
    assert log.update()
    assert sentence in log.problem
    assert str(tmp_path) not in log.problem
    assert log.columns["step"].tolist() == [1, 2]
    assert not log.update()


def test_long_lines_and_many_norms_take_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(run_logs, "MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr(run_logs, "CHUNK_BYTES", 5000)
    monkeypatch.setattr(run_logs, "MAX_NORMS", 10)
    monkeypatch.setattr(run_logs, "MAX_NORM_RECORDS", 16)
    path = tmp_path / "metrics.jsonl"
    norms = {"activations": {str(i): 1.0 for i in range(50)}}
    path.write_text("".join(line(step, norms=norms) for step in range(1, 200)))
    log = MetricsLog(path)
    log.update()
    steps, values = log.norms
    assert values.shape[1] == 10
    assert 8 <= len(steps) <= 16
    assert set(np.diff(steps)) == {16}
    with path.open("a") as file:
        file.write("x" * 10_001)
    log.update()
    assert "a line of more than 10,000 bytes" in log.problem
    assert len(log.columns["step"]) == 199
    log.update()


def test_steps_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(run_logs, "CHUNK_BYTES", 5000)
    monkeypatch.setattr(run_logs, "MAX_STEPS", 100)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(map(line, range(1, 1000))))
    log = MetricsLog(path)
    log.update()
    assert 100 < len(log.columns["step"]) < 200
    assert "more than 100 steps" in log.problem


def test_links_are_not_followed(tmp_path):
    (tmp_path / "other").write_text(line(1))
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "other")
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.update()
    assert "symbolic link" in log.problem
    assert len(log.columns["step"]) == 0


def test_samples_equal_read_samples(tmp_path):
    path = tmp_path / "samples.jsonl"
    log = SamplesLog(path)
    with path.open("a", buffering=1) as file:
        for step in range(60):
            whole = json.dumps({"step": step, "text": "é<b>" * step}) + "\n"
            for part in (whole[:9], whole[9:]):
                file.write(part)
                file.flush()
                log.update()
        assert list(log.samples) == read_samples(path)[-50:]
        file.write('{"step": "a"}\n')
    assert log.update()
    assert "line 61" in log.problem
