"""Tests of Muon against `torch.optim.Muon` and its polynomial of singular values."""

import copy
import importlib.util
import math
from pathlib import Path

import pytest
import torch
from torch.nn import Parameter

from tilth.optim import AdamW, Muon, muon, muon_groups

SHAPES = [(6, 6), (4, 10), (10, 4), (6, 6), (1, 5)]


def matrices(dtype=torch.float64, shapes=SHAPES):
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [Parameter(each.to(dtype)) for each in drawn]


def step_often(optimizer, times, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(times):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()


def assert_close(ours, theirs, **tolerance):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


def by_singular_values(matrix):
    """Apply the polynomial to the singular values."""
    u, s, v = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u @ torch.diag(s) @ v


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 8), (8, 3), (1, 7)])
def test_orthogonalize_applies_the_polynomial_to_singular_values(shape):
    torch.manual_seed(0)
    stack = torch.randn(3, *shape, dtype=torch.float64)
    stack[1] *= 1e6
    together = muon._orthogonalize_stack(stack, muon.FIXED)
    for matrix, from_stack in zip(stack, together, strict=True):
        expected = by_singular_values(matrix)
        torch.testing.assert_close(muon.orthogonalize(matrix), expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(from_stack, expected, rtol=1e-9, atol=1e-9)


def test_orthogonalize_brings_singular_values_near_one():
    torch.manual_seed(0)
    values = torch.linalg.svdvals(muon.orthogonalize(torch.randn(64, 160)))
    assert values.min() > 0.6
    assert values.max() < 1.25


def test_orthogonalize_of_zeros():
    assert torch.equal(muon.orthogonalize(torch.zeros(3, 4)), torch.zeros(3, 4))


def test_orthogonalize_gradcheck():
    torch.manual_seed(0)
    for shape in ((3, 4), (4, 3)):
        matrix = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(muon.orthogonalize, [matrix])


@pytest.mark.parametrize("fused", [False, None])
def test_equals_pytorch(fused, monkeypatch):
    """Both iterate in bfloat16, as PyTorch does, but round in different places.

    Singular values keep errors of bfloat16. So after 120 steps the difference is compared with the
    total change of the weights, not with the weights.
    """
    monkeypatch.setattr(muon, "iteration_dtype", lambda matrix: torch.bfloat16)
    ours, theirs = matrices(torch.float32), matrices(torch.float32)
    options = {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.9}
    step_often(Muon(ours, **options, fused=fused), 120)
    step_often(torch.optim.Muon(theirs, **options, adjust_lr_fn="match_rms_adamw"), 120)
    for one, other, start in zip(ours, theirs, matrices(torch.float32), strict=True):
        assert (one - other).norm() < 0.02 * (other - start).norm()


@pytest.mark.parametrize("fused", [False, None])
def test_equals_the_formula(fused):
    """120 steps in float64 against the formula on singular values."""
    ours, theirs = matrices(), [m.detach() for m in matrices()]
    groups = [{"params": ours[:2]}, {"params": ours[2:], "lr": 1e-2, "weight_decay": 0.0}]
    optimizer = Muon(groups, lr=3e-3, weight_decay=0.3, momentum=0.9, fused=fused)
    means = [torch.zeros_like(m) for m in theirs]
    generator = torch.Generator().manual_seed(1)
    for _ in range(120):
        for number, parameter in enumerate(ours):
            lr, decay = (3e-3, 0.3) if number < 2 else (1e-2, 0.0)
            gradient = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.grad = gradient
            means[number] = 0.9 * means[number] + 0.1 * gradient
            direction = by_singular_values(0.9 * means[number] + 0.1 * gradient)
            scale = 0.2 * math.sqrt(max(parameter.shape))
            theirs[number] = (1 - lr * decay) * theirs[number] - lr * scale * direction
        optimizer.step()
    assert_close([m.detach() for m in ours], theirs, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("elements", [1, 40, 1 << 24])
def test_stacks_equal_the_definition(elements, monkeypatch):
    monkeypatch.setattr(muon, "STACK_ELEMENTS", elements)
    ours, plain = matrices(), matrices()
    step_often(Muon(ours, lr=0.1), 10)
    step_often(Muon(plain, lr=0.1, fused=False), 10)
    assert_close(ours, plain, rtol=1e-9, atol=1e-9)


def test_both_forms_are_close_to_float64():
    exact = matrices(torch.float64, [(64, 64), (64, 160)])
    step_often(Muon(exact, lr=0.01), 20)
    for fused in (False, None):
        ours = matrices(torch.float32, [(64, 64), (64, 160)])
        step_often(Muon(ours, lr=0.01, fused=fused), 20)
        for one, other in zip(ours, exact, strict=True):
            assert (one - other).norm() < 1e-5 * other.norm()


def test_update_is_as_large_as_that_of_adamw():
    """The root mean square is about 0.2 lr for any shape."""
    for parameter in matrices(shapes=[(64, 64), (32, 128), (128, 32)]):
        before = parameter.detach().clone()
        step_often(Muon([parameter], lr=0.1, weight_decay=0.0), 1)
        size = (parameter - before).square().mean().sqrt().item()
        # A matrix of rank r has Frobenius norm sqrt(r): for 64 x 64 exactly what AdamW moves.
        expected = 0.2 * 0.1 * math.sqrt(min(before.shape) * max(before.shape) / before.numel())
        assert size == pytest.approx(expected, rel=0.2)


def test_iteration_dtype_on_a_cpu():
    assert muon.iteration_dtype(torch.zeros(2, 2)) == torch.float32
    assert muon.iteration_dtype(torch.zeros(2, 2, dtype=torch.bfloat16)) == torch.float32
    assert muon.iteration_dtype(torch.zeros(2, 2, dtype=torch.float64)) == torch.float64


def test_bfloat16_parameters_keep_their_type():
    for fused in (False, None):
        (weight,) = matrices(torch.bfloat16, [(6, 6)])
        step_often(Muon([weight], lr=0.1, fused=fused), 3)
        assert weight.dtype == torch.bfloat16
        assert weight.isfinite().all()


def test_groups_of_kind_adamw_equal_pytorch():
    ours, theirs = matrices(), matrices()
    groups = [
        {"params": ours[:2]},
        {"params": ours[2:], "kind": "adamw", "weight_decay": 0.5},
    ]
    step_often(Muon(groups, lr=0.01), 50)
    reference = torch.optim.AdamW([{"params": theirs[:2]}, {"params": theirs[2:]}], lr=0.01,
                                  weight_decay=0.5)  # fmt: skip
    step_often(reference, 50)
    assert_close(ours[2:], theirs[2:], rtol=1e-12, atol=1e-13)


def test_both_kinds_resume():
    def both(made):
        return Muon([{"params": made[:2]}, {"params": made[2:], "kind": "adamw"}], lr=0.01)

    made, straight = matrices(), matrices()
    begun = both(made)
    step_often(begun, 5)
    went_on = both(made)
    went_on.load_state_dict(begun.state_dict())
    step_often(went_on, 5, seed=2)
    whole = both(straight)
    step_often(whole, 5)
    step_often(whole, 5, seed=2)
    assert_close(made, straight, rtol=0, atol=0)
    assert set(whole.state[straight[0]]) == {"momentum_buffer"}


def test_parameters_that_are_not_matrices_are_rejected():
    weight = Parameter(torch.ones(3))
    made = Muon(matrices())
    for add in (lambda: Muon([weight]), lambda: made.add_param_group({"params": [weight]})):
        with pytest.raises(ValueError, match=r"shape \(3,\); give it to a group of kind 'adamw'"):
            add()
    assert len(made.param_groups) == 1
    with pytest.raises(ValueError, match="not 'lion'"):
        Muon([{"params": [weight], "kind": "lion"}])


@pytest.mark.parametrize("tied", [False, True])
def test_groups_of_the_real_model(tied):
    from tilth.config import ModelConfig
    from tilth.model import TransformerLM

    config = ModelConfig(
        vocab_size=11, context_length=4, d_model=8, num_layers=1, num_heads=2, tie_embeddings=tied
    )
    groups = muon_groups(TransformerLM(config), 0.1)
    names = [[name for name, _ in group["params"]] for group in groups]
    assert len(names[0]) == 7
    assert all(name.startswith(("layers.0.attn.", "layers.0.ffn.")) for name in names[0])
    assert names[1:-1] == ([] if tied else [["lm_head.weight"]])
    assert sorted(names[-1]) == [
        *("layers.0.ln1.weight", "layers.0.ln2.weight", "ln_final.weight"),
        "token_embeddings.weight",
    ]
    kinds = [(group["kind"], group["weight_decay"]) for group in groups]
    assert kinds[0] == ("muon", 0.1)
    assert kinds[1:-1] == ([] if tied else [("adamw", 0.1)])
    assert kinds[-1] == ("adamw", 0.0)


def test_state_dict_without_kinds_is_rejected():
    """A state dict of AdamW would turn every group into kind "muon"."""
    parameters = [torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(3))]
    muon = Muon([{"params": parameters[:1]}, {"params": parameters[1:], "kind": "adamw"}])
    adamw = AdamW([{"params": parameters[:1]}, {"params": parameters[1:]}])
    with pytest.raises(ValueError, match="another optimizer"):
        muon.load_state_dict(adamw.state_dict())
    muon.load_state_dict(muon.state_dict())
    assert [group["kind"] for group in muon.param_groups] == ["muon", "adamw"]


def test_orthogonalize_of_a_stack_of_zeros():
    assert torch.equal(
        muon._orthogonalize_stack(torch.zeros(2, 3, 4), muon.FIXED), torch.zeros(2, 3, 4)
    )


def test_copies_keep_the_type_of_the_iteration():
    optimizer = Muon(matrices(torch.float32, [(6, 6)]))
    optimizer.iteration_dtype = torch.bfloat16
    assert copy.deepcopy(optimizer).iteration_dtype == torch.bfloat16


def derivation():
    path = Path(__file__).parents[2] / "scripts" / "derive_muon.py"
    specification = importlib.util.spec_from_file_location("derive_muon", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_optimal_coefficients_are_those_of_the_derivation():
    script = derivation()
    derived = script.derive(0.002, len(muon.OPTIMAL))
    scales = [script.SAFETY] * (len(derived) - 1) + [1.0]
    for ours, theirs, scale in zip(muon.OPTIMAL, derived, scales, strict=True):
        expected = [value / scale**power for value, power in zip(theirs, (1, 3, 5), strict=True)]
        assert ours == pytest.approx(expected, abs=1e-4)


def test_derived_polynomials_are_the_best_ones():
    """Any other polynomial has a larger error somewhere (tried: 2,000 nearby ones)."""
    script = derivation()
    generator = torch.Generator().manual_seed(0)
    for low, high in ((0.002, 1.0), (0.07, 1.93), (0.5, 1.5)):
        best, error = script.best_polynomial(low, high)
        s = torch.linspace(low, high, 2001, dtype=torch.float64)
        powers = torch.stack([s, s**3, s**5])
        assert (1 - torch.tensor(best).double() @ powers).abs().max() == pytest.approx(error)
        noise = 1 + 0.05 * torch.randn(2000, 3, generator=generator, dtype=torch.float64)
        others = (1 - (torch.tensor(best).double() * noise) @ powers).abs().amax(1)
        assert others.min() >= error


@pytest.mark.parametrize(
    ("coefficients", "low", "high"), [(muon.FIXED, 0.68, 1.21), (muon.OPTIMAL, 0.65, 1.33)]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_singular_values_end_in_the_interval(coefficients, low, high, dtype):
    """From 0.002 to 1 of the Frobenius norm, on a logarithmic scale; 4% more in bfloat16."""
    torch.manual_seed(0)
    u, _ = torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64))
    v, _ = torch.linalg.qr(torch.randn(96, 64, dtype=torch.float64))
    values = torch.cat([torch.logspace(-2.3, 0, 40, dtype=torch.float64), torch.ones(24) * 1e-2])
    matrix = (u * values) @ v.T
    assert (values / matrix.norm()).min() > 0.002
    found = torch.linalg.svdvals(muon.orthogonalize(matrix.to(dtype), coefficients).double())
    margin = 1.04 if dtype == torch.bfloat16 else 1.0
    assert found.min() > low / margin
    assert found.max() < high * margin
