"""`tilth runs`: list runs, their states and losses."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tilth.cli.options import Json
from tilth.cli.output import print_result
from tilth.formatting import format_duration, printable
from tilth.runs import RunSummary, list_runs

COLUMNS = {
    "loss": ("loss", ".4f"),
    "valid_loss": ("valid", ".4f"),
    "best_valid_loss": ("best", ".4f"),
    "bits_per_byte": ("bits/byte", ".4f"),
    "tokens_per_second": ("tokens/s", ",.0f"),
}
"""Heading and format of the numbers in a row."""


def runs(folder: Path = Path("runs"), /, *, json: Json = False) -> None:
    """List the runs in a folder and its subfolders.

    loss is the training loss of the last step, valid and bits/byte are of the last evaluation, best
    is the lowest validation loss, age the time since the last step. Checkpoints are not read: see
    `tilth verify`.

    Args:
        folder: Folder of run directories, or of folders of these.

    Examples:
        tilth runs
        tilth runs lab/lr/runs --json
    """
    rows = list_runs(folder)
    nothing = f"There are no runs in {folder}; `tilth train` creates them."
    lines = _table(rows) if rows else [nothing]
    values = {"folder": str(folder), "runs": list(map(_as_dict, rows))}
    print_result(values, lines, as_json=json)


def _as_dict(row: RunSummary) -> dict[str, Any]:
    if row.problem is not None:
        return {"name": row.name, "state": row.state, "problem": row.problem}
    values = asdict(row)
    del values["problem"]
    return values


def _table(rows: list[RunSummary]) -> Iterator[str]:
    headings = ("name", "state", "step", *(heading for heading, _ in COLUMNS.values()), "age")
    table = [headings, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip_longest(*table, fillvalue="")]
    for cells, problem in zip(table, [None, *(row.problem for row in rows)], strict=True):
        aligned = zip(cells, "<<>>>>>>>", widths, strict=False)
        line = "  ".join(f"{cell:{side}{width}}" for cell, side, width in aligned).rstrip()
        yield line if problem is None else f"{line}: {printable(problem)}"


def _cells(row: RunSummary) -> tuple[str, ...]:
    name = printable(row.name)
    if row.problem is not None:
        return (name, row.state)
    numbers = ((getattr(row, key), form) for key, (_, form) in COLUMNS.items())
    return (
        name,
        row.state,
        f"{row.step:,} of {row.steps:,}",
        *("-" if number is None else format(number, form) for number, form in numbers),
        format_duration(round(row.age_seconds)),
    )
