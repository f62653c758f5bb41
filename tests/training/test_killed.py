"""A run that is killed at any moment and resumed equals an uninterrupted run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.comparing import difference
from tilth.runs.run import open_run, verify_run
from tilth.training import train

HERE = Path(__file__).parent


def kill_again_and_again(config, folder, num_kills, seed):
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    command = [sys.executable, HERE / "killing.py", folder / "config.json", folder / "run"]
    done = subprocess.run(
        [*command, str(num_kills), str(seed)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_killed(config, tmp_path, num_kills, seed):
    for _ in train(config, tmp_path / "whole"):
        pass
    ends = kill_again_and_again(config, tmp_path, num_kills, seed)
    assert difference(tmp_path / "run", tmp_path / "whole") is None
    assert all(problem is None for _, problem in verify_run(open_run(tmp_path / "run")))
    assert not list(tmp_path.rglob("*.partial"))
    return ends


def test_killed_8_times(change, tmp_path):
    config = change(steps=40, watch={"save_every": 2}).resolve()
    ends = check_killed(config, tmp_path, num_kills=8, seed=0)
    assert min(ends.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_killed_200_times(change, tmp_path, seed):
    config = change(steps=300, watch={"save_every": 2}).resolve()
    ends = check_killed(config, tmp_path, num_kills=20, seed=seed)
    print(ends)


@pytest.mark.slow
def test_killed_compiled_run(change, tmp_path):
    """In separate processes, which share the compile cache of torch."""
    config = change(machine={"compile": True})
    (tmp_path / "whole").mkdir()
    assert kill_again_and_again(config, tmp_path / "whole", 0, 0) == {
        "in time": 0,
        "at an event": 0,
    }
    (tmp_path / "killed").mkdir()
    ends = kill_again_and_again(config, tmp_path / "killed", 3, 1)
    assert sum(ends.values()) == 3
    assert difference(tmp_path / "killed" / "run", tmp_path / "whole" / "run") is None
