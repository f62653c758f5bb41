"""Tests of gradient clipping against `torch.nn.utils.clip_grad_norm_`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_

from tilth.optim import clip_gradients, clipping


def parameters(*gradients):
    made = []
    for gradient in gradients:
        parameter = Parameter(torch.zeros(3) if gradient is None else torch.zeros_like(gradient))
        parameter.grad = gradient
        made.append(parameter)
    return made


def example(scale=1.0, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 4), (5,), (), (2, 2, 2)]
    drawn = [scale * torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    return parameters(*drawn[:2], None, *drawn[2:])


def assert_same_gradients(ours, theirs, **tolerance):
    for one, other in zip(ours, theirs, strict=True):
        if other.grad is None:
            assert one.grad is None
        else:
            torch.testing.assert_close(one.grad, other.grad, **tolerance)


@settings(max_examples=50)
@given(scale=st.floats(1e-3, 1e6), max_norm=st.floats(1e-3, 1e3), double=st.booleans())
def test_equals_pytorch(scale, max_norm, double):
    dtype = torch.float64 if double else torch.float32
    ours, theirs = example(scale, dtype), example(scale, dtype)
    norm = clip_gradients(iter(ours), max_norm)
    torch.testing.assert_close(norm, clip_grad_norm_(theirs, max_norm))
    assert_same_gradients(ours, theirs)
    assert norm.dtype == dtype
    assert not norm.requires_grad


def test_norm_up_to_the_limit_changes_no_bit():
    for max_norm in (5.0, 5.0000001, math.inf):
        (weight,) = parameters(torch.tensor([3.0, 4.0]))
        assert clip_gradients([weight], max_norm) == 5.0
        assert weight.grad.tolist() == [3.0, 4.0]


def test_gradients_are_scaled_in_place_with_epsilon():
    gradient = torch.tensor([3e-6, 4e-6], dtype=torch.float64)
    (weight,) = parameters(gradient)
    clip_gradients([weight], 1e-6)
    assert weight.grad is gradient
    # 1e-6 / (5e-6 + 1e-6) = 1/6: so small that epsilon matters.
    torch.testing.assert_close(gradient, torch.tensor([0.5e-6, 4e-6 / 6], dtype=torch.float64))


def test_one_parameter_a_generator_and_no_gradients():
    (weight,) = parameters(torch.tensor([3.0, 4.0]))
    assert clip_gradients(weight, 1.0) == 5.0
    torch.testing.assert_close(weight.grad.norm(), torch.tensor(1.0))
    model = torch.nn.Linear(2, 2)
    assert clip_gradients(model.parameters(), 1.0) == 0.0
    assert clip_gradients([], 1.0) == 0.0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_norm_that_is_not_finite_leaves_gradients_unchanged(bad):
    ours, before = (parameters(torch.tensor([1.0, bad]), torch.tensor([1e9])) for _ in range(2))
    norm = clip_gradients(ours, 1.0)
    assert not norm.isfinite()
    assert_same_gradients(ours, before, equal_nan=True, rtol=0, atol=0)


def test_mixed_types():
    """The norm is computed in at least float32: neither rounded nor overflowing."""
    values = torch.tensor([29_952.0, 50_176.0])  # exact in all three types, their norm in none
    length = math.hypot(29_952.0, 50_176.0)
    ours = parameters(
        *(values.to(t, copy=True) for t in (torch.float16, torch.bfloat16, torch.float32))
    )
    norm = clip_gradients(ours, 1.0)
    torch.testing.assert_close(norm, torch.tensor(length * math.sqrt(3)))
    for weight in ours:
        expected = values / (length * math.sqrt(3))
        torch.testing.assert_close(weight.grad.float(), expected, rtol=2**-8, atol=0)
    assert [weight.grad.dtype for weight in ours] == [torch.float16, torch.bfloat16, torch.float32]
    wide = parameters(values.double(), values.clone())
    assert clip_gradients(wide, 1.0).dtype == torch.float64


def test_other_devices_are_not_synchronized():
    """The meta device has no values, so reading one would fail."""
    weight = Parameter(torch.zeros(3, device="meta"))
    weight.grad = torch.zeros(3, device="meta")
    assert clip_gradients([weight], 1.0).device.type == "meta"


def test_factor_without_synchronizing():
    """The factor on other devices; a CPU reads the norm instead."""
    for norm, factor in ((0.5, 1.0), (2.0, 1.0), (8.0, 0.25), (math.inf, 1.0), (math.nan, 1.0)):
        found = clipping._factor(torch.tensor(norm, dtype=torch.float64), 2.0)
        assert found.item() == pytest.approx(factor, rel=1e-6)
        assert (found.item() == 1.0) == (factor == 1.0)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, math.nan])
def test_invalid_max_norm_is_rejected(max_norm):
    with pytest.raises(ValueError, match="must be positive"):
        clip_gradients([], max_norm)
