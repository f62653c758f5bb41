"""Tasks in processes, on Ray and on Slurm: errors, lost workers, and what is run."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tilth.executors import Executor, Resources, run_tasks
from tilth.files import FileError


def write_name(path):
    if path.name == "bad":
        raise FileError(path, "is bad", "take another")
    if path.name == "deadly" and not path.with_name("once").exists():
        path.with_name("once").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    path.write_text(path.name)


def run(folder, names, executor):
    paths = [folder / name for name in names]
    return [names[i] for i in run_tasks(write_name, paths, executor, folder / "jobs")]


def test_processes(tmp_path):
    names = [str(number) for number in range(5)]
    assert sorted(run(tmp_path, names, Executor(workers=2))) == names
    assert all((tmp_path / name).read_text() == name for name in names)
    assert run(tmp_path, [], Executor()) == []


def test_an_error_in_a_process(tmp_path):
    with pytest.raises(FileError, match="is bad; take another"):
        run(tmp_path, ["bad", "1"], Executor(workers=1))


def test_a_process_that_is_killed(tmp_path):
    with pytest.raises(OSError, match="worker process was killed; run the same command again"):
        run(tmp_path, ["deadly"], Executor(workers=1))


def test_a_worker_that_is_killed_while_tasks_are_submitted(tmp_path, monkeypatch):
    """The pool closes its pipe, and a call of submit or shutdown finds it closed."""

    def closed(*_, **__):
        raise OSError("handle is closed")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", closed)
    with pytest.raises(OSError, match="worker process was killed; run the same command again"):
        run(tmp_path, ["1"], Executor(workers=1))


def test_workers_end_with_their_parent(tmp_path):
    """SIGKILL of the calling process ends its workers within seconds."""
    program = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from tests.test_executors import wait_long
from tilth.executors import Executor, run_tasks
if __name__ == "__main__":
    list(run_tasks(wait_long, [Path({str(tmp_path)!r})] * 2, Executor(workers=2), Path()))
"""
    (tmp_path / "program.py").write_text(program)
    with subprocess.Popen([sys.executable, tmp_path / "program.py"]) as parent:
        pids = within(60, lambda: len(found := list(tmp_path.glob("pid-*"))) == 2 and found)
        parent.kill()
    gone = within(20, lambda: not any(Path("/proc", p.name[4:]).exists() for p in pids))
    assert gone


def wait_long(folder):
    (folder / f"pid-{os.getpid()}").touch()
    time.sleep(120)


def within(seconds, condition):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    raise TimeoutError


def test_options_that_contradict():
    with pytest.raises(ValueError, match="address is of a Ray cluster"):
        Executor("slurm", address="auto")
    with pytest.raises(ValueError, match="workers must be at least 1"):
        Executor(workers=0)
    with pytest.raises(ValueError, match="workers is 100,000, and this machine has"):
        Executor(workers=100_000)
    with pytest.raises(ValueError, match="workers must be at most 100000"):
        Executor("slurm", 10**6)
    with pytest.raises(ValueError, match="gpus must be at least 0"):
        Resources(gpus=-1)


def test_slurm(tmp_path, slurm):
    record = slurm(runs=True)
    names = [str(number) for number in range(3)]
    executor = Executor("slurm", 2, resources=Resources(seconds=120.0, partition="fast", cpus=1))
    assert sorted(run(tmp_path, names, executor)) == names
    text = record.read_text()
    assert "--array=0-1" in text
    assert "--partition=fast" in text
    with pytest.raises(OSError, match="is bad; take another"):
        run(tmp_path, ["bad"], Executor("slurm", 1))


def test_no_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ValueError, match="Slurm is not available"):
        run(tmp_path, ["1"], Executor("slurm"))


@pytest.mark.slow
def test_ray(tmp_path, monkeypatch):
    """Tasks run on a real Ray; it repeats the task of a worker that was killed."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    names = [*map(str, range(4)), "deadly"]
    assert sorted(run(tmp_path, names, Executor("ray", 2))) == names
    assert (tmp_path / "once").exists()
    with pytest.raises(FileError, match="is bad; take another"):
        run(tmp_path, ["bad"], Executor("ray", 1))


def test_a_ray_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"Ray at 127\.0\.0\.1:1 is not reachable"):
        run(tmp_path, ["1"], Executor("ray", address="127.0.0.1:1"))
