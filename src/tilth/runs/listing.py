"""The runs in a folder: their states, losses and throughput. No torch."""

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilth.files import StrPath
from tilth.runs.metrics import METRICS, finite_or_none
from tilth.runs.run import CONFIG, MANIFEST, Run, open_run


@dataclass(frozen=True)
class RunSummary:
    """The state of a run; values that it does not have are None.

    Attributes:
        name: Path below the listed folder.
        state: A damaged run has only a `problem`, a sentence.
        step: Steps done, of `steps`.
        checkpoint_step: Step of the newest checkpoint.
        loss: Training loss of the last step.
        valid_loss: Validation loss of the last evaluation, and its `bits_per_byte`.
        best_valid_loss: Lowest validation loss.
        tokens_per_second: Throughput at the last step.
        age_seconds: Time since the last step.

    """

    name: str
    state: Literal["running", "finished", "stopped", "damaged"]
    step: int = 0
    steps: int = 0
    checkpoint_step: int | None = None
    loss: float | None = None
    valid_loss: float | None = None
    best_valid_loss: float | None = None
    bits_per_byte: float | None = None
    tokens_per_second: float | None = None
    age_seconds: float = 0.0
    problem: str | None = None


def list_runs(folder: StrPath = "runs") -> list[RunSummary]:
    """Return the runs in a folder and its subfolders, by name; checkpoints are not read.

    A folder that is itself a run has one. A damaged run does not hide the others.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder}; name the folder of your runs.")
    return [_summary(path, folder) for path in _find(folder)]


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


def _summary(path: Path, folder: Path) -> RunSummary:
    name = path.resolve().name if path == folder else str(path.relative_to(folder))
    try:
        return _read(name, open_run(path))
    except (OSError, ValueError) as error:
        return RunSummary(name, "damaged", problem=str(error))


def _read(name: str, run: Run) -> RunSummary:
    records = run.metrics()
    evaluations = [record.evaluation for record in records if record.evaluation is not None]
    losses = [record.loss for record in records if record.loss is not None]
    checkpoints = run.checkpoints()
    last_active = (run.folder / (METRICS if records else MANIFEST)).stat().st_mtime
    return RunSummary(
        name,
        state=run.state,
        step=records[-1].step if records else 0,
        steps=run.config.steps,
        checkpoint_step=checkpoints[-1].step if checkpoints else None,
        loss=losses[-1] if losses else None,
        valid_loss=finite_or_none(evaluations[-1].loss) if evaluations else None,
        best_valid_loss=finite_or_none(min((e.loss for e in evaluations), default=math.inf)),
        bits_per_byte=finite_or_none(evaluations[-1].bits_per_byte) if evaluations else None,
        tokens_per_second=records[-1].tokens_per_second if records else None,
        age_seconds=max(0.0, time.time() - last_active),
    )
