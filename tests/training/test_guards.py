import math
from dataclasses import asdict

from tilth.schema import read
from tilth.training.guards import Guard


def test_non_finite_steps_are_counted_and_end_the_run():
    guard = Guard(max_skipped=3)
    assert guard.see(2.0, 1.0)
    assert not guard.see(math.nan, 1.0)
    assert not guard.see(2.0, math.inf)
    assert guard.see(2.0, 1.0)  # one good step, and it counts from the beginning
    assert not guard.see(math.inf, 1.0)
    assert not guard.see(math.inf, 1.0)
    assert (guard.skipped, guard.skipped_in_a_row) == (4, 2)
    assert not guard.is_over
    assert not guard.see(math.nan, math.nan)
    assert guard.is_over


def test_divergence_is_flagged_and_noise_is_not():
    guard = Guard(max_skipped=3)
    for step in range(300):
        guard.see(3.0 + (-1) ** step, 1.0)
        assert not guard.is_diverging
    for _ in range(100):
        guard.see(9.0, 1.0)
    assert guard.is_diverging


def test_spike_is_flagged_while_it_lasts():
    """Losses of a model of three layers without norms, which recovered."""
    losses = [7.82, 7.70, 7.47, 6.96, 65.24, 37.86, 10.0, 6.83, 6.28, 6.19, 6.12, 5.95, 5.66, 5.83]
    guard, flagged = Guard(max_skipped=3), []
    for loss in losses:
        guard.see(loss, 1.0)
        flagged.append(guard.is_diverging)
    assert flagged == [loss >= 10 for loss in losses]


def test_guard_round_trip():
    guard = Guard(max_skipped=5)
    for loss in (4.0, 3.0, math.nan, 2.5):
        guard.see(loss, 1.0)
    assert read(Guard, asdict(guard), "the guard") == guard
