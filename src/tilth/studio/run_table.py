"""The table of all runs of a folder: one row for each, read again only when it changes.

The numbers are those of `tilth.list_runs`; of a log, only the end is read.
"""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilth.accounting.flops import training_flops_per_token
from tilth.accounting.parameters import count_parameters
from tilth.files import open_regular, refuse_invalid
from tilth.runs.metrics import METRICS, StepRecord, finite_or_none, parse_line, step_record
from tilth.runs.run import CONFIG, MANIFEST, Run, open_run
from tilth.studio.folder import Folder
from tilth.studio.run_logs import sentence_of

SECONDS = 5.0
"""Time between two looks at all runs."""
FIRST_SECONDS = 0.2
"""Time for the rows of one answer that were never read."""
END_BYTES, MAX_END_BYTES = 1 << 16, 1 << 20
"""The end of a log that is read: as much as has the last evaluation, up to a limit."""


@dataclass
class _Row:
    """A row of the table and what it was made from."""

    stamp: tuple[object, ...]
    run: Run | None
    values: dict[str, Any]
    changed: float = 0.0


class RunTable:
    """The rows of the runs of a folder; used by several threads."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._rows: dict[str, _Row] = {}
        self._lock = threading.Lock()
        self._checked = float("-inf")

    def read(self, since: float = 0.0) -> dict[str, Any]:
        """Return the rows that have changed since a time, all ids, the labs, and the time.

        Reading 500 runs for the first time takes a second: what is not read yet comes with the next
        call, the latest runs first.
        """
        with self._lock:
            entries = self._folder.entries("run")
            if time.monotonic() - self._checked >= SECONDS:
                self._read_rows({entry.id: entry.path for entry in entries})
            ids = [entry.id for entry in entries]
            changed = [row.values for row in self._rows.values() if row.changed > since]
            return {
                "ids": ids,
                "labs": [entry.id for entry in self._folder.entries("lab")],
                "rows": changed,
                "time": time.time(),
                "is_complete": self._checked > float("-inf"),
            }

    def _read_rows(self, paths: dict[str, Path]) -> None:
        began = time.monotonic()
        new = [run_id for run_id in paths if run_id not in self._rows]
        new.sort(key=lambda run_id: _modified(paths[run_id] / METRICS), reverse=True)
        self._rows = {run_id: row for run_id, row in self._rows.items() if run_id in paths}
        for run_id in [*new, *self._rows]:
            is_late = time.monotonic() - began > FIRST_SECONDS
            if is_late and run_id in new:
                self._checked = float("-inf")
                return
            self._rows[run_id] = self._row(run_id, paths[run_id])
        self._checked = time.monotonic()

    def _row(self, run_id: str, path: Path) -> _Row:
        """Return the row of a run; what has not changed is not read again."""
        known = self._rows.get(run_id)
        stamp = tuple(_stamp(path / name) for name in (CONFIG, MANIFEST, METRICS))
        try:
            if known is None or known.run is None or known.stamp[:2] != stamp[:2]:
                run = open_run(path)
                values = _values(run_id, run)
            else:
                run = known.run
                values = known.values if known.stamp == stamp else _values(run_id, run)
            values = {**values, "state": run.state}
        except (OSError, ValueError) as error:
            run, values = None, {"id": run_id, "state": "damaged", "problem": sentence_of(error)}
        if known is not None and known.values == values:
            return _Row(stamp, run, values, known.changed)
        return _Row(stamp, run, values, time.time())


def flops_per_token(run: Run) -> float:
    """Return the FLOPs of training per token, as in `StepRecord.utilisation`."""
    return training_flops_per_token(run.config.model)


def _values(run_id: str, run: Run) -> dict[str, Any]:
    """Return the columns of the table, but for the state."""
    last, loss, evaluated = _end_of_log(run.folder / METRICS)
    evaluation = evaluated.evaluation if evaluated else None
    tokens = last.tokens if last else 0
    return {
        "id": run_id,
        "state": "",
        "created": run.manifest.created,
        "recipe": run.config.recipe,
        "parameters": count_parameters(run.config.model).total,
        "step": last.step if last else 0,
        "steps": run.config.steps,
        "loss": loss,
        "valid_loss": finite_or_none(evaluation.loss) if evaluation else None,
        "bits_per_byte": finite_or_none(evaluation.bits_per_byte) if evaluation else None,
        "tokens_per_second": last.tokens_per_second if last else None,
        "tokens": tokens,
        "seconds": last.seconds if last else 0.0,
        "flops": tokens * flops_per_token(run),
        "active": (run.folder / (METRICS if last else MANIFEST)).stat().st_mtime,
    }


def _end_of_log(path: Path) -> tuple[StepRecord | None, float | None, StepRecord | None]:
    """Return the last record of a metrics log, its last loss, and its last evaluated record.

    Only the end of the file is read: as much as they need, up to a limit.
    """
    if not path.exists():
        return None, None, None
    with open_regular(path, os.O_RDONLY | os.O_NOFOLLOW) as file:
        size = file.seek(0, os.SEEK_END)
        length = END_BYTES
        while True:
            begin = max(0, size - length)
            file.seek(begin)
            lines = file.read(length).split(b"\n")[:-1]
            # The first line may have lost its beginning.
            with refuse_invalid(path, "has a damaged line", "correct or remove that line"):
                last, loss, evaluated = found = _last_values(lines[1:] if begin else lines)
            is_whole = last is not None and loss is not None and evaluated is not None
            if is_whole or not begin or length >= MAX_END_BYTES:
                return found
            length *= 4


def _last_values(
    lines: list[bytes],
) -> tuple[StepRecord | None, float | None, StepRecord | None]:
    last: StepRecord | None = None
    loss: float | None = None
    evaluated: StepRecord | None = None
    for line in reversed(lines):
        if last is None or loss is None or (evaluated is None and b'"evaluation"' in line):
            record = step_record(parse_line(line))
            last = last or record
            loss = record.loss if loss is None else loss
            if evaluated is None and record.evaluation is not None:
                evaluated = record
        elif evaluated is not None:
            break
    return last, loss, evaluated


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
