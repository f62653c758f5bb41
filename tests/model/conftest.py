"""Small models on one thread: for tiny tensors a second thread is slower."""

from dataclasses import replace

import pytest
import torch

from tests.torch_threads import one_thread
from tilth.config import ModelConfig
from tilth.model import TransformerLM

__all__ = ["one_thread"]

CONFIG = ModelConfig(vocab_size=260, context_length=24, d_model=32, num_layers=2, num_heads=4)


@pytest.fixture(scope="session")
def make_model():
    """Return a function that makes models of CONFIG with random norm weights."""

    def make(seed=0, **changes):
        torch.manual_seed(seed)
        model = TransformerLM(replace(CONFIG, **changes)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.copy_(1 + 0.3 * torch.randn(parameter.shape))
        return model

    return make
