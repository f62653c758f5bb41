"""Trials and searches as tasks of an executor: one process, or several that are killed, agree."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.test_runner import RATES, weights
from tilth.config.overrides import changed
from tilth.executors import Executor, Resources
from tilth.files import FileError
from tilth.lab import Search, cluster
from tilth.lab.cluster import Task, run_on_executor, train_trial
from tilth.lab.questions.custom import Custom
from tilth.lab.runner import drive, run_question
from tilth.report.lab_file import load_lab
from tilth.runs import open_run


@pytest.fixture(scope="module")
def base(base):
    return changed(base, {"steps": 6, "batch_size": 2, "watch.evaluation_tokens": 200})


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """A lab of one process."""
    folder = tmp_path_factory.mktemp("whole")
    list(run_question(Custom(RATES, base), folder))
    return folder


def ask(base, folder, executor):
    events = list(run_question(Custom(RATES, base), folder, executor=executor))
    assert [event.done for event in events] == [*range(4 - len(events), 4)]
    assert all(event.result is not None for event in events)


def assert_same(folder, whole):
    assert weights(folder) == weights(whole)
    assert load_lab(folder).answer == load_lab(whole).answer


def test_trials_in_processes(base, whole, tmp_path):
    ask(base, tmp_path / "lab", Executor(workers=1))
    assert_same(tmp_path / "lab", whole)
    assert list(run_question(Custom(RATES, base), tmp_path / "lab", executor=Executor())) == []


def test_trials_on_slurm(base, whole, tmp_path, slurm):
    """By a relative path, with two jobs."""
    record = slurm(runs=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        resources = Resources(3600, "gpu", 1, 2)
        ask(base, Path("lab"), Executor("slurm", 2, resources=resources))
    assert_same(tmp_path / "lab", whole)
    submitted = record.read_text()
    options = ("array=0-1%2", "partition=gpu", "gpus-per-node=1", "cpus-per-task=2", "time=60")
    for option in options:
        assert f"#SBATCH --{option}\n" in submitted


def drive_and_die(config, folder):
    """Die by SIGKILL in the middle of each trial, once."""
    for happened in drive(config, folder):
        yield happened
        once = folder.parent.parent / "jobs" / f"killed-{folder.name}"
        if not isinstance(happened, str) and happened.step == 3 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_killed_workers_leave_the_same_results(base, whole, tmp_path, monkeypatch):
    monkeypatch.setattr("tilth.lab.runner.drive", drive_and_die)
    for _ in range(3):
        with pytest.raises(OSError, match="killed; run the same command again"):
            ask(base, tmp_path / "lab", Executor(workers=1))
    ask(base, tmp_path / "lab", Executor(workers=1))
    assert_same(tmp_path / "lab", whole)


@pytest.mark.slow
def test_a_ray_whose_workers_are_killed(base, whole, tmp_path, monkeypatch):
    """A real Ray on loopback, started and stopped here; it runs the tasks again."""
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))
    monkeypatch.setattr("tilth.lab.runner.drive", drive_and_die)
    ask(base, tmp_path / "lab", Executor("ray", 2))
    assert len(list((tmp_path / "lab" / "jobs").glob("killed-*"))) == 3
    assert_same(tmp_path / "lab", whole)
    search = search_in(tmp_path / "search", base, trials=3)
    search.run_on(Executor("ray", 2))
    assert load_lab(tmp_path / "search").answer.startswith("The best of 3 trials")


def test_a_requeued_task_runs_once(base, whole, tmp_path):
    (trial, *_) = Custom(RATES, base).trials({})
    folder, state_file = tmp_path / "runs" / "a", tmp_path / "a.state"
    task = Task(drive, trial.config, folder, state_file, Path.cwd())
    train_trial(task)
    assert state_file.read_text() == "finished"
    assert open_run(folder).is_finished
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    train_trial(task)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_state_that_is_not_one(base, tmp_path, monkeypatch):
    def write_nonsense(_function, tasks, _executor, _folder):
        tasks[0].state_file.write_text("fine\n" * 3)
        yield 0

    monkeypatch.setattr(cluster, "run_tasks", write_nonsense)
    trials = Custom(RATES, base).trials({})
    with pytest.raises(FileError, match=r"does not hold the state of a trial; run the lab again"):
        list(run_on_executor(Executor(), drive, tmp_path, trials))


def test_a_link_in_place_of_the_jobs_is_not_followed(base, tmp_path):
    trials = Custom(RATES, base).trials({})
    own = tmp_path / "own" / f"{trials[0].name}.state"
    own.parent.mkdir()
    own.write_text("mine")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "jobs").symlink_to(own.parent)
    with pytest.raises(FileError, match="is a symbolic link"):
        list(run_on_executor(Executor(), drive, tmp_path / "lab", trials))
    assert own.read_text() == "mine"


# --- searches -------------------------------------------------------------------------------------


def search_in(folder, base, trials=1, **fixed):
    return Search(base, ["optimizer.lr=1e-4..1e-1"], folder, fixed=fixed, trials=trials)


def states(folder):
    return [trial.state for trial in load_lab(folder).trials]


@pytest.mark.slow
def test_a_search_in_a_process(base, tmp_path):
    search_in(tmp_path / "search", base, trials=2).run_on(Executor(workers=1))
    assert load_lab(tmp_path / "search").answer.startswith("The best of 2 trials")
    with pytest.raises(FileExistsError, match="is not empty and not a lab directory"):
        search_in(Path(base.data), base).run_on(Executor(workers=1))


@pytest.mark.slow
def test_jobs_of_slurm_share_a_search(slurm, base, tmp_path):
    slurm(runs=True)
    search_in(tmp_path / "search", base, trials=5).run_on(Executor("slurm", 2))
    assert load_lab(tmp_path / "search").answer.startswith("The best of 5 trials")
    logs = "".join(path.read_text() for path in (tmp_path / "search" / "jobs").glob("*_log.out"))
    assert all(f"trial-000{number} finished: lr" in logs for number in range(5))


@pytest.mark.slow
def test_a_search_whose_worker_is_killed(base, tmp_path):
    """The next call finishes the trial of the killed worker."""
    search = search_in(tmp_path / "search", replace(base, steps=300), trials=2)
    metrics = tmp_path / "search" / "runs" / "trial-0000" / "metrics.jsonl"

    def kill_one():
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        for pid in children():
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill_one)
    thread.start()
    with pytest.raises(OSError, match="worker process was killed"):
        search.run_on(Executor(workers=1))
    thread.join()
    search.run_on(Executor(workers=1))
    assert load_lab(tmp_path / "search").answer.startswith("The best of 2 trials")


def children():
    """Return the processes that multiprocessing has spawned."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        stat = (path / "stat").read_text().rpartition(")")[2].split()
        if int(stat[1]) == os.getpid() and b"spawn_main" in (path / "cmdline").read_bytes():
            found.append(int(path.name))
    return found
