import pytest
import torch

from tilth.model import TransformerLM
from tilth.training.norms import measure_norms


def test_gradients_are_measured_without_the_scale_of_float16(config):
    model, ids = TransformerLM(config.model), torch.arange(8)[None]
    model(ids).square().mean().backward()
    plain = measure_norms(model, ids)["gradients"]
    for parameter in model.parameters():
        parameter.grad.mul_(65536.0)
    assert measure_norms(model, ids, 65536.0)["gradients"] == pytest.approx(plain)
