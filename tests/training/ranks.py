"""Trainings of two, three and four ranks, whose results test_distributed.py compares.

    python -m tests.training.ranks DATA FOLDER

FOLDER/1 has those of one process. torchrun's agent forks the ranks, so torch is imported once.
"""

import shutil
import sys
import threading
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import tilth
from tests.full_disk import largest_file
from tilth.config.training import (
    MachineConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainingConfig,
    WatchConfig,
)
from tilth.runs import state
from tilth.runs.run import versions
from tilth.training import loop, session, sharding
from tilth.training.distributed import open_ranks
from tilth.training.machine import cpu_has_bfloat16

# How the ranks divide a model; "parts" do not fit into the memory of any rank.
DIVISIONS = {
    "ddp": ParallelConfig(),
    "exact": ParallelConfig(exact=True),
    "fsdp": ParallelConfig(strategy="fsdp"),
    "parts": ParallelConfig(memory_gb=1e-6),
}


def config_of(data, exact, optimizer="adamw", parallel=None):
    """Return a config whose batch can be divided among one to four ranks."""
    return TrainingConfig(
        str(data),
        tilth.ModelConfig(300, context_length=16, d_model=16, num_layers=1, num_heads=2),
        steps=6,
        batch_size=24,
        microbatch_size=2 if exact else 4,
        optimizer=OptimizerConfig(name=optimizer, lr=3e-2),
        machine=MachineConfig("cpu", "float32", False, 1),
        watch=WatchConfig(
            evaluation_tokens=1000,
            save_every=3,
            weights_per_doubling=1,
            sample_every=3,
            sample_tokens=4,
        ),
        parallel=parallel or ParallelConfig(exact=exact),
    )


def train_all(data, out):
    """Train in every way that is compared, into folders of `out`."""
    for name, parallel in DIVISIONS.items():
        for optimizer in ("adamw", "muon"):
            config = config_of(data, name == "exact", optimizer, parallel)
            list(tilth.train(config, out / f"{name}-{optimizer}"))
        config = config_of(data, name == "exact", "muon", parallel)
        stop(config, out / f"stopped-{name}")
        # With 2 and 4 ranks, the last one has a row, or an exact microbatch, more than the first.
        if name != "parts":
            size = 5 if name == "exact" else 6
            config = replace(config, batch_size=25, microbatch_size=size)
            list(tilth.train(config, out / f"uneven-{name}"))


def train_in_bfloat16(data, out):
    """Train in mixed precision, if the processor can."""
    if not cpu_has_bfloat16():
        return
    for name in ("ddp", "fsdp"):
        config = config_of(data, False, parallel=DIVISIONS[name])
        machine = replace(config.machine, dtype="bfloat16")
        list(tilth.train(replace(config, machine=machine), out / f"{name}-bfloat16"))


def stop(config, folder):
    """Train for two steps."""
    steps = tilth.train(config, folder)
    list(islice(steps, 2))
    steps.close()


def resume_all(folder):
    """Resume the trainings that another number of ranks stopped, some with another division."""
    for name, now in (("ddp", "fsdp"), ("exact", "exact"), ("fsdp", "parts"), ("parts", "ddp")):
        run = tilth.open_run(folder / f"stopped-{name}")
        if open_ranks().is_first:
            run.save_config(replace(run.config, parallel=DIVISIONS[now]))
        open_ranks().wait()
        list(tilth.resume(run.folder))


def replace_a_rank(data, folder):
    """Resume a training of which the last rank says `resume`, and the others `train`."""
    config, ranks = config_of(data, True, "muon"), open_ranks()
    stop(config, folder)
    is_new = ranks.rank == ranks.size - 1
    list(tilth.resume(folder) if is_new else tilth.train(config, folder))


def lose_a_gradient(data, out):
    """Train with a gradient that is not finite on the last rank alone, in the third step."""
    ranks, make_loss = open_ranks(), session.make_loss

    def broken(model, machine):
        loss_of = make_loss(model, machine)
        per_step = -(24 // ranks.size // -4)  # microbatches of a rank

        def found(x, y):
            is_bad = next(calls) // per_step == 2 and ranks.rank == ranks.size - 1
            return loss_of(x, y) * (float("nan") if is_bad else 1.0)

        return found

    session.make_loss = sharding.make_loss = broken
    for name in ("ddp", "fsdp"):
        calls = iter(range(1000))
        config = config_of(data, False, parallel=DIVISIONS[name])
        config = replace(config, watch=replace(config.watch, evaluate_every=0, save_every=0))
        records = list(tilth.train(config, out / f"skipped-{name}"))
        skipped = [record.was_skipped for record in records]
        assert skipped == [False, False, True, False, False, False]
    session.make_loss = sharding.make_loss = make_loss


def fill_disks(data, out):
    """Train while the last rank cannot write its part of a checkpoint; all say the same."""
    ranks = open_ranks()
    limit = 100 if ranks.rank == ranks.size - 1 else 1 << 30
    config = config_of(data, False, parallel=DIVISIONS["parts"])
    with largest_file(limit):
        expect(f"(rank {ranks.size - 1}: ", lambda: list(tilth.train(config, out / "full")))
    assert not [*(out / "full" / "checkpoints").iterdir()]


def save_meanwhile(data, out):
    """Take a step while all ranks write their parts of the checkpoint before it."""
    save_files, may_write = state._save_files, threading.Event()

    def wait_and_save(*arguments):
        assert may_write.wait(60)
        return save_files(*arguments)

    state._save_files = wait_and_save
    config = config_of(data, False, parallel=DIVISIONS["parts"])
    watch = replace(config.watch, weights_per_doubling=0)
    for record in tilth.train(replace(config, watch=watch), out / "meanwhile"):
        if record.step == 4:
            assert not [*(out / "meanwhile" / "checkpoints").glob("step-*")]
            may_write.set()
    state._save_files = save_files


def refuse(data, out):
    """Start ranks with other configs, and with a batch that cannot be divided."""
    ranks = open_ranks()
    config = config_of(data, False, parallel=DIVISIONS["fsdp"])
    own = replace(config, seed=7 if ranks.rank == 1 else 0)
    expect("rank 1 has seed 7, and rank 0 has 0; start all ranks", lambda: tilth.train(own, out))
    other = out.parent.parent / "other-data"
    own = replace(config, data=str(other if ranks.rank == 1 else data))
    expect("has the data with the fingerprint '", lambda: tilth.train(own, out))
    loop.versions = lambda: {**versions(), **({"torch": "0.1"} if ranks.rank == 1 else {})}
    expect("rank 1 has the version of torch '0.1'", lambda: tilth.train(config, out))
    loop.versions = versions
    few = replace(config, batch_size=1, microbatch_size=1)
    expect("batch_size 1 cannot be divided among", lambda: tilth.train(few, out))
    whole = replace(config_of(data, True), microbatch_size=24)
    expect("in microbatches of 24, which parallel.exact", lambda: tilth.train(whole, out))
    init = out.parent / ("ddp-muon" if ranks.rank == 1 else "ddp-adamw")
    words = "rank 1 has the initial model with the fingerprint '"
    expect(words, lambda: tilth.train(config, out, init=init))
    own = {"model.safetensors": str(ranks.rank == 1)}
    expect("the ranks found different checkpoints", lambda: ranks.check_same_start(3, own))
    timed = replace(config, steps=None, budget_seconds=60.0)
    expect("a time budget is measured in one process", lambda: tilth.train(timed, out))
    odd = replace(config, parallel=ParallelConfig(shards=3))
    expect("cannot be divided into groups of 3", lambda: tilth.train(odd, out))
    assert not out.exists()


def expect(words, call):
    said = "no error"
    try:
        call()
    except (ValueError, OSError) as error:
        said = str(error)
    assert words in said, said


def work(data, folder):
    """Train as one of the ranks."""
    ranks = open_ranks()
    resume_all(folder / f"before-{ranks.size}")
    if ranks.size == 3:
        return
    out = folder / str(ranks.size)
    train_all(data, out)
    train_in_bfloat16(data, out)
    replace_a_rank(data, out / "replaced")
    lose_a_gradient(data, out)
    save_meanwhile(data, out)
    refuse(data, out / "refused")
    fill_disks(data, out)


def main():
    torch.set_num_threads(1)
    data, folder = map(Path, sys.argv[1:])
    for ranks, before in ((2, 1), (3, 2), (4, 2)):
        for stopped in (folder / str(before)).glob("stopped-*"):
            shutil.copytree(stopped, folder / f"before-{ranks}" / stopped.name)
        where = {"rdzv_endpoint": "127.0.0.1:0", "local_addr": "127.0.0.1"}
        how = {"rdzv_backend": "c10d", "start_method": "fork", "monitor_interval": 0.05}
        config = LaunchConfig(1, 1, ranks, run_id="ranks", max_restarts=0, **how, **where)
        elastic_launch(config, work)(data, folder)


if __name__ == "__main__":
    main()
