"""Reading of directories; a damaged run is reported and does not hide the others."""

import json
import os
from dataclasses import replace

import pytest

from tests.report.reporting import config_of, make_lab, make_run, make_toy, record
from tilth.files import FileError
from tilth.report.lab_file import save_lab
from tilth.report.reading import read_report
from tilth.report.writing import save_report


def test_lab_without_an_answer_yet(tmp_path):
    make_lab(tmp_path, answer=None)
    answer = read_report([tmp_path]).sections[0].answer
    assert answer.startswith("5 of 6 runs have ended. So far: lr 0.01 (mean of 2 seeds) is best")


def test_lab_without_trials(tmp_path):
    lab = make_toy(tmp_path)
    section = read_report([tmp_path]).sections[0]
    assert section.answer == "10 is best."
    assert section.notes == ()
    assert section.charts == lab.charts[:2]  # without empty ones
    assert section.tables == lab.tables[:1]
    for answer in (None, ""):
        save_lab(tmp_path, replace(lab, answer=answer))
        assert read_report([tmp_path]).sections[0].answer == "There is no answer yet."


def test_labs_with_the_same_question(tmp_path):
    make_lab(tmp_path / "a" / "lr")
    make_lab(tmp_path / "b" / "lr")
    make_toy(tmp_path / "sgd")
    report = read_report([tmp_path / "a" / "lr", tmp_path / "sgd", tmp_path / "b" / "lr"])
    assert [section.asks for section in report.sections] == [
        "Which learning rate is best? (a/lr)",
        "How large may a step be?",
        "Which learning rate is best? (b/lr)",
    ]


def test_folder_of_runs_and_a_lab(tmp_path):
    make_lab(tmp_path / "lab")
    for name in "ba":
        make_run(tmp_path / "runs" / name, [record(1, 5.0, bits=2.0)])
    report = read_report([tmp_path / "runs", tmp_path / "lab", tmp_path / "runs" / "a"])
    assert report.title == "tilth report"
    assert [section.asks for section in report.sections] == [
        *("Which learning rate is best?", "How do these runs compare?")
    ]
    assert [entry.label for entry in report.sections[1].entries] == ["a", "b"]
    assert read_report([tmp_path / "lab"], "Mine").title == "Mine"


def test_nothing_to_report(tmp_path):
    with pytest.raises(FileError, match="is neither a run nor a lab"):
        read_report([tmp_path])
    with pytest.raises(FileError, match="is neither a run nor a lab"):
        read_report([tmp_path / "missing"])
    with pytest.raises(ValueError, match="nothing to report; name run"):
        read_report([])


def add_line(run, **changes):
    """Append the last line of a run's log, with changes."""
    path = run.folder / "metrics.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    with path.open("a") as file:
        file.write(json.dumps(last | {"step": last["step"] + 1} | changes) + "\n")


def set_versions(run):
    path = run.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"versions": []}))


def make_pipe(run):
    (run.folder / "metrics.jsonl").unlink()
    os.mkfifo(run.folder / "metrics.jsonl")


DAMAGES = [
    (lambda run: add_line(run, tokens=10**401), r"metrics\.jsonl"),
    (lambda run: add_line(run, seconds=1e308), r"metrics\.jsonl"),
    (lambda run: add_line(run, loss=1e308), r"metrics\.jsonl"),
    (lambda run: add_line(run, evaluation={"loss": 1.0, "bits_per_byte": {}}), r"metrics\.jsonl"),
    (lambda run: add_line(run, evaluation=[1]), r"metrics\.jsonl"),
    (lambda run: (run.folder / "samples.jsonl").write_text("{}\n"), r"samples\.jsonl"),
    (lambda run: (run.folder / "config.toml").write_text("steps = 3"), r"config\.toml"),
    (set_versions, r"manifest\.json"),
    (make_pipe, r"metrics\.jsonl is a pipe"),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGES)
def test_damaged_run_is_skipped(tmp_path, damage, named):
    for name, lr in (("a", 1e-3), ("b", 1e-2), ("c", 1e-1)):
        run = make_run(tmp_path / name, [record(1, 5.0, bits=2.0)], config_of(lr))
        if name == "b":
            damage(run)
    with pytest.raises(FileError, match=named):
        save_report(read_report([tmp_path / "a", tmp_path / "b"]), tmp_path / "report.html")
    (section,) = read_report([tmp_path]).sections
    assert [entry.label for entry in section.entries] == ["a", "c"]
    assert section.notes[-1].startswith(f"Skipped, because it cannot be read: {tmp_path / 'b'}/")
    save_report(read_report([tmp_path]), tmp_path / "report.html")


@pytest.mark.parametrize(("damage", "named"), DAMAGES)
def test_damaged_trial_is_skipped(tmp_path, damage, named):
    lab = make_lab(tmp_path)
    report = read_report([tmp_path])
    damage(report.sections[0].runs[1])
    (section,) = read_report([tmp_path]).sections
    assert len(section.runs) == 4
    assert len(section.entries) == len(lab.trials)
    assert section.notes[-1].startswith("Skipped, because it cannot be read: ")
    save_report(read_report([tmp_path]), tmp_path / "report.html")


def test_only_damaged_runs(tmp_path):
    set_versions(make_run(tmp_path / "a", []))
    with pytest.raises(FileError, match="versions must be a table"):
        read_report([tmp_path])


def test_zero_bits_can_be_compared(tmp_path):
    for name, bits, lr in (("a", 0.0, 1e-3), ("b", 0.0, 1e-2)):
        make_run(tmp_path / name, [record(1, 5.0, bits=bits)], config_of(lr))
    assert "0.0000 (0.0%) less" in read_report([tmp_path]).sections[0].answer
