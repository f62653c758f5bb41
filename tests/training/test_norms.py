"""Norms equal root mean squares computed by NumPy."""

import numpy as np
import pytest
import torch

from tilth.model import TransformerLM
from tilth.training.norms import measure_norms


def root_mean_square(tensor):
    """Compute in float64."""
    return float(np.sqrt(np.mean(np.square(tensor.detach().numpy().astype(np.float64)))))


@pytest.fixture
def model(config):
    torch.manual_seed(0)
    return TransformerLM(config.model)


@pytest.fixture
def ids():
    return torch.arange(16).reshape(2, 8)


def test_activations_equal_an_explicit_forward_pass(model, ids):
    """Compare with the sublayers called one by one."""
    stream = model.token_embeddings.weight[ids]
    expected = {"token_embeddings": root_mean_square(stream)}
    for number, block in enumerate(model.layers):
        attended = block.attn(block.ln1(stream))
        stream = stream + attended
        fed = block.ffn(block.ln2(stream))
        stream = stream + fed
        expected[f"layers.{number}"] = root_mean_square(stream)
        expected[f"layers.{number}.attn"] = root_mean_square(attended)
        expected[f"layers.{number}.ffn"] = root_mean_square(fed)
    found = measure_norms(model, ids)["activations"]
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, rel=1e-5)
    assert len({round(value, 6) for value in found.values()}) == len(found)  # none is another's


def test_weight_and_gradient_norms(model, ids):
    model(ids).square().mean().backward()
    del model.lm_head.weight.grad
    found = measure_norms(model, ids)
    parameters = dict(model.named_parameters())
    weights = {name: root_mean_square(weight) for name, weight in parameters.items()}
    assert found["weights"] == pytest.approx(weights, rel=1e-5)
    gradients = {
        n: root_mean_square(p.grad) for n, p in parameters.items() if n != "lm_head.weight"
    }
    assert found["gradients"] == pytest.approx(gradients, rel=1e-5)


def test_measuring_changes_nothing(model, ids):
    model(ids).square().mean().backward()
    before = [(p.detach().clone(), p.grad.clone()) for p in model.parameters()]
    measure_norms(model, ids)
    for parameter, (weight, gradient) in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter, weight)
        assert torch.equal(parameter.grad, gradient)
    assert not any(module._forward_hooks for module in model.modules())


def test_gradient_scale_is_removed(model, ids):
    model(ids).square().mean().backward()
    expected = {name: root_mean_square(p.grad) for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad.mul_(65536.0)
    assert measure_norms(model, ids, 65536.0)["gradients"] == pytest.approx(expected, rel=1e-5)
