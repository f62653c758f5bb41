"""Training the trials of a question, each once.

A folder gets `lab.json` and a run directory per trial. A question that was stopped at any moment
continues when it is run again: finished trials stay, a begun one is resumed to the same bits.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

from tilth.config.training import TrainingConfig, differences
from tilth.data import open_data
from tilth.errors import is_out_of_memory
from tilth.files import StrPath, open_lock, try_lock
from tilth.lab.question import Question, Tell, trial_config
from tilth.lab.trials import PlannedTrial, Results, TrialResult, read_result
from tilth.lab.workers import run_in_workers
from tilth.report.lab_file import (
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
from tilth.runs.metrics import StepRecord
from tilth.runs.run import CONFIG, open_run
from tilth.training import resume, train
from tilth.training.guards import DIVERGENCE_MARGIN, DivergedError
from tilth.training.preflight import check_data

PATIENCE = 10  # diverging steps in a row, at least: a spike of the loss may pass


@dataclass(frozen=True)
class Event:
    """A step of a trial, or its end."""

    trial: PlannedTrial
    done: int
    """Trials that have ended so far."""
    known: int
    """Trials that are known to be needed; results may lead to more."""
    record: StepRecord | None = None
    result: TrialResult | None = None


def run_question(
    question: Question,
    folder: StrPath,
    *,
    command: Sequence[str] = (),
    workers: int = 1,
    tell: Tell = print,
) -> Iterator[Event]:
    """Train all trials that are missing, then save the findings; leave the loop to stop."""
    folder = new_lab(folder, question.name)
    with open_lock(folder / LOCK) as lock:
        if not try_lock(lock):
            raise ValueError(f"Another process works on {folder}; wait, or stop it.")
        results = _known_results(folder)
        base = question.base.to_dict()
        lab = Lab(question.name, question.asks, None, tuple(command), question.axis, base=base)
        if not (folder / LAB).exists():  # first of all: it says whose folder this is
            save_lab(folder, lab)
        question.prepare(folder, tell)
        for trial in question.trials(results):
            if trial.name in results:
                _check_same(trial_folder(folder, trial), trial.config)
        while pending := [t for t in question.trials(results) if t.name not in results]:
            trials = question.trials(results)
            for trial in pending:  # before hours are spent on the first of them
                data = open_data(trial.config.data)
                check_data(trial.config, data, data.tokenizer())
            save_lab(folder, replace(lab, trials=_with_states(trials, results)))
            training = {trial: (trial.config, trial_folder(folder, trial)) for trial in pending}
            run = _run_here(training) if workers == 1 else run_in_workers(workers, drive, training)
            with closing(run) as happening:
                for trial, what in happening:
                    if isinstance(what, StepRecord):
                        if trial.name not in results:  # a worker tells its end by another pipe
                            yield Event(trial, len(results), len(trials), record=what)
                        continue
                    result = read_result(trial_folder(folder, trial), what)
                    results[trial.name] = result
                    save_lab(folder, replace(lab, trials=_with_states(trials, results)))
                    yield Event(trial, len(results), len(trials), result=result)
        found = question.conclude(results)
        trials = question.trials(results)
        save_lab(folder, replace(lab, trials=_with_states(trials, results), **vars(found)))


def _known_results(folder: Path) -> dict[str, TrialResult]:
    """The results of earlier calls; a trial that failed, for lack of memory say, may try again."""
    if not (folder / LAB).exists():
        return {}
    return {
        trial.name: read_result(trial_folder(folder, trial), trial.state)
        for trial in load_lab(folder).trials
        if trial.state in ("finished", "diverged")
        and (trial_folder(folder, trial) / CONFIG).exists()
    }


def _with_states(trials: Sequence[PlannedTrial], results: Results) -> tuple[Trial, ...]:
    """The trials as `lab.json` has them."""
    states = {name: result.state for name, result in results.items()}
    return tuple(Trial(t.name, t.label, t.group, t.x, states.get(t.name, t.state)) for t in trials)


def _run_here(
    training: dict[PlannedTrial, tuple[TrainingConfig, Path]],
) -> Generator[tuple[PlannedTrial, StepRecord | State], None, None]:
    for trial, (config, folder) in training.items():
        with closing(_ending(drive(config, folder))) as events:
            for event in events:
                yield trial, event


def _ending(
    records: Generator[StepRecord, None, State],
) -> Generator[StepRecord | State, None, None]:
    """The records, then the state that the generator returned."""
    yield (yield from records)


# --- one trial ------------------------------------------------------------------------------------


def drive(config: TrainingConfig, folder: Path) -> Generator[StepRecord, None, State]:
    """Train or resume a trial, and return how it ended.

    A trial that diverges is stopped early: further steps cost as much and show nothing.
    """
    patience, diverging = max(PATIENCE, config.known_steps // 20), 0
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
        with closing(begin()) as records:
            for record in records:
                yield record
                diverging = diverging + 1 if record.is_diverging else 0
                if diverging >= patience:
                    return "diverged"
    except DivergedError:
        return "diverged"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return "failed"
    return _end_of(folder)


def _end_of(folder: Path) -> State:
    """How a run stands after its last step: it may have been too short for our patience."""
    first, last = (open_run(folder).metrics()[place] for place in (0, -1))
    loss = math.inf if last.evaluation is None else last.evaluation.loss
    # One that learned nothing ends where it began, give or take some.
    limit = math.inf if first.loss is None else first.loss + DIVERGENCE_MARGIN
    is_worse = math.isinf(loss) or loss > limit
    return "diverged" if last.is_diverging or is_worse else "finished"


def _diverging_steps(folder: Path) -> int:
    """How many steps in a row, up to the newest checkpoint, have been diverging."""
    run = open_run(folder)
    last = max((checkpoint.step for checkpoint in run.checkpoints()), default=0)
    records = [record for record in run.metrics() if record.step <= last]
    return sum(1 for _ in takewhile(lambda record: record.is_diverging, reversed(records)))


def _check_same(folder: Path, config: TrainingConfig) -> None:
    """Refuse a run with other values or data: its result could not be compared."""
    run = open_run(folder)
    if run.config.optimizer.begin_step:
        raise ValueError(
            f"{folder} was trained further, to {run.config.steps:,} steps, and the lab compares "
            f"it after {config.steps:,}; remove that folder to train it again."
        )
    if run.manifest.data_fingerprint != open_data(config.data).fingerprint:
        raise ValueError(f"{folder} was trained on other data; name another --out.")
    changed = differences(run.config, trial_config(config))
    changed.pop("data", None)  # it may have moved
    for name, (old, new) in changed.items():
        raise ValueError(
            f"{folder} was trained with {name} = {old}, and {new} is asked for; ask as before, or "
            "name another --out."
        )
