"""`tilth lab search`: the best values of any fields of a config, by Optuna."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilth.cli.lab_view import report_labs, watch
from tilth.cli.overrides import dotted
from tilth.cli.signals import say
from tilth.cli.train import MachineOverrides, ModelOverrides, OptimizerOverrides
from tilth.formatting import parse_duration


def search(
    *,
    data: Annotated[Path, Parameter(help="The folder that `tilth tokenize` wrote.")],
    vary: Annotated[
        list[str],
        Parameter(
            negative=(),
            help="NAME=LOW..HIGH is a range: of whole numbers if both are written so (0..1 is 0 or "
            "1, 0.0..1.0 all between); by its logarithm if it is positive and spans more than a "
            "decade. NAME=A,B,C is a choice. Names are those of `tilth train`, as in a config file "
            "(optimizer.lr). May come again.",
        ),
    ],
    out: Annotated[Path, Parameter(help="The lab's folder.")] = Path("lab/search"),
    recipe: Annotated[str, Parameter(help="What the trials are changed from.")] = "small",
    size: Annotated[int | None, Parameter(help="The number of layers of the base.")] = None,
    trials: Annotated[
        int, Parameter(help="How many, in all processes together; the first is the recipe's own.")
    ] = 20,
    budget: Annotated[
        str, Parameter(help="How long all of it may take in one process (20m, 1h30m).")
    ] = "20m",
    steps: Annotated[
        int | None, Parameter(help="Steps of each trial, instead of what the budget allows.")
    ] = None,
    batch_size: Annotated[int | None, Parameter(help="Sequences in a step of the base.")] = None,
    seed: Annotated[int, Parameter(help="What weights, batches and trials are drawn from.")] = 0,
    dry_run: Annotated[
        bool, Parameter(negative=(), help="Print what it will cost; train nothing.")
    ] = False,
    model: Annotated[ModelOverrides | None, Parameter(group="Model")] = None,
    optimizer: Annotated[OptimizerOverrides | None, Parameter(group="Optimizer")] = None,
    machine: Annotated[MachineOverrides | None, Parameter(group="Machine")] = None,
    cluster: Annotated[
        Literal["slurm", "local"] | None,
        Parameter(group="Cluster", help="Submit jobs that search; local: processes of this host."),
    ] = None,
    jobs: Annotated[int, Parameter(group="Cluster", help="How many jobs to submit.")] = 1,
    time: Annotated[
        str, Parameter(group="Cluster", help="How long each may run; it begins again, 3 times.")
    ] = "4h",
    partition: Annotated[
        str | None, Parameter(group="Cluster", help="Of Slurm's; default the cluster's.")
    ] = None,
    gpus: Annotated[int | None, Parameter(group="Cluster", help="For each job.")] = None,
    cpus: Annotated[int | None, Parameter(group="Cluster", help="For each job.")] = None,
) -> None:
    """Search for the best values of any fields, on validation, and stop poor trials early.

    The same command in another terminal, or on another machine that shares the folder, takes part;
    stopped (Ctrl-C) and called again it goes on with the trial that it was in.
    """
    from tilth.lab import Search
    from tilth.recipes import recipe_named

    seconds = parse_duration(budget) if steps is None else None
    own = {"batch_size": batch_size, "seed": seed}
    fixed = {name: value for name, value in own.items() if value is not None}
    fixed |= dotted({"model": model, "optimizer": optimizer, "machine": machine})
    asked = Search(
        recipe_named(recipe)(data, size=size, steps=steps, budget_seconds=seconds),
        vary,
        out,
        fixed=fixed,
        trials=trials,
        command=("tilth", *sys.argv[1:]),
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
