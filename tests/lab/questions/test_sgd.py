"""The toy: every step multiplies w by a known factor, so every loss is known."""

import math

import pytest

from tilth.lab.questions import sgd


def by_hand(first, lr, steps):
    """The gradient of mean(w**2) over 100 entries is w / 50."""
    losses = [first]
    for step in range(steps):
        losses.append(losses[-1] * (1 - lr / 50 / math.sqrt(step + 1)) ** 2)
    return losses


@pytest.mark.parametrize("lr", [0.0, 1.0, 10.0, 40.0, 1000.0])
def test_losses_equal_the_formula(lr):
    losses = sgd.descend(lr, steps=12, seed=3)
    assert losses == pytest.approx(by_hand(losses[0], lr, 12), rel=1e-4)
    assert 15 < losses[0] < 40  # 25 times a chi-square over its 100 degrees of freedom


def test_rates_of_the_handout():
    """10 decays, 100 faster, 1000 diverges."""
    ten, hundred, thousand = (sgd.descend(lr) for lr in (10.0, 100.0, 1000.0))
    assert ten[0] == hundred[0] == thousand[0]
    assert ten[0] > ten[-1] > 1.0
    assert hundred[-1] < 1e-20
    assert thousand[-1] > 1e15


def test_the_seed_decides():
    assert sgd.descend(1.0, seed=1) == sgd.descend(1.0, seed=1)
    assert sgd.descend(1.0, seed=1) != sgd.descend(1.0, seed=2)


def test_steps_are_positive():
    with pytest.raises(ValueError, match="steps must be at least 1"):
        sgd.descend(1.0, steps=0)


def test_the_curve_keeps_the_edges():
    """Zero is at the bottom; too large values and NaN are at the top."""
    lines = sgd.curve({1.0: [1.0, 0.0, 1e-9, 1e9, math.inf, math.nan]}).splitlines()
    assert lines[0] == "   1e+03 |       a a a"
    assert lines[6] == "       1 | a"
    assert lines[12] == "   0.001 |   a a"
    assert lines[14] == "           0 1 2 3 4 5   step"
    assert lines[15] == "a: lr 1   *: several"
