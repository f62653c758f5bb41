"""The charts of a section as PNG, by matplotlib, for Markdown and for paper.

What enters: a section. What leaves: the bytes of a picture of its learning curves, by step and by
time, and of one of its final losses, if it has an axis.
"""

import io
from importlib import import_module
from typing import Any

from tilth.lab.report_charts import (
    axis_line,
    axis_points,
    is_logarithmic,
    shown_losses,
    spreads_of,
    unit_of_time,
    windows_of,
)
from tilth.lab.report_content import Section, visible
from tilth.lab.report_curves import smoothed, thinned
from tilth.lab.report_findings import groups_of

MAX_NAMES = 24  # in a legend: more leave no room for the curves


def curves_png(section: Section) -> bytes | None:
    """Train (thin) and validation (thick) losses, by step and by time; None without any."""
    entries = [entry for entry in section.entries if entry.curves is not None]
    if not entries:
        return None
    figure = _figure(11, 4.6)
    panels = figure.subplots(1, 2, sharey=True)
    _, window = windows_of(section)
    spreads = spreads_of(section, "valid_loss")
    unit, unit_seconds = unit_of_time(section)
    for axes, place, scale in zip(panels, ("steps", "seconds"), (1, unit_seconds), strict=True):
        for entry in entries:
            assert entry.curves is not None
            colour = section.colours[entry.group]
            train = thinned(smoothed(entry.curves.train_loss, window))
            axes.plot(getattr(train, place) / scale, train.values, color=colour, lw=0.7, alpha=0.5)
            valid = entry.curves.valid_loss
            thick = {"lw": 0.7, "alpha": 0.6} if entry.group in spreads else {"lw": 1.8}
            axes.plot(
                getattr(valid, place) / scale, valid.values, ".-", ms=4, color=colour, **thick
            )
        for group, spread in spreads.items():
            colour, x = section.colours[group], getattr(spread.mean, place) / scale
            axes.plot(x, spread.mean.values, color=colour, lw=2)
            axes.fill_between(x, spread.low, spread.high, color=colour, alpha=0.2, lw=0)
    panels[0].set_xlabel("step")
    panels[1].set_xlabel(f"time of training, {unit}")
    panels[0].set_ylabel("loss, nats per token")
    if (losses := shown_losses(section)) is not None:
        panels[0].set_ylim(losses)
    _legend(figure, section)
    return _png(figure)


def axis_png(section: Section) -> bytes | None:
    """The final validation loss along the lab's axis; None without one."""
    points = axis_points(section)
    if not points:
        return None
    figure = _figure(7, 4)
    axes = figure.subplots()
    axes.plot(*axis_line(points), color="0.5", lw=1, zorder=1)
    for point in points:
        colour, marker = section.colours[point.group], "x" if point.is_diverged else "o"
        axes.scatter([point.x], [point.loss], color=colour, marker=marker, s=45, zorder=2)
        if point.is_diverged:
            place = {"xytext": (0, -16), "textcoords": "offset points", "ha": "center"}
            axes.annotate("diverged", (point.x, point.loss), fontsize=8, **place)
    if is_logarithmic([point.x for point in points]):
        axes.set_xscale("log")
    axes.set_xlabel(_plain(section.axis))
    axes.set_ylabel("final validation loss")
    return _png(figure)


def curves_caption(section: Section) -> str:
    """What is to be seen in the picture of the curves."""
    _, window = windows_of(section)
    mean = f", the mean of {window} steps" if window > 1 else ""
    bands = "; bands reach over the seeds" if spreads_of(section, "valid_loss") else ""
    return f"Thin: the loss in training{mean}. Thick: on validation{bands}."


def _figure(width: float, height: float) -> Any:  # noqa: ANN401, matplotlib is not always there
    try:
        # Without pyplot, which would keep every figure.
        figure = import_module("matplotlib.figure").Figure
    except ImportError:
        raise ValueError('A report needs an extra: pip install "tilth[report]".') from None
    return figure(figsize=(width, height), layout="constrained")


def _legend(figure: Any, section: Section) -> None:  # noqa: ANN401
    line = import_module("matplotlib.lines").Line2D
    begun = [entry for entry in section.entries if entry.curves is not None]
    names = list(groups_of(begun))[:MAX_NAMES]
    handles = [line([], [], color=section.colours[name], lw=2) for name in names]
    shown = [_plain(name) for name in names]
    columns = max(1, min(len(names), 120 // (6 + max(map(len, shown)))))
    figure.legend(handles, shown, loc="outside lower center", ncols=columns, frameon=False)


def _plain(text: str) -> str:
    """A text that matplotlib takes as it is: it reads mathematics between two dollars."""
    return visible(text).replace("$", r"\$").replace("\n", " ")


def _png(figure: Any) -> bytes:  # noqa: ANN401
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9", lw=0.6)
        axes.set_axisbelow(True)
    with io.BytesIO() as buffer:
        figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()
