"""Curves: smoothing that does not depend on the part, thinning that drops no spike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.studio.curves import Window, smoothed, thinned


def loss_of(number, seed=0):
    chance = np.random.default_rng(seed)
    values = 2 + chance.normal(0, 0.1, number)
    values[chance.integers(0, number, number // 50)] = np.nan
    return values


@pytest.mark.parametrize("window", [1, 2, 10, 1000])
def test_smoothing_is_the_mean_of_the_last_steps(window):
    values = loss_of(500)
    expected = [
        np.nanmean(values[max(0, i + 1 - window) : i + 1]) for i in range(500) if window > 1
    ]
    if window > 1:
        np.testing.assert_allclose(smoothed(values, window), expected)
    else:
        assert smoothed(values, window) is values


@given(st.integers(1, 400), st.integers(1, 500))
def test_a_part_is_smoothed_as_the_whole(end, window):
    """To the bit: the curve of a run that trains is the beginning of that of the whole run."""
    values = loss_of(400)
    np.testing.assert_array_equal(
        smoothed(values[:end], window), smoothed(values, window)[:end], strict=True
    )


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize("zoom", [None, (100.0, 130.0), (-5.0, 1e9), (7e3, 6e3)])
def test_every_spike_and_gap_stays(is_log, zoom):
    """A spike of one step, anywhere, in the zoomed part or out of it."""
    x = np.arange(1.0, 20_001.0)
    begin, end = zoom or (None, None)
    window = Window(begin=begin, end=end, points=100, is_log=is_log)
    for place in (0, 1, 105, 106, 9_999, 19_998, 19_999):
        values = np.full(20_000, 2.0)
        values[place] = 99.0
        values[(place + 500) % 20_000] = -5.0
        values[(place + 1000) % 20_000] = np.nan
        curve = thinned(x, values, values, window)
        assert len(curve["x"]) < 900
        points = dict(zip(curve["x"], curve["y"], strict=True))
        assert points[x[place]] == 99.0
        assert points[x[(place + 500) % 20_000]] == -5.0
        assert points[x[(place + 1000) % 20_000]] is None
        band = thinned(x, values, smoothed(values, 50), window)
        assert (max(band["high"]), min(band["low"])) == (99.0, -5.0)
        assert len(band["high"]) == len(band["low"]) == len(band["at"]) <= 200


def test_a_zoom_shows_every_step():
    x = np.arange(1.0, 100_001.0)
    values = loss_of(100_000)
    curve = thinned(x, values, values, Window(begin=5000, end=5100, points=400))
    shown = [(a, b) for a, b in zip(curve["x"], curve["y"], strict=True) if 5000 <= a <= 5100]
    assert [a for a, _ in shown] == list(range(5000, 5101))
    expected = [None if np.isnan(value) else value for value in values[4999:5100]]
    assert [b for _, b in shown] == expected


@given(
    st.lists(st.floats(0, 1e6), max_size=40).map(sorted),
    st.floats(-1e6, 1e7) | st.none(),
    st.floats(-1e6, 1e7) | st.none(),
    st.booleans(),
    st.randoms(),
)
def test_any_curve(positions, begin, end, is_log, chance):
    """Repeated positions, zeros, windows beside the curve, no values at all."""
    x = np.array(positions)
    values = np.array([chance.choice([1.0, 2.0, np.nan, np.inf]) for _ in positions])
    for line in (values, smoothed(values, 3)):
        curve = thinned(x, values, line, Window(begin=begin, end=end, points=10, is_log=is_log))
        assert curve["x"] == sorted(curve["x"])
        finite = line[np.isfinite(line)]
        if len(finite):
            shown = [value for value in curve["y"] if value is not None]
            assert (min(shown), max(shown)) == (finite.min(), finite.max())
