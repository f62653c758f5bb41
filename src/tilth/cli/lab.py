"""`tilth lab`: experiments that explain training."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tilth.cli.lab_view import report_labs, this_command, watch
from tilth.cli.options import DataFolder, Json, Where
from tilth.cli.output import print_json
from tilth.cli.overrides import changes, overrides_of
from tilth.cli.signals import say
from tilth.cli.train import TABLES
from tilth.config.training import TrainingConfig

if TYPE_CHECKING:
    from tilth.lab import Plan
    from tilth.lab.planning import Options as PlanOptions

app = App(name="lab", help="Experiments that explain training.")
app.command("tilth.cli.lab_search:search", help="Search hyperparameters with Optuna.", sort_key=7)

DataFolders = Annotated[list[Path], Parameter(help="Data folder; once for each of two or more.")]


@Parameter(name="*")
class TrialOverrides(overrides_of(TrainingConfig, TABLES)):  # type: ignore[misc]
    """The fields that all trials share, as options."""


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """The options of every question."""

    out: Path | None = None
    """Lab folder; default lab/NAME."""
    recipe: str | None = None
    """Base recipe of the trials; default small."""
    size: int | None = None
    """Number of layers of the base config."""
    budget: str = "20m"
    """Estimated time for all trials together (20m, 1h30m)."""
    steps: int | None = None
    """Steps per trial of the base config, instead of a budget."""
    batch_size: int | None = None
    """Sequences per step of the base config."""
    seed: int | None = None
    """First random seed."""
    seeds: int | None = None
    """Number of seeds per trial; default depends on the question."""
    workers: int | None = None
    """Trials in parallel, each on its share of the cores; default 1, with slurm 4."""
    where: Where | None = None
    dry_run: bool = False
    """Print the trials and their cost; train nothing."""
    base: TrialOverrides | None = None

    def given(self) -> "PlanOptions":
        """Return the given options as `tilth.lab.plan` takes them."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        values["changes"] = changes(values.pop("base", None))
        if (where := values.pop("where", None)) is not None:
            values["executor"] = where.executor(self.workers)
        del values["dry_run"]
        return {**values, "command": this_command(), "tell": say}  # type: ignore[typeddict-item]


@app.command(name=["learning-rate", "lr"], sort_key=1)
def learning_rate(
    *, data: DataFolder, close_seeds: int = 1, options: Options | None = None
) -> None:
    """Sweep the learning rate up to divergence, then refine around the best value.

    Args:
        close_seeds: Number of seeds of the rates within 1% of the best.

    Examples:
        tilth lab learning-rate --data data/stories --budget 20m --out lab/lr
        tilth lab lr --data data/stories --dry-run
    """
    _ask("learning-rate", data, options, close_seeds=close_seeds)


@app.command(sort_key=2)
def batch_size(*, data: DataFolder, close_seeds: int = 1, options: Options | None = None) -> None:
    """Sweep the batch size, from 1 to the memory limit, at equal tokens and at equal time.

    Args:
        close_seeds: Number of seeds of the sizes within 1% of the best.

    Examples:
        tilth lab batch-size --data data/stories --budget 1h
    """
    _ask("batch-size", data, options, close_seeds=close_seeds)


@app.command(sort_key=3)
def ablations(
    *, data: DataFolder, variant: list[str] | None = None, options: Options | None = None
) -> None:
    """Remove the parts of the model one by one; three seeds for each by default.

    Args:
        variant: Name of a variant, such as no-norm; once for each, default all.

    Examples:
        tilth lab ablations --data data/stories --seeds 5 --budget 1h
        tilth lab ablations --data data/stories --variant no-norm
    """
    _ask("ablations", data, options, variants=variant or ())


@app.command(sort_key=5)
def corpora(*, data: DataFolders, options: Options | None = None) -> None:
    """Train one model on each corpus and evaluate it on all corpora.

    Examples:
        tilth lab corpora --data data/stories --data data/web
    """
    _ask("corpora", data, options)


@app.command(sort_key=4)
def shape(*, data: DataFolder, max_bytes: int = 50_000_000, options: Options | None = None) -> None:
    """Compare depth and width, context lengths and vocabulary sizes, in three labs.

    Each lab takes a third of the budget: lab/shape/depth, context and vocabulary, with one report.

    Args:
        max_bytes: Maximum bytes of text per split when a tokenizer is retrained.

    Examples:
        tilth lab shape --data data/stories --budget 1h
    """
    from tilth.lab import plan_shape

    options = options or Options()
    given: PlanOptions = {**options.given(), "max_bytes": max_bytes}
    _run(plan_shape(data, **given), options, options.out or Path("lab/shape"))


@app.command(sort_key=6)
def scaling(
    *, data: DataFolder, predict: list[str] | None = None, options: Options | None = None
) -> None:
    """Fit the loss as a function of model size and training tokens, and predict recipes.

    Trains several sizes for several lengths, fits L(N, D) = E + A / N^alpha + B / D^beta, checks it
    on the largest run, and draws the compute-optimal frontier.

    Args:
        predict: Recipe to predict, as NAME or NAME:TOKENS; once for each.

    Examples:
        tilth lab scaling --data data/stories --budget 1h
        tilth lab scaling --data data/stories --predict tinystories:41M
    """
    _ask("scaling", data, options, **({} if predict is None else {"predict": predict}))


@app.command(sort_key=6)
def tokenizers(
    *,
    data: DataFolders,
    out: Path = Path("lab/tokenizers"),
    max_bytes: int = 50_000_000,
    seed: int = 0,
) -> None:
    """Compare the tokenizers of several data folders on every text. Trains no model.

    Args:
        out: Lab folder.
        max_bytes: Maximum bytes of text to read per split.
        seed: Random seed of the ten documents drawn.

    Examples:
        tilth lab tokenizers --data data/stories --data data/web
    """
    from tilth.lab import tokenizers as compare

    compare(data, out=out, max_bytes=max_bytes, seed=seed, command=this_command(), tell=say)
    report_labs([out], out)


@app.command(sort_key=9)
def writeup(
    *,
    data: Annotated[
        list[Path] | None,
        Parameter(help="Data folder of the stories, then that of the other text."),
    ] = None,
    budget: str = "2h",
    only: list[str] | None = None,
    out: Path = Path("writeup"),
    steps: int | None = None,
    max_bytes: int | None = None,
    recipe: str | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    workers: int = 1,
    base: TrialOverrides | None = None,
) -> None:
    """Run every experiment of the write-ups and write one document, as HTML and Markdown.

    Twelve sections, from Unicode to the scaling law, in the order of Stanford's CS336 assignment 1.
    Without --data, it makes two built-in corpora. After Ctrl-C, the same command continues.

    Args:
        budget: Estimated time for all trials together (5m, 2h).
        only: Section to run: unicode, vocabulary, comparing, tokenizing, accounting, optimizing,
            learning-rate, batch-size, generation, ablations, corpora or larger; once for each.
        out: Folder of the document and its labs.
        steps: Steps per trial of the base config, instead of a budget.
        max_bytes: Maximum bytes of text per split; default 20 kB per second of the budget, and at
            most 50 MB.
        recipe: Base recipe of the trials; default small, below 30 minutes tiny.
        batch_size: Sequences per step of the base config.
        seed: First random seed.
        workers: Trials in parallel, each on its share of the cores.

    Examples:
        tilth lab writeup --data data/stories --data data/web --budget 2h
        tilth lab writeup --budget 5m
        tilth lab writeup --only unicode --only accounting
    """
    from tilth.lab import writeup as write

    values = {"recipe": recipe, "batch_size": batch_size}
    given = {name: value for name, value in values.items() if value is not None}
    try:
        written = write(
            data or (),
            out=out,
            budget=budget,
            only=only or (),
            steps=steps,
            max_bytes=max_bytes,
            tell=say,
            seed=seed,
            workers=workers,
            changes=changes(base),
            **given,
        )
    except (KeyboardInterrupt, SystemExit):  # a signal
        say(f"tilth: stopped; continue with `{shlex.join(this_command())}`")
        raise
    print(f"Wrote {', '.join(map(str, written[:2]))}")


@app.default
def own(question: Path, /, *, data: DataFolder, options: Options | None = None) -> None:
    """Run an experiment, answer its question, and write a report.

    The question is a command below, or a TOML file with a recipe and the changes to compare.

    Args:
        question: TOML file of a question.

    Examples:
        tilth lab lr --data data/stories --budget 20m --out lab/lr
        tilth lab mine.toml --data data/stories
    """
    _ask(question, data, options)


def _ask(
    question: str | Path,
    data: Path | list[Path],
    options: Options | None,
    **own: Any,  # noqa: ANN401, options of this question
) -> None:
    from tilth.lab import plan

    options = options or Options()
    given: PlanOptions = {**options.given(), **own}  # type: ignore[typeddict-item]
    planned = plan(question, data, **given)
    _run([planned], options, planned.out)


def _run(plans: "Iterable[Plan]", options: Options, out: Path) -> None:
    """Print the plans, or train them and write one report."""
    labs = []
    for planned in plans:
        if options.dry_run:
            print(planned)
        else:
            watch(planned.run(), planned.command)
            labs.append(planned.out)
    if labs:
        report_labs(labs, out)


@app.command(sort_key=8)
def sgd(
    *,
    lr: list[float] = [1.0, 10.0, 100.0, 1000.0],  # noqa: B006, cyclopts copies it
    steps: int = 10,
    seed: int = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Minimize mean(w**2) by SGD, from w = 5 randn(10, 10), at several learning rates.

    Args:
        lr: Learning rate; once for each.
        steps: Number of steps.
        seed: Random seed of the matrix.
        out: Lab folder for the results and a report.

    Examples:
        tilth lab sgd
        tilth lab sgd --lr 1 --lr 500 --steps 20
    """
    from tilth.lab import sgd as answer
    from tilth.lab.questions.sgd import as_text, descend
    from tilth.runs.metrics import finite_or_none

    losses = {rate: descend(rate, steps, seed) for rate in lr}
    if json:
        # JSON has no infinity: a loss beyond float32 becomes null.
        rows = [
            {"lr": rate, "losses": list(map(finite_or_none, line))} for rate, line in losses.items()
        ]
        print_json({"steps": steps, "seed": seed, "runs": rows})
        return
    if out is not None:
        answer(lr, steps=steps, seed=seed, out=out, command=this_command())
    print(as_text(losses), end="")
    if out is not None:
        report_labs([out], out)
