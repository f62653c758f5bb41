"""Tests of SGD against `torch.optim.SGD` and its formula."""

import math

import pytest
import torch
from torch.nn import Parameter

from tilth.optim import SGD


def problem(dtype=torch.float64):
    torch.manual_seed(0)
    weight, bias = Parameter(torch.randn(4, 3, dtype=dtype)), Parameter(torch.randn(4, dtype=dtype))
    inputs = torch.randn(16, 3, dtype=dtype)

    def loss():
        return ((inputs @ weight.T + bias).tanh() ** 2).mean()

    return [weight, bias], loss


def test_plain_sgd_equals_pytorch_bit_for_bit():
    ours, our_loss = problem()
    theirs, their_loss = problem()
    our_optimizer = SGD([{"params": ours[:1]}, {"params": ours[1:], "lr": 0.5}], lr=0.1,
                        inverse_sqrt_decay=False)  # fmt: skip
    their_optimizer = torch.optim.SGD([{"params": theirs[:1]}, {"params": theirs[1:], "lr": 0.5}],
                                      lr=0.1)  # fmt: skip
    for _ in range(120):
        for optimizer, loss in ((our_optimizer, our_loss), (their_optimizer, their_loss)):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_inverse_square_root_decay():
    """Against `torch.optim.SGD` with lr / sqrt(t + 1)."""
    ours, our_loss = problem()
    theirs, their_loss = problem()
    our_optimizer, their_optimizer = SGD(ours, lr=0.7), torch.optim.SGD(theirs, lr=0.7)
    for step in range(120):
        their_optimizer.param_groups[0]["lr"] = 0.7 / math.sqrt(step + 1)
        for optimizer, loss in ((our_optimizer, our_loss), (their_optimizer, their_loss)):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_steps_are_counted_for_each_parameter():
    """The decay of a parameter starts at its first gradient."""
    early, late = Parameter(torch.zeros(1)), Parameter(torch.zeros(1))
    optimizer = SGD([early, late], lr=1.0)
    early.grad = torch.ones(1)
    optimizer.step()
    assert late.item() == 0.0
    late.grad = torch.ones(1)
    optimizer.step()
    assert late.item() == -1.0
    assert early.item() == pytest.approx(-1.0 - 1.0 / math.sqrt(2))


def test_state_dict_with_momentum_is_rejected():
    weight = Parameter(torch.zeros(1))
    theirs = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="no momentum"):
        SGD([weight]).load_state_dict(theirs.state_dict())
