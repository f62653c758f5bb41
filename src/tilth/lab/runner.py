"""Training the trials of a question, each once.

A folder gets `lab.json` and a run directory per trial. An interrupted question continues when it is
run again: finished trials stay, a trial in progress is resumed to the same bits.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

from tilth.config.training import TrainingConfig, differences
from tilth.data import open_data
from tilth.errors import is_out_of_memory
from tilth.executors import Executor
from tilth.files import FileError, StrPath, hold_lock
from tilth.lab.cluster import run_on_executor
from tilth.lab.question import Question, Tell, refuse_changes, trial_config
from tilth.lab.trials import PlannedTrial, Results, TrialResult, read_result
from tilth.lab.workers import Progress, run_in_workers
from tilth.report import lab_file
from tilth.report.lab_file import Lab, State, Trial, load_lab, save_lab, trial_folder
from tilth.runs.metrics import METRICS, StepRecord
from tilth.runs.run import CONFIG, open_run
from tilth.training import resume, train
from tilth.training.guards import DIVERGENCE_MARGIN, DivergedError
from tilth.training.preflight import check_data

PATIENCE = 10  # diverging steps in a row, at least: a spike of the loss may pass


@dataclass(frozen=True)
class Event:
    """A step of a trial (`record`), or its end (`result`).

    `done` trials have ended so far, of `known` that are planned; results may lead to more.
    """

    trial: PlannedTrial
    done: int
    known: int
    record: StepRecord | None = None
    result: TrialResult | None = None


def run_question(
    question: Question,
    folder: StrPath,
    *,
    command: Sequence[str] = (),
    workers: int = 1,
    executor: Executor | None = None,
    tell: Tell = print,
) -> Iterator[Event]:
    """Train all missing trials, then save the findings; leave the loop to stop.

    `workers` processes of this host train; with an `executor`, its workers do instead, and only the
    ends of trials are yielded.
    """
    folder = lab_file.new_lab(folder, question.name)
    taken = f"Another process is running {folder}; wait for it, or stop it."
    with hold_lock(folder / lab_file.LOCK, taken):
        results = _known_results(folder)
        base = question.base.to_dict()
        lab = Lab(question.name, question.asks, None, tuple(command), question.axis, base=base)
        if not (folder / lab_file.LAB).exists():  # first: it claims the folder
            save_lab(folder, lab)
        question.prepare(folder, tell)
        for trial in question.trials(results):
            if trial.name in results:
                _check_same(trial_folder(folder, trial), trial.config)
        while True:
            trials = question.trials(results)
            if not (pending := [trial for trial in trials if trial.name not in results]):
                break
            for trial in pending:  # before hours are spent on the first of them
                data = open_data(trial.config.data)
                check_data(trial.config, data, data.tokenizer())
            save_lab(folder, replace(lab, trials=_with_states(trials, results)))
            run: Generator[tuple[PlannedTrial, StepRecord | State], None, None]
            if executor is not None:
                run = run_on_executor(executor, drive, folder, pending)
            elif workers == 1:
                run = _run_here(folder, pending)
            else:
                run = run_in_workers(workers, drive, folder, pending)
            done = len(trials) - len(pending)  # some results may be of trials of an earlier plan
            with closing(run) as happening:
                for trial, happened in happening:
                    if isinstance(happened, StepRecord):
                        if trial.name not in results:  # a worker sends its end by another pipe
                            yield Event(trial, done, len(trials), record=happened)
                        continue
                    result = read_result(trial_folder(folder, trial), happened)
                    results[trial.name] = result
                    save_lab(folder, replace(lab, trials=_with_states(trials, results)))
                    done += 1
                    yield Event(trial, done, len(trials), result=result)
        found = question.conclude(results)
        save_lab(folder, replace(lab, trials=_with_states(trials, results), **vars(found)))


def _known_results(folder: Path) -> dict[str, TrialResult]:
    """Return the results of earlier calls, without failed trials, which are tried again."""
    trials = load_lab(folder).trials if (folder / lab_file.LAB).exists() else ()
    return {
        trial.name: read_result(trial_folder(folder, trial), trial.state)
        for trial in trials
        if trial.state in ("finished", "diverged")
        and (trial_folder(folder, trial) / CONFIG).exists()
    }


def _with_states(trials: Sequence[PlannedTrial], results: Results) -> tuple[Trial, ...]:
    """Return the trials as `lab.json` has them."""
    states = {name: result.state for name, result in results.items()}
    return tuple(Trial(t.name, t.label, t.group, t.x, states.get(t.name, t.state)) for t in trials)


def _run_here(
    folder: Path, trials: Sequence[PlannedTrial]
) -> Generator[tuple[PlannedTrial, StepRecord | State], None, None]:
    for trial in trials:
        with closing(drive(trial.config, trial_folder(folder, trial))) as progress:
            for happened in progress:
                yield trial, happened


# --- one trial ------------------------------------------------------------------------------------


def drive(config: TrainingConfig, folder: Path) -> Progress:
    """Train or resume a trial; yield its steps, then its state.

    A trial that diverges is stopped early: further steps cost as much and show nothing.
    """
    yield (yield from _steps(config, folder))


def _steps(config: TrainingConfig, folder: Path) -> Generator[StepRecord, None, State]:
    patience, diverging = max(PATIENCE, config.known_steps // 20), 0
    is_begun = (folder / CONFIG).exists()
    if is_begun:
        _check_same(folder, config)
        diverging = _diverging_steps(folder)
        if diverging >= patience:  # killed before the lab had saved it
            return "diverged"
        if open_run(folder).is_finished:
            return _final_state(folder)
    try:
        begun = (
            resume(folder, data=config.data) if is_begun else train(trial_config(config), folder)
        )
        with closing(begun) as records:
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
    return _final_state(folder)


def _final_state(folder: Path) -> State:
    """Return the state of a run after its last step; a short run may end before patience does."""
    if not (records := open_run(folder).metrics()):
        raise FileError(folder / METRICS, "has no steps", "remove the run, to train it again")
    first, last = records[0], records[-1]
    loss = math.inf if last.evaluation is None else last.evaluation.loss
    # A run that learned nothing ends where it began, give or take some.
    limit = math.inf if first.loss is None else first.loss + DIVERGENCE_MARGIN
    is_worse = math.isinf(loss) or loss > limit
    return "diverged" if last.is_diverging or is_worse else "finished"


def _diverging_steps(folder: Path) -> int:
    """Return the number of diverging steps in a row, up to the newest checkpoint."""
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
        raise ValueError(f"{folder} was trained on other data; give another --out.")
    refuse_changes(f"{folder} was trained with", differences(run.config, trial_config(config)))
