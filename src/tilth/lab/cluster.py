"""Trials as tasks of an executor: processes of this host, Ray or Slurm.

The folders of data and lab must be shared by all machines. A trial is one task. It resumes its run,
so it may run again: after a preemption, after the loss of its worker, or when the lab is run again.
Its state is written to `jobs/NAME.state` of the lab, next to the logs of Slurm.

    for event in run_question(question, "lab/lr", executor=Executor("slurm", 8)):
        ...
"""

from collections.abc import Generator, Sequence
from contextlib import chdir, closing
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tilth.config.training import TrainingConfig
from tilth.executors import Executor, run_tasks
from tilth.files import FileError, read_bytes, refuse_link, write_text_atomically
from tilth.lab.trials import PlannedTrial
from tilth.lab.workers import Drive
from tilth.report.lab_file import State, trial_folder

JOBS = "jobs"
MAX_STATE_BYTES = 100


@dataclass(frozen=True)
class Task:
    """A trial to train."""

    drive: Drive
    config: TrainingConfig
    folder: Path
    state_file: Path
    working_folder: Path  # of the caller, for relative paths


def run_on_executor(
    executor: Executor, drive: Drive, folder: Path, trials: Sequence[PlannedTrial]
) -> Generator[tuple[PlannedTrial, State], None, None]:
    """Drive trials of a lab; yield their states as they end."""
    refuse_link(folder / JOBS)  # state files are removed
    jobs = (folder / JOBS).resolve()
    jobs.mkdir(exist_ok=True)
    here = Path.cwd()
    tasks = [
        Task(drive, trial.config, trial_folder(folder, trial), jobs / f"{trial.name}.state", here)
        for trial in trials
    ]
    for task in tasks:  # the state of a trial that failed and is tried again
        task.state_file.unlink(missing_ok=True)
    for index in run_tasks(train_trial, tasks, executor, jobs):
        yield trials[index], _read_state(tasks[index].state_file)


def _read_state(path: Path) -> State:
    text = read_bytes(path, MAX_STATE_BYTES).decode("utf-8", "replace")
    for state in get_args(State):
        if text == state:
            found: State = state
            return found
    raise FileError(path, "does not hold the state of a trial", "run the lab again")


def train_trial(task: Task) -> None:
    """Train or resume a trial, and write its state."""
    if task.state_file.exists():  # of a job that is requeued after it
        return
    with (
        chdir(task.working_folder),
        closing(task.drive(task.config, task.folder)) as progress,
    ):
        for happened in progress:
            if isinstance(happened, str):
                write_text_atomically(task.state_file, happened, overwrite=True)
                return
