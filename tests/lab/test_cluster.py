"""A search as jobs of a cluster: their parameters, and that they share the trials."""

import os
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest
import torch

from tilth.executors import Resources
from tilth.lab.cluster import Worker, submit
from tilth.lab.search.search import JOBS, Search
from tilth.report.lab_file import load_lab


@pytest.fixture(scope="module")
def base(base):
    return replace(base, steps=4)


def search_in(folder, base, trials=1, **fixed):
    return Search(base, ["optimizer.lr=1e-4..1e-1"], folder, fixed=fixed, trials=trials)


def answer_in(folder, seconds=120):
    """Wait for a search's answer."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (folder / "lab.json").exists() and (answer := load_lab(folder).answer) is not None:
            return answer
        time.sleep(0.2)
    logs = [path.read_text() for path in (folder / JOBS).glob("*_log.*")]
    raise AssertionError("\n".join(logs))


def test_parameters_of_a_submitted_job(slurm, base, tmp_path):
    record, folder = slurm(), tmp_path / "search"
    worker = Worker(search_in(folder, base))
    resources = Resources(seconds=7200, partition="gpu", gpus=1, cpus=4)
    jobs = submit(worker.search, "slurm", 3, resources)
    assert [job.job_id for job in jobs] == ["4242_0", "4242_1", "4242_2"]
    submitted = record.read_text()
    for option in (
        "partition=gpu",
        "gpus-per-node=1",
        "cpus-per-task=4",
        "time=120",
        "array=0-2%3",
    ):
        assert f"#SBATCH --{option}\n" in submitted
    assert str(folder / JOBS) in submitted
    # What each job would load and call; the first does all there is, so the second finds nothing.
    threads = torch.get_num_threads()
    for job in jobs[:2]:
        cloudpickle.loads(job.paths.submitted_pickle.read_bytes()).result()
    torch.set_num_threads(threads)
    assert load_lab(folder).answer.startswith("The best of one trial")


def test_default_resources_are_the_clusters(slurm, base, tmp_path):
    record = slurm()
    (job,) = submit(search_in(tmp_path / "search", base), "slurm", 1, Resources())
    assert job.job_id == "4242"
    assert not re.search("partition|gpus|cpus|array", record.read_text())


def test_a_preempted_job_is_submitted_again(base, tmp_path):
    worker = Worker(search_in(tmp_path / "search", base))
    assert worker.checkpoint().function == worker


def test_errors(slurm, base, tmp_path, monkeypatch):
    search = search_in(tmp_path / "search", base)
    with pytest.raises(ValueError, match="jobs must be at least 1, not 0"):
        submit(search, "slurm", 0, Resources())
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(ValueError, match=r"Slurm is not available \(no srun\)"):
            submit(search, "slurm", 1, Resources())
        patch.setitem(sys.modules, "submitit", None)
        with pytest.raises(ValueError, match=r'an extra: pip install "tilth\[cluster\]"'):
            submit(search, "slurm", 1, Resources())
    slurm(refuses=True)
    with pytest.raises(ValueError, match=r"rejected the jobs \(sbatch: error: invalid partition"):
        submit(search, "slurm", 1, Resources(partition="moon"))


@pytest.mark.slow
def test_jobs_of_slurm_share_the_trials(slurm, base, tmp_path):
    slurm(runs=True)
    folder = tmp_path / "search"
    submit(search_in(folder, base, trials=5), "slurm", 2, Resources())
    assert answer_in(folder).startswith("The best of 5 trials")
    logs = "".join(path.read_text() for path in (folder / JOBS).glob("*_log.out"))
    ended = re.findall(r"^(trial-\d+) finished: lr", logs, re.MULTILINE)
    assert sorted(ended) == [f"trial-{number:04}" for number in range(5)]


@pytest.mark.slow
def test_local_jobs_share_the_trials(base, tmp_path):
    """One job gets the signal of a time-out, and is submitted again."""
    folder = tmp_path / "search"
    search = search_in(folder, base, trials=2, steps=400)
    (job,) = submit(search, "local", 1, Resources(seconds=3600))
    metrics = folder / "runs" / "trial-0000" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert job.state == "RUNNING"
        time.sleep(0.05)
    children = Path(f"/proc/{job.job_id}/task/{job.job_id}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGUSR2)
    assert answer_in(folder).startswith("The best of 2 trials")
    assert job.result() is None  # which waits for its end
    assert "Requeued job" in job.paths.stderr.read_text() + job.paths.stdout.read_text()
