"""Tests of attention and rotary embeddings against PyTorch and their formulas."""

import cmath
import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch.testing import assert_close

from tilth.model.attention import (
    MultiHeadSelfAttention,
    RotaryPositionalEmbedding,
    scaled_dot_product_attention,
)


def randn(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


# --- scaled_dot_product_attention ---


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_attention_equals_pytorch(batch, masked, dtype):
    q, k, v = (
        randn(*batch, *shape, seed=seed, dtype=dtype).requires_grad_()
        for seed, shape in enumerate([(5, 4), (7, 4), (7, 6)])
    )
    mask = None
    if masked:
        mask = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) < 0.5
        mask[:, 0] = True  # fully masked queries have a separate test
    upstream = randn(*batch, 5, 6, seed=9, dtype=dtype)
    ours = scaled_dot_product_attention(q, k, v, mask)
    theirs = F.scaled_dot_product_attention(q, k, v, mask)
    assert_close(ours, theirs)
    assert_close(
        torch.autograd.grad(ours, (q, k, v), upstream),
        torch.autograd.grad(theirs, (q, k, v), upstream),
    )


def test_fully_masked_query_returns_zeros():
    q, k, v = (randn(2, 3, 4, seed=seed).requires_grad_() for seed in range(3))
    mask = torch.tensor([[True, False, True], [False] * 3, [False, True, False]])
    output = scaled_dot_product_attention(q, k, v, mask)
    assert (output[:, 1] == 0).all()
    assert_close(output[:, 2], v[:, 1])
    output.sum().backward()
    assert (q.grad[:, 1] == 0).all()
    for tensor in (q, k, v):
        assert tensor.grad.isfinite().all()
    assert gradcheck(scaled_dot_product_attention, (q, k, v, mask))


def test_masks_broadcast_over_leading_dimensions():
    q, k, v = (randn(2, 3, 4, 5, seed=seed) for seed in range(3))
    mask = torch.rand(2, 1, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    output = scaled_dot_product_attention(q, k, v, mask)
    for batch in range(2):
        for head in range(3):
            alone = (tensor[batch, head] for tensor in (q, k, v))
            expected = scaled_dot_product_attention(*alone, mask[batch, 0])
            assert_close(output[batch, head], expected)


def test_scores_far_beyond_the_range_of_exp():
    q, k, v = (1e4 * randn(3, 4, seed=seed, dtype=torch.float32) for seed in range(3))
    output = scaled_dot_product_attention(q, k, v)
    assert_close(output, v[(q @ k.T).argmax(-1)])


def test_additive_masks_are_rejected():
    q = randn(2, 4)
    with pytest.raises(ValueError, match="mask must be bool, True where a query attends"):
        scaled_dot_product_attention(q, q, q, torch.zeros(2, 2))


# --- rotations ---


def rotated_by_hand(vector, position, theta):
    """Multiply each pair, as a complex number, by exp(i * angle)."""
    turned = []
    for k in range(len(vector) // 2):
        angle = position * theta ** (-2 * k / len(vector))
        number = complex(vector[2 * k], vector[2 * k + 1]) * cmath.exp(1j * angle)
        turned += [number.real, number.imag]
    return turned


@pytest.mark.parametrize("theta", [10_000.0, 500_000.0, 7.5])
def test_rotation_equals_its_formula(theta):
    rope = RotaryPositionalEmbedding(theta, 6, 50, dtype=torch.float64)
    x = randn(50, 6)
    expected = [rotated_by_hand(row.tolist(), i, theta) for i, row in enumerate(x)]
    assert_close(rope(x), torch.tensor(expected, dtype=torch.float64))
    positions = torch.tensor([49, 0, 3])
    expected = [
        rotated_by_hand(row.tolist(), i, theta)
        for i, row in zip(positions.tolist(), x[:3], strict=True)
    ]
    assert_close(rope(x[:3], positions), torch.tensor(expected, dtype=torch.float64))


def test_positions_of_every_shape():
    rope = RotaryPositionalEmbedding(100.0, 4, 20, dtype=torch.float64)
    x = randn(2, 3, 5, 4)  # batch, heads, seq, d_k
    one = torch.tensor([3, 1, 4, 1, 5])
    two = torch.stack([one, one.flip(0)])
    expected = torch.stack([rope(x[0], one), rope(x[1], one)])
    assert_close(rope(x, one), expected)
    assert_close(rope(x, one[None]), expected)
    assert_close(rope(x, one.int()), expected)
    expected = torch.stack([rope(x[0], two[0]), rope(x[1], two[1])])
    assert_close(rope(x, two), expected)
    assert_close(rope(x[:, 0], two), expected[:, 0])  # without heads
    assert_close(rope(x, two[:, None].expand(2, 3, 5)), expected)  # with positions for each head
    assert_close(rope(x), rope(x, torch.arange(5)), rtol=0, atol=0)
    # With batch size = number of heads, positions still belong to the batch axis.
    square = randn(2, 2, 5, 4)
    expected = torch.stack([rope(square[0], two[0]), rope(square[1], two[1])])
    assert_close(rope(square, two), expected)


def test_rotated_scores_depend_on_distance_only():
    rope = RotaryPositionalEmbedding(10_000.0, 8, 2000, dtype=torch.float64)
    q, k = randn(1, 8), randn(1, 8, seed=1)

    def score(query_at, key_at):
        return rope(q, torch.tensor([query_at])) @ rope(k, torch.tensor([key_at])).T

    assert_close(score(7, 3), score(1007, 1003))
    assert not torch.allclose(score(7, 3), score(7, 4))


@pytest.mark.parametrize(
    ("shape", "positions", "sentence"),
    [
        ((9, 4), None, "sequence has 9 tokens, and max_seq_len is 8"),
        ((1, 4), torch.tensor([8]), "positions 8 to 8 are not all within 0 to 7"),
        ((2, 4), torch.tensor([0, -1]), "positions -1 to 0 are not all within 0 to 7"),
        ((2, 4), torch.tensor([0.0, 1.0]), "int64 or int32, not torch.float32"),
        ((2, 4), torch.tensor([0]), "do not fit"),
        ((2, 4), torch.tensor(0), "do not fit"),
        ((2, 4), torch.tensor([[0, 1]]), "do not fit"),
        ((3, 2, 4), torch.tensor([[0, 1]] * 2), "do not fit"),
    ],
)
def test_invalid_positions_are_rejected(shape, positions, sentence):
    rope = RotaryPositionalEmbedding(100.0, 4, 8)
    with pytest.raises(ValueError, match=sentence):
        rope(torch.zeros(shape), positions)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((1e4, 3, 8), "d_k is 3; it must be even"),
        ((1e4, 0, 8), "d_k is 0; it must be even and positive"),
        ((0.0, 4, 8), "theta 0.0 and .* must be positive"),
        ((1e4, 4, 0), "max_seq_len 0 must be positive"),
    ],
)
def test_invalid_rotations_are_rejected(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        RotaryPositionalEmbedding(*arguments)


def test_tables_stay_accurate_after_conversion():
    exact = RotaryPositionalEmbedding(10_000.0, 8, 5000, dtype=torch.float64)
    for rope in (
        RotaryPositionalEmbedding(10_000.0, 8, 5000, dtype=torch.bfloat16),
        RotaryPositionalEmbedding(10_000.0, 8, 5000).to(torch.bfloat16),
        RotaryPositionalEmbedding(10_000.0, 8, 5000).half().float(),
        RotaryPositionalEmbedding(10_000.0, 8, 5000, device="meta").to_empty(device="cpu"),
        RotaryPositionalEmbedding(10_000.0, 8, 5000, device="meta").to_empty(device="cpu").half(),
    ):
        assert rope.cos.dtype == rope.sin.dtype == torch.float32
        assert_close(rope.cos.double(), exact.cos, rtol=0, atol=2**-25)
        assert_close(rope.sin.double(), exact.sin, rtol=0, atol=2**-25)
        assert not rope.state_dict()
    double = RotaryPositionalEmbedding(10_000.0, 8, 5000).double()
    assert torch.equal(double.cos, exact.cos)
    with torch.device("meta"):
        assert RotaryPositionalEmbedding(10_000.0, 8, 5000).cos.is_meta


def test_half_precision_rotation_is_rounded_once():
    rope = RotaryPositionalEmbedding(10_000.0, 8, 5000, dtype=torch.bfloat16)
    exact = RotaryPositionalEmbedding(10_000.0, 8, 5000, dtype=torch.float64)
    x = randn(5000, 8, dtype=torch.bfloat16)
    assert rope(x).dtype == torch.bfloat16
    assert_close(rope(x).double(), exact(x.double()), rtol=2**-8, atol=1e-6)


def test_rotation_gradients():
    rope = RotaryPositionalEmbedding(100.0, 4, 20, dtype=torch.float64)
    positions = torch.tensor([[3, 1], [0, 19]])
    assert gradcheck(rope, (randn(2, 3, 2, 4).requires_grad_(), positions))


# --- heads ---


def make(num_heads=4, num_kv_heads=None, *, rope=True, qk_norm=False, fast=False):
    torch.manual_seed(0)
    d_model, double = 4 * num_heads, torch.float64
    rotation = RotaryPositionalEmbedding(50.0, 4, 32, dtype=double) if rope else None
    attention = MultiHeadSelfAttention(
        d_model, num_heads, rotation, num_kv_heads, qk_norm=qk_norm, dtype=double
    )
    if qk_norm:
        with torch.no_grad():
            attention.q_norm.weight.copy_(randn(4, seed=3))
            attention.k_norm.weight.copy_(randn(4, seed=4))
    attention.fast = fast
    return attention


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("num_kv_heads", [None, 4, 2, 1])
@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("rope", [False, True])
def test_attention_equals_single_heads(fast, num_kv_heads, qk_norm, rope):
    """Against a separate computation of each head, as in the paper."""
    attention = make(num_kv_heads=num_kv_heads, qk_norm=qk_norm, rope=rope, fast=fast)
    x = randn(2, 6, 16)
    positions = torch.tensor([[5, 6, 7, 8, 9, 10], [0, 1, 2, 3, 4, 5]])
    group = 4 // (num_kv_heads or 4)
    heads = []
    for head in range(4):
        own, shared = slice(4 * head, 4 * head + 4), slice(4 * (head // group), None)
        q = F.linear(x, attention.q_proj.weight[own])
        k = F.linear(x, attention.k_proj.weight[shared][:4])
        v = F.linear(x, attention.v_proj.weight[shared][:4])
        if qk_norm:
            q = F.rms_norm(q, (4,), attention.q_norm.weight, eps=1e-5)
            k = F.rms_norm(k, (4,), attention.k_norm.weight, eps=1e-5)
        if rope:
            q, k = attention.rope(q, positions), attention.rope(k, positions)
        scores = q @ k.mT / math.sqrt(4)
        scores = scores + torch.full((6, 6), -math.inf).triu(1)
        heads.append(F.softmax(scores, -1) @ v)
    expected = F.linear(torch.cat(heads, -1), attention.output_proj.weight)
    assert_close(attention(x, positions), expected)


@pytest.mark.parametrize("batch", [(), (1,), (2, 3)])
@pytest.mark.parametrize("fast", [False, True])
def test_any_leading_dimensions(batch, fast):
    attention = make(num_kv_heads=2, fast=fast)
    x = randn(*batch, 5, 16)
    output = attention(x)
    assert output.shape == x.shape
    for one, expected in zip(x.reshape(-1, 5, 16), output.reshape(-1, 5, 16), strict=True):
        assert_close(attention(one[None])[0], expected)


@pytest.mark.parametrize("fast", [False, True])
def test_attention_is_causal(fast):
    attention = make(num_kv_heads=2, fast=fast)
    x = randn(2, 7, 16).requires_grad_()
    for t in range(7):
        (gradient,) = torch.autograd.grad(attention(x)[:, t].sum(), x)
        assert (gradient[:, t + 1 :] == 0).all()
        assert (gradient[:, : t + 1] != 0).any(-1).all()


def test_attention_gradients():
    attention = make(num_heads=2, num_kv_heads=1, qk_norm=True)
    x = randn(1, 3, 8).requires_grad_()
    parameters = tuple(attention.parameters())
    assert len(parameters) == 6
    assert gradcheck(lambda x, *_: attention(x), (x, *parameters))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_kv_heads", [4, 2])
def test_fast_path_is_as_accurate_as_the_definition(dtype, num_kv_heads):
    """Both against float64, with about ten roundings of eps / 2 for each number."""
    attention = make(num_kv_heads=num_kv_heads, qk_norm=True).to(dtype)
    x, upstream = (randn(2, 32, 16, seed=seed).to(dtype) for seed in range(2))

    def run(working, fast):
        attention.to(working).fast = fast
        own = x.to(working).requires_grad_()
        output = attention(own)
        inputs = (own, *attention.parameters())
        return output, *torch.autograd.grad(output, inputs, upstream.to(working))

    exact, definition, fast = run(torch.float64, False), run(dtype, False), run(dtype, True)
    assert not torch.equal(definition[0], fast[0])  # two different paths
    for reference, *rounded in zip(exact, definition, fast, strict=True):
        for result in rounded:
            assert result.dtype == dtype
            error = (result.double() - reference).norm() / reference.norm()
            assert error < 5 * torch.finfo(dtype).eps


@pytest.mark.parametrize(
    ("arguments", "options", "sentence"),
    [
        ((10, 4), {}, "d_model 10 must be a multiple of num_heads 4"),
        ((16, 4), {"num_kv_heads": 3}, "and that of num_kv_heads 3"),
        ((16, 4), {"num_kv_heads": 0}, "and that of num_kv_heads 0"),
        ((16, 0), {}, "must be a multiple of num_heads 0"),
        (
            (16, 4, RotaryPositionalEmbedding(1e4, 8, 9)),
            {},
            "rotation is 8, and heads have width 4",
        ),
    ],
)
def test_invalid_heads_are_rejected(arguments, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        MultiHeadSelfAttention(*arguments, **options)


def test_scores_do_not_overflow_in_float16():
    q = torch.full((2, 64), 60.0, dtype=torch.float16)
    expected = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(scaled_dot_product_attention(q, q, q), expected)


def test_input_of_another_width_is_rejected():
    with pytest.raises(ValueError, match="x has width 2, and d_k of the rotation is 4"):
        RotaryPositionalEmbedding(10_000.0, 4, 8)(torch.ones(3, 2))


def test_rotation_tables_larger_than_the_memory_are_rejected():
    with pytest.raises(MemoryError, match="rotation tables of 1,099,511,627,776 positions"):
        RotaryPositionalEmbedding(10_000.0, 64, 2**40)
    RotaryPositionalEmbedding(10_000.0, 64, 2**40, device="meta")
