"""Tests of AdamW against `torch.optim.AdamW`: plain, fused, and with its state dicts."""

import math

import pytest
import torch
from torch.nn import Module, Parameter, ParameterDict

from tilth.config import ModelConfig
from tilth.model import TransformerLM
from tilth.optim import AdamW, adamw, decay_groups, muon_groups

SHAPES = [(7, 5), (33,), (2, 3, 4), (1,)]
OPTIONS = {"lr": 3e-3, "betas": (0.85, 0.95), "eps": 1e-6, "weight_decay": 0.3}


def parameters(dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [Parameter(each.to(device, dtype)) for each in drawn]


def groups(made):
    """Two parameter groups with different options."""
    return [{"params": made[:2]}, {"params": made[2:], "weight_decay": 0.0, "lr": 1e-2}]


def step_often(optimizer, times, seed=1, skip_second=False):
    """The same gradients for any optimizer, in size from 1e-6 to 1e3."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(times):
        made = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter in enumerate(made):
            size = 10.0 ** (3 * number - 6)
            gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size
            parameter.grad = gradient.to(parameter.dtype)
            if skip_second and number == 1 and step % 3:
                parameter.grad = None
        optimizer.step()


def assert_close(ours, theirs, **tolerance):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("fused", [False, None, True])
@pytest.mark.parametrize("skip_second", [False, True])
def test_equals_pytorch(fused, skip_second):
    """150 steps in float64: the error is rounding, about 1e-16 a step."""
    ours, theirs = parameters(), parameters()
    step_often(AdamW(groups(ours), **OPTIONS, fused=fused), 150, skip_second=skip_second)
    reference = torch.optim.AdamW(groups(theirs), **OPTIONS, foreach=False)
    step_often(reference, 150, skip_second=skip_second)
    assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_defaults_equal_pytorch():
    ours, theirs = parameters(), parameters()
    step_often(AdamW(ours), 20)
    step_often(torch.optim.AdamW(theirs), 20)
    assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_fused_equals_pytorch_fused_bit_for_bit():
    ours, theirs = parameters(torch.float32), parameters(torch.float32)
    step_often(AdamW(groups(ours), **OPTIONS), 150)
    step_often(torch.optim.AdamW(groups(theirs), **OPTIONS, fused=True), 150)
    assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_and_fused_are_close_to_float64(dtype):
    """Each is within a few roundings a step of float64.

    Weights are about 1, and each of 100 steps rounds a few times: one epsilon of the type a step.
    """
    exact = parameters(torch.float64)
    step_often(AdamW(groups(exact), **OPTIONS, fused=False), 100)
    for fused in (False, True):
        ours = parameters(dtype)
        step_often(AdamW(groups(ours), **OPTIONS, fused=fused), 100)
        for one, other in zip(ours, exact, strict=True):
            error = (one.double() - other).abs().max().item()
            assert error < 100 * torch.finfo(dtype).eps * max(1.0, other.abs().max().item())


def test_first_step_by_hand():
    """The bias-corrected moments are g and g^2, so the step is lr g / (|g| + eps)."""
    weight = Parameter(torch.tensor([2.0], dtype=torch.float64))
    weight.grad = torch.tensor([0.5], dtype=torch.float64)
    AdamW([weight], lr=0.1, eps=0.5, weight_decay=0.01, fused=False).step()
    assert weight.item() == pytest.approx(2.0 * (1 - 0.1 * 0.01) - 0.1 * 0.5 / (0.5 + 0.5))


def test_update_gradcheck():
    """gradcheck of the definition, on copies, as it updates in place."""
    generator = torch.Generator().manual_seed(0)
    draw = [torch.randn(5, generator=generator, dtype=torch.float64) for _ in range(3)]
    weight, gradient, mean = (each.requires_grad_() for each in draw)
    square = torch.rand(5, generator=generator, dtype=torch.float64).requires_grad_()

    def updated(weight, gradient, mean, square):
        copies = weight.clone(), gradient, mean.clone(), square.clone()
        adamw.adamw_update(*copies, 7.0, lr=0.1, betas=(0.9, 0.99), eps=1e-3, weight_decay=0.1)
        return copies[0], copies[2], copies[3]

    assert torch.autograd.gradcheck(updated, [weight, gradient, mean, square])


# --- state dicts ---


@pytest.mark.parametrize("fused", [False, None, True])
@pytest.mark.parametrize("their_options", [{}, {"fused": True}, {"foreach": True}])
@pytest.mark.parametrize("ours_first", [True, False])
def test_state_dicts_are_interchangeable_with_pytorch(fused, their_options, ours_first):
    def our_kind(made):
        return AdamW(groups(made), **OPTIONS, fused=fused)

    def their_kind(made):
        return torch.optim.AdamW(groups(made), **OPTIONS, **their_options)

    first, second = (our_kind, their_kind) if ours_first else (their_kind, our_kind)
    made, straight = parameters(), parameters()
    begun = first(made)
    step_often(begun, 10)
    went_on = second(made)
    went_on.load_state_dict(begun.state_dict())
    step_often(went_on, 10, seed=2)
    whole = torch.optim.AdamW(groups(straight), **OPTIONS)
    step_often(whole, 10)
    step_often(whole, 10, seed=2)
    assert_close(made, straight, rtol=1e-12, atol=1e-13)
    state = went_on.state_dict()["state"]
    assert [state[i]["step"].item() for i in range(len(SHAPES))] == [20.0] * len(SHAPES)


@pytest.mark.parametrize("option", ["amsgrad", "maximize"])
def test_unsupported_options_are_rejected(option):
    theirs = torch.optim.AdamW(parameters(), **{option: True})
    with pytest.raises(ValueError, match=f"no {option}"):
        AdamW(parameters()).load_state_dict(theirs.state_dict())


# --- without a fused kernel ---


def test_device_without_the_fused_kernel():
    made = parameters(torch.float32, "meta")
    for parameter in made:
        parameter.grad = torch.empty_like(parameter)
    optimizer = AdamW(made)
    optimizer.step()
    assert optimizer.state[made[0]]["step"].device.type == "cpu"  # the plain form reads it
    with pytest.raises(ValueError, match=r"no fused AdamW for torch\.float32 on meta"):
        AdamW(made, fused=True).step()


def test_mixed_types_in_one_group():
    ours, wide = parameters(torch.float32)[:2], parameters(torch.float64)[2:]
    theirs, their_wide = parameters(torch.float32)[:2], parameters(torch.float64)[2:]
    step_often(AdamW([*ours, *wide]), 10)
    step_often(torch.optim.AdamW([*theirs, *their_wide], fused=True), 10)
    assert_close([*ours, *wide], [*theirs, *their_wide], rtol=0, atol=0)


def test_strided_parameters():
    """Transposed and strided parameters with contiguous gradients: not for the fused kernel."""
    torch.manual_seed(0)
    weight = torch.randn(6, 8, dtype=torch.float64)
    for layout in (lambda w: w.T, lambda w: w[:, ::2], lambda w: w[:3]):
        storage = weight.clone()
        ours, theirs = Parameter(layout(storage)), Parameter(layout(weight).clone())
        step_often(AdamW([ours]), 10)
        step_often(torch.optim.AdamW([theirs], foreach=False), 10)
        torch.testing.assert_close(ours.contiguous(), theirs, rtol=1e-12, atol=1e-13)
        changed = storage != weight
        assert changed.sum() == ours.numel()  # nothing in the gaps


# --- groups ---


class Model(Module):
    """Parameters with the names of `TransformerLM`."""

    def __init__(self):
        super().__init__()
        self.token_embeddings = ParameterDict({"weight": torch.zeros(9, 4)})
        self.layers = torch.nn.ModuleList([ParameterDict({"ln1": torch.ones(4)})])
        self.attn = ParameterDict({"q_proj": torch.zeros(4, 4), "q_norm": torch.ones(2)})
        self.lm_head = ParameterDict({"weight": torch.zeros(9, 4)})


@pytest.mark.parametrize("wrap", [lambda m: m, torch.nn.Sequential])
def test_norms_and_embeddings_have_no_weight_decay(wrap):
    decayed, kept = decay_groups(wrap(Model()), 0.1)

    def names(group):
        return {name.removeprefix("0.") for name, _ in group["params"]}

    assert names(decayed) == {"attn.q_proj", "lm_head.weight"}
    assert names(kept) == {"token_embeddings.weight", "layers.0.ln1", "attn.q_norm"}
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.1, 0.0)


def test_groups_of_the_real_model():
    config = ModelConfig(
        vocab_size=11, context_length=4, d_model=8, num_layers=1, num_heads=2, qk_norm=True
    )
    model = TransformerLM(config)
    optimizer = AdamW(decay_groups(model, 0.1), lr=0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    for name, parameter in model.named_parameters():
        is_kept = "ln" in name or "norm" in name or "embeddings" in name
        factor = 1.0 if is_kept else 1.0 - 0.1 * 0.1
        torch.testing.assert_close(parameter.detach(), before[name] * factor)


@pytest.mark.parametrize("make", [decay_groups, muon_groups])
@pytest.mark.parametrize("tied", [False, True])
def test_embedding_with_its_own_rate_keeps_the_order_of_the_parameters(make, tied):
    """The order is that of the states in a checkpoint."""
    config = ModelConfig(11, 4, d_model=8, num_layers=2, num_heads=2, tie_embeddings=tied)
    model = TransformerLM(config)
    usual, own = make(model, 0.1), make(model, 0.1, 3.0)
    names = [[name for group in groups for name, _ in group["params"]] for groups in (usual, own)]
    assert names[0] == names[1]
    assert [group.get("lr_factor") for group in usual] == [None] * len(usual)
    (embedding,) = (group for group in own if "lr_factor" in group)
    assert [name for name, _ in embedding["params"]] == ["token_embeddings.weight"]
    assert (embedding["lr_factor"], embedding["weight_decay"]) == (3.0, 0.0)


def test_empty_groups_are_omitted():
    (group,) = decay_groups(torch.nn.Linear(2, 2, bias=False), 0.1)
    assert group["weight_decay"] == 0.1


def test_minimizes_a_quadratic():
    weight = Parameter(torch.full((10,), 5.0))
    optimizer = AdamW([weight], lr=0.1, weight_decay=0.0)
    for step in range(400):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 + math.cos(math.pi * step / 400)) / 2
        optimizer.zero_grad()
        ((weight - torch.arange(10.0)) ** 2).sum().backward()
        optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.arange(10.0), rtol=0, atol=1e-2)


def test_unknown_options_are_rejected():
    with pytest.raises(TypeError, match="wieght_decay"):
        AdamW([torch.nn.Parameter(torch.ones(2))], wieght_decay=3)
    with pytest.raises(ValueError, match="betas"):
        AdamW([torch.nn.Parameter(torch.ones(2))], betas=(0.9,))
