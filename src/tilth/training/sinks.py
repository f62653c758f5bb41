"""Sinks: where metrics go in addition to `metrics.jsonl`. Each is an extra.

A sink that fails during training is reported once and dropped; the run goes on.

| sink | destination | a resumed run |
|---|---|---|
| tensorboard | `tensorboard/` in the run directory | repeated steps replace the old ones |
| trackio | the folder of trackio, project `tilth` | appends to the same run |
| wandb | `wandb/` in the run directory, project `tilth` | appends to the same run |

wandb is offline unless the user sets WANDB_MODE=online; `wandb sync` uploads the run later.

    with open_sinks(run, first_step=1) as sinks:
        sinks.write(record)
"""

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from tilth.files import read_bytes
from tilth.runs.metrics import StepRecord
from tilth.runs.run import MANIFEST, Run

PROJECT = "tilth"

log = logging.getLogger(__name__)


class Sink(NamedTuple):
    """An open sink."""

    log: Callable[..., object]  # log(values, step=step): numbers by name, and the text "sample"
    close: Callable[[], object]


class Sinks:
    """The open sinks of a run, without those that failed."""

    def __init__(self) -> None:
        self.by_name: dict[str, Sink] = {}

    def write(self, record: StepRecord) -> None:
        """Log a step to all sinks."""
        values = scalars(record)
        sample = {} if record.sample is None else {"sample": record.sample}
        self._each(lambda sink: sink.log({**values, **sample}, step=record.step))

    def close(self) -> None:
        """Flush and close all sinks."""
        self._each(lambda sink: sink.close())

    def _each(self, action: Callable[[Sink], object]) -> None:
        for name, sink in list(self.by_name.items()):
            try:
                action(sink)
            except Exception as error:  # of any kind: the training is worth more
                log.warning("the sink %s failed (%s) and gets no more metrics.", name, error)
                del self.by_name[name]


def check_sinks(names: Iterable[str]) -> None:
    """Raise ValueError if the library of a sink is not installed."""
    for name in names:
        if find_spec(name) is None:
            raise ValueError(
                f"the sink {name} needs a library that is not installed; "
                f"`pip install 'tilth[{name}]'`, or leave it out of watch.sinks."
            )


@contextmanager
def open_sinks(run: Run, *, first_step: int) -> Iterator[Sinks]:
    """Open the sinks that the config names, for the steps from `first_step` on."""
    sinks = Sinks()
    try:
        for name in run.config.watch.sinks:
            try:
                sinks.by_name[name] = OPEN[name](run, first_step)
            except Exception as error:  # each library has its own: no key, no server, no space
                raise ValueError(
                    f"the sink {name} cannot be opened ({error}); fix that, or leave it out of "
                    "watch.sinks."
                ) from error
        yield sinks
    finally:
        sinks.close()


def scalars(record: StepRecord) -> dict[str, float]:
    """Return the numbers of a step under names that sinks group by their prefix."""
    values: dict[str, float | None] = {
        "train/loss": record.loss,
        "train/learning_rate": record.lr,
        "train/gradient_norm": record.grad_norm,
        "train/tokens": record.tokens,
        "train/seconds": record.seconds,
        "train/was_skipped": float(record.was_skipped),
        "train/is_diverging": float(record.is_diverging),
        "speed/tokens_per_second": record.tokens_per_second,
        "speed/utilisation": record.utilisation,
    }
    if record.evaluation is not None:
        for name in ("loss", "perplexity", "bits_per_byte"):
            values[f"valid/{name}"] = getattr(record.evaluation, name)
    for kind, norms in (record.norms or {}).items():
        values |= {f"{kind}/{name}": norm for name, norm in norms.items()}
    return {name: value for name, value in values.items() if value is not None}


# Imported by name, as extras: the type checker says the same whether they are installed or not.


def _open_tensorboard(run: Run, first_step: int) -> Sink:
    tensorboard: Any = import_module("torch.utils.tensorboard")
    folder = str(run.folder / "tensorboard")
    # Its reader drops the records of an interrupted session from this step on.
    writer = tensorboard.SummaryWriter(folder, purge_step=first_step, flush_secs=10)

    def log_values(values: dict[str, float | str], step: int) -> None:
        for name, value in values.items():
            add = writer.add_text if isinstance(value, str) else writer.add_scalar
            add(name, value, step)

    return Sink(log_values, writer.close)


def _open_trackio(run: Run, _first_step: int) -> Sink:
    trackio: Any = import_module("trackio")
    # It identifies a run by its name alone, and prints to stdout.
    name = f"{run.folder.resolve().name}-{_identity(run)}"
    config = run.config.to_dict()
    with redirect_stdout(sys.stderr):
        opened = trackio.init(project=PROJECT, name=name, resume="allow", config=config)

    def finish() -> None:
        with redirect_stdout(sys.stderr):
            trackio.finish()  # the `finish` of `opened` would be called again at exit

    return Sink(opened.log, finish)


def _open_wandb(run: Run, _first_step: int) -> Sink:
    mode = os.environ.get("WANDB_MODE", "offline")
    if mode == "offline":
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before the import reads it
    wandb: Any = import_module("wandb")
    opened = wandb.init(
        project=PROJECT,
        id=_identity(run),
        name=run.folder.resolve().name,
        dir=str(run.folder),
        config=run.config.to_dict(),
        mode=mode,
        # Offline there is no server to ask; the sessions of a run then share its id.
        resume=None if mode == "offline" else "allow",
        # The console shows tilth's live panel.
        settings=wandb.Settings(console="off", silent=True),
    )
    return Sink(opened.log, opened.finish)


OPEN = {"tensorboard": _open_tensorboard, "trackio": _open_trackio, "wandb": _open_wandb}


def _identity(run: Run) -> str:
    """Return an id that a resumed run keeps and a copy under another name does not share."""
    manifest = read_bytes(run.folder / MANIFEST)
    return hashlib.sha256(run.folder.resolve().name.encode() + manifest).hexdigest()[:8]
