"""Fixtures: data and a config that train in a second."""

from dataclasses import replace

import pytest

import tilth
from tests.torch_threads import one_thread
from tilth.config.training import MachineConfig, OptimizerConfig, TrainingConfig, WatchConfig

__all__ = ["one_thread"]


@pytest.fixture(scope="session")
def data(stories):
    return stories


@pytest.fixture(scope="session")
def config(data):
    return TrainingConfig(
        str(data.folder),
        tilth.ModelConfig(data.vocab_size, 16, d_model=16, num_layers=2, num_heads=2, d_ff=64),
        steps=12,
        batch_size=4,
        optimizer=OptimizerConfig("muon", lr=1e-2),
        machine=MachineConfig("cpu", "float32", compile=False, threads=1),
        watch=WatchConfig(
            evaluate_every=3,
            evaluation_tokens=200,
            save_every=4,
            norms_every=5,
            sample_every=4,
            sample_tokens=8,
        ),
    ).resolve()


@pytest.fixture
def change(config):
    """Return a function that changes the config; None leaves a value open."""

    def changed(**values):
        base = config
        tables = [each for each in values.values() if isinstance(each, dict)]
        if any(None in each.values() for each in (values, *tables)):
            base = config.opened()
        for table in ("model", "optimizer", "machine", "watch", "parallel"):
            if table in values:
                values[table] = replace(getattr(base, table), **values[table])
        return replace(base, **values)

    return changed
