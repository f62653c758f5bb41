"""What happened at each step: one line of JSON a step, appended, and read back.

What enters: records. What leaves: `metrics.jsonl` and `samples.jsonl`, and the records again. A log
is only ever appended to, so a crash can tear nothing but its last line: every reader leaves a line
without an end alone, and a run that resumes cuts its logs back to the step that it resumes from.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "metrics.jsonl"
...     with Log(path) as log:
...         for step in (1, 2, 3):
...             log.append({"step": step, "loss": 9.0 / step})
...     written = path.open("ab").write(b'{"step": 4, "lo')  # a crash
...     cut_back(path, step=2)
...     read_log(path)
[{'step': 1, 'loss': 9.0}, {'step': 2, 'loss': 4.5}]
"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from tilth.files import FileError, atomic_write, open_regular, read_bytes
from tilth.schema import Range, read

T = TypeVar("T")

METRICS = "metrics.jsonl"
SAMPLES = "samples.jsonl"


Count = Annotated[int, Range(at_least=0, at_most=2**63 - 1)]
Seconds = Annotated[float, Range(at_least=0.0, at_most=1e12)]
Float32 = Annotated[float, Range(at_least=-3.5e38, at_most=3.5e38)]
"""A number that a model computed: every finite float32."""


@dataclass(frozen=True)
class Evaluation:
    """How well a model predicts a text that it was not trained on."""

    loss: float
    """Nats per token."""
    perplexity: float
    """exp(loss)."""
    bits_per_byte: float
    """Bits per byte of text: unlike the loss, it does not depend on the tokenizer."""
    tokens: int
    """How many tokens were predicted."""


INFINITE = Evaluation(math.inf, math.inf, math.inf, 0)


@dataclass(frozen=True)
class _LoggedEvaluation:
    """An evaluation as it is logged: null is infinite."""

    loss: Float32 | None
    perplexity: float | None = None
    bits_per_byte: Float32 | None = None
    tokens: Count = 0


@dataclass(frozen=True)
class StepRecord:
    """What one step did, and where the run stands after it."""

    step: Annotated[int, Range(at_least=1, at_most=2**63 - 1)]
    """Steps done, this one included."""
    tokens: Count
    """Tokens learned from so far."""
    seconds: Seconds
    """Wall-clock time of training so far, over all its sessions."""
    loss: Float32 | None
    """Nats per token of this step's batch; None if it was not finite."""
    lr: Float32
    """The learning rate of this step."""
    grad_norm: Float32 | None
    """The length of all gradients together, before clipping; None if it was not finite."""
    tokens_per_second: Float32
    """Of the last steps."""
    utilisation: Float32
    """Three times the forward products, over what the machine's largest products reach."""
    step_seconds: Seconds | None = None
    """Wall-clock time of this step alone, without evaluations and samples."""
    was_skipped: bool = False
    """Whether the loss or the gradient was not finite: the weights stayed as they were."""
    is_diverging: bool = False
    """Whether the loss is far above what it had been."""
    evaluation: Evaluation | None = None
    """On the validation set, at an interval."""
    norms: dict[str, dict[str, float | None]] | None = None
    """Of activations, weights and gradients, by layer, at an interval; None is not finite."""
    sample: str | None = None
    """A text that the model wrote, at an interval; kept in samples.jsonl."""
    saved: str | None = None
    """The name of the checkpoint that was taken after this step."""

    def to_dict(self) -> dict[str, Any]:
        """Return the line of `metrics.jsonl`: what there is, without the sample."""
        values = asdict(self)
        del values["sample"]
        # By identity: 0.0 is equal to False, and a learning rate.
        return {name: v for name, v in values.items() if v is not None and v is not False}


@dataclass(frozen=True)
class SampleRecord:
    """A text that a model wrote while it was trained, and how it was drawn."""

    step: Count
    prompt: str = ""
    max_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: str = ""


def read_steps(path: Path) -> list[StepRecord]:
    """The records of a `metrics.jsonl`, each checked; their steps increase."""
    records: list[StepRecord] = []
    for number, values in enumerate(read_log(path), start=1):
        evaluation = values.pop("evaluation", None)
        # A loss or norm that is not finite is null, or not there.
        whole = {"loss": None, "grad_norm": None, **values}
        record = _read_line(StepRecord, whole, path, number)
        if evaluation is not None:
            logged = _read_line(_LoggedEvaluation, evaluation, path, number, table="evaluation")
            finite = {name: value for name, value in asdict(logged).items() if value is not None}
            record = replace(record, evaluation=replace(INFINITE, **finite))
        if records and record.step <= records[-1].step:
            problem = f"has step {record.step} in line {number}, after step {records[-1].step}"
            raise FileError(path, problem, "mend or remove that line")
        records.append(record)
    return records


def read_samples(path: Path) -> list[SampleRecord]:
    """The records of a `samples.jsonl`, each checked."""
    lines = enumerate(read_log(path), start=1)
    return [_read_line(SampleRecord, values, path, number) for number, values in lines]


def _read_line(kind: type[T], values: object, path: Path, number: int, table: str = "") -> T:
    try:
        return read(kind, values, "the line", table=table, extra="ignore")
    except ValueError as error:
        problem = f"has a damaged line {number} ({str(error).rstrip('.')})"
        raise FileError(path, problem, "mend or remove that line") from None


class Log:
    """A file that lines are appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Without a buffer: closing the file would write again what a full disk refused. Not through
        # a symlink: in an untrusted run it may lead to a file of the user.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        self._file = open_regular(path, flags, "written")

    def append(self, record: dict[str, Any]) -> None:
        """Add a line; it survives the end of this process, and after `sync` that of the machine."""
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode("utf-8", "backslashreplace")
        with self._explained():
            while data:  # a disk that is nearly full takes a part
                data = data[self._file.write(data) :]

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        with self._explained():
            os.fsync(self._file.fileno())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"cannot write {self.path} ({error.strerror}); the checkpoints are whole: check "
                f"the space and permissions of the folder, then `tilth resume {self.path.parent}`"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def _finite(value: Any) -> Any:  # noqa: ANN401, anything that JSON holds
    """The value with null for what is not finite, which JSON has no word for."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return finite_or_none(value) if isinstance(value, float) else value


def finite_or_none(number: float) -> float | None:
    """The number, or None, which JSON writes as null, if it is not finite."""
    return number if math.isfinite(number) else None


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the records of a log; none if it does not exist yet."""
    return [record for _, record in _parse(path, read_bytes(path) if path.exists() else b"")]


def cut_back(path: Path, step: int) -> None:
    """Remove the records after `step` from a log, and an incomplete last line."""
    if not os.path.lexists(path):
        return
    with open_regular(path, os.O_RDONLY | os.O_NOFOLLOW, "written") as file:
        content = file.read()
    lines = _parse(path, content)
    kept = b"".join(line + b"\n" for line, record in lines if record["step"] <= step)
    if kept != content:
        with atomic_write(path, overwrite=True) as file:
            file.write(kept)


def _parse(path: Path, content: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the lines of a log, each with its record; a line without an end is incomplete."""
    lines = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            problem = f"has a damaged line {number} ({error})"
            raise FileError(path, problem, "mend or remove that line") from error
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise FileError(path, f"has no step in line {number}", "mend or remove that line")
        lines.append((line, record))
    return lines
