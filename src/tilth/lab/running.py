"""Training what a question asks for, so that nothing is trained twice.

What enters: a question and a folder. What leaves: `lab.json` and a run directory for each trial in
that folder, and, on the way, what happens. Left at any moment, and asked again, it goes on where it
was: finished trials stay, a begun one is resumed to the same bits.
"""

import math
import os
import queue
import signal
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import torch

from tilth.data import open_data
from tilth.files import StrPath, try_lock
from tilth.lab.experiment import Outcome, Question, Setup, Tell, read_outcome, trial_config
from tilth.lab.folder import (
    LAB,
    LOCK,
    Lab,
    State,
    Trial,
    load_lab,
    new_lab,
    save_lab,
    trial_folder,
)
from tilth.recipes.config import TrainingConfig, differences
from tilth.runs.metrics import StepRecord
from tilth.runs.run import CONFIG, open_run
from tilth.training import resume, train
from tilth.training.guards import FAR, DivergedError
from tilth.training.loop import check_fits

PATIENCE = 10  # diverging steps in a row, at least: a spike of the loss may pass
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class WorkerLostError(OSError):
    """A process that trained a trial is gone."""


@dataclass(frozen=True)
class Event:
    """A step of a trial, or its end."""

    setup: Setup
    done: int
    """Trials that have ended so far."""
    known: int
    """Trials that are known to be needed; outcomes may lead to more."""
    record: StepRecord | None = None
    outcome: Outcome | None = None


def run_question(
    question: Question,
    folder: StrPath,
    *,
    command: Sequence[str] = (),
    workers: int = 1,
    tell: Tell = print,
) -> Iterator[Event]:
    """Train all that is missing, then write down the findings; leave the loop to stop."""
    folder = new_lab(folder, question.name)
    with _locked(folder):
        outcomes = _known_outcomes(folder)
        lab = Lab(question.name, question.asks, None, tuple(command), question.axis)
        lab = replace(lab, base=question.base.to_dict())
        if not (folder / LAB).exists():  # first of all: it says whose folder this is
            save_lab(folder, lab)
        question.prepare(folder, tell)
        for setup in question.setups(outcomes):
            if setup.name in outcomes:
                _check_same(_folder(folder, setup), setup.config)
        while pending := [s for s in question.setups(outcomes) if s.name not in outcomes]:
            setups = question.setups(outcomes)
            for setup in pending:  # before hours are spent on the first of them
                check_fits(setup.config, open_data(setup.config.data))
            save_lab(folder, replace(lab, trials=_trials(setups, outcomes)))
            run = _run_here(pending, folder) if workers == 1 else _run_in(workers, pending, folder)
            with closing(run) as happening:
                for setup, what in happening:
                    if isinstance(what, StepRecord):
                        if setup.name not in outcomes:  # a worker tells its end by another pipe
                            yield Event(setup, len(outcomes), len(setups), record=what)
                        continue
                    outcomes[setup.name] = read_outcome(_folder(folder, setup), what)
                    save_lab(folder, replace(lab, trials=_trials(setups, outcomes)))
                    outcome = outcomes[setup.name]
                    yield Event(setup, len(outcomes), len(setups), outcome=outcome)
        found = question.conclude(outcomes)
        lab = replace(
            lab,
            trials=_trials(question.setups(outcomes), outcomes),
            answer=found.answer,
            tables=found.tables,
            charts=found.charts,
            notes=found.notes,
        )
        save_lab(folder, lab)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / LOCK).open("ab") as lock:
        if not try_lock(lock):
            raise ValueError(f"Another process works on {folder}; wait, or stop it.")
        yield


def _known_outcomes(folder: Path) -> dict[str, Outcome]:
    """What earlier calls found; a trial that failed, for lack of memory say, may try again."""
    if not (folder / LAB).exists():
        return {}
    return {
        trial.name: read_outcome(trial_folder(folder, trial), trial.state)
        for trial in load_lab(folder).trials
        if trial.state in ("finished", "diverged")
        and (trial_folder(folder, trial) / CONFIG).exists()
    }


def _trials(setups: Sequence[Setup], outcomes: dict[str, Outcome]) -> tuple[Trial, ...]:
    return tuple(
        Trial(
            setup.name,
            setup.label,
            setup.group,
            setup.x,
            outcomes[setup.name].state if setup.name in outcomes else "planned",
        )
        for setup in setups
    )


def _folder(folder: Path, setup: Setup) -> Path:
    return trial_folder(folder, Trial(setup.name, setup.label, setup.group))


# --- one trial ------------------------------------------------------------------------------------


def drive(config: TrainingConfig, folder: Path) -> Generator[StepRecord, None, State]:
    """Train a trial, or go on with it, and return how it ended.

    One that diverges is stopped early: what would follow says nothing, and costs as much.
    """
    patience, diverging = max(PATIENCE, config.steps // 20), 0
    if (folder / CONFIG).exists():
        _check_same(folder, config)
        diverging = _diverging_steps(folder)
        if diverging >= patience:  # killed before the lab had written it down
            return "diverged"
        if open_run(folder).is_finished:
            return _end_of(folder)
        begin = partial(resume, folder, data=config.data)
    else:
        begin = partial(train, trial_config(config), folder)
    try:
        with closing(begin()) as records:  # type: ignore[type-var]  # a generator
            for record in records:
                yield record
                diverging = diverging + 1 if record.is_diverging else 0
                if diverging >= patience:
                    return "diverged"
    except DivergedError:
        return "diverged"
    except (MemoryError, torch.OutOfMemoryError):
        return "failed"
    except RuntimeError as error:  # what torch says of a CPU
        if "can't allocate memory" not in str(error):
            raise
        return "failed"
    return _end_of(folder)


def _end_of(folder: Path) -> State:
    """How a run stands after its last step: it may have been too short for our patience."""
    first, last = (open_run(folder).metrics()[place] for place in (0, -1))
    valid_loss = last["evaluation"]["loss"]
    # One that learned nothing ends where it began, give or take some.
    is_worse = valid_loss is None or valid_loss > first.get("loss", math.inf) + FAR
    return "diverged" if last.get("is_diverging") or is_worse else "finished"


def _diverging_steps(folder: Path) -> int:
    """How many steps in a row, up to the newest checkpoint, have been diverging."""
    run = open_run(folder)
    last = max((checkpoint.step for checkpoint in run.checkpoints()), default=0)
    records = [record for record in run.metrics() if record["step"] <= last]
    return sum(1 for _ in takewhile(lambda r: r.get("is_diverging", False), reversed(records)))


def _check_same(folder: Path, config: TrainingConfig) -> None:
    """Refuse the run of other values or data: a lab would compare what cannot be compared."""
    run = open_run(folder)
    if run.config.optimizer.begin_step:
        raise ValueError(
            f"{folder} was trained further, to {run.config.steps:,} steps, and the lab compares "
            f"it after {config.steps:,}; remove that folder to train it again."
        )
    if run.manifest["data_fingerprint"] != open_data(config.data).fingerprint:
        raise ValueError(f"{folder} was trained on other data; name another --out.")
    changed = differences(run.config, trial_config(config))
    changed.pop("data", None)  # it may have moved
    for name, (old, new) in changed.items():
        raise ValueError(
            f"{folder} was trained with {name} = {old}, and {new} is asked for; ask as before, or "
            "name another --out."
        )


# --- here, or in processes ------------------------------------------------------------------------

Happening = Generator[tuple[Setup, StepRecord | State], None, None]


def _run_here(setups: Sequence[Setup], folder: Path) -> Happening:
    for setup in setups:
        records = drive(setup.config, _folder(folder, setup))
        state: State | None = None
        with closing(records):
            while state is None:
                try:
                    yield setup, next(records)
                except StopIteration as end:
                    state = end.value
        yield setup, state


def _run_in(workers: int, setups: Sequence[Setup], folder: Path) -> Happening:
    context = get_context("spawn")  # torch's threads do not survive a fork
    stop, told = context.Event(), context.Queue()
    pool = ProcessPoolExecutor(workers, context, _begin, (stop, told))
    by_name = {setup.name: setup for setup in setups}
    futures: dict[Future[State | None], Setup] = {}
    with pool:
        try:
            with _deaf():  # the workers begin here, and are so until they ignore signals
                for setup in setups:
                    futures[pool.submit(_train_there, setup, _folder(folder, setup))] = setup
            while futures:
                done, _ = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
                while True:
                    try:
                        name, record = told.get_nowait()
                    except queue.Empty:
                        break
                    yield by_name[name], record
                for future in done:
                    setup, state = futures.pop(future), future.result()
                    assert state is not None, "nobody has asked it to stop"
                    yield setup, state
        except BrokenProcessPool:
            raise WorkerLostError(
                "a worker was killed, perhaps for lack of memory; ask again with fewer --workers."
            ) from None
        finally:
            stop.set()  # the workers save, and end
            pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Let signals wait, here and in what is started meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker: dict[str, Any] = {}  # of this process, if it is one


def _begin(stop: Any, told: Any) -> None:  # noqa: ANN401, of multiprocessing
    # Ctrl-C reaches all processes of a terminal: who started us decides.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    told.cancel_join_thread()  # nobody may read it any more
    _worker.update(stop=stop, told=told, training=Lock())
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process once whoever started it is gone; a trial is saved first."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    _worker["stop"] = _Always()  # the one that was shared may be in any state
    with _worker["training"]:
        os._exit(1)


class _Always:
    def is_set(self) -> bool:
        return True


def _train_there(setup: Setup, folder: Path) -> State | None:
    """Train a trial in a worker; None if it was asked to stop."""
    records = drive(setup.config, folder)
    with _worker["training"], closing(records):
        while not _worker["stop"].is_set():
            try:
                record = next(records)
            except StopIteration as end:
                state: State = end.value
                return state
            if record.step % max(1, setup.config.steps // 50) == 0:
                _worker["told"].put((setup.name, record))
    return None
