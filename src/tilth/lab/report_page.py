"""A report as one page that needs nothing else: no network, no other file, no server.

What enters: a report. What leaves: HTML, with plotly's script, the numbers and the style in it.
What comes from runs (names, values, generated text) is escaped wherever it stands, and the page's
own policy forbids it to load anything.
"""

import json
from datetime import UTC, datetime
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from tilth import __version__
from tilth.lab.folder import Chart, Table
from tilth.lab.report_charts import AXIS_CAPTION, axis_title, chart_data, windows_of
from tilth.lab.report_content import (
    Report,
    Section,
    accounting_table,
    config_text,
    is_numeric,
    runs_table,
    samples_of,
    shown_columns,
    versions_table,
    visible,
)

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
NO_SCRIPT = (
    "<noscript><p>The charts need JavaScript; the Markdown beside this page has them as pictures."
    "</p></noscript>"
)
WIDE_CHARACTERS = 40  # from which on a cell may break its line


def page_of(report: Report) -> str:
    """The whole page."""
    here = Path(__file__)
    numbers = [chart_data(section) for section in report.sections]
    sections = [
        _section(section, index, data, has_heading=section.asks != report.title)
        for index, (section, data) in enumerate(zip(report.sections, numbers, strict=True))
    ]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_text(report.title)}</title>
<link rel="icon" href="data:,">
<style>
{here.with_suffix(".css").read_text("utf-8")}</style>
</head>
<body>
<h1>{_text(report.title)}</h1>
{NO_SCRIPT if any("<figure" in section for section in sections) else ""}
{"".join(sections)}
<footer>Made by tilth {_text(__version__)}, {made}.</footer>
<script>{_plotly()}</script>
<script type="application/json" id="numbers">{_json(numbers)}</script>
<script>
{here.with_suffix(".js").read_text("utf-8")}</script>
</body>
</html>
"""


def _plotly() -> str:
    try:
        script: str = import_module("plotly.offline").get_plotlyjs()
    except ImportError:
        raise ValueError('A report needs an extra: pip install "tilth[report]".') from None
    return script


def _json(value: object) -> str:
    # A browser ends a script at the first `</script`, and knows no other escape there than JSON's.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _text(value: str | int | float | None) -> str:
    return escape(visible(value))


def _section(section: Section, index: int, data: dict[str, Any], *, has_heading: bool) -> str:
    heading = f"<h2>{_text(section.asks)}</h2>" if has_heading else ""
    notes = "".join(f"<li>{_text(note)}</li>" for note in section.notes)
    colours = [section.colours[entry.group] for entry in section.entries]
    parts = [
        heading,
        f'<p class="answer">{_text(section.answer)}</p>',
        f'<ul class="notes">{notes}</ul>' if notes else "",
        _axis(section, index) if data["axis"] is not None else "",
        *(_lines(chart, index, number) for number, chart in enumerate(section.charts)),
        _curves(section, index, data) if data["runs"] else "",
        *(_table(table) for table in section.tables),
        _table(runs_table(section), colours) if section.entries else "",
        _samples(section),
        _table(accounting_table(section)) if section.runs else "",
        _repeating(section),
    ]
    return "<section>" + "\n".join(part for part in parts if part) + "</section>"


# --- charts ---------------------------------------------------------------------------------------


def _axis(section: Section, index: int) -> str:
    label = _text(axis_title(section))
    return (
        f'<figure class="axis" data-section="{index}"><h3>{label}</h3>'
        f'<div class="chart" role="img" aria-label="{label}"></div>'
        f"<figcaption>{AXIS_CAPTION}</figcaption></figure>"
    )


def _lines(chart: Chart, index: int, number: int) -> str:
    label = _text(chart.title)
    caption = f"<figcaption>{_text(chart.text)}</figcaption>" if chart.text else ""
    return (
        f'<figure class="lines" data-section="{index}" data-chart="{number}"><h3>{label}</h3>'
        f'<div class="chart" role="img" aria-label="{label}"></div>{caption}</figure>'
    )


def _curves(section: Section, index: int, data: dict[str, Any]) -> str:
    windows, window = windows_of(section)
    steps = {str(each): "none" if each == 1 else f"{each:,} steps" for each in windows}
    places = {"steps": "step", "seconds": "time", "tokens": "tokens"}
    measures = {"valid_loss": "loss", "valid_bits": "bits per byte"}
    controls = [
        _choice("by", "x", places, "steps"),
        _choice("show", "y", measures, "valid_loss"),
        _switches("of", {"train": ("train", True), "valid": ("validation", True)}),
        _switches("log axis", {"logx": ("x", False), "logy": ("y", False)}),
        _choice("smoothing of train", "window", steps, str(window)) if len(windows) > 1 else "",
    ]
    if len(windows) == 1:
        controls.append('<input type="hidden" name="window" value="1">')
    caption = "Drag to zoom, double-click for all of it, click on a name to hide it."
    if data["spreads"]["valid_loss"]:
        caption += " Where there are several seeds, the thick line is their mean on validation, "
        caption += "and the band reaches from the lowest to the highest."
    if data["shown_losses"] is not None:
        caption += f" Losses above {data['shown_losses'][1]:.3g} are outside until then."
    return (
        f'<figure class="curves" data-section="{index}"><h3>Learning curves</h3>'
        f'<form class="controls" autocomplete="off">{"".join(controls)}</form>'
        '<div class="chart" role="img" aria-label="Learning curves"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _choice(legend: str, name: str, values: dict[str, str], chosen: str) -> str:
    inputs = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"'
        f"{' checked' if value == chosen else ''}>{said}</label>"
        for value, said in values.items()
    )
    return f"<fieldset><legend>{legend}</legend>{inputs}</fieldset>"


def _switches(legend: str, values: dict[str, tuple[str, bool]]) -> str:
    inputs = "".join(
        f'<label><input type="checkbox" name="{name}"{" checked" if is_on else ""}>{said}</label>'
        for name, (said, is_on) in values.items()
    )
    return f"<fieldset><legend>{legend}</legend>{inputs}</fieldset>"


# --- tables and texts -----------------------------------------------------------------------------


def _table(table: Table, colours: list[str] | None = None) -> str:
    columns = shown_columns(table)
    kinds = [
        ' class="number"'
        if is_numeric(column)
        else ' class="wide"'
        if max(map(len, column), default=0) > WIDE_CHARACTERS
        else ""
        for column in columns
    ]
    head = "".join(
        f"<th{kind}>{_text(name)}</th>" for name, kind in zip(table.columns, kinds, strict=True)
    )
    rows = []
    for number, row in enumerate(zip(*columns, strict=True)):
        shown = [escape(cell) for cell in row]
        if colours:
            shown[0] = _swatch(colours[number]) + shown[0]
        tds = (f"<td{kind}>{cell}</td>" for cell, kind in zip(shown, kinds, strict=True))
        rows.append(f"<tr>{''.join(tds)}</tr>")
    return (
        f"<h3>{_text(table.title)}</h3>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _swatch(colour: str) -> str:
    return f'<span class="swatch" style="background:{colour}"></span>'


def _samples(section: Section) -> str:
    cards = []
    for sample in samples_of(section):
        earlier = "".join(
            f"<small>step {step:,}</small><blockquote>{_text(text)}</blockquote>"
            for step, text in sample.earlier
        )
        more = f"<details><summary>Earlier samples</summary>{earlier}</details>" if earlier else ""
        cards.append(
            f'<article class="sample"><h4>{_swatch(sample.colour)}{_text(sample.label)}</h4>'
            f"<small>{_text(sample.made_by)}</small>"
            f"<blockquote>{_text(sample.text)}</blockquote>{more}</article>"
        )
    return f'<h3>Samples</h3><div class="samples">{"".join(cards)}</div>' if cards else ""


def _repeating(section: Section) -> str:
    commands = "\n".join(section.commands)
    configs = "".join(
        f"<details><summary>{_text(entry.label)}</summary>"
        f"<pre>{_text(config_text(entry.run))}</pre></details>"
        for entry in section.entries
        if entry.run is not None
    )
    if configs:
        configs = f"<details><summary>The config of each run</summary>{configs}</details>"
    shown = f"<pre>{_text(commands)}</pre>" if commands else ""
    versions = _table(versions_table(section)) if section.runs else ""
    return f"<h3>To repeat it</h3>{shown}{configs}{versions}" if shown or versions else ""
