"""A report as Markdown, for a pull request or a paper; its charts are pictures beside it.

What enters: a report and the names of its pictures. What leaves: text. What comes from runs is
escaped: a name cannot end its table, nor a sample its block.
"""

import re
from collections.abc import Mapping, Sequence

from tilth.lab.folder import Cell, Table
from tilth.lab.report_content import (
    Report,
    Section,
    accounting_table,
    config_text,
    runs_table,
    samples_of,
    versions_table,
    visible,
)
from tilth.lab.report_findings import shown_value
from tilth.lab.report_pictures import curves_caption
from tilth.recipes.config import differences


def markdown_of(report: Report, pictures: Sequence[Mapping[str, str]]) -> str:
    """The whole text; `pictures` are, for each section, file names by "axis" and "curves"."""
    blocks = [f"# {_text(report.title)}"]
    for section, names in zip(report.sections, pictures, strict=True):
        if section.asks != report.title:
            blocks.append(f"## {_text(section.asks)}")
        blocks += _section(section, names)
    return "\n\n".join(blocks) + "\n"


def _section(section: Section, pictures: Mapping[str, str]) -> list[str]:
    blocks = [f"**{_text(section.answer)}**"]
    if section.notes:
        blocks.append("\n".join(f"- {_text(note)}" for note in section.notes))
    if "axis" in pictures:
        blocks.append(f"![Final validation loss]({pictures['axis']})")
    if "curves" in pictures:
        blocks += [f"![Learning curves]({pictures['curves']})", curves_caption(section)]
    for table in section.tables:
        blocks += _table(table)
    if section.entries:
        blocks += _table(runs_table(section))
    samples = samples_of(section)
    if samples:
        blocks.append("### Samples")
    for sample in samples:
        blocks += [f"{_text(sample.label)}: {_text(sample.made_by)}", _fenced(sample.text, "text")]
    if section.runs:
        blocks += _table(accounting_table(section))
    blocks.append("### To repeat it")
    if section.commands:
        blocks.append(_fenced("\n".join(section.commands), "sh"))
    if section.runs:
        blocks += [*_configs(section), *_table(versions_table(section))]
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


def _table(table: Table) -> list[str]:
    rows = [table.columns, *table.rows]
    lines = [f"| {' | '.join(_text(cell) for cell in row)} |" for row in rows]
    lines.insert(1, "|" + "---|" * len(table.columns))
    return [f"### {_text(table.title)}", "\n".join(lines)]


def _text(value: Cell) -> str:
    """A text in which Markdown and HTML find nothing to obey."""
    line = " ".join(visible(value).split())
    return re.sub(r"([\\`*_\[\]<>|~#$&])", r"\\\1", line)


def _fenced(text: str, language: str) -> str:
    """A block that a fence within the text does not end."""
    shown = visible(text).rstrip("\n")
    longest = max((len(ticks) for ticks in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"
