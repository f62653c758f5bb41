import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tilth.model import attention, blocked_attention
from tilth.model.attention import MultiHeadSelfAttention
from tilth.model.blocked_attention import blocked_causal_attention


def tensors(seq, dtype, d_v=16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for width in (16, 16, d_v, d_v):
        yield torch.randn(2, seq, 3, width, generator=generator).to(dtype).transpose(1, 2)


def output_and_gradients(function, seq, dtype, wide=None, d_v=16):
    *inputs, grad = (each.to(wide or dtype) for each in tensors(seq, dtype, d_v))
    inputs = [each.detach().requires_grad_() for each in inputs]
    output = function(*inputs)
    return output, *torch.autograd.grad(output, inputs, grad)


def pytorch(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("seq", [1, 7, 8, 9, 30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_pytorch(seq, dtype, monkeypatch):
    monkeypatch.setattr(blocked_attention, "BLOCK_TOKENS", 8)
    ours = output_and_gradients(blocked_causal_attention, seq, dtype, d_v=24)
    theirs = output_and_gradients(pytorch, seq, dtype, torch.float64, d_v=24)
    for own, other in zip(ours, theirs, strict=True):
        assert own.dtype == dtype
        torch.testing.assert_close(own.double(), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seq", [100, 300])
def test_bfloat16_is_rounded_as_in_the_fused_kernel(seq):
    """The error is at most 2.5 times that of torch's kernel, whose scores are not rounded."""
    exact = output_and_gradients(pytorch, seq, torch.bfloat16, torch.float64)
    ours = output_and_gradients(blocked_causal_attention, seq, torch.bfloat16)
    theirs = output_and_gradients(pytorch, seq, torch.bfloat16)
    for own, other, right in zip(ours, theirs, exact, strict=True):
        assert own.dtype == torch.bfloat16
        assert (own - right).norm() < 2.5 * (other - right).norm()


def test_gradcheck(monkeypatch):
    monkeypatch.setattr(blocked_attention, "BLOCK_TOKENS", 4)
    inputs = [torch.randn(2, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    torch.autograd.gradcheck(blocked_causal_attention, inputs)


def test_scores_far_beyond_the_range_of_exp():
    q = torch.full((1, 5, 8), 100.0, requires_grad=True)
    k = torch.full((1, 5, 8), 100.0)
    v = torch.eye(5).unsqueeze(0)
    found = blocked_causal_attention(q, k, v)
    torch.testing.assert_close(found, pytorch(q, k, v))
    found.sum().backward()
    assert q.grad.isfinite().all()


def test_second_derivative_is_rejected():
    q = torch.randn(1, 4, 8, requires_grad=True)
    (grad,) = torch.autograd.grad(blocked_causal_attention(q, q, q).sum(), q, create_graph=False)
    assert grad.shape == q.shape
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(blocked_causal_attention(q, q, q).sum(), q, create_graph=True)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of Dynamo
@pytest.mark.parametrize(
    ("dtype", "seq", "compiling", "expected"),
    [
        (torch.bfloat16, 12, True, "blocked"),
        (torch.bfloat16, 12, False, "fused"),
        (torch.bfloat16, 1025, True, "fused"),
        (torch.float32, 12, True, "fused"),
    ],
)
def test_compiled_models_in_bfloat16_use_it(dtype, seq, compiling, expected, monkeypatch):
    calls = []
    for name, function in (("blocked_causal_attention", "blocked"), ("fused_attention", "fused")):
        original = getattr(attention, name)

        def noted(*args, _original=original, _name=function, **options):
            calls.append(_name)
            return _original(*args, **options)

        monkeypatch.setattr(attention, name, noted)
    layer = MultiHeadSelfAttention(8, 2, num_kv_heads=1, dtype=dtype)
    x = torch.randn(1, seq, 8, dtype=dtype)
    torch._dynamo.reset()
    function = torch.compile(layer, backend="eager", fullgraph=True) if compiling else layer
    with torch.no_grad():
        found = function(x)
        right = layer.double()(x.double())
    assert set(calls[:1]) == {expected}
    assert (found - right).norm() < 0.02 * right.norm()
