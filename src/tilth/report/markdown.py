"""A report as Markdown with PNG charts, for documentation or a pull request.

The template is `markdown.jinja`. Text from runs is escaped: a name cannot end its table, nor a
sample its quote.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tilth.report.html import render_template
from tilth.report.lab_file import Cell
from tilth.report.reading import Report
from tilth.report.tables import cell_text

LINE_START = re.compile(r"^(\d*)([-+=.)])")  # starts of a list, a rule or a heading


def markdown_of(report: Report, pictures: Sequence[Mapping[str, str]]) -> str:
    """Render the text; `pictures` has the PNG names of each section by "axis", "chart-1", ..."""
    filters = {"text": _text, "quoted": _quoted, "fenced": _fenced, "link": quote}
    template = Path(__file__).with_suffix(".jinja")
    return render_template(template, filters, is_html=False, report=report, pictures=pictures)


def _text(value: Cell) -> str:
    """Escape Markdown and HTML, on one line."""
    line = " ".join(cell_text(value).split())
    return re.sub(r"([\\`*_\[\]<>|~#$&])", r"\\\1", line)


def _quoted(text: str) -> str:
    """Return a block quote that keeps line breaks; no line starts a list, a heading or a rule."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", cell_text(text).strip()):
        lines = [LINE_START.sub(r"\1\\\2", _text(line)) for line in paragraph.split("\n")]
        paragraphs.append("\\\n> ".join(lines))
    return "> " + "\n>\n> ".join(paragraphs)


def _fenced(text: str, language: str) -> str:
    """Return a code block whose fence is longer than any in the text."""
    shown = cell_text(text).rstrip("\n")
    longest = max((len(ticks) for ticks in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"
