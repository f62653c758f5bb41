"""Loss curves of a run over steps, tokens and seconds: reading, smoothing, downsampling.

>>> steps = np.arange(1.0, 10_001.0)
>>> loss = 5.0 + np.sin(steps)
>>> loss[1234] = 99.0  # a spike of one step
>>> thin = downsampled(Curve(steps, 512 * steps, steps / 8, loss))
>>> len(thin.steps) <= 1000, float(thin.values.max())
(True, 99.0)
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tilth.runs.metrics import StepRecord
from tilth.runs.run import Run

if TYPE_CHECKING:
    Array: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
    Places: TypeAlias = np.ndarray[tuple[int], np.dtype[np.intp]]

MAX_POINTS = 1000


@dataclass(frozen=True)
class Curve:
    """Values over the steps at which they were measured; NaN where a value was not finite."""

    steps: "Array"
    tokens: "Array"
    seconds: "Array"
    values: "Array"

    def at(self, indices: "Places") -> "Curve":
        """Return the curve at these points."""
        return Curve(*(column[indices] for column in vars(self).values()))


@dataclass(frozen=True)
class Curves:
    """The curves of one run."""

    train_loss: Curve
    valid_loss: Curve
    valid_bits: Curve
    """Bits per byte."""
    ends_diverging: bool
    """Whether the last step was skipped or its loss was diverging."""


@dataclass(frozen=True)
class Spread:
    """Minimum, mean and maximum over seeds, at the steps that all of them have."""

    mean: Curve
    low: "Array"
    high: "Array"


def read_curves(run: Run) -> Curves:
    """Read the curves of a run from its metrics log."""
    records = run.metrics()
    evaluated = [(record, record.evaluation) for record in records if record.evaluation]
    at = [record for record, _ in evaluated]
    return Curves(
        _curve(records, [record.loss for record in records]),
        _curve(at, [evaluation.loss for _, evaluation in evaluated]),
        _curve(at, [evaluation.bits_per_byte for _, evaluation in evaluated]),
        ends_diverging=bool(records) and (records[-1].is_diverging or records[-1].was_skipped),
    )


def _curve(records: list[StepRecord], values: Sequence[float | None]) -> Curve:
    """Return a curve of logged values over the steps, tokens and seconds of their records."""
    rows = [(record.step, record.tokens, record.seconds) for record in records]
    steps, tokens, seconds = np.array(rows, np.float64).reshape(-1, 3).T
    logged = np.array(values, np.float64)  # None becomes NaN
    return Curve(steps, tokens, seconds, np.where(np.isfinite(logged), logged, np.nan))


NO_CURVES = Curves(_curve([], []), _curve([], []), _curve([], []), ends_diverging=False)
"""The curves of a run without steps."""


def smoothed(curve: Curve, window: int) -> Curve:
    """Return the centred moving average over `window` steps, truncated at the ends.

    A trailing average would lag and show a falling loss too high.
    """
    begins = np.arange(len(curve.values)) - window // 2
    ends = np.minimum(begins + window, len(curve.values))
    return replace(curve, values=window_means(curve.values, np.maximum(begins, 0), ends))


def window_means(values: "Array", begins: "Places", ends: "Places") -> "Array":
    """Return the mean of the finite values of each window, NaN where there are none."""
    finite = np.isfinite(values)
    sums = np.cumsum(np.concatenate([[0.0], np.where(finite, values, 0.0)]))
    counts = np.cumsum(np.concatenate([[0], finite]))
    with np.errstate(invalid="ignore"):  # 0 / 0
        means: Array = (sums[ends] - sums[begins]) / (counts[ends] - counts[begins])
    return means


def downsampled(curve: Curve, max_points: int = MAX_POINTS) -> Curve:
    """Downsample a curve to at most `max_points`, keeping its peaks and gaps.

    Of each of equal parts, the minimum, the maximum and the first NaN remain. A spike of one step
    stays visible, which taking every tenth point would lose.
    """
    length = len(curve.values)
    if length <= max_points:
        return curve
    width = -(-length // (max_points // 3 - 1))
    begins = np.arange(0, length, width)
    parts = np.full((len(begins), width), np.nan)
    parts.flat[:length] = curve.values
    finite = np.isfinite(parts)
    kept = (
        begins + np.where(finite, parts, np.inf).argmin(axis=1),
        begins + np.where(finite, parts, -np.inf).argmax(axis=1),
        begins + finite.argmin(axis=1),  # the first gap, or else the first point
        [0, length - 1],
    )
    indices = np.unique(np.concatenate(kept))
    return curve.at(indices[indices < length])  # the padding of the last part is not a gap


def spread_of(curves: list[Curve]) -> Spread:
    """Return the spread of several seeds, at the steps that all of them have."""
    common = curves[0].steps
    for curve in curves[1:]:
        common = np.intersect1d(common, curve.steps)
    rows = [curve.at(np.searchsorted(curve.steps, common)) for curve in curves]
    # Seeds take different times for the same steps: the mean is drawn at the mean time.
    columns = np.array([list(vars(row).values()) for row in rows])
    values = columns[:, -1]
    return Spread(Curve(*columns.mean(axis=0)), values.min(axis=0), values.max(axis=0))


def last_value(curve: Curve) -> float | None:
    """Return the last finite value, or None."""
    finite = curve.values[np.isfinite(curve.values)]
    return float(finite[-1]) if len(finite) else None
