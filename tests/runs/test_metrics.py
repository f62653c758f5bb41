"""Logs: round trips, incomplete lines, and cutting back to a step."""

import json
import math
import os
import subprocess
import sys
import time
import tracemalloc
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.full_disk import largest_file
from tilth.files import FileError
from tilth.runs import metrics
from tilth.runs.metrics import (
    MAX_LOG_BYTES,
    Evaluation,
    Log,
    SampleRecord,
    StepRecord,
    cut_back,
    read_samples,
    read_steps,
)

numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
records = st.lists(
    st.builds(
        lambda step, rest: {**rest, "step": step},
        st.integers(0, 9),
        st.dictionaries(st.text(max_size=4), values, max_size=3),
    ),
    max_size=6,
)


def read_log(path):
    return list(metrics.read_log(path))


def write(path, records):
    with Log(path) as log:
        for record in records:
            log.append(record)


def as_read(record):
    """Return the record as JSON reads it; surrogate pairs become one character."""
    return json.loads(json.dumps(record))


@settings(max_examples=50)
@given(records)
def test_append_and_read_round_trip(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    assert read_log(path) == []
    write(path, written[:2])
    write(path, written[2:])  # appends
    assert read_log(path) == [as_read(record) for record in written]


def test_unusual_text_and_numbers_round_trip(tmp_path):
    record = {"step": 1, "text": "é\n\r\u2028\0 \ud800 😀", "tiny": 5e-324, "large": 1.7e308}
    write(tmp_path / "log", [record])
    assert read_log(tmp_path / "log") == [record]
    assert (tmp_path / "log").read_bytes().count(b"\n") == 1


def test_non_finite_numbers_become_null(tmp_path):
    record = {"step": 1, "norms": {"a": {"b": math.inf, "c": 1.0}, "d": math.nan}, "e": -math.inf}
    write(tmp_path / "log", [record])
    expected = {"step": 1, "norms": {"a": {"b": None, "c": 1.0}, "d": None}, "e": None}
    assert read_log(tmp_path / "log") == [expected]


@settings(max_examples=50)
@given(records, st.integers(-1, 10), st.integers(0, 40))
def test_incomplete_line_is_ignored_and_removed(tmp_path_factory, written, step, torn_bytes):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    write(path, written)
    whole = path.read_bytes()
    next_line = b'{"step": 3, "loss": 4.25, "text": "\xc3\xa9"}'
    path.write_bytes(whole + next_line[:torn_bytes])
    assert read_log(path) == [as_read(record) for record in written]
    cut_back(path, step)
    kept = [as_read(record) for record in written if record["step"] <= step]
    assert read_log(path) == kept
    expected = [
        line for line in whole.splitlines(keepends=True) if json.loads(line)["step"] <= step
    ]
    assert path.read_bytes() == b"".join(expected), "a line that is kept stays as it is"
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    write(path, [{"step": 99}])
    assert read_log(path) == [*kept, {"step": 99}]


def test_every_prefix_of_a_log_is_readable(tmp_path):
    """A crash leaves a prefix of an append-only file."""
    written = [{"step": step, "loss": 1 / step, "text": "é"} for step in range(1, 4)]
    write(tmp_path / "log", written)
    whole = (tmp_path / "log").read_bytes()
    for size in range(len(whole) + 1):
        (tmp_path / "log").write_bytes(whole[:size])
        assert read_log(tmp_path / "log") == written[: whole[:size].count(b"\n")]


def test_cut_back_does_not_rewrite_an_unchanged_log(tmp_path):
    cut_back(tmp_path / "log", 3)
    assert not (tmp_path / "log").exists()
    write(tmp_path / "log", [{"step": 3}])
    before = (tmp_path / "log").stat()
    cut_back(tmp_path / "log", 3)
    assert (tmp_path / "log").stat() == before


def test_log_larger_than_its_limit_is_rejected(tmp_path):
    """A sparse file takes no space on a disk, and all of its size in memory."""
    with (tmp_path / "log").open("wb") as file:
        file.truncate(MAX_LOG_BYTES + 1)
    for read in (read_log, lambda path: cut_back(path, 1)):
        with pytest.raises(FileError, match="more than the limit of 1,073,741,824"):
            read(tmp_path / "log")


def test_log_of_many_short_lines_takes_no_more_memory_than_its_bytes(tmp_path):
    """Parsed all at once, each of these lines takes 30 times its bytes."""
    content = b'{"step": 1}\n' * 20_000
    (tmp_path / "log").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="has a damaged line 1"):
            read_steps(tmp_path / "log")
        assert tracemalloc.get_traced_memory()[1] < 3 * len(content)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [None, b"", b'{"step": 1}\n{"step": 2}\n{"st'])
def test_log_is_not_written_through_a_symlink(tmp_path, content):
    """An untrusted run may link its log to an existing or missing file of the user."""
    if content is not None:
        (tmp_path / "own").write_bytes(content)
    (tmp_path / "metrics.jsonl").symlink_to("own")
    for change in (Log, lambda path: cut_back(path, 1)):
        with pytest.raises(FileError, match="is a symbolic link"):
            change(tmp_path / "metrics.jsonl")
    assert (tmp_path / "own").exists() == (content is not None)
    assert content is None or (tmp_path / "own").read_bytes() == content


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "has a damaged line 2"),
        (b'{"step": 1, "lo', "has a damaged line 2"),
        (b"\0\0\0\0", "has a damaged line 2"),
        (b'{"step": 2, "text": "\xff"}', "has a damaged line 2 ('utf-8' codec"),
        ('{"step": 2}'.encode("utf-16"), "has a damaged line 2"),
        (b'{"step": 2}{"step": 3}', "has a damaged line 2"),
        (b"[" * 100_000, "has a damaged line 2"),
        (b"[2]", "has a damaged line 2 (it has no step)"),
        (b'"step"', "has a damaged line 2 (it has no step)"),
        (b"{}", "has a damaged line 2 (it has no step)"),
        (b'{"step": "2"}', "has a damaged line 2 (it has no step)"),
        (b'{"step": true}', "has a damaged line 2 (it has no step)"),
        (b'{"step": 2.0}', "has a damaged line 2 (it has no step)"),
    ],
)
def test_damaged_line_is_named(tmp_path, line, problem):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 3}\n')
    before = path.read_bytes()
    for read in (read_log, lambda path: cut_back(path, 1)):
        with pytest.raises(FileError, match="correct or remove that line") as caught:
            read(path)
        assert f"{path} {problem}" in str(caught.value)
    assert path.read_bytes() == before


def test_folder_is_rejected(tmp_path):
    for read in (read_log, lambda path: cut_back(path, 1)):
        with pytest.raises(FileError, match="is a folder"):
            read(tmp_path)


@pytest.mark.parametrize("room", [0, 1, 5])
def test_full_disk_truncates_only_the_last_line(tmp_path, room):
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    write(path, [{"step": 1}])
    size = path.stat().st_size
    sentence = r"^cannot write .*metrics.jsonl \(File too large\); .* `tilth resume .*run`$"
    with pytest.raises(OSError, match=sentence), largest_file(size + room), Log(path) as log:
        log.append({"step": 2, "loss": 0.5})
    assert path.stat().st_size == size + room, "closing does not write the rest"
    assert read_log(path) == [{"step": 1}]
    cut_back(path, 1)
    write(path, [{"step": 2}])
    assert read_log(path) == [{"step": 1}, {"step": 2}]


def test_failed_sync_is_reported(tmp_path, monkeypatch):
    def fail(_descriptor):
        raise OSError(5, "Input/output error")

    with Log(tmp_path / "log") as log:
        log.sync()
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(
            OSError, match=r"cannot write .*log \(Input/output error\); the checkpo"
        ):
            log.sync()


WRITER = """
import sys
from pathlib import Path
from tilth.runs.metrics import Log
with Log(Path(sys.argv[1])) as log:
    for step in range(10**9):
        log.append({"step": step, "text": "x" * (step % 100)})
"""


def test_reading_during_writing_and_after_a_kill(tmp_path):
    """At any moment, a reader sees all steps from the first to the last one written."""
    path = tmp_path / "log"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path])
    try:
        while not path.exists() or path.stat().st_size < 20_000:
            assert writer.poll() is None
            time.sleep(0.01)
        for _ in range(5):
            steps = [record["step"] for record in read_log(path)]
            assert steps == list(range(len(steps)))
    finally:
        writer.kill()
        writer.wait()
    steps = [record["step"] for record in read_log(path)]
    assert steps == list(range(len(steps)))
    cut_back(path, 10)
    assert [record["step"] for record in read_log(path)] == list(range(11))


# --- step records ---------------------------------------------------------------------------------

PLAIN = StepRecord(3, 96, 1.5, 4.25, 1e-3, 0.5, 64.0, 0.25)


def test_line_omits_missing_values():
    plain = {
        "step": 3,
        "tokens": 96,
        "seconds": 1.5,
        "loss": 4.25,
        "lr": 1e-3,
        "grad_norm": 0.5,
        "tokens_per_second": 64.0,
        "utilisation": 0.25,
    }
    assert PLAIN.to_dict() == plain
    full = StepRecord(
        **plain,
        was_skipped=True,
        is_diverging=True,
        evaluation=Evaluation(4.0, 54.6, 2.0, 128),
        norms={"weights": {"ln_final.weight": 1.0}},
        sample="Once upon a time",
        saved="step-000003",
    )
    assert full.to_dict() == {
        **plain,
        "was_skipped": True,
        "is_diverging": True,
        "evaluation": {"loss": 4.0, "perplexity": 54.6, "bits_per_byte": 2.0, "tokens": 128},
        "norms": {"weights": {"ln_final.weight": 1.0}},
        "saved": "step-000003",
    }


def test_line_keeps_zeros():
    zeros = StepRecord(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    numbers = [each.name for each in fields(StepRecord)][:8]
    assert zeros.to_dict() == dict.fromkeys(numbers, 0)


def test_skipped_step_has_no_loss():
    line = StepRecord(3, 96, 1.5, None, 1e-3, None, 64.0, 0.25, was_skipped=True).to_dict()
    assert line.keys() & {"loss", "grad_norm", "was_skipped"} == {"was_skipped"}


# --- typed records --------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    st.builds(
        StepRecord,
        step=st.integers(1, 10**9),
        tokens=st.integers(0, 2**60),
        seconds=st.floats(0, 1e9),
        loss=st.none() | st.floats(0, 1e30),
        lr=st.floats(0, 1),
        grad_norm=st.none() | st.floats(0, 1e30),
        tokens_per_second=st.floats(0, 1e12),
        utilisation=st.floats(0, 1),
        step_seconds=st.none() | st.floats(0, 1e9),
        was_skipped=st.booleans(),
        is_diverging=st.booleans(),
        evaluation=st.none()
        | st.builds(
            Evaluation,
            st.just(math.inf) | st.floats(0, 1e30),
            st.floats(0, allow_nan=False),
            st.just(math.inf) | st.floats(0, 1e30),
            st.integers(1, 10**9),
        ),
        norms=st.none() | st.just({"weights": {"a": 1.5, "b": None}}),
        saved=st.none() | st.just("step-000001"),
    )
)
def test_step_record_round_trip(tmp_path_factory, record):
    path = tmp_path_factory.mktemp("log") / "metrics.jsonl"
    write(path, [record.to_dict()])
    assert read_steps(path) == [record]


def test_unknown_keys_are_ignored(tmp_path):
    record = StepRecord(1, 256, 0.5, 4.0, 1e-3, 0.5, 512.0, 0.7)
    write(tmp_path / "log", [{**record.to_dict(), "more": [1]}])
    assert read_steps(tmp_path / "log") == [record]
    write(tmp_path / "samples", [{"step": 1, "text": "a", "more": 3}])
    assert read_samples(tmp_path / "samples") == [SampleRecord(1, text="a")]


@pytest.mark.parametrize(
    "change",
    [
        {"step": 0},
        {"step": True},
        {"tokens": -1},
        {"tokens": 10**401},
        {"tokens": None},
        {"seconds": "1"},
        {"seconds": 1e300},
        {"loss": {}},
        {"loss": 1e39},
        {"lr": None},
        {"was_skipped": 1},
        {"evaluation": []},
        {"evaluation": {}},
        {"evaluation": {"loss": 1.0, "tokens": -1}},
        {"norms": {"weights": {"a": "b"}}},
        {"saved": 3},
    ],
)
def test_invalid_types_name_the_line(tmp_path, change):
    path = tmp_path / "metrics.jsonl"
    record = StepRecord(1, 256, 0.5, 4.0, 1e-3, 0.5, 512.0, 0.7)
    write(path, [record.to_dict()])
    with path.open("a") as file:
        file.write(json.dumps({**record.to_dict(), "step": 2, **change}) + "\n")
    match = r"metrics.jsonl has .*line 2.*; correct or remove that line"
    with pytest.raises(FileError, match=match):
        read_steps(path)


@pytest.mark.parametrize("change", [{"text": 3}, {"text": None}, {"temperature": "hot"}])
def test_invalid_sample_names_the_line(tmp_path, change):
    (tmp_path / "samples.jsonl").write_text(json.dumps({"step": 1, **change}) + "\n")
    with pytest.raises(FileError, match=r"samples.jsonl has a damaged line 1 \("):
        read_samples(tmp_path / "samples.jsonl")
