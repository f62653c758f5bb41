"""Run directories: one folder with everything about a training run, to move, resume or serve.

No torch: reading a run does not wait for its import.
"""

import fcntl
import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tomli_w

from tilth.config.model import END_TOKEN
from tilth.config.training import ResolvedConfig, TrainingConfig, differences
from tilth.files import (
    FileError,
    StrPath,
    checked,
    checksum,
    hold_lock,
    load_manifest,
    open_regular,
    read_toml,
    refuse_invalid,
    refuse_link,
    save_manifest,
    write_text_atomically,
)
from tilth.runs.atomic_folders import check_new_folder, new_folder
from tilth.runs.checkpoints import (
    CHECKPOINTS,
    HISTORY,
    Checkpoint,
    CheckpointState,
    best_checkpoint,
    list_checkpoints,
)
from tilth.runs.metrics import METRICS, SAMPLES, SampleRecord, StepRecord, read_samples, read_steps
from tilth.schema import Length
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.formats import save_tokenizer_json

CONFIG, TOKENIZER, MANIFEST, README = "config.toml", "tokenizer.json", "manifest.json", "README.md"
LOCK = "lock"
MAX_JOB_BYTES = 1000
KIND, VERSION = "run", 1


@dataclass(frozen=True)
class RunManifest:
    """The content of a run's `manifest.json`, without its format and version."""

    data_fingerprint: Annotated[str, Length(at_least=1, at_most=200)]
    tokenizer_fingerprint: Annotated[str, Length(at_least=1, at_most=200)]
    created: str = ""  # time in UTC
    checksums: dict[str, str] = field(default_factory=dict)  # SHA-256 of files that never change
    versions: dict[str, str] = field(default_factory=dict)  # of packages, at the first step
    end_token: str = END_TOKEN
    initial: str = ""  # name of the model whose weights it started from; "" for random weights


@dataclass(frozen=True)
class Run:
    """An open run directory."""

    folder: Path
    config: ResolvedConfig = field(repr=False)
    manifest: RunManifest = field(repr=False)

    @property
    def end_token(self) -> str:
        """The special token that ends the documents of the run's data."""
        return self.manifest.end_token

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer of the run's data."""
        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        if tokenizer.fingerprint != self.manifest.tokenizer_fingerprint:
            problem = "is not the tokenizer that the run was trained with"
            raise FileError(self.folder / TOKENIZER, problem, "restore a copy")
        return tokenizer

    def metrics(self) -> list[StepRecord]:
        """Read the records of all steps."""
        return read_steps(self.folder / METRICS)

    def samples(self) -> list[SampleRecord]:
        """Read the texts that were sampled during training."""
        return read_samples(self.folder / SAMPLES)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the checkpoints that a training can resume from, oldest first."""
        return list_checkpoints(self.folder)

    def history(self) -> list[Checkpoint]:
        """Return a checkpoint of each step whose weights are there, oldest first."""
        by_step = {each.step: each for each in list_checkpoints(self.folder, HISTORY)}
        by_step |= {each.step: each for each in self.checkpoints()}
        return [by_step[step] for step in sorted(by_step)]

    def checkpoint(self, step: int | None = None) -> Checkpoint:
        """Return the checkpoint after `step`, by default the best, or the newest without losses.

        A step of the history may be given.
        """
        checkpoints = self.history() if step is not None else self.checkpoints()
        if not checkpoints:
            raise FileError(self.folder, "has no checkpoint yet", "train it first")
        if step is None:
            return best_checkpoint(checkpoints) or checkpoints[-1]
        by_step = {checkpoint.step: checkpoint for checkpoint in checkpoints}
        if step not in by_step:
            steps = ", ".join(map(str, by_step))
            raise FileError(self.folder, f"has no checkpoint of step {step}", f"there are {steps}")
        return by_step[step]

    def weights(self, step: int | None = None) -> tuple[Checkpoint, dict[str, np.ndarray]]:
        """Read the weights of the best checkpoint, or of that after `step`, as float32.

        If a running training removes the checkpoint meanwhile, the next best is read.
        """
        while True:
            checkpoint = self.checkpoint(step)
            try:
                return checkpoint, checkpoint.weights(self.config.model)
            except (OSError, ValueError):
                if checkpoint.folder.is_dir():
                    raise

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """Whether a process trains it now, it reached its last step, or neither."""
        return "running" if self.is_running else "finished" if self.is_finished else "stopped"

    @property
    def is_finished(self) -> bool:
        """Whether there is a checkpoint of the last step."""
        return any(checkpoint.step >= self.config.steps for checkpoint in self.checkpoints())

    @property
    def is_running(self) -> bool:
        """Whether a process is training it."""
        if (self.folder / LOCK).exists():
            try:
                with open_regular(self.folder / LOCK) as lock:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def locked(self, job: str | None = None) -> Iterator[None]:
        """Hold the lock that a training process takes; raise ValueError if another one has it.

        With a `job`, the file of the lock keeps it for `last_job`; "" is no job.
        """
        taken = f"Another process is training {self.folder}; wait for it, or stop it."
        # `is_running` of another process holds the lock for a moment.
        with hold_lock(self.folder / LOCK, taken, tries=25) as lock:
            if job is not None:
                lock.truncate(0)
                lock.write(os.fsencode(job))
            yield

    def save_config(self, config: ResolvedConfig) -> "Run":
        """Replace the config and the README; return the run with them."""
        refuse_link(self.folder / CONFIG)
        _save_config(self.folder, self.folder.resolve().name, config)
        return open_run(self.folder)


def create_run(
    folder: StrPath,
    config: ResolvedConfig,
    tokenizer: Tokenizer,
    data_fingerprint: str,
    end_token: str = END_TOKEN,
    initial: str = "",
) -> Run:
    """Create a run directory without checkpoints; the folder appears complete or not at all."""
    check_run_folder(Path(folder))
    with new_folder(Path(folder), "the run ") as partial:
        _save_config(partial, Path(folder).resolve().name, config)
        save_tokenizer_json(tokenizer.vocabulary, partial / TOKENIZER)
        manifest = {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "data_fingerprint": data_fingerprint,
            "tokenizer_fingerprint": tokenizer.fingerprint,
            "end_token": end_token,
            "initial": initial,
            "checksums": {TOKENIZER: checksum(partial / TOKENIZER)},
            "versions": versions(),
        }
        save_manifest(partial / MANIFEST, manifest, kind=KIND, version=VERSION)
        (partial / CHECKPOINTS).mkdir()
    return open_run(folder)


def check_run_folder(folder: Path) -> None:
    """Raise FileExistsError if a new run would replace files; part of the preflight checks."""
    if (folder / CONFIG).exists():
        raise FileExistsError(
            f"{folder} is a run already; continue it with `tilth resume {folder}`, or choose "
            "another --out."
        )
    check_new_folder(folder)


def last_job(folder: StrPath) -> str:
    """Return the job of torchrun that last trained the run in `folder`, "" without one."""
    if not (Path(folder) / LOCK).exists():
        return ""
    with open_regular(Path(folder) / LOCK) as lock:
        return os.fsdecode(lock.read(MAX_JOB_BYTES))


def open_run(folder: StrPath) -> Run:
    """Open a run directory; raise FileError unless its config and manifest are valid."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        hint = "name a folder that `tilth train` made"
        raise FileError(folder, f"is not a run (it has no {CONFIG})", hint)
    content = load_manifest(folder / MANIFEST, kind=KIND, version=VERSION)
    manifest = checked(RunManifest, content, folder / MANIFEST)
    values = read_toml(folder / CONFIG)
    with refuse_invalid(folder / CONFIG, "is not a training config", "correct or restore it"):
        config = TrainingConfig.from_dict(values)
    if config.steps is None:
        raise FileError(folder / CONFIG, "has no steps", "restore it")
    resolved = config.resolve(device="cpu", dtype="float32", compile=False, threads=1)
    if undecided := differences(config, resolved):
        raise FileError(folder / CONFIG, f"has no {', '.join(undecided)}", "restore it")
    return Run(folder, resolved, manifest)


def check_same_config(run: Run, checkpoint: Checkpoint, state: CheckpointState) -> None:
    """Raise ValueError if the run's config could not have led to the checkpoint."""
    then = checkpoint.config(state)
    is_extension = checkpoint.step == then.steps == run.config.optimizer.begin_step
    length = ("steps", "optimizer.begin_step", "optimizer.warmup_steps", "optimizer.decay_steps")
    # A time budget decides the end late (see training/deadline.py). No step has depended on it.
    is_constant = all(_is_constant_phase(config, checkpoint.step) for config in (then, run.config))
    end = ("steps", "optimizer.decay_steps")
    free = ("data", "parallel.strategy", "parallel.shards", "parallel.memory_gb")
    for name, (old, new) in differences(then, run.config).items():
        may_change = name in free or name.startswith("watch.")
        may_change |= (is_extension and name in length) or (is_constant and name in end)
        if not may_change:
            raise ValueError(
                f"{run.folder} was trained with {name} = {old}, and its config now says {new}; "
                "restore it, or start a new run."
            )


def _is_constant_phase(config: ResolvedConfig, step: int) -> bool:
    """Return whether the learning rate up to `step` does not depend on the number of steps."""
    optimizer = config.optimizer
    is_stable = optimizer.schedule == "warmup-stable-decay"
    return is_stable and step <= config.steps - optimizer.decay_steps


def verify_run(run: Run) -> Iterator[tuple[str, str | None]]:
    """Check the integrity of a run, byte by byte; yield each file and its problem, or None."""
    checks: dict[str, Callable[[Run], object]] = {
        CONFIG: _check_config,
        TOKENIZER: _check_tokenizer,
        METRICS: _check_metrics,
    }
    if (run.folder / SAMPLES).exists():
        checks[SAMPLES] = Run.samples
    for name in (CHECKPOINTS, HISTORY):
        for each in list_checkpoints(run.folder, name):
            checks[f"{name}/{each.name}"] = partial(_check_checkpoint, each)
    for name, check in checks.items():
        problem = None
        try:
            check(run)
        except (ValueError, OSError) as error:
            problem = str(error)
            if name.startswith(CHECKPOINTS) and not (run.folder / name).exists():
                continue  # a running training removes old checkpoints
        yield name, problem


def _check_checkpoint(checkpoint: Checkpoint, run: Run) -> None:
    checkpoint.check_tensors(checkpoint.check(), run.config)


def _check_config(run: Run) -> None:
    for checkpoint in reversed(run.checkpoints()):
        try:
            state = checkpoint.state()
        except FileError:  # reported for the checkpoint
            continue
        check_same_config(run, checkpoint, state)
        break


def _check_metrics(run: Run) -> None:
    checkpoints = run.checkpoints()  # before the records: a running training adds to both
    records = run.metrics()
    newest = checkpoints[-1].step if checkpoints else 0
    # Steps increase by 1 unless one is missing.
    steps = enumerate((record.step for record in records), start=1)
    missing = next((expected for expected, step in steps if step != expected), len(records) + 1)
    if missing <= newest:
        raise FileError(run.folder / METRICS, f"has no step {missing}", "restore a copy")
    saved = [record.saved for record in records if record.saved]
    # Listed again: a running training may have written the first checkpoint meanwhile.
    if saved and not run.is_running and not run.checkpoints():
        # The process was killed while it wrote the checkpoint, or the checkpoint was removed.
        problem = f"is empty, but {METRICS} names {saved[-1]}"
        hint = "restore a copy"
        if not run.config.optimizer.begin_step:
            hint += ", or `tilth resume` starts again from step 1"
        raise FileError(run.folder / CHECKPOINTS, problem, hint)


def _check_tokenizer(run: Run) -> None:
    path = run.folder / TOKENIZER
    run.tokenizer()
    if checksum(path) != run.manifest.checksums.get(TOKENIZER):
        raise FileError(path, "was changed", "restore a copy")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("tilth", "torch", "numpy"):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _save_config(folder: Path, name: str, config: ResolvedConfig) -> None:
    write_text_atomically(folder / CONFIG, tomli_w.dumps(config.to_dict()), overwrite=True)
    target = folder / README
    if target.is_symlink():  # an untrusted run may link to a file of the user
        target.unlink()
    write_text_atomically(target, readme(name, config), overwrite=True)


def readme(name: str, config: ResolvedConfig) -> str:
    """Return the README of a run directory."""
    model = config.model
    name = os.fsencode(name).decode("utf-8", "replace")
    rows = "".join(
        f"| `{sink}/` | the same metrics for {sink} |\n"
        for sink in config.watch.sinks
        if sink != "trackio"  # its folder is elsewhere
    )
    if config.watch.weights_per_doubling:
        rows = f"| `{HISTORY}/step-000064/` | the weights after step 64, to look back at |\n{rows}"
    template = Path(__file__).with_name("readme.md").read_text("utf-8")
    return template.format(
        name=name,
        recipe=config.recipe,
        layers=model.num_layers,
        width=model.d_model,
        steps=config.steps,
        tokens=config.tokens_per_step,
        rows=rows,
    )
