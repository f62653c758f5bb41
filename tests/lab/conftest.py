"""One torch thread, and a config that trains in a moment."""

import pytest
import torch

from tilth.config import MachineConfig, ModelConfig, OptimizerConfig, TrainingConfig, WatchConfig


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def base(stories):
    """A base of 16 steps; a module that needs others overrides it with a changed copy."""
    return TrainingConfig(
        str(stories.folder),
        ModelConfig(stories.vocab_size, 16, d_model=16, num_layers=1, num_heads=2),
        steps=16,
        batch_size=4,
        optimizer=OptimizerConfig("muon", lr=1e-2),
        machine=MachineConfig("cpu", "float32", compile=False, threads=1),
        watch=WatchConfig(sample_tokens=4),
    )
