"""Training by several processes: the batches, losses, bits and checkpoints of one process."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.numpy import load_file

import tilth
from tests.training.ranks import DIVISIONS, config_of, train_all
from tilth.accounting.parallel import gradient_traffic
from tilth.accounting.ranks import checkpoint_bytes
from tilth.config.parameters import parameter_shapes
from tilth.files import FileError
from tilth.runs.checkpoints import HISTORY, list_checkpoints
from tilth.runs.run import CONFIG, LOCK
from tilth.training.distributed import Ranks, name_of_start
from tilth.training.evaluation import evaluate_run
from tilth.training.loop import _resumes
from tilth.training.machine import cpu_has_bfloat16

ROOT = Path(__file__).parents[2]
OWN = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
LOOPBACK = {**os.environ, **OWN}
NAMES = [f"{name}-{optimizer}" for name in DIVISIONS for optimizer in ("adamw", "muon")]


def torchrun(ranks, *words, standalone=True, **options):
    """Start processes on loopback, each with one thread."""
    # A free port of the agent's choice: `--standalone`.
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    launch += ["--standalone"] * standalone
    command = [sys.executable, *launch, "--local-addr", "127.0.0.1", *map(str, words)]
    outputs = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env=LOOPBACK, text=True, **{**outputs, **options})


def finished(process, seconds=300):
    """Return the exit code and stderr of a process."""
    try:
        _, stderr = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, stderr


@pytest.fixture(scope="module")
def trained(stories, tmp_path_factory):
    """Train in one, two and four processes, and resume in three; return the folder of each."""
    folder = tmp_path_factory.mktemp("ranks")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train_all(stories.folder, folder / "1")
    torch.set_num_threads(threads)
    tokenize_other(stories, folder)
    command = [sys.executable, "-m", "tests.training.ranks", stories.folder, folder]
    outputs = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    code, stderr = finished(subprocess.Popen(command, **outputs, cwd=ROOT, env=LOOPBACK, text=True))
    assert code == 0, stderr
    return {ranks: folder / str(ranks) for ranks in (1, 2, 4)}


def tokenize_other(stories, folder):
    """Write another data folder with the same tokenizer."""
    text = folder / "other.txt"
    text.write_text("<|endoftext|>".join(f"Text {n} of one rank." for n in range(400)))
    tilth.tokenize([text], stories.tokenizer(), folder / "other-data", valid=0.5)


def tensors_of(run):
    checkpoint = tilth.open_run(run).checkpoints()[-1].folder
    return {
        f"{name}/{key}": tensor
        for name in ("model", "optimizer")
        for path in checkpoint.glob(f"{name}*.safetensors")
        for key, tensor in load_file(path).items()
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
@pytest.mark.parametrize("division", ["ddp", "fsdp", "parts"])
def test_ranks_have_the_losses_of_one_process(trained, ranks, optimizer, division):
    one, many = trained[1] / f"ddp-{optimizer}", trained[ranks] / f"{division}-{optimizer}"
    check_close(many, one)
    losses = [[each.loss for each in evaluations_of(run)] for run in (one, many)]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    # The sums of exact training are the same sums in another order.
    exact = trained[1] / f"exact-{optimizer}"
    np.testing.assert_allclose(losses_of(many), losses_of(exact), rtol=1e-4)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_batch_that_ranks_cannot_divide_equally(trained, ranks):
    one, many = trained[1], trained[ranks]
    check_same_bits(many / "uneven-exact", one / "uneven-exact")
    assert losses_of(many / "uneven-exact") == losses_of(one / "uneven-exact")
    for division in ("ddp", "fsdp"):
        check_close(many / f"uneven-{division}", one / "uneven-ddp")


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("division", DIVISIONS)
def test_resume_with_another_number_of_ranks_and_division(trained, ranks, division):
    resumed = trained[1].parent / f"before-{ranks}" / f"stopped-{division}"
    assert len(losses_of(resumed)) == 6
    if division == "exact":
        check_same_bits(resumed, trained[1] / "exact-muon")
    else:
        check_close(resumed, trained[1] / "ddp-muon")


def test_one_process_resumes_what_ranks_saved(trained, tmp_path):
    for division, ranks in zip(DIVISIONS, (2, 4, 4, 2), strict=True):
        shutil.copytree(trained[ranks] / f"stopped-{division}", tmp_path / division)
        torch.set_num_threads(1)
        list(tilth.resume(tmp_path / division))
        check_close(tmp_path / division, trained[1] / "ddp-muon")
    check_same_bits(tmp_path / "exact", trained[1] / "exact-muon")


@pytest.mark.skipif(not cpu_has_bfloat16(), reason="needs instructions for bfloat16")
@pytest.mark.parametrize("ranks", [2, 4])
def test_mixed_precision(trained, ranks):
    """Products of gathered bfloat16 weights are those of autocast; the state is float32."""
    whole, sharded = (trained[ranks] / f"{name}-bfloat16" for name in ("ddp", "fsdp"))
    np.testing.assert_allclose(losses_of(sharded), losses_of(whole), rtol=1e-3)
    assert {tensor.dtype.name for tensor in tensors_of(sharded).values()} <= {
        *("float32", "int64", "uint8")
    }


def check_close(first, second):
    np.testing.assert_allclose(losses_of(first), losses_of(second), rtol=1e-4)
    for name, tensor in tensors_of(second).items():
        np.testing.assert_allclose(tensors_of(first)[name], tensor, atol=1e-4, err_msg=name)


def test_checkpoints_in_parts(trained, tmp_path):
    """Every reader takes them; a damaged or missing part is refused."""
    folder = trained[4] / "parts-adamw"
    run = tilth.open_run(folder)
    files = {path.name for path in run.checkpoints()[-1].folder.iterdir()}
    for stem in ("model", "optimizer"):
        assert {f"{stem}-0000{part}-of-00004.safetensors" for part in (1, 2, 3, 4)} <= files
    assert len(files) == 9
    model = tilth.load(folder)
    whole = tilth.load(trained[4] / "fsdp-adamw")
    assert model.generate_batch(["Once"], temperature=0.0) == whole.generate_batch(
        ["Once"], temperature=0.0
    )
    assert all(problem is None for _, problem in tilth.verify_run(run))
    # torch.distributed.checkpoint reads them too.
    checkpoint = run.checkpoints()[-1]
    read = {n: torch.empty(shape) for n, shape in parameter_shapes(run.config.model)}
    with pytest.warns(UserWarning, match="in a single process"):
        dcp.load(read, storage_reader=dcp.HuggingFaceStorageReader(str(checkpoint.folder)))
    for name, weight in checkpoint.weights(run.config.model).items():
        assert np.array_equal(read[name], weight)
    tilth.export(folder, tmp_path / "exported")
    np.testing.assert_allclose(
        evaluate_run(run)[1].loss, evaluations_of(folder)[-1].loss, rtol=0.05
    )
    shutil.copytree(folder, tmp_path / "damaged")
    damaged = tilth.open_run(tmp_path / "damaged")
    part = damaged.checkpoints()[-1].folder / "optimizer-00003-of-00004.safetensors"
    data = part.read_bytes()
    part.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    problems = {name: problem for name, problem in tilth.verify_run(damaged) if problem}
    assert "optimizer-00003-of-00004.safetensors is damaged" in problems.popitem()[1]
    part.unlink()
    with pytest.raises(FileError, match="optimizer-00003"):
        damaged.checkpoints()[-1].check()


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("division", DIVISIONS)
def test_history(trained, ranks, division):
    """It has the weights of one process, written by one rank or in parts."""
    name = "exact" if division == "exact" else "ddp"
    one = tilth.open_run(trained[1] / f"{name}-adamw")
    many = tilth.open_run(trained[ranks] / f"{division}-adamw")
    kept = list_checkpoints(many.folder, HISTORY)
    assert [each.step for each in kept] == [0, 1, 2, 4]
    for each in kept:
        expected, found = one.weights(each.step)[1], each.weights(many.config.model)
        assert not list(each.folder.glob("optimizer*"))
        for key, weight in found.items():
            tolerance = 0.0 if division == "exact" or each.step == 0 else 1e-4
            np.testing.assert_allclose(weight, expected[key], rtol=0, atol=tolerance)
    parts = len(list(kept[-1].folder.glob("model*")))
    assert parts == (ranks if division == "parts" else 1)
    assert all(problem is None for _, problem in tilth.verify_run(many))


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


def started(store, size, order):
    """Return the names that ranks get, which start 0.1 s apart in the given order."""
    with ThreadPoolExecutor(size) as pool:
        names = {}
        for rank in order:
            names[rank] = pool.submit(name_of_start, store, rank, size)
            time.sleep(0.1)
        return [names[rank].result(30) for rank in range(size)]


def test_the_name_of_a_start():
    """Ranks of one start have one name, though the store has those of earlier starts."""
    store = dist.HashStore()
    first = started(store, 3, (0, 1, 2))
    second = started(store, 3, (2, 1, 0))  # the others read the first name before the second
    third = started(store, 2, (1, 0))
    assert [len(set(names)) for names in (first, second, third)] == [1, 1, 1]
    assert len({*first, *second, *third}) == 3


class Meeting(Ranks):
    """Ranks of which each has the values of all, once all of them have asked."""

    def any(self, value):
        asked.append(value)
        return any(asked)


asked = []


def resumes(folders, is_restarted=False, job="", commands=("train", "train")):
    """Return whether two ranks, which see these folders, resume."""
    asked.clear()
    ranks = [Meeting(rank, 2, is_restarted, job) for rank in (0, 1)]
    both = list(zip(folders, ranks, commands, strict=True))
    for folder, each, command in both:
        _resumes(folder, each, is_asked=command == "resume")
    values = {_resumes(folder, each) for folder, each, _ in both}
    assert len(values) == 1
    return values.pop()


def test_rank_0_decides_whether_all_resume(tmp_path):
    run, absent = tmp_path / "run", tmp_path / "absent"
    run.mkdir()
    (run / CONFIG).touch()
    assert not resumes((run, run))  # a run of the user, which `train` refuses
    assert resumes((run, run), is_restarted=True)
    assert not resumes((absent, run), is_restarted=True)  # killed before the run was there
    assert resumes((run, absent), is_restarted=True)  # a network share shows it later
    assert resumes((run, run), commands=("train", "resume"))
    # Nothing has failed: a host has joined.
    (run / LOCK).write_bytes(b"job-17")
    assert resumes((run, run), job="job-17")
    assert not resumes((run, run), job="job-18")
    (run / LOCK).write_bytes(b"")
    assert not resumes((run, run))


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_replaced_host_says_resume(trained, ranks):
    """The others repeat `train`."""
    check_same_bits(trained[ranks] / "replaced", trained[1] / "exact-muon")


def test_traffic(trained):
    model = tilth.open_run(trained[1] / "ddp-adamw").config.model
    size = sum(
        tensor.nbytes
        for name, tensor in tensors_of(trained[1] / "ddp-adamw").items()
        if name.startswith("model")
    )
    assert gradient_traffic(model, 2) == size
    assert gradient_traffic(model, 4) == 1.5 * size


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize(("ranks", "division"), [(1, "ddp"), (4, "parts")])
def test_the_predicted_size_of_a_checkpoint(trained, ranks, division, optimizer):
    run = trained[ranks] / f"{division}-{optimizer}"
    sizes = [each.nbytes for name, each in tensors_of(run).items() if "random" not in name]
    assert sum(sizes) == checkpoint_bytes(tilth.open_run(run).config.model, optimizer)


# --- slow: through the command line, with faults --------------------------------------------------


def words_of(data, out, *more, steps=200):
    model = ("--model.num-layers", 2, "--model.d-model", 64, "--model.num-heads", 2)
    machine = ("--machine.device", "cpu", "--machine.dtype", "float32", "--machine.no-compile")
    watch = ("--watch.save-every", 10, "--watch.sample-every", 0)
    size = ("--steps", steps, "--batch-size", 12, "--model.context-length", 64)
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
def test_a_full_disk_of_the_first_rank_ends_all(stories, tmp_path):
    process = torchrun(2, *words_of(stories.folder, tmp_path / "run", steps=2000))
    wait_for(tmp_path / "run" / "checkpoints" / "step-000010", process)
    # Room for the logs, not for a checkpoint.
    resource.prlimit(pids_of(process)[0], resource.RLIMIT_FSIZE, (300_000, -1))
    code, stderr = finished(process, 120)
    assert code != 0
    assert "cannot write the checkpoint" in stderr
    assert "earlier checkpoints are intact" in stderr
    assert "src/tilth" not in stderr
    assert tilth.open_run(tmp_path / "run").checkpoints()[-1].check()


KILLS = int(os.environ.get("TILTH_KILLS", "50"))  # of each campaign
LONGEST_LIFE = float(os.environ.get("TILTH_LONGEST_LIFE", "10"))  # seconds
CAMPAIGNS = {
    "ddp": (2, ()),
    "parts": (3, ("--parallel.memory-gb", 1e-6)),
}


@pytest.mark.slow
@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_restarts_of_killed_ranks_reach_the_same_bits(stories, tmp_path, campaign):
    ranks, more = CAMPAIGNS[campaign]
    whole = torchrun(ranks, *words_of(stories.folder, tmp_path / "whole", *more))
    code, stderr = finished(whole)
    assert code == 0, stderr
    generator, kills, run = random.Random(0), 0, tmp_path / "run"
    while kills < KILLS:
        shutil.rmtree(run, ignore_errors=True)
        words = ("--max-restarts", 1000, *words_of(stories.folder, run, *more))
        log = (tmp_path / "log").open("w")  # more than a pipe holds
        process = torchrun(ranks, *words, stdout=log, stderr=log)
        seen = set()
        # Most of a life of some seconds is its start.
        while (new := new_ranks(process, ranks, seen)) and kills < KILLS:
            time.sleep(generator.uniform(0.0, LONGEST_LIFE))
            seen |= set(new)
            with suppress(ProcessLookupError):
                os.kill(generator.choice(new), signal.SIGKILL)
                kills += 1
        code, _ = finished(process, 600)
        log.close()
        assert code == 0, (tmp_path / "log").read_text()
        check_same_bits(run, tmp_path / "whole")
        assert not [*run.rglob("*.partial")]
        print(f"{campaign}: the same bits after {kills} kills", flush=True)


def new_ranks(process, number, seen):
    """Return the ranks of a torchrun that were not seen before; none after its end."""
    until = time.monotonic() + 120
    while process.poll() is None:
        assert time.monotonic() < until
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        with suppress(OSError):
            children = {int(pid) for pid in path.read_text().split()} - seen
            if len(children) >= number:
                return sorted(children)
        time.sleep(0.05)
    return []


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
