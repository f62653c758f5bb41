"""A report as a single HTML page that works offline.

The template `html.jinja` escapes everything that comes from runs (names, values, generated text).
The content security policy of the page forbids all requests.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tilth import __version__
from tilth.errors import import_extra
from tilth.report import charts, tables
from tilth.report.reading import Report

WIDE_CHARACTERS = 40  # longer cells may wrap


def page_of(report: Report) -> str:
    """Render the page."""
    here = Path(__file__)
    numbers = [charts.chart_data(section) for section in report.sections]
    return render_template(
        here.with_suffix(".jinja"),
        {"cell": tables.cell_text, "kind": _kind},
        is_html=True,
        report=report,
        numbers=numbers,
        version=__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        json=_json(numbers),
        plotly=import_extra("plotly.offline", "A report").get_plotlyjs(),
        style=here.with_suffix(".css").read_text("utf-8"),
        script=here.with_suffix(".js").read_text("utf-8"),
    )


def render_template(
    template: Path, filters: Mapping[str, object], *, is_html: bool, **values: object
) -> str:
    """Render a template, which may call the functions of `charts` and `tables`."""
    jinja2 = import_extra("jinja2", "A report")
    environment = jinja2.Environment(autoescape=is_html, keep_trailing_newline=True)
    environment.filters |= filters
    environment.globals |= {"charts": charts, "tables": tables, "zip": zip}
    text: str = environment.from_string(template.read_text("utf-8")).render(values)
    return text


def _json(value: object) -> str:
    # A browser ends a script at the first `</script`; inside it, only JSON escapes work.
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _kind(column: list[str]) -> str:
    """Return the CSS class of the cells of a column."""
    is_wide = max(map(len, column), default=0) > WIDE_CHARACTERS
    return "number" if tables.is_numeric(column) else "wide" if is_wide else ""
