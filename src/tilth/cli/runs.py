"""`tilth runs`: the runs in a folder, and how they stand."""

import json as json_module
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tilth.cli.options import Json
from tilth.formatting import printable
from tilth.runs.metrics import METRICS, finite_or_none

if TYPE_CHECKING:
    from tilth.runs import Run

MANIFEST = "manifest.json"
HEADINGS = ("name", "state", "step", "loss", "valid", "best", "bits/byte", "tokens/s", "age")


def runs(
    folder: Annotated[
        Path, Parameter(help="Where the run directories are, or one folder further down.")
    ] = Path("runs"),
    /,
    *,
    json: Json = False,
) -> None:
    """List the runs in a folder, and those one folder further down.

    Losses are those of the last step, of the last evaluation (valid, bits/byte) and of the best;
    age is the time since the last step. Checkpoints are not read: `tilth verify RUN` does that.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}; name the one that has your runs.")
    rows = [_row(path, folder) for path in _find(folder)]
    if json:
        print(json_module.dumps({"folder": str(folder), "runs": rows}))
    elif rows:
        _print_table(rows)
    else:
        print(f"There are no runs in {folder}; `tilth train` makes them.")


def _find(folder: Path) -> Iterator[Path]:
    """The folder itself if it is a run, else those in it, and in those that are none."""
    if _is_run(folder):
        yield folder
        return
    for child in _folders_in(folder):
        if _is_run(child):
            yield child
        else:
            yield from (path for path in _folders_in(child) if _is_run(path))


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file() and (folder / "manifest.json").is_file()


def _folders_in(folder: Path) -> list[Path]:
    """Those that may be looked into; a hidden one is a run that is still being made."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and os.access(path, os.R_OK | os.X_OK) and not path.name.startswith(".")
    )


def _row(path: Path, folder: Path) -> dict[str, Any]:
    from tilth.runs import open_run

    name = path.resolve().name if path == folder else str(path.relative_to(folder))
    try:
        return {"name": name, **_standing(open_run(path))}
    except (OSError, ValueError) as error:
        # One damaged run says so in its row, and hides none of the others.
        return {"name": name, "state": "damaged", "problem": str(error)}


def _standing(run: "Run") -> dict[str, Any]:
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


def _print_table(rows: list[dict[str, Any]]) -> None:
    table = [HEADINGS, *(_cells(row) for row in rows)]
    name, state, *widths = (max(map(len, column)) for column in zip(*table, strict=True))
    for cells, row in zip(table, [{}, *rows], strict=True):
        numbers = (f"  {cell:>{width}}" for cell, width in zip(cells[2:], widths, strict=True))
        line = f"{cells[0]:<{name}}  {cells[1]:<{state}}{''.join(numbers)}".rstrip()
        print(f"{line}: {printable(row['problem'])}" if "problem" in row else line)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    begin = (printable(row["name"]), row["state"])
    if "problem" in row:
        return begin + ("",) * (len(HEADINGS) - len(begin))
    numbers = (
        (row["loss"], ".4f"),
        (row["valid_loss"], ".4f"),
        (row["best_valid_loss"], ".4f"),
        (row["bits_per_byte"], ".4f"),
        (row["tokens_per_second"], ",.0f"),
    )
    return (
        *begin,
        f"{row['step']:,} of {row['steps']:,}",
        *("-" if number is None else format(number, form) for number, form in numbers),
        _age(row["age_seconds"]),
    )


def _age(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds // unit:.0f} {name}"
    return f"{seconds:.0f} s"
