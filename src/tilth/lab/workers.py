"""Trials in several processes, forked from a server that has torch preloaded.

Ctrl-C reaches all processes of a terminal, so workers ignore signals and the parent decides. A
worker that is told to stop, or whose parent is gone, saves its trial first.
"""

import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from multiprocessing import get_context, parent_process
from pathlib import Path
from queue import Empty
from threading import Event, Lock, Thread, current_thread, main_thread
from typing import Any

from tilth.config.training import TrainingConfig
from tilth.lab.trials import PlannedTrial
from tilth.report.lab_file import State, trial_folder
from tilth.runs.metrics import StepRecord

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REPORTED = 50  # steps of a trial that are sent to the parent

Progress = Generator[StepRecord | State, None, None]
"""The steps of a trial, then its state."""
Drive = Callable[[TrainingConfig, Path], Progress]


class WorkerLostError(OSError):
    """A worker process was killed."""


def run_in_workers(
    workers: int, drive: Drive, folder: Path, trials: Sequence[PlannedTrial]
) -> Generator[tuple[PlannedTrial, StepRecord | State], None, None]:
    """Drive trials of a lab, `workers` at a time; yield some of their steps and their states."""
    context = get_context("forkserver")  # not fork: torch's threads do not survive it
    # It imports torch, which takes a spawned worker some seconds.
    context.set_forkserver_preload([drive.__module__])
    stop, told = context.Event(), context.Queue()
    futures: dict[Future[State | None], PlannedTrial] = {}
    with ProcessPoolExecutor(workers, context, _begin, (stop, told)) as pool:
        try:
            with _signals_delayed():  # the server starts here; its children inherit the mask
                for trial in trials:
                    own = trial_folder(folder, trial)
                    futures[pool.submit(_train, drive, trial, own)] = trial
            while futures:
                done, _ = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
                with suppress(Empty):
                    while True:
                        yield told.get_nowait()
                for future in done:
                    trial, state = futures.pop(future), future.result()
                    if state is None:
                        raise WorkerLostError("a worker stopped early; run the lab again.")
                    yield trial, state
        except BrokenProcessPool:
            raise WorkerLostError(
                "a worker was killed, perhaps for lack of memory; run again with fewer --workers."
            ) from None
        finally:
            stop.set()  # the workers save, and end
            pool.shutdown(cancel_futures=True)


@contextmanager
def _signals_delayed() -> Iterator[None]:
    """Delay signals here, and block them in processes that are started meanwhile.

    The mask alone is not enough: another thread may take a signal, and Python's handler would then
    interrupt the start of a process, which would be left behind.
    """
    noted: list[int] = []
    usual: dict[int, Any] = {}
    if current_thread() is main_thread():
        usual = {each: signal.signal(each, lambda n, _: noted.append(n)) for each in SIGNALS}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in noted[:1]:
            signal.raise_signal(number)


# --- in a worker ----------------------------------------------------------------------------------

_worker: dict[str, Any] = {}


def _begin(stop: Any, told: Any) -> None:  # noqa: ANN401, of multiprocessing
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    told.cancel_join_thread()  # the parent may not read it any more
    _worker.update(stop=stop, told=told, training=Lock())
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process once its parent is gone; a trial is saved first."""
    if (parent := parent_process()) is not None:
        parent.join()
    _worker["stop"] = Event()  # the shared one may be in any state
    _worker["stop"].set()
    with _worker["training"]:
        os._exit(1)


def _train(drive: Drive, trial: PlannedTrial, folder: Path) -> State | None:
    """Train a trial; None if it was told to stop."""
    with _worker["training"], closing(drive(trial.config, folder)) as progress:
        while not _worker["stop"].is_set():
            if isinstance(happened := next(progress), str):
                return happened
            if happened.step % max(1, trial.config.known_steps // REPORTED) == 0:
                _worker["told"].put((trial, happened))
    return None
