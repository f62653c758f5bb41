"""Fixtures: a run of some steps, and a model folder exported from it."""

import pytest
import torch

import tilth
from tilth.config.training import MachineConfig, TrainingConfig, WatchConfig


@pytest.fixture(scope="session")
def run(tmp_path_factory, stories):
    """A run of 12 steps. Read-only: all tests share it."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs") / "first"
    shape = {"context_length": 64, "d_model": 32, "num_layers": 2, "num_heads": 4}
    config = TrainingConfig(
        str(stories.folder),
        tilth.ModelConfig(stories.vocab_size, **shape, num_kv_heads=2),
        steps=12,
        batch_size=4,
        machine=MachineConfig("cpu", "float32", compile=False, threads=1),
        watch=WatchConfig(evaluation_tokens=200, save_every=6, sample_every=0),
    )
    for _ in tilth.train(config, folder):
        pass
    return folder


@pytest.fixture(scope="session")
def exported(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "first-hf"
    tilth.export(run, folder)
    return folder
