"""Append-only logs of a run: `metrics.jsonl` and `samples.jsonl`, one JSON object a line.

A crash can truncate only the last line: readers ignore a line without an end, and a resumed run
cuts its logs back to the step of its checkpoint.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "metrics.jsonl"
...     with Log(path) as log:
...         for step in (1, 2, 3):
...             log.append({"step": step, "loss": 9.0 / step})
...     torn = path.write_bytes(path.read_bytes() + b'{"step": 4, "lo')  # a crash
...     cut_back(path, step=2)
...     list(read_log(path))
[{'step': 1, 'loss': 9.0}, {'step': 2, 'loss': 4.5}]
"""

import json
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Self

from tilth.files import open_regular, read_bytes, refuse_invalid, refuse_link, write_atomically
from tilth.schema import Range, read

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
MAX_LOG_BYTES = 1 << 30
"""The maximum size of a log, which readers hold in memory: two million steps or more."""

Count = Annotated[int, Range(at_least=0, at_most=2**63 - 1)]
Seconds = Annotated[float, Range(at_least=0.0, at_most=1e12)]
Float32 = Annotated[float, Range(at_least=-3.5e38, at_most=3.5e38)]  # finite float32 numbers


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model on held-out text.

    Bits per byte of text do not depend on the tokenizer, unlike the loss.
    """

    loss: float  # nats per token
    perplexity: float  # exp(loss)
    bits_per_byte: float
    tokens: int  # predicted tokens


INFINITE = Evaluation(math.inf, math.inf, math.inf, 0)


@dataclass(frozen=True)
class _LoggedEvaluation:
    """An evaluation in a log; null is infinite."""

    loss: Float32 | None
    perplexity: float | None = None
    bits_per_byte: Float32 | None = None
    tokens: Count = 0


@dataclass(frozen=True)
class StepRecord:
    """The metrics of one step. Numbers that are not finite are None.

    Attributes:
        step: Steps done, including this one.
        tokens: Tokens of all steps so far.
        seconds: Wall-clock time of training so far, over all sessions.
        loss: Mean loss of the batch in nats per token.
        lr: Learning rate.
        grad_norm: Global gradient norm before clipping.
        tokens_per_second: Throughput of the last 20 steps.
        utilisation: FLOP/s of the last 20 steps over those of a large matrix product.
        step_seconds: Wall-clock time of this step, without evaluation and sample.
        was_skipped: Whether loss or gradient was not finite, so the weights did not change.
        is_diverging: Whether the loss is far above its lowest mean (`tilth.training.guards`).
        evaluation: On the validation set, every `watch.evaluate_every` steps.
        norms: Of activations, weights and gradients by layer, every `watch.norms_every` steps.
        sample: Generated text, every `watch.sample_every` steps; stored in `samples.jsonl`.
        saved: Name of the checkpoint after this step.

    """

    step: Annotated[int, Range(at_least=1, at_most=2**63 - 1)]
    tokens: Count
    seconds: Seconds
    loss: Float32 | None
    lr: Float32
    grad_norm: Float32 | None
    tokens_per_second: Float32
    utilisation: Float32
    step_seconds: Seconds | None = None
    was_skipped: bool = False
    is_diverging: bool = False
    evaluation: Evaluation | None = None
    norms: dict[str, dict[str, float | None]] | None = None
    sample: str | None = None
    saved: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the line of `metrics.jsonl`: without the sample, None and False."""
        values = asdict(self)
        del values["sample"]
        # By identity: a learning rate of 0.0 is equal to False.
        return {name: v for name, v in values.items() if v is not None and v is not False}


@dataclass(frozen=True)
class SampleRecord:
    """A text that was sampled during training, and its options."""

    step: Count
    prompt: str = ""
    max_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    text: str = ""


def read_steps(path: Path) -> list[StepRecord]:
    """Read and check a `metrics.jsonl`; steps must increase."""
    records: list[StepRecord] = []
    for number, values in enumerate(read_log(path), start=1):
        with _line(path, number):
            record = step_record(values)
            if records and record.step <= records[-1].step:
                raise ValueError(f"step {record.step} follows step {records[-1].step}")
        records.append(record)
    return records


def step_record(values: dict[str, Any]) -> StepRecord:
    """Check a line of a `metrics.jsonl`; raise ValueError if it is not one."""
    # A loss or norm that is not finite is null or missing.
    whole = {"loss": None, "grad_norm": None, **values}
    evaluation = whole.pop("evaluation", None)
    record = read(StepRecord, whole, "the line", extra="ignore")
    if evaluation is None:
        return record
    logged = read(_LoggedEvaluation, evaluation, "the line", table="evaluation", extra="ignore")
    finite = {name: each for name, each in asdict(logged).items() if each is not None}
    return replace(record, evaluation=replace(INFINITE, **finite))


def read_samples(path: Path) -> list[SampleRecord]:
    """Read and check a `samples.jsonl`."""
    records = []
    for number, values in enumerate(read_log(path), start=1):
        with _line(path, number):
            records.append(sample_record(values))
    return records


def sample_record(values: dict[str, Any]) -> SampleRecord:
    """Check a line of a `samples.jsonl`; raise ValueError if it is not one."""
    return read(SampleRecord, values, "the line", extra="ignore")


def _line(path: Path, number: int) -> AbstractContextManager[None]:
    """Turn an error about a line of a log into FileError."""
    return refuse_invalid(path, f"has a damaged line {number}", "correct or remove that line")


class Log:
    """An append-only log, open for writing; records after `last_step` are removed first."""

    def __init__(self, path: Path, last_step: int | None = None) -> None:
        self.path = path
        if last_step is not None:
            cut_back(path, last_step)
        # Without a buffer: closing the file would write again what a full disk refused. Not through
        # a symlink: in an untrusted run it may lead to a file of the user.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        self._file = open_regular(path, flags, "written")

    def append(self, record: dict[str, Any]) -> None:
        """Append a line. It survives a crash of the process, and after `sync` a power failure."""
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n"
        data = line.encode("utf-8", "backslashreplace")
        with self._explained():
            while data:  # a nearly full disk writes a part
                data = data[self._file.write(data) :]

    def sync(self) -> None:
        """Wait until all lines are written to the disk."""
        with self._explained():
            os.fsync(self._file.fileno())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OSError(
                f"cannot write {self.path} ({error.strerror}); the checkpoints are intact: check "
                f"the space and permissions of the folder, then `tilth resume {self.path.parent}`"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def _finite(value: Any) -> Any:  # noqa: ANN401, anything that JSON holds
    """Replace non-finite floats by None, as JSON has none."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return finite_or_none(value) if isinstance(value, float) else value


def finite_or_none(number: float) -> float | None:
    """Return the number, or None if it is not finite; JSON writes None as null."""
    return number if math.isfinite(number) else None


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log; none if it does not exist yet."""
    content = read_bytes(path, MAX_LOG_BYTES) if path.exists() else b""
    return (record for _, record in _parse(path, content))


def cut_back(path: Path, step: int) -> None:
    """Remove the records after `step` from a log, and an incomplete last line."""
    if not os.path.lexists(path):
        return
    refuse_link(path)
    content = read_bytes(path, MAX_LOG_BYTES)
    kept = b"".join(line for line, record in _parse(path, content) if record["step"] <= step)
    if kept != content:
        write_atomically(path, kept, overwrite=True)


def _parse(path: Path, content: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the lines of a log, each with its record; a line without an end is incomplete.

    One at a time: the records of untrusted lines can take 50 times the memory of the file.
    """
    for number, line in enumerate(BytesIO(content), start=1):
        if line.endswith(b"\n"):
            with _line(path, number):
                record = parse_line(line)
            yield line, record


def parse_line(line: bytes) -> dict[str, Any]:
    """Parse a line of a log; raise ValueError unless it is an object with a step."""
    record = json.loads(line.decode("utf-8"))
    if not isinstance(record, dict) or type(record.get("step")) is not int:
        raise ValueError("it has no step")
    return record
