"""`tilth runs`: list runs, their states and losses."""

import math
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tilth.cli.options import Json
from tilth.cli.output import print_result
from tilth.formatting import format_duration, printable
from tilth.runs.metrics import METRICS, finite_or_none
from tilth.runs.run import CONFIG, MANIFEST, Run, open_run

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
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}; name the folder of your runs.")
    rows = [_row(path, folder) for path in _find(folder)]
    nothing = f"There are no runs in {folder}; `tilth train` creates them."
    lines = _table(rows) if rows else [nothing]
    print_result({"folder": str(folder), "runs": rows}, lines, as_json=json)


def _find(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run, else the runs in it and in folders that are not.

    Hidden folders are runs in creation.
    """
    if _is_run(folder):
        return [folder]
    near = {path.parent for path in folder.glob(f"[!.]*/{CONFIG}") if _is_run(path.parent)}
    far = {path.parent for path in folder.glob(f"[!.]*/[!.]*/{CONFIG}")}
    return sorted(near | {path for path in far if path.parent not in near and _is_run(path)})


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and (folder / MANIFEST).is_file()


def _row(path: Path, folder: Path) -> dict[str, Any]:
    name = path.resolve().name if path == folder else str(path.relative_to(folder))
    try:
        return {"name": name, **_standing(open_run(path))}
    except (OSError, ValueError) as error:
        # A damaged run has its own row and does not hide the others.
        return {"name": name, "state": "damaged", "problem": str(error)}


def _standing(run: Run) -> dict[str, Any]:
    records = run.metrics()
    evaluations = [record.evaluation for record in records if record.evaluation is not None]
    losses = [record.loss for record in records if record.loss is not None]
    checkpoints = run.checkpoints()
    last_active = (run.folder / (METRICS if records else MANIFEST)).stat().st_mtime
    return {
        "state": "running" if run.is_running else "finished" if run.is_finished else "stopped",
        "step": records[-1].step if records else 0,
        "steps": run.config.steps,
        "checkpoint_step": checkpoints[-1].step if checkpoints else None,
        "loss": losses[-1] if losses else None,
        "valid_loss": finite_or_none(evaluations[-1].loss) if evaluations else None,
        "best_valid_loss": finite_or_none(min((e.loss for e in evaluations), default=math.inf)),
        "bits_per_byte": finite_or_none(evaluations[-1].bits_per_byte) if evaluations else None,
        "tokens_per_second": records[-1].tokens_per_second if records else None,
        "age_seconds": max(0.0, time.time() - last_active),
    }


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    headings = ("name", "state", "step", *(heading for heading, _ in COLUMNS.values()), "age")
    table = [headings, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip_longest(*table, fillvalue="")]
    for cells, row in zip(table, [{}, *rows], strict=True):
        aligned = zip(cells, "<<>>>>>>>", widths, strict=False)
        line = "  ".join(f"{cell:{side}{width}}" for cell, side, width in aligned).rstrip()
        yield f"{line}: {printable(row['problem'])}" if "problem" in row else line


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = printable(row["name"])
    if "problem" in row:
        return (name, row["state"])
    numbers = ((row[key], form) for key, (_, form) in COLUMNS.items())
    return (
        name,
        row["state"],
        f"{row['step']:,} of {row['steps']:,}",
        *("-" if number is None else format(number, form) for number, form in numbers),
        format_duration(round(row["age_seconds"])),
    )
