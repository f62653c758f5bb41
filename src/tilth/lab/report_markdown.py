"""A report as Markdown, for a page of documentation or a pull request; its charts are pictures.

What enters: a report and the names of its pictures. What leaves: text. What comes from runs is
escaped: a name cannot end its table, nor a sample its quote.
"""

import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from tilth.lab.folder import Cell, Table
from tilth.lab.report_charts import AXIS_CAPTION, axis_title
from tilth.lab.report_content import (
    Report,
    Sample,
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
from tilth.lab.report_findings import shown_value
from tilth.lab.report_pictures import curves_caption
from tilth.recipes.config import differences

LINE_START = re.compile(r"^(\d*)([-+=.)])")  # what Markdown takes for a list, a rule or a heading


def markdown_of(report: Report, pictures: Sequence[Mapping[str, str]]) -> str:
    """The whole text; `pictures` are the file names of each section's, by "axis", "chart-1" ..."""
    blocks = [f"# {_text(report.title)}"]
    for section, names in zip(report.sections, pictures, strict=True):
        level = "##"
        if section.asks != report.title:
            blocks.append(f"## {_text(section.asks)}")
            level = "###"
        blocks += _section(section, names, level)
    return "\n\n".join(blocks) + "\n"


def _section(section: Section, pictures: Mapping[str, str], level: str) -> list[str]:
    blocks = [f"**{_text(section.answer)}**"]
    if section.notes:
        blocks.append("\n".join(f"- {_text(note)}" for note in section.notes))
    charts = [
        ("axis", axis_title(section), AXIS_CAPTION),
        *((f"chart-{n}", c.title, c.text) for n, c in enumerate(section.charts, start=1)),
        ("curves", "Learning curves", curves_caption(section)),
    ]
    for kind, title, caption in charts:
        if kind in pictures:
            blocks += [f"{level} {_text(title)}", f"![{_text(title)}]({quote(pictures[kind])})"]
            blocks += [_text(caption)] if caption else []
    tables = [*section.tables, *([runs_table(section)] if section.entries else [])]
    for table in tables:
        blocks += [f"{level} {_text(table.title)}", _table(table)]
    blocks += _samples(section, level)
    if section.runs:
        costs = accounting_table(section)
        blocks += [f"{level} {costs.title}", _table(costs)]
    if section.commands or section.runs:
        blocks.append(f"{level} To repeat it")
    if section.commands:
        blocks.append(_fenced("\n".join(section.commands), "sh"))
    if section.runs:
        blocks += [*_configs(section), "Versions:", _table(versions_table(section))]
    return blocks


def _samples(section: Section, level: str) -> list[str]:
    """A sample of each group; the page has those of the other seeds, and earlier ones."""
    first: dict[str, Sample] = {}
    for sample in samples_of(section):
        first.setdefault(sample.group, sample)
    blocks = [f"{level} Samples"] if first else []
    for sample in first.values():
        blocks += [f"**{_text(sample.label)}** ({_text(sample.made_by)}):", _quoted(sample.text)]
    return blocks


def _configs(section: Section) -> list[str]:
    """The config of the first run, and what each other has instead: enough to repeat them all."""
    (label, first), *others = [(e.label, e.run) for e in section.entries if e.run is not None]
    blocks = [f"The config of {_text(label)}:", _fenced(config_text(first), "toml")]
    lines = []
    for label, run in others:
        changed = differences(first.config, run.config)
        values = (f"{name} = {shown_value(name, new)}" for name, (_, new) in changed.items())
        lines.append(_text(f"{label}: {', '.join(values) or 'the same'}"))
    if lines:
        blocks += ["The others have instead:", "\n".join(f"- {line}" for line in lines)]
    return blocks


def _table(table: Table) -> str:
    columns = shown_columns(table)
    rows = [table.columns, *zip(*columns, strict=True)]
    lines = [f"| {' | '.join(_text(cell) for cell in row)} |" for row in rows]
    lines.insert(1, f"|{'|'.join('---:' if is_numeric(column) else '---' for column in columns)}|")
    return "\n".join(lines)


def _text(value: Cell) -> str:
    """A text in which Markdown and HTML find nothing to obey."""
    line = " ".join(visible(value).split())
    return re.sub(r"([\\`*_\[\]<>|~#$&])", r"\\\1", line)


def _quoted(text: str) -> str:
    """A quote that keeps its lines, none of which begins a list, a heading or a rule."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", visible(text).strip()):
        lines = [LINE_START.sub(r"\1\\\2", _text(line)) for line in paragraph.split("\n")]
        paragraphs.append("\\\n> ".join(lines))
    return "> " + "\n>\n> ".join(paragraphs)


def _fenced(text: str, language: str) -> str:
    """A block that a fence within the text does not end."""
    shown = visible(text).rstrip("\n")
    longest = max((len(ticks) for ticks in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"
