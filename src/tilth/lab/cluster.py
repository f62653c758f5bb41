"""A search as several jobs of a cluster, through submitit.

The logs of the jobs are in `jobs/` of the search. A job that is preempted, or whose time is over,
begins again and continues the search.

    jobs = submit(search, "slurm", 4, Resources(seconds=7200.0, gpus=1))
"""

from dataclasses import dataclass
from typing import Any, Literal

from tilth.errors import import_extra
from tilth.executors import Resources
from tilth.executors import submit as submit_jobs
from tilth.lab.search.search import JOBS, Search
from tilth.schema import check_int

Cluster = Literal["slurm", "local"]


@dataclass(frozen=True)
class Worker:
    """A search as a job: it runs trials until there are none left."""

    search: Search

    def __call__(self) -> None:
        """Run it, and print the state of each trial that ends."""
        for event in self.search.run():
            if event.result is not None:
                trial, state = event.trial, event.result.state
                print(f"{trial.name} {state}: {trial.label}", flush=True)  # noqa: T201, a job's log

    def checkpoint(self) -> Any:  # noqa: ANN401, submitit's
        """Return the job to submit after a preemption; the search itself continues."""
        return import_extra("submitit", "A cluster").helpers.DelayedSubmission(self)


def submit(search: Search, cluster: Cluster, number: int, resources: Resources) -> list[Any]:
    """Submit a search as several jobs, and return submitit's job objects."""
    search.check_folder()
    check_int("jobs", number)
    return submit_jobs(search.folder / JOBS, cluster, [Worker(search)] * number, resources)
