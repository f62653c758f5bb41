"""The training loop: a config and token files to a run directory, one step record at a time.

`train`, `resume` and `extend` return an iterator of `StepRecord`. They run their checks at the call
and write nothing before the first step: a discarded iterator leaves no folder behind. Leaving the
loop saves a checkpoint; `resume` then reaches the same bits as an uninterrupted run.

    for record in tilth.train(config, "runs/first"):
        print(record.step, record.loss)

`prepare`, `prepare_resume` and `prepare_extension` only run the checks. Their result has the
resolved config and the plan; its method `train` starts the training.
"""

import atexit
import logging
import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch

from tilth.config.training import ResolvedConfig, TrainingConfig
from tilth.data import Data, open_data
from tilth.files import FileError, StrPath, refuse_link
from tilth.formats.model_files import ModelFiles
from tilth.runs.atomic_folders import remove_leftovers
from tilth.runs.checkpoints import (
    CHECKPOINTS,
    HISTORY,
    LEFTOVER,
    Checkpoint,
    CheckpointState,
)
from tilth.runs.metrics import METRICS, SAMPLES, Log, StepRecord
from tilth.runs.run import (
    CONFIG,
    Run,
    check_run_folder,
    create_run,
    last_job,
    open_run,
    versions,
)
from tilth.runs.state import CheckpointWriter
from tilth.training.deadline import Deadline
from tilth.training.distributed import Ranks, open_ranks
from tilth.training.initializing import read_initial
from tilth.training.machine import machine_settings, resolve_device, resolve_dtype
from tilth.training.parallel import ONE_PROCESS, Division, divide
from tilth.training.planning import Plan, check_compiler, plan
from tilth.training.preflight import check_machine, check_new_run, open_same_data
from tilth.training.session import Session
from tilth.training.sinks import open_sinks
from tilth.training.sizing import sized
from tilth.training.step import make_batches

Steps = Generator[StepRecord, None, None]
SHOWN_SECONDS = 60.0  # NFS keeps for 30 to 60 seconds that a file does not exist

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedRun:
    """A training that passed its checks; nothing is written before its first step."""

    config: ResolvedConfig
    data: Data
    make_run: Callable[[], Run]  # creates the run directory, or updates its config
    folder: Path
    plan: Plan | None = None
    initial: ModelFiles | None = None  # the weights of a new run; default random
    deadline: Deadline | None = None  # of a new run with a time budget
    division: Division = ONE_PROCESS  # of the training among ranks

    @property
    def steps(self) -> int:
        """Number of steps; a time budget may change it once during the training."""
        return (self.config if self.deadline is None else self.deadline.config).steps

    def train(self) -> Steps:
        """Train from the newest checkpoint, or from step 0, to the last step."""
        steps = _steps(self)
        _sessions.add(steps)
        return steps


def train(config: TrainingConfig, out: StrPath, *, init: StrPath | None = None) -> Steps:
    """Start a run in a new folder; values that the config leaves open are measured.

    `init` is a run, a checkpoint or a model folder of the same shape and tokenizer to start from.
    """
    return prepare(config, out, init=init).train()


def resume(folder: StrPath, *, data: StrPath | None = None) -> Steps:
    """Resume a stopped run; `data` is its data folder, if that was moved."""
    return prepare_resume(folder, data=data).train()


def extend(folder: StrPath, steps: int, *, data: StrPath | None = None) -> Steps:
    """Train a finished run for `steps` more, with a learning rate schedule for the new steps."""
    return prepare_extension(folder, steps, data=data).train()


# --- before the first step ------------------------------------------------------------------------


def prepare(
    config: TrainingConfig,
    out: StrPath,
    *,
    data: Data | None = None,
    measure: bool = False,
    init: StrPath | None = None,
    given: Mapping[str, Any] | None = None,
) -> PreparedRun:
    """Run the preflight checks of a new run and resolve its config.

    `data` is the data folder of the config, if it is open already. The run is planned if the config
    leaves a value open, or with `measure`. With `given`, the values of a recipe that the user
    chose, a time budget decides about the others: also the shape and the batch (see `sizing`).
    """
    began = time.monotonic()
    folder = Path(out)
    ranks = open_ranks()
    if _resumes(folder, ranks):
        prepared = _prepare_resume(folder, data=None if data is None else data.folder)
        if init is None:
            return prepared
        # It may have been killed before its first checkpoint.
        given_model = read_initial(init, prepared.config, prepared.data.tokenizer())
        return replace(prepared, initial=given_model)
    check_run_folder(folder)
    data = open_data(config.data) if data is None else data
    tokenizer = data.tokenizer()
    initial = None if init is None else read_initial(init, config, tokenizer)
    # A plan takes seconds, compiling a minute.
    check_new_run(config, data, tokenizer, folder, may_pad=init is not None)
    planned = None
    if ranks.size > 1:
        resolved = _resolved_for_ranks(config)
    elif measure or None in (config.steps, *astuple(config.machine)):
        left, sizing = config, ""
        if given is not None and init is None and config.budget_seconds is not None:
            seconds = config.budget_seconds
            config, sizing = sized(config, data, given)
            seconds -= time.monotonic() - began
            left = replace(config, budget_seconds=max(1.0, seconds))
        planned = replace(plan(left, data), sizing=sizing)
        resolved = planned.config
    else:
        resolved = config.resolve()
        if resolved.machine.compile:
            try:
                check_compiler(resolved.machine)
            except ValueError as error:
                log.warning("%s It trains uncompiled.", error)
                resolved = replace(resolved, machine=replace(resolved.machine, compile=False))
    resolved = replace(resolved, data=str(data.folder.resolve()))
    division = _divide(ranks, resolved, data, initial)
    # Absolute: the working directory may change before the first step.
    make_run = partial(
        create_run,
        folder.absolute(),
        resolved,
        tokenizer,
        data.fingerprint,
        data.end_token,
        "" if init is None else Path(init).resolve().name,
    )
    deadline = None
    if config.steps is None and config.budget_seconds is not None:
        deadline = Deadline(began + config.budget_seconds, resolved)
    return PreparedRun(
        resolved, data, make_run, folder.absolute(), planned, initial, deadline, division
    )


def _resolved_for_ranks(config: TrainingConfig) -> ResolvedConfig:
    """Resolve a config without measurements, which would differ between the ranks."""
    if config.steps is None:
        raise ValueError(
            "a time budget is measured in one process, and torchrun started several; give the "
            "number of steps (--steps)."
        )
    device = resolve_device(config.machine.device)
    return config.resolve(
        device=device,
        dtype=resolve_dtype(config.machine.dtype, device),
        compile=False,
        threads=config.machine.threads or torch.get_num_threads(),
    )


def _divide(
    ranks: Ranks, config: ResolvedConfig, data: Data, initial: ModelFiles | None = None
) -> Division:
    """Divide a training among ranks; raise ValueError unless all have the same data and config."""
    ranks.rows_of(config)
    fingerprints = {"data": data.fingerprint, "tokenizer": data.tokenizer_fingerprint}
    if initial is not None and ranks.size > 1:
        fingerprints["initial model"] = initial.fingerprint()
    names = {f"the {name} with the fingerprint": value for name, value in fingerprints.items()}
    packages = {f"the version of {name}": value for name, value in versions().items()}
    ranks.check_same(config, {**names, **packages})
    return divide(config, ranks)


def prepare_resume(folder: StrPath, *, data: StrPath | None = None) -> PreparedRun:
    """Run the preflight checks of a stopped run."""
    _resumes(Path(folder), open_ranks(), is_asked=True)
    return _prepare_resume(folder, data=data)


def _resumes(folder: Path, ranks: Ranks, *, is_asked: bool = False) -> bool:
    """Return whether the ranks resume a run, also if they were told to train a new one.

    torchrun repeats its command, also on hosts that join late; and the script of a host that was
    replaced finds the run and says `resume` (docs/clusters.md), while others repeat `train`. Rank 0
    looks for all ranks: a network file system may show the run to others later.
    """
    exists = ranks.is_first and (folder / CONFIG).exists()
    is_own = exists and (ranks.is_restarted or ("" != ranks.job == last_job(folder)))
    return ranks.any(is_asked or is_own)


def _prepare_resume(folder: StrPath, *, data: StrPath | None) -> PreparedRun:
    ranks = open_ranks()
    run = open_run(folder) if ranks.is_first else _open_shared(Path(folder))
    config = _config_to_resume(run)
    # torchrun may restart ranks that have finished, if one of them ended badly.
    is_finished = replace(run, config=config).is_finished and not ranks.is_restarted
    if is_finished and _whole_state(run.checkpoints()[-1]):
        raise ValueError(
            f"{folder} is finished, after {config.steps:,} steps; to train it further, give "
            "the number of steps (--steps)."
        )
    return _prepare_existing(run, config, data)


def prepare_extension(folder: StrPath, steps: int, *, data: StrPath | None = None) -> PreparedRun:
    """Run the preflight checks of a finished run that is to be trained for `steps` more."""
    run = open_run(folder)
    # The extended config fits no checkpoint but the last.
    problem = ""
    if run.is_finished:
        try:
            _check_state(run.checkpoints()[-1])
        except FileError as error:
            problem = f" ({error})"
    if not run.is_finished or problem:
        raise ValueError(f"{folder} is not finished; first `tilth resume {folder}`{problem}.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; give at least 1.")
    old, begin_step = run.config.opened(), run.config.steps
    # Lengths that are None are derived again.
    optimizer = replace(old.optimizer, begin_step=begin_step, warmup_steps=None, decay_steps=None)
    config = replace(old, steps=begin_step + steps, optimizer=optimizer).resolve()
    prepared = _prepare_existing(run, config, data)
    if config.machine.compile:
        check_compiler(config.machine)
    return prepared


def _prepare_existing(run: Run, config: ResolvedConfig, data: StrPath | None) -> PreparedRun:
    check_machine(config)
    for name in (CHECKPOINTS, HISTORY):
        refuse_link(run.folder / name)  # old checkpoints are deleted there

    def update_run() -> Run:
        if config == run.config:
            return run
        with run.locked():
            return run.save_config(config)

    opened = open_same_data(run, data)
    division = _divide(open_ranks(), config, opened)
    return PreparedRun(config, opened, update_run, run.folder.absolute(), division=division)


def _config_to_resume(run: Run) -> ResolvedConfig:
    """Return the config of a run, or that before its extension if its last checkpoint is older."""
    begin_step = run.config.optimizer.begin_step
    if not begin_step:
        return run.config
    for checkpoint in reversed(run.checkpoints()):
        if (state := _whole_state(checkpoint)) is None:
            continue
        if state.step >= begin_step:
            break
        text = "%s was extended at step %d, and the checkpoint of that step is damaged: it "
        text += "continues from step %d with the config before that; extend it again afterwards."
        log.warning(text, run.folder, begin_step, state.step)
        return replace(checkpoint.config(state), data=run.config.data)
    return run.config


def _check_state(checkpoint: Checkpoint) -> CheckpointState:
    """Return the state of a checkpoint; raise FileError if a byte or a shape is wrong."""
    state = checkpoint.check()
    checkpoint.check_tensors(state, checkpoint.config(state))
    return state


def _whole_state(checkpoint: Checkpoint) -> CheckpointState | None:
    """Return the state of a checkpoint, None if a byte or a shape is wrong."""
    try:
        return _check_state(checkpoint)
    except FileError:
        return None


# --- the loop -------------------------------------------------------------------------------------

_sessions: WeakSet[Steps] = WeakSet()


@atexit.register
def _close_sessions() -> None:
    """Save the state of iterators that a program still holds at its end."""
    for session in list(_sessions):
        try:
            session.close()
        except Exception as error:  # and save the others
            log.error("%s", error)


def _steps(prepared: PreparedRun) -> Steps:
    process, ranks = os.getpid(), open_ranks()
    run = prepared.make_run() if ranks.is_first else None
    ranks.wait()
    run = run or _open_shared(prepared.folder)
    run = replace(run, folder=run.folder.absolute())  # the working directory may change
    config = run.config
    with ExitStack() as stack:
        if ranks.is_first:
            stack.enter_context(run.locked(ranks.job))
            _prepare_folders(run)
        device = stack.enter_context(machine_settings(config.machine))
        session = Session(run, prepared.data, device, prepared.initial, ranks, prepared.division)
        ranks.check_same_start(session.step, session.loaded)
        records = _Records(run, session, stack) if ranks.is_first else None
        writers = prepared.division.writers(ranks)
        writer = stack.enter_context(
            CheckpointWriter(run.folder, config.watch.keep_checkpoints, writers)
        )
        if session.step == 0:
            _save_first(session, writer, is_given=prepared.initial is not None)
        batches = make_batches(config, prepared.data, device, ranks.rank, ranks.size)

        def save(record: StepRecord, *, weights_only: bool = False) -> None:
            if records is not None:
                records.sync()  # first: a checkpoint is never ahead of the logs
            session.save(writer, record.evaluation, weights_only=weights_only)

        deadline = prepared.deadline
        for x, y in batches.read(session.step, None if deadline else config.steps):
            record = session.take_step(x, y)
            if records is not None:
                records.append(record)
            session.check(writer)
            if records is not None:
                records.append_sample(record)
            if record.saved:
                save(record)
            if session.is_in_history:
                save(record, weights_only=True)
            writer.check()
            if records is not None:
                records.sinks.write(record)
            if deadline is not None and deadline.see(record):
                session.run = session.run.save_config(deadline.config)
                session.config = session.run.config
                log.warning(
                    "step %s: the learning rate decays until step %s, to keep the time budget.",
                    *(f"{record.step:,}", f"{session.config.steps:,}"),
                )
            try:
                yield record
            except GeneratorExit:  # the caller has left the loop
                if os.getpid() == process:  # a forked child saves nothing
                    if not record.saved:
                        save(record)
                    writer.wait()
                raise
            if record.step == session.config.steps:
                return


def _open_shared(folder: Path) -> Run:
    """Open the run directory of rank 0; a network file system may show it later."""
    until = time.monotonic() + SHOWN_SECONDS
    while not (folder / CONFIG).exists():
        if time.monotonic() > until:
            hint = "share the folder between all machines"
            raise FileError(folder, "is not on this machine, and rank 0 has made it", hint)
        time.sleep(0.2)
    return open_run(folder)


def _prepare_folders(run: Run) -> None:
    """Make the folder of the history, and remove what a killed process left."""
    if run.config.watch.weights_per_doubling:
        (run.folder / HISTORY).mkdir(exist_ok=True)
    for name in (CHECKPOINTS, HISTORY):
        remove_leftovers(run.folder / name, LEFTOVER)


def _save_first(session: Session, writer: CheckpointWriter, *, is_given: bool) -> None:
    """Save the weights before the first step, if they were given or the history keeps them."""
    if is_given:
        # A run that is stopped before its first checkpoint must not resume from other weights.
        session.save(writer, None)
        writer.wait()
    if session.is_in_history:
        session.save(writer, None, weights_only=True)


class _Records:
    """The logs and the sinks of a run."""

    def __init__(self, run: Run, session: Session, stack: ExitStack) -> None:
        self.session = session
        self.metrics, self.samples = (
            stack.enter_context(Log(run.folder / name, last_step=session.step))
            for name in (METRICS, SAMPLES)
        )
        self.sinks = stack.enter_context(open_sinks(run, first_step=session.step + 1))

    def append(self, record: StepRecord) -> None:
        """Append a step to the metrics."""
        self.metrics.append(record.to_dict())

    def append_sample(self, record: StepRecord) -> None:
        """Append the sample of a step, if there is one."""
        if record.sample is not None:
            text = {"text": record.sample}
            self.samples.append({"step": record.step, **self.session.sampling, **text})

    def sync(self) -> None:
        """Write both logs to the disk."""
        self.metrics.sync()
        self.samples.sync()
