"""The charts of a section as PNG, drawn by matplotlib."""

from typing import Any

from tilth.accounting.pictures import new_figure, png_bytes
from tilth.errors import import_extra
from tilth.report import charts
from tilth.report.comparing import grouped
from tilth.report.curves import downsampled, smoothed
from tilth.report.lab_file import Chart, Scale
from tilth.report.reading import Section
from tilth.report.tables import cell_text

DASHES = {"solid": "-", "dash": "--", "dot": ":"}  # from plotly to matplotlib
MAX_NAMES = 24  # in a legend; more would leave no space for the curves


def curves_png(section: Section) -> bytes | None:
    """Training (thin) and validation (thick) losses, by step and by time; None without steps."""
    entries = section.started
    if not entries:
        return None
    figure, panels = new_figure(11, 4.6, "A report", ncols=2, sharey=True)
    _, window = charts.windows_of(section)
    spreads = charts.spreads_of(section, "valid_loss")
    unit, unit_seconds = charts.unit_of_time(section)
    styles = {group: _style(**style) for group, style in charts.group_styles(section).items()}
    for axes, place, scale in zip(panels, ("steps", "seconds"), (1, unit_seconds), strict=True):
        for entry in entries:
            style = styles[entry.group]
            train = downsampled(smoothed(entry.curves.train_loss, window))
            axes.plot(getattr(train, place) / scale, train.values, lw=0.7, alpha=0.5, **style)
            valid = entry.curves.valid_loss
            thick = {"lw": 0.7, "alpha": 0.6} if entry.group in spreads else {"lw": 1.8}
            x = getattr(valid, place) / scale
            axes.plot(x, valid.values, marker=".", ms=4, **thick, **style)
        for group, spread in spreads.items():
            x = getattr(spread.mean, place) / scale
            axes.plot(x, spread.mean.values, lw=2, **styles[group])
            colour = styles[group]["color"]
            axes.fill_between(x, spread.low, spread.high, color=colour, alpha=0.2, lw=0)
    panels[0].set(xlabel="step", ylabel="loss (nats per token)")
    panels[1].set_xlabel(f"training time ({unit})")
    if (losses := charts.shown_losses(section)) is not None:
        panels[0].set_ylim(losses)
    groups = list(grouped(entries))
    _legend(figure, groups, [styles[group] for group in groups])
    return _png(figure)


def axis_png(section: Section) -> bytes | None:
    """Final bits per byte along the axis of the lab; None without an axis."""
    points = charts.axis_points(section)
    if not points:
        return None
    figure, axes = new_figure(7, 4, "A report")
    axes.plot(*charts.axis_line(points), color="0.5", lw=1, zorder=1)
    for point in points:
        colour, marker = section.colours[point.group], "x" if point.is_diverged else "o"
        axes.scatter([point.x], [point.bits], color=colour, marker=marker, s=45, zorder=2)
        if point.is_diverged:
            place = {"xytext": (0, -16), "textcoords": "offset points", "ha": "center"}
            axes.annotate("diverged", (point.x, point.bits), fontsize=8, **place)
    xs = [point.x for point in points]
    _set_axis(axes, "x", section.axis, charts.scale_of(xs), xs)
    axes.set_ylabel("validation bits per byte")
    return _png(figure)


def chart_png(section: Section, chart: Chart) -> bytes:
    """Return a chart of the lab file."""
    figure, axes = new_figure(7, 4, "A report")
    styles = [_style(**style) for style in charts.line_styles(section, chart)]
    for line, style in zip(chart.lines, styles, strict=True):
        marker = "o" if len(line.points) <= charts.MAX_MARKED else ""
        x, y = zip(*line.points, strict=True) if line.points else ((), ())
        axes.plot(x, y, lw=1.6, marker=marker, ms=4.5, **style)
    xs, ys = ([point[i] for line in chart.lines for point in line.points] for i in (0, 1))
    _set_axis(axes, "x", chart.x_label, chart.x_scale, xs)
    _set_axis(axes, "y", chart.y_label, chart.y_scale, ys)
    if len(chart.lines) > 1:
        _legend(figure, [line.name for line in chart.lines], styles)
    return _png(figure)


def _set_axis(axes: Any, name: str, label: str, scale: Scale, values: list[float]) -> None:  # noqa: ANN401
    """Set label, scale and ticks of an axis; values on x were chosen, on y measured."""
    axes.set(**{f"{name}label": _plain(label), f"{name}scale": scale})
    if ticks := charts.named_ticks(values, scale, are_chosen=name == "x"):
        axis = getattr(axes, f"{name}axis")
        axis.set_ticks(ticks["tickvals"], labels=ticks["ticktext"])
        axis.set_ticks([], minor=True)


def _style(colour: str, dash: str) -> dict[str, str]:
    return {"color": colour, "ls": DASHES[dash]}


def _legend(figure: Any, names: list[str], styles: list[dict[str, str]]) -> None:  # noqa: ANN401
    line = import_extra("matplotlib.lines", "A report").Line2D
    handles = [line([], [], lw=2, **style) for style in styles[:MAX_NAMES]]
    shown = [_plain(name) for name in names[:MAX_NAMES]]
    in_a_row = int(11 * figure.get_figwidth()) // (6 + max(map(len, shown)))
    columns = max(1, min(len(shown), in_a_row))
    figure.legend(handles, shown, loc="outside lower center", ncols=columns, frameon=False)


def _plain(text: str) -> str:
    """Escape dollars, between which matplotlib reads mathematics."""
    return cell_text(text).replace("$", r"\$").replace("\n", " ")


def _png(figure: Any) -> bytes:  # noqa: ANN401
    for axes in figure.axes:
        axes.grid(color="0.9", lw=0.6)
        axes.set_axisbelow(True)
    return png_bytes(figure)
