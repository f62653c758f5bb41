"""Curves of runs for a chart: axes, smoothing, and a number of points that a screen can show.

Smoothing is a mean over the last steps (a causal filter) of the whole log, before anything is cut
out: a point has the same value in a part and in the whole, while a training runs and after it,
whatever the zoom. Thinning keeps the minimum and the maximum of each part, so a spike of one step
stays, and the band shows the range of the values themselves.

>>> x = np.arange(1.0, 100_001.0)
>>> loss = 9 / np.sqrt(x)
>>> loss[70_000] = 99.0
>>> curve = thinned(x, loss, smoothed(loss, 100), Window(points=500))
>>> len(curve["x"]) < 1500, max(curve["high"]), round(max(curve["y"]), 3)
(True, 99.0, 9.0)
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from tilth.report.curves import window_means
from tilth.schema import Range
from tilth.studio.run_logs import Array, MetricsLog

Axis = Literal["step", "tokens", "flops", "seconds"]
Metric = Literal[
    "loss",
    "valid_loss",
    "bits_per_byte",
    "lr",
    "grad_norm",
    "tokens_per_second",
    "utilisation",
    "step_seconds",
]
COARSE = 100
"""Parts of the whole axis around the zoomed range."""


@dataclass(frozen=True)
class Window:
    """The part of an axis that a chart shows, and with how many parts.

    Attributes:
        begin: Lowest x value; default: that of the curve.
        end: Highest x value; default: that of the curve.
        points: Parts of the range; each keeps its minimum and maximum.
        is_log: Whether the axis is logarithmic: then so are the parts.

    """

    begin: float | None = None
    end: float | None = None
    points: Annotated[int, Range(at_least=10, at_most=4000)] = 400
    is_log: bool = False


def smoothed(values: Array, steps: int) -> Array:
    """Return the mean of the finite values among the last `steps`, at each step."""
    if steps <= 1:
        return values
    ends = np.arange(1, len(values) + 1)
    return window_means(values, np.maximum(ends - steps, 0), ends)


def axis_of(log: MetricsLog, axis: Axis, flops_per_token: float) -> Array:
    """Return the x value of each row; it never decreases."""
    if axis == "flops":
        return log.columns["tokens"] * flops_per_token
    return np.maximum.accumulate(log.columns[axis].astype(np.float64))


def curve_of(
    log: MetricsLog,
    metric: Metric,
    axis: Axis,
    window: Window,
    *,
    flops_per_token: float,
    smoothing: int = 1,
) -> dict[str, Any]:
    """Return a curve for JSON: `x` and `y`, and if smoothed, a band `at`, `low` and `high`."""
    x = axis_of(log, axis, flops_per_token)
    if metric in ("valid_loss", "bits_per_byte"):
        values = log.evaluations["loss" if metric == "valid_loss" else metric]
        return thinned(x[log.evaluations["row"]], values, values, window)
    values = log.columns[metric]
    return thinned(x, values, smoothed(values, smoothing), window)


def thinned(x: Array, values: Array, line: Array, window: Window) -> dict[str, Any]:
    """Return few points of a line, and the range of the values between them.

    Args:
        x: Positions that never decrease.
        values: Values at them, not finite where there are none.
        line: The values, or a smoothed form of them.
        window: The range that is shown in detail; the rest is coarse.

    """
    parts = _parts(x, window)
    kept = _extremes(line, parts)
    found = {"x": _numbers(x[kept]), "y": _numbers(line[kept])}
    if line is not values and len(x):
        finite = np.isfinite(values)
        low = np.minimum.reduceat(np.where(finite, values, np.inf), parts)
        high = np.maximum.reduceat(np.where(finite, values, -np.inf), parts)
        has_any = np.isfinite(low)
        ends = np.append(parts[1:], len(x)) - 1
        at = (x[parts] + x[ends]) / 2
        found |= {"at": _numbers(at[has_any]), "low": _numbers(low[has_any])}
        found |= {"high": _numbers(high[has_any])}
    return found


def _parts(x: Array, window: Window) -> Array:
    """Return where each part begins; no part is empty, and none if there are no values."""
    if not len(x):
        return np.empty(0, np.intp)
    first, last = float(x[0]), float(x[-1])
    begin = first if window.begin is None else min(max(window.begin, first), last)
    end = last if window.end is None else min(max(window.end, begin), last)
    edges = np.concatenate(
        [
            _edges(first, last, COARSE, is_log=window.is_log),
            _edges(begin, end, window.points, is_log=window.is_log),
            [np.nextafter(end, np.inf)],
        ]
    )
    parts = np.unique(np.append(np.searchsorted(x, edges), 0))
    return parts[parts < len(x)]


def _edges(begin: float, end: float, number: int, *, is_log: bool) -> Array:
    if is_log and end > 0:
        return np.geomspace(max(begin, end * 1e-12), end, number)
    return np.linspace(begin, end, number)


def _extremes(line: Array, parts: Array) -> Array:
    """Return the places of the minimum, the maximum and the first gap of each part, and the end."""
    if not len(line):
        return np.empty(0, np.intp)
    finite = np.isfinite(line)
    number_of = np.repeat(np.arange(len(parts)), np.diff(np.append(parts, len(line))))
    kept = [np.array([0, len(line) - 1])]
    low, high = np.where(finite, line, np.inf), np.where(finite, line, -np.inf)
    for extreme, values in ((np.minimum, low), (np.maximum, high)):
        is_extreme = values == extreme.reduceat(values, parts)[number_of]
        kept.append(_first_of_each(np.flatnonzero(is_extreme), number_of))
    kept.append(_first_of_each(np.flatnonzero(~finite), number_of))
    return np.unique(np.concatenate(kept))


def _first_of_each(places: Array, number_of: Array) -> Array:
    """Return the first place in each part."""
    return places[np.unique(number_of[places], return_index=True)[1]]


def _numbers(values: Array) -> list[float | None]:
    """Return values for JSON: null where they are not finite."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
