"""A program for torchrun: trainings whose results test_distributed.py compares.

torchrun --nproc-per-node 2 tests/training/ranks.py DATA OUT
"""

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch

import tilth
from tilth.config.training import (
    MachineConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainingConfig,
    WatchConfig,
)
from tilth.training import session
from tilth.training.distributed import open_ranks


def config_of(data, exact, optimizer="adamw"):
    """Return a config whose batch can be divided among one to four ranks."""
    return TrainingConfig(
        str(data),
        tilth.ModelConfig(300, context_length=16, d_model=16, num_layers=1, num_heads=2),
        steps=6,
        batch_size=24,
        microbatch_size=2 if exact else 4,
        optimizer=OptimizerConfig(name=optimizer, lr=3e-2),
        machine=MachineConfig("cpu", "float32", False, 1),
        watch=WatchConfig(evaluation_tokens=1000, save_every=3, sample_every=3, sample_tokens=4),
        parallel=ParallelConfig(exact=exact),
    )


def train_all(data, out):
    """Train in every way that is compared, into folders of `out`."""
    for exact in (False, True):
        for optimizer in ("adamw", "muon"):
            name = f"{'exact' if exact else 'ddp'}-{optimizer}"
            list(tilth.train(config_of(data, exact, optimizer), out / name))
        steps = tilth.train(config_of(data, exact), out / f"stopped-{exact}")
        list(islice(steps, 2))
        steps.close()


def resume_all(folder):
    """Resume the trainings that another number of ranks stopped."""
    for exact in (False, True):
        list(tilth.resume(folder / f"stopped-{exact}"))


def lose_a_gradient(data, out):
    """Train with a gradient that is not finite on the last rank alone, in the third step."""
    ranks, make_loss = open_ranks(), session.make_loss
    calls = iter(range(1000))

    def broken(model, machine):
        loss_of = make_loss(model, machine)
        per_step = -(24 // ranks.size // -4)  # microbatches of a rank

        def found(x, y):
            is_bad = next(calls) // per_step == 2 and ranks.rank == ranks.size - 1
            return loss_of(x, y) * (float("nan") if is_bad else 1.0)

        return found

    session.make_loss = broken
    records = list(tilth.train(config_of(data, False), out / "skipped"))
    session.make_loss = make_loss
    assert [record.was_skipped for record in records] == [False, False, True, False, False, False]


def refuse(data, out):
    """Start ranks with other configs, and with a batch that cannot be divided."""
    ranks = open_ranks()
    config = config_of(data, False)
    own = replace(config, seed=7 if ranks.rank == 1 else 0)
    expect(r"rank 1 has seed 7, and rank 0 has 0; start all ranks", lambda: tilth.train(own, out))
    odd = replace(config, batch_size=25)
    expect("batch_size 25 cannot be divided", lambda: tilth.train(odd, out))
    whole = replace(config_of(data, True), microbatch_size=24)
    expect("microbatch_size is 24, and each of", lambda: tilth.train(whole, out))
    timed = replace(config, steps=None, budget_seconds=60.0)
    expect("a time budget is measured in one process", lambda: tilth.train(timed, out))
    assert not out.exists()


def expect(words, call):
    said = "no error"
    try:
        call()
    except ValueError as error:
        said = str(error)
    assert words in said, said


if __name__ == "__main__":
    torch.set_num_threads(1)
    data, out = map(Path, sys.argv[1:])
    train_all(data, out)
    resume_all(out.parent / f"before-{open_ranks().size}")
    lose_a_gradient(data, out)
    refuse(data, out / "refused")
