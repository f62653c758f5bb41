"""Small models, a run on disk, and one thread: tiny tensors on two would wait for each other."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tilth.generation import LoadedModel
from tilth.model import ModelConfig, TransformerLM
from tilth.recipes.config import OptimizerConfig, TrainingConfig
from tilth.runs.run import create_run
from tilth.runs.saving import CheckpointWriter
from tilth.tokenizer import Tokenizer

CONFIG = ModelConfig(vocab_size=260, context_length=24, d_model=32, num_layers=2, num_heads=4)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="session")
def make_model():
    """Models of CONFIG with changes, whose norm weights differ from 1, so that tests see them."""

    def make(seed=0, **changes):
        torch.manual_seed(seed)
        model = TransformerLM(replace(CONFIG, **changes)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.copy_(1 + 0.3 * torch.randn(parameter.shape))
        return model

    return make


@pytest.fixture(scope="session")
def load(tokenizer):
    """A model as the native decoder takes it."""

    def from_model(model, **options):
        weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
        return LoadedModel.from_weights(model.config, weights, tokenizer, **options)

    return from_model


@pytest.fixture(scope="session")
def run(tmp_path_factory, tokenizer, make_model):
    """A run with checkpoints of steps 5 and 10, the first of which is the better one."""
    config = TrainingConfig("data", CONFIG, steps=10, optimizer=OptimizerConfig(lr=1e-3))
    config = config.resolved(device="cpu", dtype="float32", compile=False, threads=1)
    run = create_run(tmp_path_factory.mktemp("runs") / "first", config, tokenizer, "none")
    with CheckpointWriter(run.folder, keep=2) as writer:
        for step, loss in ((5, 1.0), (10, 2.0)):
            optimizer = SimpleNamespace(state_dict=dict)  # a real one takes seconds to begin
            writer.save(step, make_model(seed=step), optimizer, {"valid_loss": loss}, {})
    return run
