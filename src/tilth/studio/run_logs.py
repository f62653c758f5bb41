r"""The logs of a run as columns, read once: later reads continue where the last one ended.

>>> import tempfile
>>> line = '{"step": %d, "tokens": 0, "seconds": 0, "loss": 2.5, "lr": 0, "tokens_per_second": 0,'
>>> line += ' "utilisation": 0}'
>>> with tempfile.TemporaryDirectory() as place:
...     path = Path(place) / "metrics.jsonl"
...     _ = path.write_text(f"{line % 1}\n{line % 2}\n" + '{"step": 3, "to')  # the last is torn
...     log = MetricsLog(path)
...     log.update(), log.columns["step"].tolist(), log.update()
(True, [1, 2], False)
"""

import json
import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tilth.files import FileError, open_regular
from tilth.runs.metrics import (
    MAX_LOG_BYTES,
    SampleRecord,
    StepRecord,
    parse_line,
    sample_record,
    step_record,
)

Array: TypeAlias = "np.ndarray[tuple[int], np.dtype[Any]]"

_Rows: TypeAlias = tuple[dict[str, Array], list[tuple[int, StepRecord]]]
"""Columns, and the records with evaluations or norms, by row."""

CHUNK_BYTES = 1 << 18
"""Lines are parsed in chunks, so that other threads run in between."""
MAX_LINE_BYTES = 4 << 20
MAX_STEPS = 2_000_000
MAX_SAMPLES, MAX_SAMPLE_CHARACTERS = 50, 20_000
MAX_NORM_RECORDS, MAX_NORMS = 2048, 2048

WHOLE, LARGE, TIME = (0, 2**63 - 1), (-3.5e38, 3.5e38), (0.0, 1e12)
COLUMNS: dict[str, tuple[type[Any], tuple[float, float], bool]] = {
    "step": (np.int64, (1, 2**63 - 1), True),
    "tokens": (np.int64, WHOLE, True),
    "seconds": (np.float64, TIME, True),
    "loss": (np.float64, LARGE, False),
    "lr": (np.float64, LARGE, True),
    "grad_norm": (np.float64, LARGE, False),
    "tokens_per_second": (np.float64, LARGE, True),
    "utilisation": (np.float64, LARGE, True),
    "step_seconds": (np.float64, TIME, False),
}
"""The columns of a metrics log: type, range, and whether a record must have it (as StepRecord)."""
EVALUATED = ("loss", "perplexity", "bits_per_byte")


class Tail:
    """The complete lines of an append-only file, from where the last read ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._end = b""  # the bytes before the offset
        self._identity: tuple[int, int] | None = None
        self._seen: tuple[int, int] | None = None  # size and mtime when nothing was left

    def read(self) -> tuple[bytes, bool]:
        """Return new complete lines, at most about a chunk, and whether the file began anew.

        An incomplete last line waits. Raises FileError for a line that is too long.
        """
        try:
            status = self.path.lstat()
        except OSError:
            return b"", self._begin(None)
        if self._seen == (status.st_size, status.st_mtime_ns) and self._identity == _id(status):
            return b"", False
        with open_regular(self.path, os.O_RDONLY | os.O_NOFOLLOW) as file:
            status = os.fstat(file.fileno())
            is_new = self._identity != _id(status) or status.st_size < self._offset
            if not is_new and self._end:
                file.seek(self._offset - len(self._end))
                is_new = file.read(len(self._end)) != self._end
            began = self._begin(_id(status)) if is_new else False
            file.seek(self._offset)
            lines = self._lines(file.read(CHUNK_BYTES))
            if not lines and status.st_size - self._offset > CHUNK_BYTES:
                file.seek(self._offset)
                lines = self._lines(file.read(MAX_LINE_BYTES))
                if not lines and status.st_size - self._offset > MAX_LINE_BYTES:
                    raise self._refusal(f"a line of more than {MAX_LINE_BYTES:,} bytes")
        if not lines:
            self._seen = status.st_size, status.st_mtime_ns
        elif self._offset + len(lines) > MAX_LOG_BYTES:
            raise self._refusal(f"more than {MAX_LOG_BYTES:,} bytes")
        self._offset += len(lines)
        self._end = (self._end + lines)[-64:]
        return lines, began

    def _refusal(self, what: str) -> FileError:
        return FileError(self.path, f"has {what}", "correct or remove it")

    def _begin(self, identity: tuple[int, int] | None) -> bool:
        """Start at the beginning of a file; return whether another one had been read."""
        had = self._offset > 0
        self._offset, self._end, self._identity, self._seen = 0, b"", identity, None
        return had

    def _lines(self, content: bytes) -> bytes:
        return content[: content.rfind(b"\n") + 1]


def _id(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


class _Log:
    """What the two logs share: reading to the end, and the problem that stopped it."""

    def __init__(self, path: Path) -> None:
        self._tail = Tail(path)
        self._name = path.name
        self.lock = threading.Lock()
        """Held while the values change."""
        self.problem: str | None = None
        """The sentence about a damaged line, after which nothing is read; it names no path."""
        self.version = 0
        """Grows with every change."""
        self._clear()

    def update(self) -> bool:
        """Read what is new; return whether something changed."""
        with self.lock:
            before = self.version
            while True:
                try:
                    lines, began = self._tail.read()
                except (OSError, ValueError) as error:
                    self._stop(error)
                    self._join()
                    return self.version > before
                if began:
                    self._clear()
                    self.problem = None
                    self.version += 1
                if not lines:
                    self._join()
                    return self.version > before
                if self.problem is None:
                    self._add(lines)
                    self.version += 1

    def _stop(self, error: Exception) -> None:
        problem = sentence_of(error)
        if problem != self.problem:
            self.problem = problem
            self.version += 1

    def _clear(self) -> None:
        raise NotImplementedError

    def _add(self, lines: bytes) -> None:
        raise NotImplementedError

    def _join(self) -> None:
        """Finish an update."""


def sentence_of(error: Exception) -> str:
    """Return the message of an error about a file, with its name instead of its path."""
    if isinstance(error, FileError):
        path, problem, hint = error.args
        return f"{Path(path).name} {problem}; {hint}"
    return "the file cannot be read." if isinstance(error, OSError) else str(error)


class SamplesLog(_Log):
    """The newest samples of a run."""

    samples: deque[SampleRecord]

    def _clear(self) -> None:
        self.samples = deque(maxlen=MAX_SAMPLES)
        self._number = 0

    def _add(self, lines: bytes) -> None:
        for line in lines[:-1].split(b"\n"):
            self._number += 1
            try:
                sample = sample_record(parse_line(line))
            except (ValueError, RecursionError) as error:
                self._stop(_damaged(self._name, self._number, error))
                return
            prompt, text = (
                sample.prompt[:MAX_SAMPLE_CHARACTERS],
                sample.text[:MAX_SAMPLE_CHARACTERS],
            )
            self.samples.append(replace(sample, prompt=prompt, text=text))


class MetricsLog(_Log):
    """The columns of a metrics log: one row for each step; NaN for null.

    Attributes:
        columns: By name, as in `COLUMNS`.
        evaluations: The row of each evaluation, and its values as float64; infinite for null.
        norms: The row of each measurement, and its values by kind and name.

    """

    columns: dict[str, Array]
    evaluations: dict[str, Array]
    norm_names: tuple[tuple[str, str], ...]

    @property
    def size_bytes(self) -> int:
        """The memory that the columns take."""
        arrays = [*self.columns.values(), *self.evaluations.values()]
        return sum(each.nbytes for each in arrays) + sum(each.nbytes for _, each in self._norms)

    @property
    def norm_count(self) -> int:
        """The number of measurements."""
        return self._norm_count

    @property
    def norms(self) -> tuple[Array, "np.ndarray[tuple[int, int], np.dtype[Any]]"]:
        """Steps, and the values of `norm_names` at them, one row for each step."""
        steps = np.array([step for step, _ in self._norms], np.int64)
        values = [values for _, values in self._norms]
        return steps, np.array(values, np.float64).reshape(len(values), len(self.norm_names))

    def _clear(self) -> None:
        self.columns = {name: np.empty(0, kind) for name, (kind, *_) in COLUMNS.items()}
        self.evaluations = {"row": np.empty(0, np.int64)}
        self.evaluations |= {name: np.empty(0) for name in EVALUATED}
        self.norm_names = ()
        self._norms: list[tuple[int, Array]] = []
        self._norm_count, self._norm_stride = 0, 1
        self._pieces = [self.columns], [self.evaluations]
        self._rows, self._last_step = 0, 0

    def _add(self, lines: bytes) -> None:
        """Add the rows of some lines: in bulk, or one by one if any of them is unusual."""
        rows, special = self._in_bulk(lines) or self._one_by_one(lines)
        evaluated = [(self._rows + i, r.evaluation) for i, r in special if r.evaluation is not None]
        found = {"row": np.array([row for row, _ in evaluated], np.int64)} | {
            name: np.array([getattr(each, name) for _, each in evaluated], np.float64)
            for name in EVALUATED
        }
        for pieces, new in zip(self._pieces, (rows, found), strict=True):
            pieces.append(new)
        if len(rows["step"]):
            self._rows, self._last_step = self._rows + len(rows["step"]), int(rows["step"][-1])
        if self._rows > MAX_STEPS:
            self._stop(
                ValueError(f"{self._name} has more than {MAX_STEPS:,} steps; these are shown.")
            )
        for _, record in special:
            if record.norms is not None:
                self._add_norms(record.step, record.norms)

    def _in_bulk(self, lines: bytes) -> _Rows | None:
        """Return the columns of valid lines, and the records with evaluations or norms.

        None if a line may be invalid. The checks are those of StepRecord, several times as fast.
        """
        split = lines[:-1].split(b"\n")
        with suppress(ValueError, RecursionError, OverflowError):
            records = json.loads(b"[" + b",".join(split) + b"]")
            if len(records) != len(split) or set(map(type, records)) != {dict}:
                return None
            columns = {}
            for name, (kind, limits, is_required) in COLUMNS.items():
                values = [record.get(name) for record in records]
                allowed: set[type[Any]] = {int} if kind is np.int64 else {int, float}
                missing = values.count(None)
                allowed |= set() if is_required else {type(None)}
                if not set(map(type, values)) <= allowed:
                    return None
                column = np.array(values, kind)
                finite = column[np.isfinite(column)] if kind is np.float64 else column
                if len(finite) + missing != len(column):
                    return None
                if len(finite) and not limits[0] <= finite.min() <= finite.max() <= limits[1]:
                    return None
                columns[name] = column
            steps = columns["step"]
            if self._last_step >= steps[0] or not (np.diff(steps) > 0).all():
                return None
            special = [
                (row, step_record(record))
                for row, record in enumerate(records)
                if record.get("evaluation") is not None or record.get("norms") is not None
            ]
            return columns, special
        return None

    def _one_by_one(self, lines: bytes) -> _Rows:
        """Return the columns and records of lines up to the first damaged one."""
        records: list[StepRecord] = []
        last = self._last_step
        for line in lines[:-1].split(b"\n"):
            try:
                record = step_record(parse_line(line))
                if record.step <= last:
                    raise ValueError(f"step {record.step} follows step {last}")
            except (ValueError, RecursionError) as error:
                number = self._rows + len(records) + 1
                self._stop(_damaged(self._name, number, error))
                break
            last = record.step
            records.append(record)
        columns = {
            name: np.array([getattr(record, name) for record in records], kind)
            for name, (kind, *_) in COLUMNS.items()
        }
        return columns, list(enumerate(records))

    def _join(self) -> None:
        if len(self._pieces[0]) > 1:
            self.columns, self.evaluations = map(_joined, self._pieces)
            self._pieces = [self.columns], [self.evaluations]

    def _add_norms(self, step: int, norms: dict[str, dict[str, float | None]]) -> None:
        """Add a measurement; when there are many, keep every second one."""
        if not self.norm_names:
            names = [(kind, name) for kind, values in norms.items() for name in values]
            self.norm_names = tuple(names[:MAX_NORMS])
        self._norm_count += 1
        if (self._norm_count - 1) % self._norm_stride:
            return
        values = [norms.get(kind, {}).get(name) for kind, name in self.norm_names]
        self._norms.append((step, np.array(values, np.float64)))
        if len(self._norms) > MAX_NORM_RECORDS:
            self._norms, self._norm_stride = self._norms[::2], 2 * self._norm_stride


def _joined(pieces: list[dict[str, Array]]) -> dict[str, Array]:
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _damaged(name: str, number: int, error: Exception) -> ValueError:
    return ValueError(f"{name} has a damaged line {number} ({str(error)[:200]}); correct it.")
