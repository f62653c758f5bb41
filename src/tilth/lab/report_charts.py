"""The numbers of a section's charts, as plain values for a page's script or for matplotlib.

What enters: a section. What leaves: thinned curves of each run at several smoothings, the spread of
each group of seeds, and the final losses along the lab's axis.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.lab.report_content import COLOURS, Section, visible
from tilth.lab.report_curves import Curve, Spread, smoothed, spread_of, thinned
from tilth.lab.report_findings import groups_of

if TYPE_CHECKING:
    from tilth.lab.report_curves import Array

WINDOWS = (1, 10, 50, 200, 1000)  # steps that a smoothed loss is the mean of
DASHES = ("solid", "dash", "dot")  # once the colours are used up
DIGITS = 6  # of a number in a page; more would be larger, and no screen could show them


@dataclass(frozen=True)
class AxisPoint:
    """Where a trial ended, on the axis of its lab."""

    label: str
    group: str
    x: float
    loss: float
    is_diverged: bool
    """Then the loss is where the mark stands, above all others."""


def axis_points(section: Section) -> list[AxisPoint]:
    """The final validation loss of all runs that have ended, and have a place on the axis."""
    placed = [(entry, entry.x) for entry in section.entries if entry.x is not None]
    losses = [e.valid_loss for e, _ in placed if e.is_comparable and e.valid_loss is not None]
    top = max(losses) + 0.1 * ((max(losses) - min(losses)) or 1.0) if losses else 1.0
    points = []
    for entry, x in placed:
        is_diverged = entry.state == "diverged"
        loss = top if is_diverged else entry.valid_loss
        if loss is not None and entry.state not in ("running", "failed"):
            points.append(AxisPoint(entry.label, entry.group, x, loss, is_diverged))
    return sorted(points, key=lambda point: point.x)


def axis_line(points: list[AxisPoint]) -> tuple[list[float], list[float]]:
    """The mean loss at each place, of those that did not diverge."""
    at: dict[float, list[float]] = {}
    for point in points:
        if not point.is_diverged:
            at.setdefault(point.x, []).append(point.loss)
    return list(at), [sum(losses) / len(losses) for losses in at.values()]


def is_logarithmic(values: list[float]) -> bool:
    """Whether values span more than a decade."""
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)


def windows_of(section: Section) -> tuple[list[int], int]:
    """The smoothings that make sense for these runs, and the one to begin with."""
    steps = max((run.config.steps for run in section.runs), default=1)
    windows = [window for window in WINDOWS if window == 1 or window <= steps // 5]
    return windows, max(window for window in windows if window == 1 or window <= steps // 50)


def shown_losses(section: Section) -> tuple[float, float] | None:
    """The losses to show, where a divergence would press all others into a line; else None."""
    curves = [entry.curves.train_loss for entry in section.entries if entry.curves is not None]
    finite = [curve.values[np.isfinite(curve.values)] for curve in curves]
    finite = [values for values in finite if len(values)]
    if not finite:
        return None
    first = max(float(values[0]) for values in finite)
    if max(float(values.max()) for values in finite) <= 2 * first:
        return None
    lowest = min(float(values.min()) for values in finite)
    height = (first - lowest) or 1.0
    return lowest - 0.05 * height, first + 0.1 * height


def unit_of_time(section: Section) -> tuple[str, int]:
    """The unit in which the longest run is read best, and its seconds."""
    curves = [entry.curves.train_loss for entry in section.entries if entry.curves is not None]
    longest = max((float(curve.seconds.max(initial=0.0)) for curve in curves), default=0.0)
    if longest > 2 * 3600:
        return "hours", 3600
    return ("minutes", 60) if longest > 3 * 60 else ("seconds", 1)


def spreads_of(section: Section, name: str) -> dict[str, Spread]:
    """The spread of each group that has several seeds, of the curve with this name."""
    spreads = {}
    for group, entries in groups_of(section.entries).items():
        curves = [getattr(entry.curves, name) for entry in entries if entry.curves is not None]
        if len(curves) > 1:
            spreads[group] = spread_of(curves)
    return spreads


def chart_data(section: Section) -> dict[str, Any]:
    """All that the script of a page draws."""
    groups = groups_of(section.entries)
    names, colours = list(groups), section.colours
    windows, _ = windows_of(section)
    return {
        "groups": [
            {
                "name": _plotly_text(f"{name} ({len(group)} seeds)" if len(group) > 1 else name),
                "colour": colours[name],
                "dash": DASHES[index // len(COLOURS) % len(DASHES)]
                if colours[name] in COLOURS
                else "solid",
            }
            for index, (name, group) in enumerate(groups.items())
        ],
        "runs": [
            {
                "name": _plotly_text(entry.label),
                "group": names.index(entry.group),
                "train_loss": {
                    str(each): _columns(thinned(smoothed(entry.curves.train_loss, each)))
                    for each in windows
                },
                "valid_loss": _columns(thinned(entry.curves.valid_loss)),
                "valid_bits": _columns(thinned(entry.curves.valid_bits)),
            }
            for entry in section.entries
            if entry.curves is not None
        ],
        "spreads": {
            name: [
                {
                    "group": names.index(group),
                    "mean": _columns(spread.mean),
                    "low": _numbers(spread.low),
                    "high": _numbers(spread.high),
                }
                for group, spread in spreads_of(section, name).items()
            ]
            for name in ("valid_loss", "valid_bits")
        },
        "time": unit_of_time(section),
        "shown_losses": shown_losses(section),
        "axis": _axis_data(section, names),
    }


def _axis_data(section: Section, names: list[str]) -> dict[str, Any] | None:
    points = axis_points(section)
    if not points:
        return None
    return {
        "label": _plotly_text(section.axis),
        "is_logarithmic": is_logarithmic([point.x for point in points]),
        "line": axis_line(points),
        "points": [
            {
                "name": _plotly_text(point.label),
                "group": names.index(point.group),
                "x": point.x,
                "loss": point.loss,
                "is_diverged": point.is_diverged,
            }
            for point in points
        ],
    }


def _columns(curve: Curve) -> dict[str, list[float | None]]:
    return {
        "steps": _numbers(curve.steps),
        "tokens": _numbers(curve.tokens),
        "seconds": _numbers(curve.seconds),
        "values": _numbers(curve.values),
    }


def _numbers(values: "Array") -> list[float | None]:
    """Numbers as JSON has them: short, whole where they are, and null for a gap."""
    return [_short(value) if np.isfinite(value) else None for value in values.tolist()]


def _short(value: float) -> float:
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")


def _plotly_text(text: str) -> str:
    """A name that plotly shows as it is: it takes a few tags for markup."""
    return visible(text).replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
