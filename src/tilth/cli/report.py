"""`tilth report`: write a report of runs and labs."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilth.cli.options import Overwrite


def report(
    folders: Annotated[list[Path], Parameter(name="run-or-lab")],
    /,
    *,
    out: Path = Path("report.html"),
    title: str | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a report of runs and labs: answers, learning curves, samples, costs, commands.

    The page opens offline. A Markdown file and its pictures are written next to it.

    Args:
        folders: Run directories, folders of these, or lab folders.
        out: HTML page to write; the Markdown file and the pictures are named after it.
        title: Heading; default: the question that the runs answer.

    Examples:
        tilth report runs/first
        tilth report runs/first runs/second lab/lr --out compare.html
    """
    from tilth.files import check_target
    from tilth.formatting import printable
    from tilth.report.writing import read_report, save_report

    check_target(out, overwrite=overwrite)
    found = read_report(folders, title)
    written = save_report(found, out, overwrite=overwrite)
    for section in found.sections:
        print(printable(section.answer))
    print(f"Wrote {', '.join(map(str, written))}")
