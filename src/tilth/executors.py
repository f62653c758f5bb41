"""Run idempotent tasks in processes on this machine, on Ray or on Slurm.

A task is a call of a module's function with one picklable argument. It writes files and returns
nothing. The library that runs it decides about placement and retries; `run_tasks` waits for all.
The folders of the tasks must be shared by all machines.

    for number in run_tasks(write_shard, arguments, Executor("ray", address="auto"), folder):
        print(f"{arguments[number]} is done")
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Generic, Literal, TypeVar

from tilth.config.threads import checked_threads, usable_cores
from tilth.errors import first_line, import_extra
from tilth.schema import Range, check_int

Cluster = Literal["local", "ray", "slurm"]
MAX_TASKS = 100_000
T = TypeVar("T")

POLL_SECONDS = 1.0
CONNECT_SECONDS = 10.0
AGAIN = "run the same command again to run the tasks that are missing"


@dataclass(frozen=True)
class Resources:
    """The resources of each job of Slurm or task of Ray; None leaves one to the cluster."""

    seconds: float = 4 * 3600.0
    partition: str | None = None
    gpus: int | None = None
    cpus: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("gpus", 0), ("cpus", 1)):
            if (number := getattr(self, name)) is not None:
                check_int(name, number, Range(at_least=least, at_most=MAX_TASKS))


@dataclass(frozen=True)
class Executor:
    """Where tasks run, and how many at a time."""

    cluster: Cluster = "local"
    workers: int | None = None
    """Processes (local; default: all cores) or jobs (Slurm; default 4). Ray decides itself, or
    starts this many on this machine."""
    address: str | None = None
    """Address of a running Ray cluster; None starts Ray on this machine."""
    resources: Resources = Resources()

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_int("workers", self.workers, Range(at_least=1, at_most=MAX_TASKS))
            if self.cluster != "slurm":
                checked_threads(self.workers, "workers")
        if self.address is not None and self.cluster != "ray":
            raise ValueError(f"address is of a Ray cluster, and the cluster is {self.cluster}.")

    @property
    def num_workers(self) -> int:
        """The number of tasks at a time, as far as it is known."""
        return self.workers or (4 if self.cluster == "slurm" else usable_cores())


def number_of_tasks(given: int | None, size_bytes: int, task_bytes: int, executor: Executor) -> int:
    """Return the given number of tasks, or by default one for each `task_bytes` of a corpus."""
    if given is None:
        given = min(max(-(-size_bytes // task_bytes), executor.num_workers), MAX_TASKS)
    return check_int("tasks", given, Range(at_least=1, at_most=MAX_TASKS))


def run_tasks(
    function: Callable[[T], None], arguments: Sequence[T], executor: Executor, folder: Path
) -> Iterator[int]:
    """Call a function with each argument; yield the index of each as it is done.

    The first error of a task is raised. Logs of Slurm jobs are written to `folder`.
    """
    if not arguments:
        return
    if executor.cluster == "ray":
        yield from _run_on_ray(function, arguments, executor)
    elif executor.cluster == "slurm":
        yield from _run_on_slurm(function, arguments, executor, folder)
    else:
        yield from _run_in_processes(function, arguments, executor.num_workers)


# --- processes ------------------------------------------------------------------------------------


def _run_in_processes(
    function: Callable[[T], None], arguments: Sequence[T], workers: int
) -> Iterator[int]:
    context = get_context("spawn")
    alive, parent_end = context.Pipe(duplex=False)
    with ProcessPoolExecutor(min(workers, len(arguments)), context, _begin, (alive,)) as pool:
        try:
            futures = {pool.submit(function, each): index for index, each in enumerate(arguments)}
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException as error:
            if _is_broken(error):
                hint = f"{AGAIN}, with fewer workers if memory ran out"
                raise OSError(f"A worker process was killed; {hint}.") from None
            parent_end.close()  # the workers end at once
            raise
        finally:
            with suppress(OSError):  # the pipe of a broken pool
                pool.shutdown(cancel_futures=True)
            parent_end.close()
            alive.close()


def _is_broken(error: BaseException) -> bool:
    """Return whether a pool has lost a worker; its pipe may be closed while `submit` writes."""
    is_closed = isinstance(error, OSError) and str(error) == "handle is closed"
    return is_closed or isinstance(error, BrokenProcessPool)


def _begin(alive: Connection) -> None:
    """Let the parent process decide when a worker ends: Ctrl-C reaches all of a terminal."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        with suppress(EOFError, OSError):
            alive.recv()
        os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()


# --- Ray ------------------------------------------------------------------------------------------


def _run_on_ray(
    function: Callable[[T], None], arguments: Sequence[T], executor: Executor
) -> Iterator[int]:
    ray = import_extra("ray", "Ray")
    is_ours = not ray.is_initialized()
    if is_ours:
        _start_ray(ray, executor)
    try:
        remote = ray.remote(function)
        resources = executor.resources
        given = {"num_cpus": resources.cpus, "num_gpus": resources.gpus}
        if given := {name: value for name, value in given.items() if value is not None}:
            remote = remote.options(**given)
        pending = {remote.remote(each): index for index, each in enumerate(arguments)}
        while pending:
            (done,), _ = ray.wait([*pending], num_returns=1)
            try:
                ray.get(done)
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, Exception):
                    raise error.cause from None
                raise
            except ray.exceptions.RayError as error:
                reason = first_line(error)
                raise OSError(f"Ray could not run a task ({reason}); {AGAIN}.") from None
            yield pending.pop(done)
    finally:
        if is_ours:
            ray.shutdown()


def _start_ray(ray: Any, executor: Executor) -> None:  # noqa: ANN401, a module
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if executor.address is None:
        # On loopback: other machines cannot reach it.
        options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        options["num_cpus"] = executor.num_workers
    try:
        host, _, port = (executor.address or "").rpartition(":")
        if host and port.isdecimal():  # ray.init tries for minutes
            socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
        ray.init(executor.address or "local", **options)
    except Exception as error:  # Ray raises the class itself if its start takes 30 seconds
        where = f"Ray at {executor.address} is not reachable" if executor.address else "no Ray"
        reason = first_line(error)
        raise ValueError(f"{where} ({reason}); check --address and that Ray runs there.") from None


# --- Slurm ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job(Generic[T]):
    """Some of the tasks, in one job; a job that is requeued calls them again."""

    function: Callable[[T], None]
    arguments: list[T]

    def __call__(self) -> None:
        for each in self.arguments:
            self.function(each)

    def checkpoint(self) -> Any:  # noqa: ANN401, submitit's
        """Return the job to submit after a preemption."""
        return import_extra("submitit", "A cluster").helpers.DelayedSubmission(self)


def submit(folder: Path, cluster: str, jobs: Sequence[Any], resources: Resources) -> list[Any]:
    """Submit callables as an array of jobs; return submitit's job objects.

    `cluster` is "slurm", or "local" for processes of this host.
    """
    submitit = import_extra("submitit", "A cluster")
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
    except RuntimeError:  # its word for a missing srun
        raise ValueError(
            "Slurm is not available (no srun); run it on a login node, or give --cluster local."
        ) from None
    executor.update_parameters(
        name="tilth",
        timeout_min=max(1, round(resources.seconds / 60)),
        gpus_per_node=resources.gpus,
        cpus_per_task=resources.cpus,
        slurm_partition=resources.partition,
    )
    try:
        with executor.batch():
            return [executor.submit(job) for job in jobs]
    except RuntimeError as error:  # of submitit, with sbatch's message
        raise ValueError(f"the cluster rejected the jobs ({str(error).strip()}).") from None


def _run_on_slurm(
    function: Callable[[T], None], arguments: Sequence[T], executor: Executor, folder: Path
) -> Iterator[int]:
    # Slurm allows 1,001 jobs of an array by default, so a job has several tasks.
    number = min(executor.num_workers, len(arguments))
    parts = [range(index, len(arguments), number) for index in range(number)]
    work = [_Job(function, [arguments[index] for index in part]) for part in parts]
    jobs = submit(folder, "slurm", work, executor.resources)
    pending = dict(zip(jobs, parts, strict=True))
    try:
        while pending:
            for job in [job for job in pending if job.done()]:
                _raise_error_of(job)
                yield from pending.pop(job)
            time.sleep(POLL_SECONDS if pending else 0.0)
    finally:
        for job in pending:  # after an error or Ctrl-C
            with suppress(OSError):  # no scancel
                job.cancel()


def _raise_error_of(job: Any) -> None:  # noqa: ANN401, submitit's
    from submitit.core.utils import FailedJobError, UncompletedJobError  # noqa: PLC0415, an extra

    try:
        job.result()
    except FailedJobError as error:
        # The traceback is between two lines of dashes.
        _, *traceback = str(error).split("-" * 20)
        lines = [line for line in "".join(traceback[:1]).strip("-\n").splitlines() if line]
        reason = lines[-1] if lines else type(error).__name__
        raise OSError(f"Job {job.job_id} failed ({reason}); see {job.paths.stderr}.") from None
    except UncompletedJobError:
        problem = f"Job {job.job_id} ended without a result; see {job.paths.stderr}"
        raise OSError(f"{problem}, and {AGAIN}.") from None
