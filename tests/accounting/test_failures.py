"""Goodput: the simulation, the closed form and an independent simulation agree."""

import math

import numpy as np
import pytest

from tilth.accounting.failures import Failures

HOUR, DAY = 3600.0, 86400.0
CASES = [  # mtbf, save, restart, interval
    (4 * HOUR, 60.0, 300.0, 1275.0),
    (4 * HOUR, 60.0, 300.0, 4 * HOUR),
    (0.5 * HOUR, 200.0, 600.0, 600.0),
    (10 * DAY, 1.0, 60.0, 1200.0),
    (600.0, 100.0, 300.0, 300.0),
]


def simulated_in_numpy(failures, segments, interval, runs, generator):
    """Draw a new time to the next failure for each attempt at each segment, of all runs at once.

    A failure has no memory, so this equals one that is drawn once and outlasts segments.
    """
    now = np.zeros(runs)
    for _ in range(segments):
        attempt = np.full(runs, interval + failures.save_seconds)
        open_runs = np.ones(runs, bool)
        while open_runs.any():
            until_failure = generator.exponential(failures.mtbf_seconds, runs)
            ends = open_runs & (until_failure >= attempt)
            fails = open_runs & ~ends
            now[ends] += attempt[ends]
            now[fails] += until_failure[fails]
            attempt[fails] = failures.restart_seconds + interval + failures.save_seconds
            open_runs = fails
    return now


@pytest.mark.parametrize("case", CASES, ids=str)
def test_three_ways_agree(case):
    *times, interval = case
    failures, segments, runs = Failures(*times), 200, 400
    work = segments * interval
    theirs = simulated_in_numpy(failures, segments, interval, runs, np.random.default_rng(1))
    ours = failures.simulate(work, interval, runs=runs, seed=2)
    error = theirs.std() / math.sqrt(runs)
    # A restart belongs to the attempt after a failure; the first attempt has none.
    expected = work / failures.goodput(interval)
    assert abs(theirs.mean() - expected) < 4 * error + failures.restart_seconds
    assert abs(ours.seconds - expected) < 4 * error + failures.restart_seconds
    assert abs(ours.seconds - theirs.mean()) < 6 * error
    low, high = np.quantile(work / theirs, [0.05, 0.95])
    spread = max(0.1 * (high - low), 1e-3)
    assert ours.low_goodput == pytest.approx(low, abs=4 * spread)
    assert ours.high_goodput == pytest.approx(high, abs=4 * spread)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_best_interval(case):
    """Against a grid; Young and Daly are near it while saving is short."""
    *times, _ = case
    failures = Failures(*times)
    grid = np.geomspace(failures.best_seconds / 30, failures.best_seconds * 30, 20_001)
    goodputs = [failures.goodput(interval) for interval in grid]
    best = grid[int(np.argmax(goodputs))]
    assert failures.best_seconds == pytest.approx(best, rel=1e-3)
    assert failures.goodput(failures.best_seconds) >= max(goodputs) - 1e-12
    ratio = failures.save_seconds / failures.mtbf_seconds
    assert failures.young_seconds == pytest.approx(best, rel=0.01 + math.sqrt(ratio))
    assert failures.daly_seconds == pytest.approx(best, rel=0.001 + ratio / 10)


def test_without_failures_only_saving_costs():
    failures = Failures(1e15, 10.0, 300.0)
    assert failures.goodput(90.0) == pytest.approx(0.9)
    found = failures.simulate(1000.0, 90.0, runs=3)
    assert found.failures == 0
    # 11 whole intervals and a rest of 10 s: twelve checkpoints.
    assert found.seconds == pytest.approx(1120.0)


def test_the_seed_repeats_and_frequent_failures_have_a_goodput():
    failures = Failures(HOUR, 60.0, 60.0)
    same = [failures.simulate(DAY, 600.0, runs=20, seed=seed) for seed in (0, 0, 1)]
    assert same[0] == same[1] != same[2]
    assert 0 < failures.goodput(500 * HOUR) < 1e-200
    assert failures.goodput(5000 * HOUR) == 0


@pytest.mark.parametrize("values", [(0, 1, 1), (1, 0, 1), (1, 1, -1), (math.inf, 1, 1)])
def test_wrong_times(values):
    with pytest.raises(ValueError, match="must be"):
        Failures(*values)


@pytest.mark.parametrize("mtbf", [60.0, 1e-7])  # of the second, a float holds no goodput
def test_a_simulation_that_would_not_end(mtbf):
    with pytest.raises(ValueError, match="more than 10,000,000 failures in the simulation"):
        Failures(mtbf, 10.0, 10.0).simulate(30 * DAY, 3600.0)
