"""`tilth report`: runs and labs to a page, and to Markdown with pictures."""

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
    """Write what runs have to say: the answer, learning curves, samples, costs, commands.

    The page opens without a network; the Markdown is for a pull request or a paper.

    Args:
        folders: Run directories, folders of these, and folders that `tilth lab` made.
        out: The page to write; report.md and its pictures are named like it.
        title: The heading; default: what the runs were to answer.
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
