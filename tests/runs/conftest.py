"""Fixtures: a run directory with a minimal model."""

import pytest
import torch

from tests.torch_threads import one_thread
from tilth.config import ModelConfig
from tilth.config.training import TrainingConfig
from tilth.model import TransformerLM
from tilth.runs.run import create_run
from tilth.tokenizer import train_tokenizer

__all__ = ["one_thread"]


@pytest.fixture(scope="session")
def tokenizer():
    return train_tokenizer(texts=["the cat and the hat"], vocab_size=260)


@pytest.fixture(scope="session")
def config():
    model = ModelConfig(260, context_length=8, d_model=16, num_layers=1, num_heads=2)
    return TrainingConfig("data", model, steps=100).resolve(
        device="cpu", dtype="float32", compile=False, threads=1
    )


@pytest.fixture
def make_run(tmp_path, config, tokenizer):
    """Return a function that creates a named run in `tmp_path`."""

    def make_run(name="run", config=config):
        return create_run(tmp_path / name, config, tokenizer, "d" * 64)

    return make_run


@pytest.fixture
def make_training(config):
    """Return a function that makes a model and its optimizer after one step; both use the seed."""

    def make_training(seed=0):
        torch.manual_seed(seed)
        model = TransformerLM(config.model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.5, 0.75))
        model(torch.arange(8)[None]).square().mean().backward()
        optimizer.step()
        return model, optimizer

    return make_training
