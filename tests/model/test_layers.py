"""Tests of each layer against PyTorch and finite differences, and of edge cases."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch.testing import assert_close

from tilth.model.layers import (
    Embedding,
    Linear,
    RMSNorm,
    SiLUFeedForward,
    SwiGLU,
    silu,
    softmax,
)

INF = math.inf
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def randn(*shape, seed=0, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


# --- softmax ---


@settings(max_examples=40)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    data=st.data(),
    offset=st.sampled_from([0.0, 1e4, -1e4, 1e30, -1e30]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_softmax_equals_pytorch(shape, data, offset, dtype):
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = (randn(*shape, scale=5) + offset).to(dtype)
    assert_close(softmax(x, dim), F.softmax(x, dim))


def test_softmax_of_masked_rows():
    x = torch.tensor([[-INF, 1.0, -INF], [-INF] * 3, [3e38, -3e38, 0.0]], requires_grad=True)
    weights = softmax(x, dim=-1)
    assert weights.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    weights.square().sum().backward()
    assert x.grad.tolist() == [[0, 0, 0]] * 3
    assert softmax(torch.tensor([1.0, math.nan]), 0).isnan().all()


def test_softmax_of_half_precision_is_rounded_once():
    x = randn(64, 64, dtype=torch.bfloat16)
    exact = F.softmax(x.double(), -1)
    assert_close(softmax(x, -1).double(), exact, rtol=1.001 * 2**-8, atol=0)


def test_softmax_of_integers_is_rejected():
    with pytest.raises(ValueError, match="softmax takes floating-point numbers"):
        softmax(torch.arange(3), 0)


def test_softmax_gradients():
    x = randn(3, 4).requires_grad_()
    for dim in (0, 1):
        assert gradcheck(softmax, (x, dim))
        upstream = randn(3, 4, seed=1)
        ours, theirs = (
            torch.autograd.grad((f(x, dim) * upstream).sum(), x)[0] for f in (softmax, F.softmax)
        )
        assert_close(ours, theirs)
    # One finite entry: the sum is exactly 1, where it is clamped.
    masked = torch.tensor([[-INF, 0.3], [-INF, -INF]], dtype=torch.float64, requires_grad=True)
    (softmax(masked, -1) * torch.tensor([1.0, 2.0])).sum().backward()
    assert masked.grad.tolist() == [[0, 0], [0, 0]]


# --- silu, feed-forward ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_equals_pytorch(dtype):
    x = torch.cat([randn(1000, scale=10), torch.tensor([-1e4, 0.0, 1e4]).double()]).to(dtype)
    # Rounded twice instead of once: half a unit in the last place for the sigmoid.
    eps = torch.finfo(dtype).eps
    assert_close(silu(x), F.silu(x), rtol=2 * eps, atol=torch.finfo(dtype).tiny)
    assert gradcheck(silu, randn(7).requires_grad_())


@pytest.mark.parametrize("fast", [False, True])
def test_swiglu_equals_its_formula(fast):
    layer = SwiGLU(4, 6, dtype=torch.float64)
    layer.fast = fast
    x = randn(2, 3, 4).requires_grad_()
    w1, w2, w3 = (w.weight for w in (layer.w1, layer.w2, layer.w3))
    expected = F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)
    assert_close(layer(x), expected)
    parameters = (x, w1, w2, w3)
    upstream = randn(2, 3, 4, seed=1)
    ours = torch.autograd.grad(layer(x), parameters, upstream)
    assert_close(ours, torch.autograd.grad(expected, parameters, upstream))
    assert [tuple(w.shape) for w in (w1, w2, w3)] == [(6, 4), (4, 6), (6, 4)]
    assert gradcheck(lambda x, *_: layer(x), parameters)


def test_silu_feed_forward_equals_its_formula():
    layer = SiLUFeedForward(4, 6, dtype=torch.float64)
    x = randn(2, 3, 4).requires_grad_()
    assert_close(layer(x), F.linear(F.silu(F.linear(x, layer.w1.weight)), layer.w2.weight))
    assert gradcheck(lambda x, *_: layer(x), (x, layer.w1.weight, layer.w2.weight))


# --- Linear, Embedding ---


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 0, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_equals_pytorch(shape, dtype):
    layer = Linear(5, 7, dtype=dtype)
    x = randn(*shape, dtype=dtype)
    assert layer.weight.shape == (7, 5)
    assert_close(layer(x), F.linear(x, layer.weight))


def test_linear_gradients():
    layer = Linear(5, 3, dtype=torch.float64)
    assert gradcheck(lambda x, w: layer(x), (randn(2, 5).requires_grad_(), layer.weight))


@pytest.mark.parametrize("ids_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(), (3,), (4, 0), (2, 3, 4)])
def test_embedding_equals_pytorch(shape, ids_dtype):
    layer = Embedding(11, 5, dtype=torch.float64)
    ids = torch.randint(0, 11, shape, generator=torch.Generator().manual_seed(0)).to(ids_dtype)
    ours, theirs = layer(ids), F.embedding(ids, layer.weight)
    assert_close(ours, theirs, rtol=0, atol=0)
    upstream = randn(*theirs.shape)
    for_ours, for_theirs = (
        torch.autograd.grad(y, layer.weight, upstream)[0] for y in (ours, theirs)
    )
    assert_close(for_ours, for_theirs)


def test_embedding_gradients():
    layer = Embedding(4, 3, dtype=torch.float64)
    ids = torch.tensor([[1, 1], [3, 1]])
    assert gradcheck(lambda w: layer(ids), (layer.weight,))


def test_embedding_gradient_is_deterministic():
    """Twenty backward passes on all threads; `weight[ids]` gives twenty different results."""
    torch.set_num_threads(2)
    layer = Embedding(500, 64)
    ids = torch.randint(0, 500, (32, 256), generator=torch.Generator().manual_seed(0))
    upstream = randn(32, 256, 64, dtype=torch.float32)
    first, *others = (torch.autograd.grad(layer(ids), layer.weight, upstream)[0] for _ in range(20))
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("wrong", [11, -1])
def test_ids_outside_the_vocabulary(wrong):
    ids = torch.tensor([0, wrong, 5])
    with pytest.raises(ValueError, match=f"^token ids .*{wrong}.* vocabulary of 11; encode"):
        Embedding(11, 5)(ids)


def test_ids_that_are_not_integers_are_rejected():
    with pytest.raises(ValueError, match=r"int64 or int32, not torch\.float32"):
        Embedding(11, 5)(torch.zeros(2))


# --- RMSNorm ---


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_rms_norm_equals_pytorch(dtype, scale):
    ours, theirs = RMSNorm(16, dtype=dtype), torch.nn.RMSNorm(16, eps=1e-5, dtype=torch.float64)
    with torch.no_grad():
        ours.weight.copy_(randn(16, seed=1))
        theirs.weight.copy_(ours.weight)
    x = randn(2, 3, 16, scale=scale, dtype=dtype)
    # The reference is in float64. The layer computes in at least float32 and rounds once.
    working = torch.promote_types(dtype, torch.float32)
    rtol = max(4 * torch.finfo(working).eps, 0.51 * torch.finfo(dtype).eps)
    assert ours(x).dtype == dtype
    assert_close(ours(x).double(), theirs(x.double()), rtol=rtol, atol=torch.finfo(dtype).tiny)


def test_rms_norm_squares_in_float32():
    x = torch.full((4,), 300.0, dtype=torch.float16)  # 300 squared is beyond float16
    assert RMSNorm(4, dtype=torch.float16)(x).tolist() == [1.0] * 4


def test_rms_norm_gradients():
    layer = RMSNorm(5, dtype=torch.float64)
    assert gradcheck(lambda x, w: layer(x), (randn(3, 5).requires_grad_(), layer.weight))


def test_rms_norm_of_zeros():
    layer = RMSNorm(5)
    x = torch.zeros(2, 5, requires_grad=True)
    layer(x).sum().backward()
    assert layer(x).tolist() == [[0.0] * 5] * 2
    assert x.grad.isfinite().all()


# --- initialization ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("make", "variance"),
    [
        (lambda **options: Linear(600, 400, **options), 2 / 1000),
        (lambda **options: Embedding(600, 400, **options), 1.0),
    ],
)
def test_initial_weights_are_truncated_normal(make, variance, dtype):
    torch.manual_seed(0)
    sigmas = make(dtype=dtype).weight.detach().double() / math.sqrt(variance)
    # Truncation at 3 keeps 1 - 2 * 3 * pdf(3) / (cdf(3) - cdf(-3)) of the variance.
    pdf, mass = math.exp(-4.5) / math.sqrt(2 * math.pi), math.erf(3 / math.sqrt(2))
    n = sigmas.numel()
    assert abs(sigmas.mean()) < 4 / math.sqrt(n)
    assert abs(sigmas.var() - (1 - 6 * pdf / mass)) < 4 * math.sqrt(2 / n)
    assert 2.95 < sigmas.abs().max() <= 3 * (1 + torch.finfo(dtype).eps)
    for limit in (0.5, 1.0, 2.0, 2.5):
        share = math.erf(limit / math.sqrt(2)) / mass
        assert abs((sigmas.abs() < limit).double().mean() - share) < 0.005


def test_norm_weight_is_initialized_to_ones():
    assert RMSNorm(7).weight.tolist() == [1.0] * 7


def test_layers_take_device_and_dtype():
    for layer in (
        Linear(4, 6, device="meta", dtype=torch.bfloat16),
        Embedding(4, 6, device="meta", dtype=torch.bfloat16),
        RMSNorm(4, device="meta", dtype=torch.bfloat16),
        SwiGLU(4, 6, device="meta", dtype=torch.bfloat16),
        SiLUFeedForward(4, 6, device="meta", dtype=torch.bfloat16),
    ):
        for parameter in layer.parameters():
            assert parameter.is_meta
            assert parameter.dtype == torch.bfloat16


def test_norm_of_another_width_is_rejected():
    with pytest.raises(ValueError, match="the norm is 8 wide"):
        RMSNorm(8)(torch.ones(3, 1))


def test_softmax_of_an_empty_axis():
    assert torch.equal(softmax(torch.zeros(2, 0), -1), torch.softmax(torch.zeros(2, 0), -1))
