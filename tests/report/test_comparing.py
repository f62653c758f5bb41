"""Groups, answers and caveats of a comparison."""

from dataclasses import replace

import pytest

from tests.report.reporting import config_of, make_lab, make_run, record
from tilth.report.comparing import (
    answer_of,
    notes_of,
    varying_values,
)
from tilth.report.reading import read_report


def entries_of(paths):
    return list(read_report(paths).sections[0].entries)


@pytest.fixture
def entries(tmp_path):
    """Entries of runs by name, each with its config and its final bits per byte."""

    def entries(**runs):
        for name, (config, bits) in runs.items():
            records = [record(1, 5.0, bits=4.0), record(config.steps, 4.0, bits=bits)]
            make_run(tmp_path / name, records, config)
        return entries_of([tmp_path / name for name in runs])

    return entries


def test_one_run(entries):
    found = entries(first=(config_of(), 2.5))
    assert answer_of(found) == "first reaches 2.5000 bits per byte on validation."
    assert notes_of(found) == []


def test_two_runs_of_one_seed(entries):
    found = entries(a=(config_of(1e-2), 2.5), b=(config_of(1e-3), 2.0))
    assert answer_of(found) == (
        "b is best, with 2.0000 bits per byte on validation: 0.5000 (20.0%) less than a. "
        "Each has one seed, so the noise between seeds is unknown."
    )


@pytest.mark.parametrize(
    ("spread", "said"),
    [
        (0.1, "That exceeds the spread over seeds (0.2000)."),
        (0.3, "That is within the spread over seeds (0.6000) and may be noise."),
    ],
)
def test_seeds(entries, spread, said):
    found = entries(
        a=(config_of(1e-2, seed=0), 2.5),
        b=(config_of(1e-3, seed=0), 2.0 - spread),
        c=(config_of(1e-2, seed=1), 2.5),
        d=(config_of(1e-3, seed=7), 2.0 + spread),
    )
    assert [entry.group for entry in found] == ["lr 0.01", "lr 0.001"] * 2
    assert answer_of(found) == (
        "lr 0.001 (mean of 2 seeds) is best, with 2.0000 bits per byte on validation: 0.5000 "
        f"(20.0%) less than lr 0.01 (mean of 2 seeds). {said}"
    )


def test_only_seeds(entries):
    found = entries(a=(config_of(seed=0), 2.5), b=(config_of(seed=1), 2.0))
    assert answer_of(found) == (
        "a and 1 more differ only in the seed and reach 2.0000 to 2.5000 bits per byte on "
        "validation (mean 2.2500)."
    )


def test_group_with_many_varying_values(entries):
    config = config_of()
    other = config_of(batch_size=8, order="random", max_skipped=3, recipe="other")
    found = entries(a=(config, 2.0), b=(other, 2.5), c=(replace(config, seed=1), 2.1))
    assert [entry.group for entry in found] == ["a and 1 more", "b", "a and 1 more"]


def test_other_data_makes_another_group(tmp_path):
    for name in "ab":
        make_run(tmp_path / name, [record(1, 5.0, bits=2.0)], config_of(), data=64 * name)
    found = entries_of([tmp_path / "a", tmp_path / "b"])
    assert [entry.group for entry in found] == ["a", "b"]
    assert any("different data" in note for note in notes_of(found))


def test_diverged_runs_are_not_compared(tmp_path):
    make_run(tmp_path / "good", [record(40, 3.0, bits=2.5)], config_of(1e-3))
    end = [record(1, 3.0, bits=1.0), record(2, 1e9, is_diverging=True)]
    make_run(tmp_path / "bad", end, config_of(1.0), is_finished=False)
    make_run(tmp_path / "half", [record(20, 3.0)], config_of(0.1), is_finished=False)
    found = entries_of([tmp_path / "good", tmp_path / "bad", tmp_path / "half"])
    assert [entry.state for entry in found] == ["finished", "diverged", "stopped"]
    assert answer_of(found) == "good reaches 2.5000 bits per byte on validation."
    assert notes_of(found) == [
        "Diverged, not compared: bad.",
        "Stopped before the last step: half.",
    ]


def test_running_run(tmp_path):
    run = make_run(tmp_path / "a", [], is_finished=False)
    with run.locked():
        (entry,) = entries_of([tmp_path / "a"])
    assert entry.state == "running"
    assert answer_of([entry]) == "No run has a validation loss yet."


def test_unequal_conditions_are_noted(tmp_path):
    long, short = config_of(steps=40), config_of(steps=20)
    short = replace(short, watch=replace(short.watch, evaluation_tokens=128))
    make_run(tmp_path / "a", [record(40, 3.0, bits=2.0)], long)
    make_run(tmp_path / "b", [record(20, 3.0, bits=2.1)], short)
    assert notes_of(entries_of([tmp_path / "a", tmp_path / "b"])) == [
        "The runs were evaluated on different numbers of tokens.",
        "The last evaluations came after different numbers of training tokens: 5,120 to 10,240.",
    ]


def test_labels_are_shortest_distinct_suffixes(tmp_path):
    paths = [tmp_path / "x" / "first", tmp_path / "y" / "first", tmp_path / "second"]
    for path in paths:
        make_run(path, [])
    assert [entry.label for entry in entries_of(paths)] == [
        *("x/first", "y/first", f"{tmp_path.name}/second")
    ]


def test_derived_values_do_not_vary():
    base = config_of(1e-2, steps=40)
    assert varying_values([base]) == []
    # The warm-up, min_lr and the intervals are derived.
    changed = [base, config_of(1e-3, steps=400), replace(base, seed=1)]
    assert varying_values(changed) == ["optimizer.lr", "seed", "steps"]
    decided = replace(base, optimizer=replace(base.optimizer, min_lr=0.0))
    assert varying_values([base, decided]) == ["optimizer.min_lr"]
    muon = replace(base, model=replace(base.model, qk_norm=True), batch_size=7, microbatch_size=7)
    assert varying_values([base, muon]) == ["batch_size", "model.qk_norm"]


def test_axis_of_one_number(entries):
    configs = {f"r{i}": (config_of(lr), 2.0) for i, lr in enumerate((1e-3, 1e-2, 1e-1))}
    assert [entry.x for entry in entries(**configs)] == [1e-3, 1e-2, 1e-1]


def test_no_axis_of_two_values(entries):
    found = entries(a=(config_of(1e-3), 2.0), b=(config_of(1e-2), 2.0))
    assert [entry.x for entry in found] == [None, None]


def test_lab(tmp_path):
    make_lab(tmp_path)
    found = entries_of([tmp_path])
    assert [entry.state for entry in found] == [*["finished"] * 4, "diverged", "planned"]
    assert found[-1].run is None
    assert found[0].x == 1e-4
    assert found[2].group == found[3].group == "lr 0.01"
    assert "lr 0.01 (mean of 2 seeds) is best, with 2.0500 bits per byte" in answer_of(found)
