"""Runs and labs to a report: a page that opens offline, and Markdown with pictures.

What enters: folders of runs and labs. What leaves, beside each other: `report.html`, `report.md`,
and the charts of the latter as `report-curves.png` and, for a lab with an axis, `report-axis.png`.

    report = read_report([Path("runs/first"), Path("runs/second")])
    print(report.sections[0].answer)
    save_report(report, Path("report.html"))
"""

from pathlib import Path

from tilth.files import atomic_write, check_target
from tilth.lab.report_content import Report, read_report
from tilth.lab.report_markdown import markdown_of
from tilth.lab.report_page import page_of
from tilth.lab.report_pictures import axis_png, curves_png

__all__ = ["Report", "read_report", "save_report"]


def save_report(report: Report, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the page to `out` and the rest beside it; return the paths, the page's first."""
    if out.suffix != ".html":
        raise ValueError(f"{out} is no page; end --out in .html.")
    markdown = out.with_suffix(".md")
    names: list[dict[str, str]] = []
    pictures: dict[Path, bytes] = {}
    for number, section in enumerate(report.sections, start=1):
        names.append({})
        for kind, data in (("axis", axis_png(section)), ("curves", curves_png(section))):
            if data is not None:
                which = f"-{number}" if len(report.sections) > 1 else ""
                path = out.with_name(f"{out.stem}{which}-{kind}.png")
                names[-1][kind] = path.name
                pictures[path] = data
    files = {
        out: page_of(report).encode("utf-8"),
        markdown: markdown_of(report, names).encode("utf-8"),
        **pictures,
    }
    for path in files:  # all or none: nothing is written if one is there already
        check_target(path, overwrite=overwrite)
    for path, content in files.items():
        with atomic_write(path, overwrite=overwrite) as file:
            file.write(content)
    return list(files)
