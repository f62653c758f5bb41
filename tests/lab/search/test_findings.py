"""The lab of a search: its answer, tables and charts agree with the results."""

from dataclasses import replace

import pytest

from tilth.lab.search.findings import Outcome, SearchTrial, answer_of, best_trial, lab_of
from tilth.lab.search.space import read_space
from tilth.report.lab_file import load_lab, save_lab

SPACE = read_space(["optimizer.lr=1e-4..1e-1", "optimizer.name=adamw,muon"])


def tried(number, lr, name, state="finished", bits=None, steps=0, reason="", **more):
    outcome = Outcome(state, bits, steps, reason)
    return SearchTrial(number, {"optimizer.lr": lr, "optimizer.name": name}, outcome, **more)


TRIALS = [
    tried(0, 0.01, "muon", bits=2.5, steps=40, is_default=True),
    tried(1, 0.1, "adamw", "diverged", 4.0, steps=12),
    tried(2, 0.02, "muon", bits=2.0, steps=40),
    tried(3, 0.001, "adamw", "pruned", 1.0, steps=10),
    tried(5, 0.03, "muon", bits=2.25, steps=40),
    tried(6, 0.02, "muon", "failed", reason="no memory."),
]


def test_the_answer():
    assert answer_of(TRIALS) == (
        "The best of 6 trials is lr 0.02, muon, with 2.0000 bits per byte on validation: 0.5000 "
        "(20.0%) less than the recipe (lr 0.01, muon)."
    )
    assert best_trial(TRIALS) is TRIALS[2]  # neither the pruned one nor the failed one


def test_other_answers():
    assert answer_of(TRIALS[:1]) == (
        "The best of one trial is lr 0.01, muon, with 2.5000 bits per byte on validation: the "
        "values of the recipe."
    )
    worse = [TRIALS[0], tried(1, 0.05, "muon", bits=2.75)]
    assert answer_of(worse).endswith(
        ": the values of the recipe. The second best is lr 0.05, muon, with 2.7500."
    )
    assert "None of 1 trials finished" in answer_of(TRIALS[1:2])
    diverged = [tried(0, 0.01, "muon", "diverged", is_default=True), TRIALS[2]]
    assert answer_of(diverged).endswith("; the recipe (lr 0.01, muon) diverged.")
    assert best_trial(TRIALS[1:2]) is None


def test_the_lab(tmp_path):
    command = ("tilth", "lab", "search")
    lab = replace(
        lab_of(TRIALS, SPACE, {"optimizer.lr": 0.75}), command=command, notes=("A note.",)
    )
    save_lab(tmp_path, lab)
    assert load_lab(tmp_path) == lab
    assert lab.asks == "Which values of optimizer.lr and optimizer.name are best?"
    assert [(trial.name, trial.state) for trial in lab.trials] == [
        ("trial-0000", "finished"),
        ("trial-0001", "diverged"),
        ("trial-0002", "finished"),
        ("trial-0003", "pruned"),
        ("trial-0005", "finished"),
        ("trial-0006", "failed"),
    ]
    groups = [trial.group for trial in lab.trials]
    assert len(set(groups)) == len(groups)  # none is taken for another seed of another
    best, importance = lab.tables
    assert best.columns == ("trial", "optimizer.lr", "optimizer.name", "bits per byte", "steps")
    assert [row[3] for row in best.rows] == [2.0, 2.25, 2.5]
    assert best.rows[2][0] == "trial-0000 (recipe)"
    assert importance.rows == (("optimizer.lr", "75%"),)
    by_lr, progress = lab.charts
    assert by_lr.x_scale == "log"
    assert by_lr.lines[0].points == ((0.01, 2.5), (0.02, 2.0), (0.03, 2.25))
    assert progress.lines[0].points == ((0, 2.5), (2, 2.0), (5, 2.0))


def test_a_single_number_is_an_axis():
    (lr,) = read_space(["optimizer.lr=0.0..0.5"])
    trials = [SearchTrial(0, {"optimizer.lr": 0.1}, Outcome("finished", 2.0), is_default=True)]
    lab = lab_of(trials, [lr])
    assert lab.axis == "optimizer.lr"
    assert lab.trials[0].x == 0.1
    assert lab.charts[0].x_scale == "linear"


def test_a_search_in_progress_has_no_answer():
    running = [tried(0, 0.01, "muon", "running", is_default=True)]
    lab = lab_of(running, SPACE, is_over=False)
    assert lab.answer is None
    assert lab.charts == ()
    assert lab.tables[0].rows == ()
    assert lab_of([], SPACE, is_over=False).trials == ()


def test_only_the_best_ten_are_listed():
    many = [tried(number, 0.01, "muon", bits=3.0 - number / 10) for number in range(12)]
    rows = lab_of(many, SPACE, is_over=False).tables[0].rows
    assert [row[3] for row in rows] == [pytest.approx(3.0 - n / 10) for n in range(11, 1, -1)]
