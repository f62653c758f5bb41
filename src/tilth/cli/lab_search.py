"""`tilth lab search`: the best values of any fields of a config, by Optuna."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilth.cli.lab_view import report_labs, this_command, watch
from tilth.cli.options import DataFolder
from tilth.cli.overrides import changes, overrides_of
from tilth.cli.signals import say
from tilth.config.training import TrainingConfig
from tilth.formatting import parse_duration

FIELDS = ("batch_size", "model", "optimizer", "machine")
CLUSTER = Parameter(group="Cluster")


@Parameter(name="*")
class TrialOverrides(overrides_of(TrainingConfig, FIELDS)):  # type: ignore[misc]
    """The fields that all trials share, as flags."""


def search(
    *,
    data: DataFolder,
    vary: list[str],
    out: Path = Path("lab/search"),
    recipe: str = "small",
    size: int | None = None,
    trials: int = 20,
    budget: str = "20m",
    steps: int | None = None,
    seed: int = 0,
    dry_run: bool = False,
    base: TrialOverrides | None = None,
    cluster: Annotated[Literal["slurm", "local"] | None, CLUSTER] = None,
    jobs: Annotated[int, CLUSTER] = 1,
    time: Annotated[str, CLUSTER] = "4h",
    partition: Annotated[str | None, CLUSTER] = None,
    gpus: Annotated[int | None, CLUSTER] = None,
    cpus: Annotated[int | None, CLUSTER] = None,
) -> None:
    """Search for the best values of any fields, on validation, and stop poor trials early.

    The same command in another terminal, or on another machine that shares the folder, takes part;
    stopped (Ctrl-C) and called again it goes on with the trial that it was in.

    --vary NAME=LOW..HIGH is a range, of integers if both ends are (0..1 is 0 or 1, 0.0..1.0 any
    number between); a positive range of more than a decade is sampled by its logarithm. --vary
    NAME=A,B,C is a choice. Names are those of a config file (optimizer.lr).

    Args:
        vary: A range, NAME=LOW..HIGH, or a choice, NAME=A,B,C; once for each field.
        out: The lab's folder.
        recipe: What the trials are changed from.
        size: The number of layers of the base.
        trials: How many, in all processes together; the first is the recipe's own.
        budget: How long all of it may take in one process (20m, 1h30m).
        steps: Steps of each trial, instead of what the budget allows.
        seed: What weights, batches and trials are drawn from.
        dry_run: Print what it will cost; train nothing.
        cluster: Submit jobs that search; local: processes of this host.
        jobs: How many jobs to submit.
        time: How long each may run; it begins again, 3 times.
        partition: Of Slurm's; default the cluster's.
        gpus: For each job.
        cpus: For each job.
    """
    from tilth.lab import Search
    from tilth.recipes import recipe_named

    seconds = parse_duration(budget) if steps is None else None
    asked = Search(
        recipe_named(recipe)(data, size=size, steps=steps, budget_seconds=seconds),
        vary,
        out,
        fixed={"seed": seed, **changes(base)},
        trials=trials,
        command=this_command(),
    )
    if dry_run:
        print(asked.describe(asked.plan()))
    elif cluster is not None:
        from tilth.lab.cluster import Resources, submit

        resources = Resources(parse_duration(time), partition, gpus, cpus)
        ids = " ".join(job.job_id for job in submit(asked, cluster, jobs, resources))
        print(f"Submitted {ids}")
        look = "squeue --me" if cluster == "slurm" else f"ps {ids}"
        say(f"watch them: `{look}`, their logs in {out}/jobs, and `tilth report {out}`")
        print(f"Wrote {out}/jobs")
    else:
        watch(asked.run(), asked.command)
        report_labs([out], out)
