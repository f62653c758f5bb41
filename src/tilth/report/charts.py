"""Chart data of a section, as plain values for the script of a page and for matplotlib.

The data are the downsampled curves of each run at several smoothings, and the spread of each group
of seeds. For a lab, they are also the final bits per byte along its axis, and its charts.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import Any

import numpy as np

from tilth.report.comparing import grouped
from tilth.report.curves import Spread, downsampled, smoothed, spread_of
from tilth.report.lab_file import Chart, Scale
from tilth.report.reading import COLOURS, Section
from tilth.report.tables import cell_text

Style = dict[str, str]
"""The colour and the dash of a line."""
WINDOWS = (1, 10, 50, 200, 1000)  # smoothing windows, in steps
DASHES = ("solid", "dash", "dot")  # for repeated colours
LEAST_GAP = 0.095  # between ticks, as a share of the axis: closer labels would overlap
MAX_MARKED = 60  # markers of a line; more would overlap
AXIS_CAPTION = "Dots: runs. Line: mean over seeds. Crosses: diverged runs, drawn above all others."
DIGITS = 6  # significant digits of a number in a page; a screen shows no more


@dataclass(frozen=True)
class AxisPoint:
    """The final result of a trial, on the axis of its lab."""

    name: str
    group: str
    x: float
    bits: float
    """Per byte, on validation."""
    is_diverged: bool
    """Then `bits` is the position of the marker, above all others."""


def axis_points(section: Section) -> list[AxisPoint]:
    """Return the results of all ended runs that have a value on the axis, sorted by it.

    Bits per byte, because losses per token are not comparable between tokenizers. Empty if groups
    share an x value: the line would average two experiments.
    """
    placed = [(entry, entry.x) for entry in section.entries if entry.x is not None]
    good = [e.bits_per_byte for e, _ in placed if e.is_comparable and e.bits_per_byte is not None]
    top = max(good) + 0.1 * ((max(good) - min(good)) or 1.0) if good else 1.0
    points = []
    for entry, x in placed:
        is_diverged = entry.state == "diverged"
        bits = top if is_diverged else entry.bits_per_byte
        if bits is not None and entry.state not in ("running", "failed"):
            points.append(AxisPoint(entry.label, entry.group, x, bits, is_diverged))
    if len({(point.x, point.group) for point in points}) > len({point.x for point in points}):
        return []
    return sorted(points, key=lambda point: point.x)


def axis_line(points: list[AxisPoint]) -> tuple[list[float], list[float]]:
    """Return the mean at each x value, without diverged runs."""
    at = grouped((point for point in points if not point.is_diverged), "x")
    return list(at), [sum(point.bits for point in group) / len(group) for group in at.values()]


def axis_title(section: Section) -> str:
    """Return the title of the chart along the axis of the lab."""
    return f"Final bits per byte by {section.axis or 'trial'}"


def line_styles(section: Section, chart: Chart) -> list[Style]:
    """Return the style of each line: that of its group, if every line is named after one."""
    of_groups = group_styles(section)
    if all(line.name in of_groups for line in chart.lines):
        return [of_groups[line.name] for line in chart.lines]
    return _styles(COLOURS[index % len(COLOURS)] for index in range(len(chart.lines)))


def group_styles(section: Section) -> dict[str, Style]:
    """Return the style of each group."""
    colours = section.colours
    return dict(zip(colours, _styles(colours.values()), strict=True))


def _styles(colours: Iterable[str]) -> list[Style]:
    """Return each colour, with the next dash if it is repeated."""
    dashes: defaultdict[str, Iterator[str]] = defaultdict(lambda: cycle(DASHES))
    return [{"colour": colour, "dash": next(dashes[colour])} for colour in colours]


def scale_of(values: list[float]) -> Scale:
    """Return a log scale for positive values that span more than a decade, else a linear one."""
    is_log = bool(values) and min(values) > 0 and max(values) > 10 * min(values)
    return "log" if is_log else "linear"


def ticks_of(values: Iterable[float], *, are_chosen: bool) -> list[float]:
    """Return the ticks of a log axis; empty if it is long enough for powers of ten.

    Chosen values (batch sizes 1, 2, 4) are ticks themselves, if their labels do not overlap.
    """
    places = sorted(set(values))
    if len(places) < 2:
        return []
    logs = [math.log10(place) for place in places]
    decades = logs[-1] - logs[0]
    if are_chosen and min(b - a for a, b in pairwise(logs)) >= LEAST_GAP * decades:
        return places
    if decades >= 3:
        return []
    digits = (1, 2, 5) if decades >= 1 else (1, 2, 3, 4, 6, 8)
    powers = range(math.floor(logs[0]), math.floor(logs[-1]) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in digits]
    ticks = [tick for tick in ticks if places[0] <= tick <= places[-1]]
    return ticks if len(ticks) >= 3 else []


def named_ticks(
    values: Iterable[float], scale: Scale, *, are_chosen: bool
) -> dict[str, list[Any]] | None:
    """Return the ticks of an axis and their labels; None for the default ticks."""
    ticks = ticks_of(values, are_chosen=are_chosen) if scale == "log" else []
    return {"tickvals": ticks, "ticktext": [cell_text(tick) for tick in ticks]} if ticks else None


def windows_of(section: Section) -> tuple[list[int], int]:
    """Return the smoothing windows for runs of this length, and the default one."""
    steps = max((run.config.steps for run in section.runs), default=1)
    windows = [window for window in WINDOWS if window == 1 or window <= steps // 5]
    return windows, max(window for window in windows if window == 1 or window <= steps // 50)


def shown_losses(section: Section) -> tuple[float, float] | None:
    """Return the y range that excludes diverged losses; None if nothing diverged."""
    curves = [entry.curves.train_loss for entry in section.entries]
    finite = [values for c in curves if len(values := c.values[np.isfinite(c.values)])]
    if not finite:
        return None
    firsts = [float(values[0]) for values in finite]
    # An untrained model has a loss of about log(vocab_size), and these differ by less than a factor
    # of two. A higher first loss has diverged before the first step.
    # A damaged log may have losses below 0.
    first = max((each for each in firsts if each <= 2 * min(firsts)), default=max(firsts))
    if max(float(values.max()) for values in finite) <= 2 * first:
        return None
    lowest = min(float(values.min()) for values in finite)
    height = (first - lowest) or 1.0
    return lowest - 0.05 * height, first + 0.1 * height


def unit_of_time(section: Section) -> tuple[str, int]:
    """Return the time unit for the longest run, and its seconds."""
    seconds = [entry.curves.train_loss.seconds for entry in section.entries]
    longest = float(np.concatenate([[0.0], *seconds]).max())
    if longest > 2 * 3600:
        return "hours", 3600
    return ("minutes", 60) if longest > 3 * 60 else ("seconds", 1)


def spreads_of(section: Section, name: str) -> dict[str, Spread]:
    """Return the spread of a curve, by name, for each group with several seeds."""
    spreads = {}
    for group, entries in grouped(section.entries).items():
        curves = [getattr(entry.curves, name) for entry in entries if entry.run]
        if len(curves) > 1:
            spreads[group] = spread_of(curves)
    return spreads


def curves_caption(section: Section) -> str:
    """Return the caption of the PNG of the curves."""
    _, window = windows_of(section)
    mean = f" (mean of {window} steps)" if window > 1 else ""
    bands = "; bands span the seeds" if spreads_of(section, "valid_loss") else ""
    losses = shown_losses(section)
    outside = f" Losses above {losses[1]:.3g} are cut off." if losses is not None else ""
    return f"Thin: training loss{mean}. Thick: validation loss{bands}.{outside}"


def chart_data(section: Section) -> dict[str, Any]:
    """Return the data that the script of a page draws."""
    groups = grouped(section.entries)
    names, styles = list(groups), group_styles(section)
    windows, _ = windows_of(section)
    return {
        "groups": [
            {
                "name": _plotly_text(f"{name} ({len(group)} seeds)" if len(group) > 1 else name),
                **styles[name],
            }
            for name, group in groups.items()
        ],
        "runs": [
            {
                "name": _plotly_text(entry.label),
                "group": names.index(entry.group),
                "train_loss": {
                    str(each): _plain(downsampled(smoothed(entry.curves.train_loss, each)))
                    for each in windows
                },
                "valid_loss": _plain(downsampled(entry.curves.valid_loss)),
                "valid_bits": _plain(downsampled(entry.curves.valid_bits)),
            }
            for entry in section.started
        ],
        "spreads": {
            name: [
                {"group": names.index(group), **_plain(spread)}
                for group, spread in spreads_of(section, name).items()
            ]
            for name in ("valid_loss", "valid_bits")
        },
        "time": unit_of_time(section),
        "shown_losses": shown_losses(section),
        "axis": _axis_data(section, names),
        "charts": [_lines_data(section, chart) for chart in section.charts],
    }


def _axis_data(section: Section, names: list[str]) -> dict[str, Any] | None:
    points = axis_points(section)
    if not points:
        return None
    places = [point.x for point in points]
    return {
        "label": _plotly_text(section.axis),
        "scale": scale_of(places),
        "ticks": named_ticks(places, scale_of(places), are_chosen=True),
        "line": axis_line(points),
        "points": [
            {**vars(point), "name": _plotly_text(point.name), "group": names.index(point.group)}
            for point in points
        ],
    }


def _lines_data(section: Section, chart: Chart) -> dict[str, Any]:
    xs, ys = ([point[i] for line in chart.lines for point in line.points] for i in (0, 1))
    return {
        "x_label": _plotly_text(chart.x_label),
        "y_label": _plotly_text(chart.y_label),
        "x_scale": chart.x_scale,
        "y_scale": chart.y_scale,
        "x_ticks": named_ticks(xs, chart.x_scale, are_chosen=True),
        "y_ticks": named_ticks(ys, chart.y_scale, are_chosen=False),
        "lines": [
            {
                "name": _plotly_text(line.name),
                **style,
                "is_marked": len(line.points) <= MAX_MARKED,
                "x": [_short(x) for x, _ in line.points],
                "y": [_short(y) for _, y in line.points],
            }
            for line, style in zip(chart.lines, line_styles(section, chart), strict=True)
        ],
    }


def _plain(value: Any) -> Any:  # noqa: ANN401, a curve, a spread or an array
    """Plain values for JSON: numbers of six digits, integers where they are whole, null for NaN."""
    if isinstance(value, np.ndarray):
        return [_short(number) if np.isfinite(number) else None for number in value.tolist()]
    return {name: _plain(each) for name, each in vars(value).items()}


def _short(value: float) -> float:
    is_count = abs(value) < 1e15 and value == int(value)
    return int(value) if is_count else float(f"{value:.{DIGITS}g}")


def _plotly_text(text: str) -> str:
    """Escape a name for plotly, which interprets some HTML tags."""
    return cell_text(text).replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
