"""Curves equal the log; smoothing is a moving average; downsampling keeps peaks and gaps."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.report.reporting import make_run, record
from tilth.files import FileError
from tilth.report.curves import Curve, downsampled, last_value, read_curves, smoothed, spread_of
from tilth.runs.metrics import Evaluation

VALUES = st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=400)


def curve_of(values, steps=None):
    steps = np.arange(1.0, len(values) + 1) if steps is None else np.array(steps, float)
    return Curve(steps, 256 * steps, steps / 2, np.array(values, float))


def test_read_curves(tmp_path):
    endless = Evaluation(2.0, 7.4, math.inf, 10)
    records = [
        record(1, 6.5, bits=4.0),
        record(2, None, was_skipped=True),
        record(3, 5.0, bits=3.0),
        replace(record(4, 4.0), evaluation=endless),
    ]
    curves = read_curves(make_run(tmp_path / "run", records))
    train = curves.train_loss
    assert train.steps.tolist() == [1, 2, 3, 4]
    assert train.tokens.tolist() == [256, 512, 768, 1024]
    assert train.seconds.tolist() == [0.5, 1.0, 1.5, 2.0]
    np.testing.assert_array_equal(train.values, [6.5, math.nan, 5.0, 4.0])
    assert curves.valid_loss.steps.tolist() == [1, 3, 4]
    assert curves.valid_loss.seconds.tolist() == [0.5, 1.5, 2.0]
    np.testing.assert_array_equal(curves.valid_bits.values, [4.0, 3.0, math.nan])
    assert last_value(curves.valid_bits) == 3.0
    assert not curves.ends_diverging


@pytest.mark.parametrize("sign", ["was_skipped", "is_diverging"])
def test_diverging_end(tmp_path, sign):
    records = [record(1, 6.5), record(2, 99.0, **{sign: True})]
    assert read_curves(make_run(tmp_path / "run", records)).ends_diverging


def test_empty_log(tmp_path):
    curves = read_curves(make_run(tmp_path / "run", []))
    assert len(curves.train_loss.steps) == 0
    assert last_value(curves.valid_bits) is None
    assert len(downsampled(smoothed(curves.train_loss, 10)).values) == 0


@pytest.mark.parametrize("line", ['{"step": 1}', '{"step": 1, "tokens": [], "seconds": 1}'])
def test_damaged_log(tmp_path, line):
    run = make_run(tmp_path / "run", [])
    (run.folder / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(
        FileError, match=r"metrics\.jsonl has a damaged line 1 \(the key \w+ is missing"
    ):
        read_curves(run)


@settings(max_examples=50)
@given(VALUES, st.integers(1, 50))
def test_smoothing_is_a_centred_average(values, window):
    means = smoothed(curve_of(values), window).values
    for index, mean in enumerate(means):
        begin = index - window // 2
        around = [v for v in values[max(0, begin) : begin + window] if not math.isnan(v)]
        assert math.isnan(mean) if not around else mean == pytest.approx(np.mean(around), abs=1e-6)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(6, 60), st.sampled_from([0, 0.3]))
def test_thinning_keeps_peaks_and_gaps(seed, length, max_points, gaps):
    random = np.random.default_rng(seed)
    values = np.where(random.random(length) < gaps, np.nan, random.normal(size=length))
    curve = curve_of(values)
    thin = downsampled(curve, max_points)
    assert len(thin.steps) <= max_points
    kept = thin.steps.astype(int) - 1
    assert (np.diff(kept) > 0).all()
    for name in ("tokens", "seconds", "values"):
        np.testing.assert_array_equal(getattr(thin, name), getattr(curve, name)[kept])
    assert kept[0] == 0
    assert kept[-1] == len(values) - 1
    # Near every point there are points as high and as low; near every gap there is a gap.
    width = math.ceil(len(values) / (max_points // 3 - 1)) if len(values) > max_points else 1
    for index, value in enumerate(values):
        near = thin.values[np.abs(kept - index) < width]
        if math.isnan(value):
            assert np.isnan(near).any()
        else:
            assert np.nanmin(near) <= value <= np.nanmax(near)


def test_spread_at_common_steps():
    first = curve_of([5.0, 4.0, 3.0], steps=[10, 20, 30])
    second = curve_of([6.0, 3.5, 9.0, 3.5], steps=[10, 20, 25, 30])
    second = replace(second, seconds=second.steps)
    spread = spread_of([first, second])
    assert spread.mean.steps.tolist() == [10, 20, 30]
    assert spread.mean.seconds.tolist() == [7.5, 15.0, 22.5]
    assert spread.mean.values.tolist() == [5.5, 3.75, 3.25]
    assert spread.low.tolist() == [5.0, 3.5, 3.0]
    assert spread.high.tolist() == [6.0, 4.0, 3.5]
