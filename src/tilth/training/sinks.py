"""Where metrics go besides `metrics.jsonl`: tensorboard, trackio, wandb, each an extra.

What enters: a run that names sinks (`watch.sinks`), and its step records. What leaves: curves where
the user already looks at others. `metrics.jsonl` stays the truth: a sink that fails on the way is
said once and left out, and the run goes on.

| sink | where | a resumed run |
|---|---|---|
| tensorboard | `tensorboard/` in the run directory | later steps are purged, then written again |
| trackio | trackio's own folder, project `tilth` | appends to the same run |
| wandb | `wandb/` in the run directory, project `tilth` | appends to the same run |

wandb stays off the network unless the user sets WANDB_MODE=online; `wandb sync` sends it later.

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
from typing import Any, Protocol

from tilth.files import read_bytes
from tilth.runs.metrics import StepRecord
from tilth.runs.run import MANIFEST, Run

PROJECT = "tilth"

log = logging.getLogger(__name__)


class Sink(Protocol):
    """One of them, open."""

    def write(self, step: int, values: dict[str, float], sample: str | None) -> None:
        """Take what a step gave."""

    def close(self) -> None:
        """Finish what is being written."""


class Sinks:
    """Those of a run that still work."""

    def __init__(self, sinks: dict[str, Sink]) -> None:
        self._sinks = sinks

    def write(self, record: StepRecord) -> None:
        """Hand a step to all of them."""
        if self._sinks:
            values = scalars(record)
            self._each(lambda sink: sink.write(record.step, values, record.sample))

    def close(self) -> None:
        """Finish what is being written."""
        self._each(lambda sink: sink.close())

    def _each(self, action: Callable[[Sink], None]) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                action(sink)
            except Exception as error:  # whatever it is, hours of training are worth more
                log.warning("the sink %s failed (%s) and gets no more metrics.", name, error)
                del self._sinks[name]


def check_sinks(names: Iterable[str]) -> None:
    """Refuse a sink whose library is not installed; call it before long work."""
    for name in names:
        if find_spec(name) is None:
            raise ValueError(
                f"the sink {name} needs a library that is not installed; "
                f"`pip install 'tilth[{name}]'`, or leave it out of watch.sinks."
            )


@contextmanager
def open_sinks(run: Run, *, first_step: int) -> Iterator[Sinks]:
    """Open what the run's config names, to go on with this step."""
    names = run.config.watch.sinks
    opened: dict[str, Sink] = {}
    sinks = Sinks(opened)
    try:
        for name in names:
            opened[name] = _open(name, run, first_step)
        yield sinks
    finally:
        sinks.close()


def scalars(record: StepRecord) -> dict[str, float]:
    """The numbers of a step, under names that group well in every sink."""
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
    if (evaluation := record.evaluation) is not None:
        values["valid/loss"] = evaluation.loss
        values["valid/perplexity"] = evaluation.perplexity
        values["valid/bits_per_byte"] = evaluation.bits_per_byte
    for kind, norms in (record.norms or {}).items():
        values |= {f"{kind}/{name}": norm for name, norm in norms.items()}
    return {name: value for name, value in values.items() if value is not None}


def _open(name: str, run: Run, first_step: int) -> Sink:
    try:
        match name:
            case "tensorboard":
                return _TensorBoard(run, first_step)
            case "trackio":
                return _Trackio(run)
            case _:
                assert name == "wandb", name
                return _Wandb(run)
    except Exception as error:  # their own kinds, most of them: no key, no server, no space
        raise ValueError(
            f"the sink {name} cannot be opened ({error}); mend that, or leave it out of "
            "watch.sinks."
        ) from error


# Imported by name, as extras: the type checker says the same whether they are installed or not.


class _TensorBoard:
    def __init__(self, run: Run, first_step: int) -> None:
        tensorboard: Any = import_module("torch.utils.tensorboard")
        folder = str(run.folder / "tensorboard")
        # Its reader drops what an interrupted session wrote about this step and later ones.
        self._writer = tensorboard.SummaryWriter(folder, purge_step=first_step, flush_secs=10)

    def write(self, step: int, values: dict[str, float], sample: str | None) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        if sample is not None:
            self._writer.add_text("sample", sample, step)

    def close(self) -> None:
        self._writer.close()


class _Trackio:
    def __init__(self, run: Run) -> None:
        self._trackio: Any = import_module("trackio")
        # It knows a run by its name alone, and tells on stdout what it does.
        name = f"{run.folder.resolve().name}-{_identity(run)}"
        config = run.config.to_dict()
        with redirect_stdout(sys.stderr):
            self._run = self._trackio.init(
                project=PROJECT, name=name, resume="allow", config=config
            )

    def write(self, step: int, values: dict[str, float], sample: str | None) -> None:
        self._run.log(_with_sample(values, sample), step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._trackio.finish()  # the run's own `finish` would be called again at exit


class _Wandb:
    def __init__(self, run: Run) -> None:
        mode = os.environ.get("WANDB_MODE", "offline")
        if mode == "offline":
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # before the import reads it
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            project=PROJECT,
            id=_identity(run),
            name=run.folder.resolve().name,
            dir=str(run.folder),
            config=run.config.to_dict(),
            mode=mode,
            # Offline there is nobody to ask; the parts of a run then share its id.
            resume=None if mode == "offline" else "allow",
            # The console is ours: it has a live panel.
            settings=wandb.Settings(console="off", silent=True),
        )

    def write(self, step: int, values: dict[str, float], sample: str | None) -> None:
        self._run.log(_with_sample(values, sample), step=step)

    def close(self) -> None:
        self._run.finish()


def _with_sample(values: dict[str, float], sample: str | None) -> dict[str, Any]:
    return values if sample is None else {**values, "sample": sample}


def _identity(run: Run) -> str:
    """What is the same whenever this run is resumed, and differs in a copy under another name."""
    manifest = read_bytes(run.folder / MANIFEST)
    return hashlib.sha256(run.folder.resolve().name.encode() + manifest).hexdigest()[:8]
