"""The training loop: a config and token files to a run directory, one step record at a time.

`train`, `resume` and `extend` return an iterator of `StepRecord`. They run their checks at the call
and write nothing before the first step: an iterator that is discarded leaves no folder behind. To
stop is to leave the loop: the state is saved, and `resume` goes on to the very bits that an
uninterrupted run would have reached.

    for record in tilth.train(config, "runs/first"):
        print(record.step, record.loss)

`prepare` (`prepare_resume`, `prepare_extension`) makes the checks alone, for callers that show the
resolved config or the plan before they call `.train()` on the result.
"""

import atexit
import logging
import os
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path
from weakref import WeakSet

from tilth.config.training import ResolvedConfig, TrainingConfig
from tilth.data import Batches, Data, open_data
from tilth.files import FileError, StrPath
from tilth.runs.atomic_folders import remove_leftovers
from tilth.runs.checkpoints import CHECKPOINTS, LEFTOVER, Checkpoint, CheckpointState
from tilth.runs.metrics import METRICS, SAMPLES, Log, SampleRecord, StepRecord, cut_back
from tilth.runs.run import Run, check_new_folder, create_run, open_run
from tilth.runs.state import CheckpointWriter
from tilth.training.machine import machine_settings
from tilth.training.planning import Plan, check_compiler, plan
from tilth.training.preflight import check_machine, check_new_run, open_same_data
from tilth.training.session import Session
from tilth.training.sinks import open_sinks

Steps = Generator[StepRecord, None, None]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedRun:
    """A training that passed its checks; nothing is written before its first step."""

    config: ResolvedConfig
    data: Data
    make_run: Callable[[], Run]
    """Make the run directory, or bring it up to date."""
    plan: Plan | None = None
    """Its measured cost, if it was measured."""

    def train(self) -> Steps:
        """Train from the newest checkpoint, or from nothing, to the last step."""
        steps = _steps(self)
        _sessions.add(steps)
        return steps


def train(config: TrainingConfig, out: StrPath) -> Steps:
    """Begin a run in a new folder; what the config leaves open is measured and written down."""
    return prepare(config, out).train()


def resume(folder: StrPath, *, data: StrPath | None = None) -> Steps:
    """Go on where a run was stopped; `data` says where its token files are, if they moved."""
    return prepare_resume(folder, data=data).train()


def extend(folder: StrPath, steps: int, *, data: StrPath | None = None) -> Steps:
    """Train a finished run for `steps` more.

    The learning rate ended at its lowest; the new steps get the whole schedule again, warm-up
    included, over their own length.
    """
    return prepare_extension(folder, steps, data=data).train()


# --- before the first step ------------------------------------------------------------------------


def prepare(
    config: TrainingConfig, out: StrPath, *, data: Data | None = None, measure: bool = False
) -> PreparedRun:
    """Check a new run, and decide what its config leaves open.

    `data` is the config's data folder, if it is open already; `measure` plans the run even if
    nothing is open.
    """
    folder = Path(out)
    check_new_folder(folder)
    data = open_data(config.data) if data is None else data
    tokenizer = data.tokenizer()
    check_new_run(config, data, tokenizer, folder)  # a plan takes seconds, compiling a minute
    machine = config.machine
    planned = None
    if measure or None in (config.steps, *astuple(machine)):
        planned = plan(config, data)
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
    # Absolute, wherever the process goes before the first step.
    make_run = partial(
        create_run, folder.absolute(), resolved, tokenizer, data.fingerprint, data.end_token
    )
    return PreparedRun(resolved, data, make_run, planned)


def prepare_resume(folder: StrPath, *, data: StrPath | None = None) -> PreparedRun:
    """Check a run that was stopped."""
    run = open_run(folder)
    config = _config_to_resume(run)
    if replace(run, config=config).is_finished and _whole_state(run.checkpoints()[-1]):
        raise ValueError(
            f"{folder} is finished, after {config.steps:,} steps; to train it further, say "
            "by how many steps (--steps)."
        )
    check_machine(config)
    return PreparedRun(config, open_same_data(run, data), partial(_updated, run, config))


def prepare_extension(folder: StrPath, steps: int, *, data: StrPath | None = None) -> PreparedRun:
    """Check a finished run that is to be trained for `steps` more."""
    run = open_run(folder)
    # Before the config changes: an older checkpoint than the last would not fit the new one.
    if not run.is_finished or not _whole_state(run.checkpoints()[-1]):
        raise ValueError(f"{folder} is not finished; first `tilth resume {folder}`.")
    if steps < 1:
        raise ValueError(f"steps is {steps}; give at least one step more.")
    check_machine(run.config)
    opened = open_same_data(run, data)
    old, open_config = run.config, run.config.opened()
    # Derived again, from the new length.
    optimizer = replace(
        open_config.optimizer, begin_step=old.steps, warmup_steps=None, decay_steps=None
    )
    config = replace(open_config, steps=old.steps + steps, optimizer=optimizer).resolve()
    if config.machine.compile:
        check_compiler(config.machine)
    return PreparedRun(config, opened, partial(_updated, run, config))


def _updated(run: Run, config: ResolvedConfig) -> Run:
    """The run with this config, which is written if it is another."""
    if config == run.config:
        return run
    with run.locked():
        return run.save_config(config)


def _config_to_resume(run: Run) -> ResolvedConfig:
    """The config of a run, or that before it was extended, if its checkpoint then is damaged."""
    begin_step = run.config.optimizer.begin_step
    if not begin_step:
        return run.config
    for checkpoint in reversed(run.checkpoints()):
        if (state := _whole_state(checkpoint)) is None:
            continue
        if state.step >= begin_step:
            break
        log.warning(
            "%s was extended at step %d, and the checkpoint of that step is damaged: it goes on "
            "from step %d as it did before; then extend it again.",
            run.folder,
            begin_step,
            state.step,
        )
        return replace(checkpoint.config(state), data=run.config.data)
    return run.config


def _whole_state(checkpoint: Checkpoint) -> CheckpointState | None:
    """Return the state of a checkpoint, None if a byte of the checkpoint is damaged."""
    try:
        return checkpoint.check()
    except FileError:
        return None


# --- the loop -------------------------------------------------------------------------------------

_sessions: WeakSet[Steps] = WeakSet()


@atexit.register
def _close_sessions() -> None:
    """Save what a program left in the midst of, as long as the modules that it needs are there."""
    for session in list(_sessions):
        try:
            session.close()
        except Exception as error:  # the others are to be saved all the same
            log.error("%s", error)


def _steps(prepared: PreparedRun) -> Steps:
    process = os.getpid()
    run = prepared.make_run()
    run = replace(run, folder=run.folder.absolute())  # wherever the process goes meanwhile
    config, data = run.config, prepared.data
    with ExitStack() as stack:
        stack.enter_context(run.locked())
        remove_leftovers(run.folder / CHECKPOINTS, LEFTOVER)
        device = stack.enter_context(machine_settings(config.machine))
        session = Session(run, data, device)
        for name in (METRICS, SAMPLES):
            cut_back(run.folder / name, session.step)
        metrics = stack.enter_context(Log(run.folder / METRICS))
        samples = stack.enter_context(Log(run.folder / SAMPLES))
        sinks = stack.enter_context(open_sinks(run, first_step=session.step + 1))
        writer = stack.enter_context(CheckpointWriter(run.folder, config.watch.keep_checkpoints))
        context = config.model.context_length
        batches = Batches(
            data.train,
            config.batch_size,
            context,
            config.seed,
            config.order,
            device=device,
            vocab_size=config.model.vocab_size,
        )

        def save(record: StepRecord) -> None:
            metrics.sync()  # first: a checkpoint is never ahead of the logs
            samples.sync()
            session.save(writer, record.evaluation)

        for x, y in batches.read(session.step, config.steps):
            record = session.take_step(x, y)
            metrics.append(record.to_dict())
            session.check(writer)
            if record.sample is not None:
                sampled = SampleRecord(record.step, **session.sampling, text=record.sample)
                samples.append(asdict(sampled))
            if record.saved:
                save(record)
            writer.check()
            sinks.write(record)
            try:
                yield record
            except GeneratorExit:  # whoever drives us has had enough
                if os.getpid() == process:  # a forked child only forgets
                    if not record.saved:
                        save(record)
                    writer.wait()
                raise
