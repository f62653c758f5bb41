"""The fit of a scaling law, with runs of a known law."""

import numpy as np
import pytest

from tilth.lab.scaling_law import Law, fit

LAW = Law(E=1.2, A=50.0, alpha=0.35, B=400.0, beta=0.4)
SIZES, LENGTHS = (1e6, 2e6, 4e6, 8e6), (1e6, 4e6, 16e6, 32e6)
FAR = 16e6, 128e6


def runs(law=LAW, noise=0.0, seed=0):
    generator = np.random.default_rng(seed)
    return [
        (n, d, law.loss(n, d) * np.exp(noise * generator.standard_normal()))
        for n in SIZES
        for d in LENGTHS
    ]


@pytest.mark.parametrize(
    "law",
    [
        LAW,
        Law(E=1.69, A=406.4, alpha=0.34, B=410.7, beta=0.28),  # Hoffmann et al. 2022
        Law(E=0.5, A=2e3, alpha=0.6, B=30.0, beta=0.2),
    ],
)
def test_known_law_is_recovered(law):
    found = fit(runs(law), replicates=20)
    for name in ("E", "A", "alpha", "B", "beta"):
        assert getattr(found.law, name) == pytest.approx(getattr(law, name), rel=1e-4)
        low, high = found.interval(name)
        assert low == pytest.approx(high, rel=1e-3)
    assert found.predict(*FAR) == pytest.approx((law.loss(*FAR),) * 3, rel=1e-5)


@pytest.mark.slow
def test_interval_contains_the_truth_as_often_as_it_says():
    """90% intervals of 20 noisy sets: at least 15 (the chance of fewer is 1%)."""
    inside = 0
    for seed in range(20):
        middle, low, high = fit(runs(noise=0.004, seed=seed), replicates=60).predict(*FAR)
        assert low < middle < high < 1.1 * low
        inside += low <= LAW.loss(*FAR) <= high
    assert inside >= 15


def test_an_outlier_has_little_weight():
    bent = runs(noise=0.001)
    bent[5] = (*bent[5][:2], 1.3 * bent[5][2])
    found = fit(bent, replicates=5).law
    assert found.loss(*FAR) == pytest.approx(LAW.loss(*FAR), rel=0.03)


def test_optimum_is_the_lowest_loss_at_equal_flops():
    for flops in (1e12, 1e15, 1e18):
        parameters, tokens = LAW.optimum(flops)
        assert 6 * parameters * tokens == pytest.approx(flops)
        best = LAW.loss(parameters, tokens)
        for factor in (0.5, 0.9, 1.1, 2.0):
            assert LAW.loss(parameters * factor, tokens / factor) > best


def test_the_fit_repeats():
    noisy = runs(noise=0.01)
    assert fit(noisy, replicates=5) == fit(noisy, replicates=5)


@pytest.mark.parametrize(
    ("points", "sentence"),
    [
        (runs()[:5], "needs 6 runs or more"),
        ([(1e6, d, 2.0) for d in range(1, 9)], "1 sizes and 8 lengths"),
        ([*runs(), (1e6, 1e6, float("nan"))], "finite and positive"),
        ([*runs(), (1e6, 0.0, 2.0)], "finite and positive"),
    ],
)
def test_invalid_runs_are_rejected(points, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit(points)
