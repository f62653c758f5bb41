"""The same work as several jobs of a cluster, through submitit.

What enters: a call that can be pickled, and what each job may use. What leaves: the ids of jobs
that run the call, their logs in a folder; a job that the cluster takes its machine from, or whose
time is over, begins the call again.

    resources = Resources(seconds=7200.0, gpus=1)
    jobs = submit(Worker(search), "lab/search/jobs", "slurm", 4, resources)
"""

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from tilth.files import StrPath
from tilth.lab.search import Search

Cluster = Literal["slurm", "local"]


@dataclass(frozen=True)
class Resources:
    """What each job may use; None leaves it to the cluster."""

    seconds: float = 4 * 3600.0
    partition: str | None = None
    gpus: int | None = None
    cpus: int | None = None


@dataclass(frozen=True)
class Worker:
    """A search as a job: it runs trials until there are none left."""

    search: Search

    def __call__(self) -> None:
        """Run it, and say of each trial how it ended."""
        for event in self.search.run():
            if event.outcome is not None:
                said = f"{event.setup.name} {event.outcome.state}: {event.setup.label}"
                print(said, flush=True)  # noqa: T201, to the job's log

    def checkpoint(self) -> Any:  # noqa: ANN401, submitit's
        """What to run when the job gets a machine again: a search goes on by itself."""
        return import_module("submitit").helpers.DelayedSubmission(self)


def submit(
    worker: Worker,
    folder: StrPath,
    cluster: Cluster,
    number: int,
    resources: Resources,
) -> list[Any]:
    """Submit the same call several times; the jobs are submitit's."""
    if number < 1:
        raise ValueError(f"jobs is {number}; take at least one.")
    try:
        submitit: Any = import_module("submitit")  # by name, as an extra
    except ModuleNotFoundError:
        raise ValueError('A cluster needs an extra: pip install "tilth[cluster]".') from None
    try:
        executor = submitit.AutoExecutor(folder=Path(folder), cluster=cluster)
    except RuntimeError:  # its word for a missing srun
        raise ValueError(
            "there is no Slurm here (no srun); call it where jobs are submitted, or take "
            "--cluster local."
        ) from None
    minutes = max(1, round(resources.seconds / 60))
    executor.update_parameters(
        name="tilth",
        timeout_min=minutes,
        gpus_per_node=resources.gpus,
        cpus_per_task=resources.cpus,
        slurm_partition=resources.partition,
    )
    jobs = []
    try:
        with executor.batch():
            jobs += [executor.submit(worker) for _ in range(number)]
    except RuntimeError as error:  # of submitit, with what sbatch said
        raise ValueError(f"the cluster took no jobs ({str(error).strip()}).") from None
    return jobs
