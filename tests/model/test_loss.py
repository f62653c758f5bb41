"""Tests of the losses against `torch.nn.functional.cross_entropy`."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from tilth.model import chunked_cross_entropy, cross_entropy, perplexity
from tilth.model import loss as module


def example(shape=(3, 5), vocab=17, dtype=torch.float64, seed=0, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(*shape, vocab, generator=generator, dtype=torch.float64)
    targets = torch.randint(vocab, shape, generator=generator)
    return logits.to(dtype).requires_grad_(), targets


def chunk_example(shape=(3, 5), vocab=17, d_model=6, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(*shape, d_model, generator=generator, dtype=torch.float64)
    weight = torch.randn(vocab, d_model, generator=generator, dtype=torch.float64)
    targets = torch.randint(vocab, shape, generator=generator)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), targets


def theirs(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs)


# --- the definition ---


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_pytorch(shape, dtype):
    logits, targets = example(shape, dtype=dtype)
    ours, reference = cross_entropy(logits, targets), theirs(logits, targets)
    assert ours.shape == ()
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, reference)
    torch.testing.assert_close(gradients(ours, logits), gradients(reference, logits))


@settings(max_examples=50)
@given(
    offset=st.floats(-1e4, 1e4),
    scale=st.floats(0.01, 1e4),
    masked=st.lists(st.integers(0, 16), max_size=10),
)
def test_large_and_masked_logits(offset, scale, masked):
    """The reference has the same logits in float64, which does not overflow."""
    logits, targets = example(dtype=torch.float32, scale=scale)
    logits = (logits.detach() + offset).index_fill(-1, torch.tensor(masked).long(), -math.inf)
    logits.requires_grad_()
    ours, reference = cross_entropy(logits, targets), theirs(logits.double(), targets)
    torch.testing.assert_close(ours, reference.float(), rtol=1e-5, atol=1e-6)
    expected = gradients(reference, logits)
    torch.testing.assert_close(gradients(ours, logits), expected, rtol=1e-4, atol=1e-7)


def test_masked_target_has_infinite_loss_and_finite_gradient():
    logits = torch.tensor([[0.0, -math.inf, 1.0]], requires_grad=True)
    for targets in (torch.tensor([1]), torch.tensor([2])):
        ours, reference = cross_entropy(logits, targets), theirs(logits, targets)
        torch.testing.assert_close(ours, reference)
        assert gradients(ours, logits)[0].isfinite().all()
    assert cross_entropy(logits, torch.tensor([1])) == math.inf


def test_loss_of_fully_masked_logits_is_nan():
    logits, targets = torch.full((1, 3), -math.inf), torch.tensor([0])
    assert cross_entropy(logits, targets).isnan()
    assert theirs(logits, targets).isnan()


def test_half_precision_is_computed_in_float32():
    logits, targets = example(dtype=torch.bfloat16)
    ours = cross_entropy(logits, targets)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, theirs(logits.float(), targets))


def test_gradcheck():
    logits, targets = example((2, 3), vocab=5)
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, targets), [logits])
    assert torch.autograd.gradgradcheck(lambda x: cross_entropy(x, targets), [logits])


def test_perplexity():
    logits = torch.zeros(4, 50, dtype=torch.float64, requires_grad=True)
    loss = cross_entropy(logits, torch.arange(4))
    assert perplexity(loss) == pytest.approx(50.0, rel=1e-12)
    assert perplexity(math.log(7)) == pytest.approx(7.0)
    assert perplexity(1e4) == math.inf


@pytest.mark.parametrize(
    ("targets", "part"),
    [
        (torch.tensor([0, 17]), "target 17 is not in the vocabulary of 17"),
        (torch.tensor([-100, 2]), "target -100 is not in the vocabulary"),
        (torch.tensor([0]), "(1,)"),
        (torch.tensor([[0, 1]]), "(1, 2)"),
        (torch.tensor([0.0, 1.0]), "float32"),
        (torch.tensor([True, False]), "bool"),
    ],
)
def test_invalid_targets_are_rejected(targets, part):
    with pytest.raises(ValueError, match=r"; |\?") as error:
        cross_entropy(torch.zeros(2, 17), targets)
    assert part in str(error.value)
    with pytest.raises(ValueError, match=r"; |\?") as error:
        chunked_cross_entropy(torch.zeros(2, 4), torch.zeros(17, 4), targets)
    assert part in str(error.value)


def test_no_targets():
    with pytest.raises(ValueError, match="no targets"):
        cross_entropy(torch.zeros(0, 5), torch.zeros(0).long())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.uint16])
def test_all_integer_types_are_accepted(dtype):
    logits, targets = example()
    torch.testing.assert_close(cross_entropy(logits, targets.to(dtype)), theirs(logits, targets))
    hidden, weight, targets = chunk_example()
    chunked = chunked_cross_entropy(hidden, weight, targets.to(dtype))
    torch.testing.assert_close(chunked, theirs(hidden @ weight.T, targets))


# --- in chunks ---


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 1, 4)])
@pytest.mark.parametrize("chunk_tokens", [1, 2, 4, 7, 15, 1000])
def test_chunks_equal_pytorch(shape, chunk_tokens):
    hidden, weight, targets = chunk_example(shape)
    ours = chunked_cross_entropy(hidden, weight, targets, chunk_tokens)
    reference = theirs(hidden @ weight.T, targets)
    torch.testing.assert_close(ours, reference)
    expected = gradients(reference, hidden, weight)
    torch.testing.assert_close(gradients(ours, hidden, weight), expected)
    with torch.no_grad():
        value = chunked_cross_entropy(hidden, weight, targets, chunk_tokens)
    torch.testing.assert_close(value, reference)
    assert not value.requires_grad


def test_chunks_gradcheck():
    hidden, weight, targets = chunk_example((2, 3), vocab=5, d_model=4)

    def loss(hidden, weight):
        return 3.0 * chunked_cross_entropy(hidden, weight, targets, 4)  # so grad_output is not 1

    assert torch.autograd.gradcheck(loss, [hidden, weight])
    assert torch.autograd.gradcheck(lambda h: loss(h, weight.detach()), [hidden])
    assert torch.autograd.gradcheck(lambda w: loss(hidden.detach(), w), [weight])


def test_chunks_reject_a_second_derivative():
    hidden, weight, targets = chunk_example()
    loss = chunked_cross_entropy(hidden, weight, targets)
    with pytest.raises(RuntimeError, match="no second derivative; use cross_entropy"):
        torch.autograd.grad(loss, hidden, create_graph=True)


def test_chunks_backward_twice_and_hidden_used_twice():
    hidden, weight, targets = chunk_example()
    loss = chunked_cross_entropy(hidden * 2.0, weight, targets, 4) + hidden.square().mean()
    reference = theirs(hidden * 2.0 @ weight.T, targets) + hidden.square().mean()
    for _ in range(2):
        loss.backward(retain_graph=True)
        ours, hidden.grad = hidden.grad, None
        (expected,) = torch.autograd.grad(reference, hidden, retain_graph=True)
        torch.testing.assert_close(ours, expected)


def test_chunks_of_a_tied_matrix():
    """The output matrix is also the embedding: its gradient is the sum of both."""
    _, weight, targets = chunk_example()
    ids = targets.flip(0)
    ours = chunked_cross_entropy(weight[ids], weight, targets, 4)
    reference = theirs(weight[ids] @ weight.T, targets)
    torch.testing.assert_close(gradients(ours, weight), gradients(reference, weight))


@pytest.mark.parametrize("autocast", [True, False])
def test_chunks_in_bfloat16(autocast):
    """The error to float64 is at most about that of PyTorch in bfloat16."""
    wide = chunk_example((64,), vocab=200, d_model=32)
    exact = theirs(wide[0] @ wide[1].T, wide[2])
    exact_gradients = gradients(exact, *wide[:2])
    dtype = torch.float32 if autocast else torch.bfloat16
    hidden, weight, targets = chunk_example((64,), vocab=200, d_model=32, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ours = chunked_cross_entropy(hidden, weight, targets, 16)
        reference = theirs((hidden @ weight.T).float(), targets)
    assert ours.dtype == torch.float32
    assert abs(ours - exact) <= 2 * abs(reference - exact) + 1e-3
    for our, their, right in zip(
        gradients(ours, hidden, weight),
        gradients(reference, hidden, weight),
        exact_gradients,
        strict=True,
    ):
        assert our.dtype == dtype
        assert (our - right).norm() <= 1.2 * (their - right).norm()


def test_chunks_are_summed_in_float32():
    """In bfloat16, a sum of halves stops growing at 128: after 256 chunks of one token."""
    hidden = torch.ones(400, 1, dtype=torch.bfloat16)
    weight = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    loss = chunked_cross_entropy(hidden, weight, torch.zeros(400).long(), 1)
    torch.testing.assert_close(gradients(loss, weight)[0].float(), torch.tensor([[-0.5], [0.5]]))


def test_chunks_are_deterministic_under_two_threads():
    hidden, weight, targets = chunk_example((300,), vocab=500, d_model=32, dtype=torch.float32)
    torch.set_num_threads(2)
    seen = set()
    for _ in range(5):
        loss = chunked_cross_entropy(hidden, weight, targets, 64)
        parts = [loss.detach(), *gradients(loss, hidden, weight)]
        seen.add(b"".join(part.numpy().tobytes() for part in parts))
    assert len(seen) == 1


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of Dynamo
def test_chunks_compile_to_one_graph():
    hidden, weight, targets = chunk_example((9,), dtype=torch.float32)
    compiled = torch.compile(chunked_cross_entropy, fullgraph=True, backend="aot_eager")
    torch.use_deterministic_algorithms(True)
    try:
        loss = compiled(hidden, weight, targets, 4)
        grads = gradients(loss, hidden, weight)
    finally:
        torch.use_deterministic_algorithms(False)
    reference = theirs(hidden @ weight.T, targets)
    torch.testing.assert_close(loss, reference)
    torch.testing.assert_close(grads, gradients(reference, hidden, weight))


def test_chunks_have_at_most_chunk_tokens_rows():
    """Checks the sizes of all intermediate tensors."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    hidden, weight, targets = chunk_example((64,), vocab=500, d_model=2)
    with Sizes():
        chunked_cross_entropy(hidden, weight, targets, 8).backward()
    assert largest == 8 * 500


def test_no_gradients_are_computed_without_grad(monkeypatch):
    monkeypatch.setattr(module, "_ChunkedLoss", None)
    hidden, weight, targets = chunk_example()
    with torch.no_grad():
        chunked_cross_entropy(hidden, weight, targets)
    chunked_cross_entropy(hidden.detach(), weight.detach(), targets)


def test_chunks_reject_invalid_arguments():
    hidden, weight, targets = chunk_example()
    with pytest.raises(ValueError, match="chunk_tokens is 0; it must be at least 1"):
        chunked_cross_entropy(hidden, weight, targets, 0)
    with pytest.raises(ValueError, match="6 wide and the output matrix 17"):
        chunked_cross_entropy(hidden, weight.T, targets)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler
def test_chunks_compile_with_inductor():
    hidden, weight, targets = chunk_example((9,), dtype=torch.float32)
    compiled = torch.compile(chunked_cross_entropy, fullgraph=True)
    loss, reference = compiled(hidden, weight, targets, 4), theirs(hidden @ weight.T, targets)
    torch.testing.assert_close(loss, reference)
    expected = gradients(reference, hidden, weight)
    torch.testing.assert_close(gradients(loss, hidden, weight), expected)


def test_chunks_in_float16_do_not_overflow():
    """The gradient overflows float16 before the division by the number of tokens."""
    hidden = torch.full((16_384, 4), 10.0, requires_grad=True)
    weight = torch.zeros(3, 4, requires_grad=True)
    targets = torch.zeros(16_384, dtype=torch.int64)
    with torch.autocast("cpu", torch.float16):
        loss = chunked_cross_entropy(hidden, weight, targets)
    (found,) = torch.autograd.grad(loss, weight)
    expected = torch.autograd.grad(
        torch.nn.functional.cross_entropy(hidden @ weight.T, targets), weight
    )
    torch.testing.assert_close(found, expected[0], rtol=1e-3, atol=1e-3)
