"""Training by several processes: the batches, losses, bits and checkpoints of one process."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import tilth
from tests.training.ranks import config_of, train_all
from tilth.accounting.parallel import gradient_traffic
from tilth.training.distributed import Ranks

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("ranks.py")
NAMES = ("ddp-adamw", "ddp-muon", "exact-adamw", "exact-muon", "stopped-False", "stopped-True")


def torchrun(ranks, *words, **options):
    """Start processes on loopback, each with one thread."""
    # A free port of the agent's choice: `--standalone`.
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    own = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *launch, "--local-addr", "127.0.0.1", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env={**os.environ, **own}, stdout=pipe, stderr=pipe, text=True, **options
    )


def finished(process, seconds=300):
    """Return the exit code and stderr of a process."""
    try:
        _, stderr = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, stderr


@pytest.fixture(scope="module")
def trained(stories, tmp_path_factory):
    """Train in one, two and four processes; return the folder of each by number."""
    folder = tmp_path_factory.mktemp("ranks")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train_all(stories.folder, folder / "1")
    torch.set_num_threads(threads)
    for ranks, before in ((2, 1), (4, 2)):
        shutil.copytree(folder / str(before), folder / f"before-{ranks}")
        words = (PROGRAM, stories.folder, folder / str(ranks))
        code, stderr = finished(torchrun(ranks, *words))
        assert code == 0, stderr
    return {ranks: folder / str(ranks) for ranks in (1, 2, 4)}


def tensors_of(run):
    checkpoint = tilth.open_run(run).checkpoints()[-1].folder
    return {
        f"{name}/{key}": tensor
        for name in ("model.safetensors", "optimizer.safetensors")
        for key, tensor in load_file(checkpoint / name).items()
    }


def losses_of(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [(json.loads(line)["loss"], json.loads(line)["grad_norm"]) for line in lines]


def evaluations_of(run):
    records = tilth.open_run(run).metrics()
    return [record.evaluation for record in records if record.evaluation is not None]


def check_same_bits(first, second):
    one, two = tensors_of(first), tensors_of(second)
    assert one.keys() == two.keys()
    for name in one:
        assert one[name].tobytes() == two[name].tobytes(), name


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_exact_training_has_the_same_bits_at_any_number_of_ranks(trained, ranks, optimizer):
    one, many = trained[1] / f"exact-{optimizer}", trained[ranks] / f"exact-{optimizer}"
    check_same_bits(one, many)
    assert losses_of(one) == losses_of(many)
    assert evaluations_of(one) == evaluations_of(many)
    samples = [(run / "samples.jsonl").read_text() for run in (one, many)]
    assert samples[0] == samples[1]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_ddp_has_the_losses_of_one_process(trained, ranks, optimizer):
    one, many = trained[1] / f"ddp-{optimizer}", trained[ranks] / f"ddp-{optimizer}"
    np.testing.assert_allclose(losses_of(many), losses_of(one), rtol=1e-4)
    # The sums of exact training are the same sums in another order.
    exact = trained[1] / f"exact-{optimizer}"
    np.testing.assert_allclose(losses_of(many), losses_of(exact), rtol=1e-4)


@pytest.mark.parametrize("ranks", [2, 4])
def test_resume_with_another_number_of_ranks(trained, ranks):
    before = trained[ranks].parent / f"before-{ranks}"
    check_same_bits(before / "stopped-True", trained[1] / "exact-adamw")
    resumed, whole = losses_of(before / "stopped-False"), losses_of(trained[1] / "ddp-adamw")
    assert len(resumed) == 6
    np.testing.assert_allclose(resumed, whole, rtol=1e-4)


def test_one_process_resumes_what_four_saved(trained, tmp_path):
    for exact in (False, True):
        shutil.copytree(trained[4] / f"stopped-{exact}", tmp_path / str(exact))
        torch.set_num_threads(1)
        list(tilth.resume(tmp_path / str(exact)))
    check_same_bits(tmp_path / "True", trained[1] / "exact-adamw")


def test_batches_are_those_of_one_process(stories):
    for size in (1, 2, 3, 4):
        one = tilth.Batches(stories.train, 24, 16, 0, "epoch")[5][0]
        ranks = [
            tilth.Batches(stories.train, 24, 16, 0, "epoch", rank=rank, world_size=size)[5][0]
            for rank in range(size)
        ]
        assert torch.equal(torch.cat(ranks), one)


def test_a_run_says_nothing_of_the_number_of_ranks(trained):
    for name in NAMES:
        texts = [(folder / name / "config.toml").read_bytes() for folder in trained.values()]
        assert len(set(texts)) == 1
    assert b"parallel" not in (trained[2] / "ddp-adamw" / "config.toml").read_bytes()
    assert b"exact = true" in (trained[2] / "exact-adamw" / "config.toml").read_bytes()
    for _, problem in tilth.verify_run(tilth.open_run(trained[4] / "exact-adamw")):
        assert problem is None


def test_one_process():
    ranks = Ranks()
    assert ranks.is_first
    assert ranks.any(True)
    assert ranks.gathered({"a": [1]}) == [{"a": [1]}]
    assert ranks.rows_of(config_of("data", False)) == 24


def test_traffic(trained):
    model = tilth.open_run(trained[1] / "ddp-adamw").config.model
    size = sum(
        tensor.nbytes
        for name, tensor in tensors_of(trained[1] / "ddp-adamw").items()
        if name.startswith("model")
    )
    assert gradient_traffic(model, 2) == size
    assert gradient_traffic(model, 4) == 1.5 * size


# --- slow: through the command line, with faults --------------------------------------------------


def words_of(data, out, *more):
    model = ("--model.num-layers", 2, "--model.d-model", 64, "--model.num-heads", 2)
    machine = ("--machine.device", "cpu", "--machine.dtype", "float32", "--machine.no-compile")
    watch = ("--watch.save-every", 10, "--watch.sample-every", 0)
    size = ("--steps", 200, "--batch-size", 8, "--model.context-length", 64)
    start = ("-m", "tilth", "train", "tiny", "--data", data, "--out", out)
    return (*start, *size, *model, *machine, *watch, *more)


def pids_of(process):
    """Return the ranks of a torchrun, once there are some."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if len(children) >= 2:
            return [int(pid) for pid in children]
        time.sleep(0.05)
    raise TimeoutError


def wait_for(path, process):
    until = time.monotonic() + 200
    while not path.exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_rank_ends_all_within_a_minute(stories, tmp_path):
    process = torchrun(2, *words_of(stories.folder, tmp_path / "run"))
    wait_for(tmp_path / "run" / "checkpoints" / "step-000010", process)
    then = time.monotonic()
    os.kill(pids_of(process)[1], signal.SIGKILL)
    code, stderr = finished(process, 60)
    assert time.monotonic() - then < 60
    assert code != 0
    assert "tilth: another process of this training ended or cannot be reached" in stderr
    assert "src/tilth" not in stderr  # torchrun prints its own traceback
    assert "Exception" not in stderr


@pytest.mark.slow
def test_restarts_of_killed_ranks_reach_the_same_bits(stories, tmp_path):
    whole = torchrun(2, *words_of(stories.folder, tmp_path / "whole"))
    assert finished(whole)[0] == 0
    generator = random.Random(0)
    options = ("--max-restarts", 3, *words_of(stories.folder, tmp_path / "run"))
    process = torchrun(2, *options)
    for _ in range(3):
        seen = pids_of(process)
        wait_for(tmp_path / "run" / "checkpoints", process)
        time.sleep(generator.uniform(0.0, 3.0))
        if process.poll() is not None:
            break
        os.kill(generator.choice(seen), signal.SIGKILL)
        until = time.monotonic() + 60
        while set(pids_of(process)) & set(seen) and time.monotonic() < until:
            time.sleep(0.05)
    assert finished(process)[0] == 0
    check_same_bits(tmp_path / "run", tmp_path / "whole")


@pytest.mark.slow
def test_sigterm_saves_and_resumes_to_the_same_bits(stories, tmp_path):
    whole = torchrun(2, *words_of(stories.folder, tmp_path / "whole"))
    assert finished(whole)[0] == 0
    process = torchrun(2, *words_of(stories.folder, tmp_path / "run"))
    wait_for(tmp_path / "run" / "checkpoints" / "step-000010", process)
    for pid in pids_of(process)[1:]:  # as a cluster does to each process
        os.kill(pid, signal.SIGTERM)
    code, stderr = finished(process)
    assert code != 0
    assert "which is saved" in stderr
    assert "exitcode  : 143" in stderr
    assert finished(torchrun(2, "-m", "tilth", "resume", tmp_path / "run"))[0] == 0
    check_same_bits(tmp_path / "run", tmp_path / "whole")
