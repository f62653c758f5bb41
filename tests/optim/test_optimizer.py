"""Tests of all optimizers: closures, state, copies, options, missing gradients."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch.nn import Parameter

from tilth.optim import SGD, AdamW, Muon

KINDS = [SGD, AdamW, Muon]


def matrices(count=2, dtype=torch.float32):
    torch.manual_seed(0)
    return [Parameter(torch.randn(3, 4, dtype=dtype)) for _ in range(count)]


def step_often(optimizer, times, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(times):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = torch.randn(parameter.shape, generator=generator)
                parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()


def values(optimizer):
    return [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]


def assert_equal(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_closure(kind):
    (weight,) = matrices(1)
    made = kind([weight], lr=0.1)
    called = []

    def closure():
        made.zero_grad()
        loss = (weight**2).mean()
        loss.backward()
        called.append(loss.item())
        return loss

    before = weight.detach().clone()
    assert made.step(closure).item() == called[0]
    assert len(called) == 1
    assert not torch.equal(weight, before)
    assert made.step() is None


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_without_gradient_are_unchanged(kind):
    first, second = matrices()
    made = kind([first, second], lr=0.1)
    first.grad = torch.ones(3, 4)
    before = second.detach().clone()
    made.step()
    assert torch.equal(second, before)
    assert second not in made.state
    assert first in made.state


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["state dict", "saved", "pickle", "deepcopy"])
def test_five_plus_five_steps_equal_ten(kind, way):
    """The resumed optimizer has another lr; the state dict restores it."""
    made, straight = kind(matrices(), lr=0.1), kind(matrices(), lr=0.1)
    step_often(made, 5)
    if way == "pickle":
        resumed = pickle.loads(pickle.dumps(made))
    elif way == "deepcopy":
        resumed = copy.deepcopy(made)
    else:
        parameters = matrices()
        for parameter, value in zip(parameters, values(made), strict=True):
            parameter.data.copy_(value)
        resumed = kind(parameters, lr=77.0)
        state = made.state_dict()
        if way == "saved":
            file = io.BytesIO()
            torch.save(state, file)
            file.seek(0)
            state = torch.load(file, weights_only=True)
        resumed.load_state_dict(state)
    untouched = values(made)
    step_often(straight, 5)
    step_often(straight, 5, seed=1)
    step_often(resumed, 5, seed=1)
    assert_equal(values(resumed), values(straight))
    assert_equal(values(made), untouched)


@pytest.mark.parametrize("kind", KINDS)
def test_options_of_groups(kind):
    still, moving = matrices()
    made = kind([{"params": [still], "lr": 0.0}, {"params": [moving]}], lr=0.1)
    before = values(made)
    step_often(made, 3)
    assert torch.equal(still, before[0])
    assert not torch.equal(moving, before[1])
    later = Parameter(torch.randn(2, 2))
    made.add_param_group({"params": [later], "lr": 1.0})
    before = values(made)
    step_often(made, 1)
    assert not torch.equal(later, before[2])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {"lr": lr}) for kind in KINDS for lr in (-1e-9, math.nan, math.inf)),
        *((kind, {"eps": -1e-8}) for kind in KINDS[1:]),
        *((kind, {"weight_decay": -0.1}) for kind in KINDS[1:]),
        *((kind, {"betas": b}) for kind in KINDS[1:] for b in ((1.0, 0.9), (0.9, -0.1))),
        (Muon, {"momentum": 1.0}),
        (Muon, {"momentum": -0.5}),
    ],
)
def test_invalid_options_are_rejected(kind, options):
    (name,) = options
    with pytest.raises(ValueError, match=name):
        kind(matrices(), **options)
    made = kind(matrices())
    with pytest.raises(ValueError, match=name):
        made.add_param_group({"params": matrices(), **options})
    assert len(made.param_groups) == 1
    state = made.state_dict()
    state["param_groups"][0].update(options)
    with pytest.raises(ValueError, match=name):
        made.load_state_dict(state)
    assert made.param_groups[0][name] != options[name]


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_and_complex_gradients_are_rejected(kind):
    (first,), weight = matrices(1), Parameter(torch.ones(3, 4))
    first.grad, weight.grad = torch.ones(3, 4), torch.eye(3, 4).to_sparse()
    before = first.detach().clone()
    with pytest.raises(ValueError, match="dense gradients of real numbers"):
        kind([{"params": [first]}, {"params": [weight]}]).step()
    assert torch.equal(first, before)
    weight = Parameter(torch.ones(3, 4, dtype=torch.complex64))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(ValueError, match="complex64"):
        kind([weight]).step()
    assert torch.equal(weight, torch.ones_like(weight))


@pytest.mark.parametrize("fused", [None, False])
@pytest.mark.parametrize("kind", [AdamW, Muon])
def test_misshapen_state_is_rejected_before_any_update(kind, fused):
    """The fused kernel would read and write past the end of a smaller state."""
    first, second = (Parameter(torch.ones(4000, 8)) for _ in range(2))
    made = kind([first, second], lr=0.1, fused=fused)
    step_often(made, 1)
    before = values(made)
    (name, *_) = [name for name in made.state[second] if name != "step"]
    for wrong in (torch.zeros(1, 8), torch.zeros(4000), torch.zeros(8, 4000), None):
        made.state[second][name] = wrong
        with pytest.raises(ValueError, match=f"the optimizer's {name} has .*; load the state"):
            step_often(made, 1)
        assert_equal(values(made), before)


def test_step_count_that_is_not_a_scalar_is_rejected():
    (weight,) = matrices(1)
    made = AdamW([weight], lr=0.1)
    step_often(made, 1)
    for wrong in (torch.zeros(0), torch.zeros(2), 3.0):
        made.state[weight]["step"] = wrong
        with pytest.raises(ValueError, match="the optimizer's step has"):
            step_often(made, 1)
    del made.state[weight]["step"]
    with pytest.raises(ValueError, match="the optimizer's step has no tensor"):
        step_often(made, 1)


def test_misshapen_gradient_is_rejected():
    weight = Parameter(torch.zeros(3, 4))
    weight.grad = torch.zeros(3, 4)
    weight.data = torch.zeros(300, 400)
    with pytest.raises(ValueError, match=r"gradient has shape \(3, 4\) and its parameter"):
        AdamW([weight], lr=0.1).step()
