"""One torch thread, and a config that trains in a moment."""

import pytest

from tests.torch_threads import one_thread
from tilth.config import MachineConfig, ModelConfig, OptimizerConfig, TrainingConfig, WatchConfig

__all__ = ["one_thread"]


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
