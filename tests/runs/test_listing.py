"""`list_runs`: every run of a folder, damaged ones included. `tests/cli/test_runs.py` has more."""

import shutil

import pytest

import tilth
from tilth.runs import RunSummary


def test_damaged_run_does_not_hide_others(make_run, tmp_path):
    run = make_run()
    copied = tmp_path / "runs" / "damaged"
    shutil.copytree(run.folder, copied)
    shutil.copytree(run.folder, copied.with_name("whole"))
    (copied / "config.toml").write_text("steps = -1")
    damaged, whole = tilth.list_runs(tmp_path / "runs")
    assert (damaged.name, damaged.state) == ("damaged", "damaged")
    assert "config.toml" in damaged.problem
    assert whole == RunSummary("whole", "stopped", steps=100, age_seconds=whole.age_seconds)


def test_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        tilth.list_runs(tmp_path / "absent")
