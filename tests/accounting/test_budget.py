"""The compute-optimal size agrees with the paper."""

import pytest

from tilth.accounting import compute_optimal


def test_chinchilla():
    """70 billion parameters and 1.4 trillion tokens took 5.76e23 FLOPs (Hoffmann et al. 2022)."""
    optimum = compute_optimal(5.76e23)
    assert optimum.parameters == pytest.approx(70e9, rel=0.02)
    assert optimum.tokens == pytest.approx(1.4e12, rel=0.02)


@pytest.mark.parametrize("flops", [1e12, 3e18, 1e25])
def test_budget_is_spent(flops):
    optimum = compute_optimal(flops)
    assert 6 * optimum.parameters * optimum.tokens == pytest.approx(flops)
    assert optimum.tokens == 20 * optimum.parameters
    assert optimum.flops == flops


@pytest.mark.parametrize("flops", [0, -1.0, float("inf")])
def test_invalid_budget(flops):
    with pytest.raises(ValueError, match=r"flops is .*; it must be (finite|above 0)"):
        compute_optimal(flops)
