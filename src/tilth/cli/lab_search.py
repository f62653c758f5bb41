"""`tilth lab search`: hyperparameter search with Optuna."""

from pathlib import Path

from cyclopts import Parameter

from tilth.cli.lab_view import report_labs, this_command, watch
from tilth.cli.options import DataFolder, Where
from tilth.cli.overrides import changes, overrides_of
from tilth.config.training import TrainingConfig
from tilth.formatting import parse_duration

FIELDS = ("batch_size", "model", "optimizer", "machine")


@Parameter(name="*")
class TrialOverrides(overrides_of(TrainingConfig, FIELDS)):  # type: ignore[misc]
    """The fields that all trials share, as options."""


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
    base: TrialOverrides | None = None,
    seed: int = 0,
    dry_run: bool = False,
    workers: int | None = None,
    where: Where | None = None,
) -> None:
    """Search for the best values of any fields, by validation loss; stop poor trials early.

    The same command in another terminal, or on another machine that shares the folder, joins the
    search. Interrupted and called again, it continues with its trial.

    --vary NAME=LOW..HIGH is a range: of integers if both ends are (0..1 is 0 or 1, 0.0..1.0 any
    number between), logarithmic if it is positive and spans more than a decade. --vary NAME=A,B,C
    is a choice. Names are those of a config file, such as optimizer.lr.

    Args:
        vary: Range NAME=LOW..HIGH or choice NAME=A,B,C; once for each field.
        out: Lab folder.
        recipe: Base recipe of the trials.
        size: Number of layers of the base config.
        trials: Number of trials of all processes; the first one is the recipe itself.
        budget: Estimated time for all trials in one process (20m, 1h30m).
        steps: Steps per trial, instead of a budget.
        seed: Random seed of weights, batches and trials.
        dry_run: Print the cost; train nothing.
        workers: Processes or jobs of --cluster that share the trials; default all cores, slurm 4.

    Examples:
        tilth lab search --data data/stories --vary optimizer.lr=1e-4..1e-1
        tilth lab search --data data/stories --vary model.num_layers=2,4 --trials 8
    """
    from tilth.lab import Search
    from tilth.recipes import recipe_named

    executor = None if where is None else where.executor(workers)
    if executor is None and workers is not None:
        raise ValueError(
            "--workers are those of a cluster; add --cluster, such as --cluster local."
        )
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
    elif executor is not None:
        asked.run_on(executor)
        report_labs([out], out)
    else:
        watch(asked.run(), asked.command)
        report_labs([out], out)
