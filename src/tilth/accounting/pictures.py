"""Charts of the FLOPs of a forward pass by component, over model sizes and context lengths.

Written as an offline page (`.html`, by plotly) or an image (`.png`, by matplotlib). Both need the
extra `report`.

>>> config = GPT2_SHAPES["gpt2-xl"]
>>> across_sizes("gpt2-xl", config)["gpt2-xl"]["feed-forward"]
3019898880000
>>> sum(across_contexts(config)["16k"].values())
149522795724800
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilth.accounting.flops import flops_by_component
from tilth.config import GPT2_SHAPES
from tilth.config.model import ModelConfig
from tilth.errors import import_extra
from tilth.files import check_target, write_atomically

CONTEXTS = [1024 * 2**power for power in range(8)]  # 1k to 128k
# Safe for color blindness and in greyscale: the palette of Okabe and Ito.
COLOURS = {
    "attention projections": "#56b4e9",
    "attention scores and values": "#d55e00",
    "feed-forward": "#009e73",
    "head": "#f0e442",
}
Shares = Mapping[str, dict[str, int]]


def across_sizes(name: str, config: ModelConfig) -> dict[str, dict[str, int]]:
    """Return the FLOPs by component of the GPT-2 sizes and of one more model."""
    shapes = {**GPT2_SHAPES, name: config}
    return {each: flops_by_component(shape) for each, shape in shapes.items()}


def across_contexts(config: ModelConfig) -> dict[str, dict[str, int]]:
    """Return the FLOPs by component of one sequence of 1k to 128k tokens."""
    return {
        f"{length // 1024}k": flops_by_component(replace(config, context_length=length))
        for length in CONTEXTS
    }


def save_pictures(
    paths: Sequence[Path], panels: Mapping[str, Shares], *, overwrite: bool = False
) -> None:
    """Write the tables, by title, as pages or images; the suffix of a path decides."""
    writers = {".html": _page, ".png": _png}
    for path in paths:  # before the first is written
        if path.suffix not in writers:
            raise ValueError(f"{path} is neither a page nor an image; end it in .html or .png.")
        check_target(path, overwrite=overwrite)
    for path in paths:
        write_atomically(path, writers[path.suffix](panels), overwrite=overwrite)


def _percent(rows: Shares, component: str) -> list[float]:
    return [100 * flops[component] / sum(flops.values()) for flops in rows.values()]


def _page(panels: Mapping[str, Shares]) -> bytes:
    graph_objects = import_extra("plotly.graph_objects", "A picture")
    subplots = import_extra("plotly.subplots", "A picture")
    figure = subplots.make_subplots(
        cols=len(panels), subplot_titles=list(panels), shared_yaxes=True
    )
    for column, rows in enumerate(panels.values(), 1):
        for component, colour in COLOURS.items():
            bar = graph_objects.Bar(
                x=list(rows),
                y=_percent(rows, component),
                name=component,
                legendgroup=component,
                showlegend=column == 1,
                marker_color=colour,
                customdata=[f"{flops[component]:,}" for flops in rows.values()],
                hovertemplate="%{x}: %{y:.1f}%, %{customdata} FLOPs",
            )
            figure.add_trace(bar, row=1, col=column)
    figure.update_layout(barmode="stack", title="Where the FLOPs go", template="plotly_white")
    figure.update_yaxes(title_text="share of product FLOPs (%)", range=[0, 100], col=1)
    # With the script inside, the page works offline.
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page.encode()


def _png(panels: Mapping[str, Shares]) -> bytes:
    figure, all_axes = new_figure(11, 4.8, "A picture", ncols=len(panels), sharey=True)
    for axes, (title, rows) in zip(all_axes, panels.items(), strict=True):
        bottom = [0.0] * len(rows)
        for component, colour in COLOURS.items():
            heights = _percent(rows, component)
            bars = axes.bar(list(rows), heights, bottom=bottom, color=colour, label=component)
            labels = [f"{height:.0f}" if height >= 5 else "" for height in heights]
            axes.bar_label(bars, labels, label_type="center", fontsize=8)
            bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
        axes.set_title(title)
    all_axes[0].set_ylabel("share of product FLOPs (%)")
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(COLOURS), frameon=False)
    return png_bytes(figure)


def new_figure(width: float, height: float, what: str, **subplots: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return a matplotlib figure and its axes for `what`; pyplot would keep every figure."""
    figures = import_extra("matplotlib.figure", what)
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**subplots)


def png_bytes(figure: Any) -> bytes:  # noqa: ANN401
    """Return the bytes of a PNG file; removes the top and right spines."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    with io.BytesIO() as buffer:
        figure.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()
