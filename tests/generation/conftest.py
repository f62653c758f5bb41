"""Small models, and a run on disk."""

from types import SimpleNamespace

import pytest

from tests.model.conftest import CONFIG, make_model
from tests.torch_threads import one_thread
from tilth.config.training import OptimizerConfig, TrainingConfig
from tilth.generation import LanguageModel
from tilth.runs.run import create_run
from tilth.runs.state import CheckpointWriter
from tilth.tokenizer import Tokenizer

__all__ = ["make_model", "one_thread"]


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="session")
def load(tokenizer):
    """Return a function that makes a native `LanguageModel` of a torch model."""

    def from_model(model, **options):
        weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
        return LanguageModel.from_weights(model.config, weights, tokenizer, **options)

    return from_model


@pytest.fixture(scope="session")
def run(tmp_path_factory, tokenizer, make_model):
    """A run with checkpoints of steps 5 and 10; the first has the lower loss."""
    config = TrainingConfig("data", CONFIG, steps=10, optimizer=OptimizerConfig(lr=1e-3))
    config = config.resolve(device="cpu", dtype="float32", compile=False, threads=1)
    run = create_run(tmp_path_factory.mktemp("runs") / "first", config, tokenizer, "none")
    with CheckpointWriter(run.folder, keep=2) as writer:
        for step, loss in ((5, 1.0), (10, 2.0)):
            optimizer = SimpleNamespace(state_dict=dict)  # a real one takes seconds to start
            writer.save(step, make_model(seed=step), optimizer, {"valid_loss": loss}, {})
    return run
