"""The page Runs: curves and samples as they come, and comparisons of runs.

The numbers are those of `Run.metrics` and `Run.samples`; files are read from where the last read
ended.
"""

import asyncio
import json
import os
import re
import shlex
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tilth.report.comparing import format_value, varying_values
from tilth.report.lab_file import load_lab
from tilth.runs.metrics import METRICS, SAMPLES, finite_or_none
from tilth.runs.run import CONFIG, Run, open_run
from tilth.schema import Length, Range, flat
from tilth.studio import run_table
from tilth.studio.curves import Axis, Metric, Window, curve_of
from tilth.studio.errors import RequestError
from tilth.studio.folder import Folder
from tilth.studio.run_logs import MetricsLog, SamplesLog, sentence_of
from tilth.studio.run_table import RunTable, flops_per_token

MAX_COMPARED = 20
MAX_WATCHES = 32
SECONDS = 1.0
"""Time between two looks at the logs that are watched."""
MAX_CACHED_BYTES = 256 << 20
"""Memory of columns of runs that nobody watches."""

MAX_NORM_POINTS, MAX_NORM_LINES = 300, 200
LAYER = re.compile(r"layers\.(\d+)(?:\.(.+))?")

RunIds = Annotated[list[str], Length(at_most=MAX_COMPARED)]


@dataclass(frozen=True)
class Watch:
    """What a page watches: the curves of some runs, and the table of all."""

    runs: RunIds = field(default_factory=list)
    metric: Metric = "loss"
    axis: Axis = "step"
    window: Window = field(default_factory=Window)
    smoothing: Annotated[int, Range(at_least=1, at_most=1_000_000)] = 1
    since: float = 0.0
    """The `time` of the table that the page has."""


@dataclass(frozen=True)
class Compared:
    """The runs of a comparison."""

    runs: RunIds


@dataclass(frozen=True)
class AskedLab:
    """The lab that a page shows."""

    lab: str


@dataclass(frozen=True)
class Norms:
    """The norms of a part of each layer, such as `attn` or `attn.q_proj.weight`."""

    run: str
    kind: str = "activations"
    part: str = ""


class Runs:
    """The handlers of the page, and what they have read."""

    def __init__(self, folder: Folder, is_stopping: Callable[[], bool]) -> None:
        self._folder, self._is_stopping = folder, is_stopping
        self.table = RunTable(folder)
        self._logs: OrderedDict[str, tuple[MetricsLog, SamplesLog]] = OrderedDict()
        self._logs_lock = threading.Lock()
        self._watches = 0

    # --- logs ------------------------------------------------------------------------------------

    def logs(self, run_id: str) -> tuple[MetricsLog, SamplesLog]:
        """Return the logs of a run; raise KeyError if there is none of this id."""
        path = self._folder.find(run_id, "run").path
        with self._logs_lock:
            if run_id not in self._logs:
                self._logs[run_id] = MetricsLog(path / METRICS), SamplesLog(path / SAMPLES)
            self._logs.move_to_end(run_id)
            return self._logs[run_id]

    def release(self, watched: list[str]) -> None:
        """Forget the logs that were not used for longest, as many as exceed the memory."""
        with self._logs_lock:
            size = sum(log.size_bytes for log, _ in self._logs.values())
            for run_id in list(self._logs):
                if size <= MAX_CACHED_BYTES:
                    return
                if run_id not in watched:
                    size -= self._logs.pop(run_id)[0].size_bytes

    def run(self, run_id: str) -> Run:
        """Return a run; raise RequestError if there is none or it cannot be read."""
        try:
            return open_run(self._folder.find(run_id, "run").path)
        except KeyError:
            raise RequestError(404, "the folder has no run of this name.") from None
        except (OSError, ValueError) as error:
            raise RequestError(400, f"{run_id}: {sentence_of(error)}") from error

    # --- what a page watches ---------------------------------------------------------------------

    def updates(self, asked: Watch, run_id: str, seen: dict[str, Any]) -> dict[str, Any] | None:
        """Return what is new about a run since the last call with this `seen`, or None."""
        try:
            metrics, samples = self.logs(run_id)
        except KeyError:
            is_known = seen.get("is_missing")
            seen["is_missing"] = True
            return None if is_known else {"run": run_id, "problem": "the run is not there."}
        metrics.update()
        samples.update()
        new: dict[str, Any] = {}
        if seen.get("metrics") != (metrics, metrics.version):
            if "flops" not in seen:
                seen["flops"] = self._flops_per_token(run_id)
            options = {"flops_per_token": seen["flops"], "smoothing": asked.smoothing}
            view = asked.axis, asked.window
            with metrics.lock:
                new["curve"] = curve_of(metrics, asked.metric, *view, **options)
                if asked.metric == "loss":
                    new["valid"] = curve_of(metrics, "valid_loss", *view, **options)
                new["problem"] = metrics.problem
                new["norms"] = metrics.norm_count
                seen["metrics"] = metrics, metrics.version
        if seen.get("samples") != (samples, samples.version):
            with samples.lock:
                seen["samples"] = samples, samples.version
                new["samples"] = [asdict(sample) for sample in samples.samples]
                new["samples_problem"] = samples.problem
        return {"run": run_id, **new} if new else None

    def _flops_per_token(self, run_id: str) -> float:
        try:
            return flops_per_token(self.run(run_id))
        except RequestError:
            return 0.0

    def norms(self, asked: Norms) -> dict[str, Any]:
        """Return norms of a run over its steps: a line for each layer, or for one other module."""
        try:
            log, _ = self.logs(asked.run)
        except KeyError:
            raise RequestError(404, "the folder has no run of this name.") from None
        log.update()
        with log.lock:
            steps, values = log.norms
            names = log.norm_names
        kept = np.unique(np.linspace(0, len(steps) - 1, MAX_NORM_POINTS).astype(int))[: len(steps)]
        placed = [(kind, *_part_and_layer(name)) for kind, name in names]
        kinds = list(dict.fromkeys(kind for kind, _, _ in placed))
        shown = next((each for each in (asked.kind, *kinds) if each in kinds), "")
        parts = list(dict.fromkeys(part for kind, part, _ in placed if kind == shown))
        part = next((each for each in (asked.part, "layer", *parts) if each in parts), "")
        columns = [
            (layer, column)
            for column, (kind, own, layer) in enumerate(placed)
            if (kind, own) == (shown, part)
        ]
        return {
            "kinds": kinds,
            "kind": shown,
            "parts": parts,
            "part": part,
            "steps": steps[kept].tolist(),
            "lines": [
                {"layer": layer, "values": list(map(finite_or_none, values[kept, column].tolist()))}
                for layer, column in columns[:MAX_NORM_LINES]
            ],
        }

    async def _events(self, asked: Watch) -> AsyncIterator[bytes]:
        """Yield server-sent events while the page is there."""
        seen: dict[str, dict[str, Any]] = {run_id: {} for run_id in asked.runs}
        since, next_table = asked.since, 0.0
        self._watches += 1
        try:
            while not self._is_stopping():
                for run_id, own in seen.items():
                    new = await run_in_threadpool(self.updates, asked, run_id, own)
                    if new is not None:
                        yield _event(new)
                wait = SECONDS
                if time.monotonic() >= next_table:
                    table = await run_in_threadpool(self.table.read, since)
                    since = table["time"]
                    yield _event({"table": table})
                    self.release(asked.runs)
                    if table["is_complete"]:
                        next_table = time.monotonic() + run_table.SECONDS
                    else:
                        wait = 0.01
                await asyncio.sleep(wait)
        finally:
            self._watches -= 1

    async def watch(self, asked: Watch) -> Response:
        """Answer a stream of events: `run` with what is new about it, and `table`."""
        if self._watches >= MAX_WATCHES:
            raise RequestError(503, "too many pages watch runs; close one.")
        return StreamingResponse(self._events(asked), media_type="text/event-stream")

    async def show_table(self, _request: Request) -> Response:
        """Answer the table."""
        return JSONResponse(await run_in_threadpool(self.table.read))

    # --- labs ------------------------------------------------------------------------------------

    def lab(self, asked: AskedLab) -> dict[str, Any]:
        """Return a lab: its question, its answer, its tables and charts."""
        try:
            found = load_lab(self._folder.find(asked.lab, "lab").path)
        except KeyError:
            raise RequestError(404, "the folder has no lab of this name.") from None
        except (OSError, ValueError) as error:
            raise RequestError(400, f"{asked.lab}: {sentence_of(error)}") from error
        return {"id": asked.lab, **asdict(found), "command": shlex.join(found.command)}

    # --- comparison ------------------------------------------------------------------------------

    def compare(self, asked: Compared) -> dict[str, Any]:
        """Return the config values in which runs differ, and the commands that repeat them."""
        runs = [self.run(run_id) for run_id in asked.runs]
        configs = [run.config for run in runs]
        tables = [flat(config.to_dict()) for config in configs]
        names = varying_values(configs) if len(configs) > 1 else []
        rows = [
            {"name": name, "values": [_shown(name, table.get(name)) for table in tables]}
            for name in names
        ]
        return {
            "differences": rows,
            "configs": [
                [[name, _shown(name, value)] for name, value in table.items()] for table in tables
            ],
            "commands": [repeat_command(run.folder) for run in runs],
        }


def repeat_command(folder: Path) -> str:
    """Return the command that repeats a run, for a terminal in the folder of the server."""
    shown = min(os.path.relpath(folder), str(folder), key=len)
    words = ["tilth", "train", "--config", os.path.join(shown, CONFIG), "--out", f"{shown}-again"]  # noqa: PTH118
    return os.fsencode(shlex.join(words)).decode("utf-8", "replace")


def _part_and_layer(name: str) -> tuple[str, int | None]:
    """Return the part of a layer and the number of the layer, of the name of a module."""
    if found := LAYER.fullmatch(name):
        return found[2] or "layer", int(found[1])
    return name, None


def _shown(name: str, value: object) -> str:
    return "–" if value is None else format_value(name, value)


def _event(values: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(values, allow_nan=False).encode() + b"\n\n"
