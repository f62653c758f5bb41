"""Writing of reports: an HTML page that works offline, and Markdown with PNG charts.

The files are `report.html`, `report.md`, `report-curves.png`, for a lab with an axis
`report-axis.png`, and for each chart of a lab `report-chart-1.png` and so on. With several
sections the names have a number: `report-2-curves.png`.

    report = read_report(["runs/first", "runs/second"])
    print(report.sections[0].answer)
    save_report(report, "report.html")
"""

import re
from pathlib import Path
from urllib.parse import unquote

from tilth.files import StrPath, check_target, read_bytes, refuse_link, write_atomically
from tilth.report.html import page_of
from tilth.report.markdown import markdown_of
from tilth.report.pictures import axis_png, chart_png, curves_png
from tilth.report.reading import Report, Section, read_report

__all__ = ["Report", "read_report", "save_report"]

MAX_MARKDOWN_BYTES = 64 << 20  # of the report that is replaced
KINDS = r"(-\d+)?-(axis|curves|chart-\d+)\.png"  # suffixes of the PNG files of a report


def save_report(report: Report, out: StrPath, *, overwrite: bool = False) -> list[Path]:
    """Write the page to `out` and the other files next to it; return all paths, the page first.

    `overwrite` also deletes the PNG files of the replaced report that the new one does not have.
    """
    out = Path(out)
    if out.suffix != ".html":
        raise ValueError(f"{out} is not an HTML file; end --out in .html.")
    markdown = out.with_suffix(".md")
    names: list[dict[str, str]] = []
    pictures: dict[Path, bytes] = {}
    for number, section in enumerate(report.sections, start=1):
        names.append({})
        for kind, data in _pictures(section).items():
            which = f"-{number}" if len(report.sections) > 1 else ""
            path = out.with_name(f"{out.stem}{which}-{kind}.png")
            names[-1][kind] = path.name
            pictures[path] = data
    files = {
        out: page_of(report).encode("utf-8"),
        markdown: markdown_of(report, names).encode("utf-8"),
        **pictures,
    }
    for path in files:  # all or none
        refuse_link(path)  # a report is also written into labs, which may be untrusted
        check_target(path, overwrite=overwrite)
    stale = _linked_pictures(markdown, out.stem) - files.keys()
    for path, content in files.items():
        write_atomically(path, content, overwrite=overwrite)
    for path in stale:
        path.unlink(missing_ok=True)
    return list(files)


def _pictures(section: Section) -> dict[str, bytes]:
    charts = {f"chart-{n}": chart_png(section, c) for n, c in enumerate(section.charts, start=1)}
    found = {"axis": axis_png(section), **charts, "curves": curves_png(section)}
    return {kind: data for kind, data in found.items() if data is not None}


def _linked_pictures(markdown: Path, stem: str) -> set[Path]:
    """Return the PNG files that an earlier report shows; others may belong to other reports."""
    if not markdown.is_file():
        return set()
    text = read_bytes(markdown, MAX_MARKDOWN_BYTES).decode("utf-8", "replace")
    links = re.findall(r"\]\(([^()\s]+)\)", text)
    names = {unquote(link) for link in links}
    return {markdown.with_name(n) for n in names if re.fullmatch(re.escape(stem) + KINDS, n)}
