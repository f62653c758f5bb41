"""`tilth lab`: experiments that explain training."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tilth.cli.lab_view import report_labs, this_command, watch
from tilth.cli.options import DataFolder, Json
from tilth.cli.output import print_json
from tilth.cli.overrides import changes, overrides_of
from tilth.cli.signals import say
from tilth.cli.train import TABLES
from tilth.config.training import TrainingConfig

if TYPE_CHECKING:
    from tilth.lab import Plan
    from tilth.lab.planning import Options as PlanOptions

app = App(name="lab", help="Experiments that explain training.")
app.command("tilth.cli.lab_search:search", help="The best values of any fields, by Optuna.")

DataFolders = Annotated[
    list[Path], Parameter(help="Folders that `tilth tokenize` wrote; two or more.")
]


@Parameter(name="*")
class TrialOverrides(overrides_of(TrainingConfig, TABLES)):  # type: ignore[misc]
    """The fields that all trials share, as flags."""


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """What all questions have."""

    out: Path | None = None
    """The lab's folder; default lab/NAME."""
    recipe: str | None = None
    """What the trials are changed from; default small."""
    size: int | None = None
    """The number of layers of the base."""
    budget: str = "20m"
    """How long all of it may take (20m, 1h30m), as far as can be known."""
    steps: int | None = None
    """Steps of the base, instead of what the budget allows."""
    batch_size: int | None = None
    """Sequences in a step of the base."""
    seed: int | None = None
    """The first of the seeds."""
    seeds: int | None = None
    """How often each trial is repeated."""
    workers: int = 1
    """Trials at a time, each with its part of cores."""
    dry_run: bool = False
    """Print the trials and their cost; train nothing."""
    base: TrialOverrides | None = None

    def given(self) -> "PlanOptions":
        """Return the options that were given, as `tilth.lab.plan` takes them."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        values["changes"] = changes(values.pop("base", None))
        del values["dry_run"]
        options: PlanOptions = {**values, "command": this_command(), "tell": say}  # type: ignore[typeddict-item]
        return options


@app.command(name=["learning-rate", "lr"])
def learning_rate(*, data: DataFolder, options: Options | None = None) -> None:
    """Sweep the learning rate, from far too small to divergent, then finer around the best."""
    _ask("learning-rate", data, options)


@app.command
def batch_size(*, data: DataFolder, options: Options | None = None) -> None:
    """Sweep the batch size, from 1 to what memory allows, at equal tokens and at equal time."""
    _ask("batch-size", data, options)


@app.command
def ablations(*, data: DataFolder, options: Options | None = None) -> None:
    """Take the parts of the model away one by one, over several seeds (three by default)."""
    _ask("ablations", data, options)


@app.command
def corpora(*, data: DataFolders, options: Options | None = None) -> None:
    """Train one model on each of several texts, and ask each about the others'."""
    _ask("corpora", data, options)


@app.command
def shape(*, data: DataFolder, max_bytes: int = 50_000_000, options: Options | None = None) -> None:
    """Depth against width, context length, and vocabulary size: three labs, a third of time each.

    They are written to lab/shape/depth, context and vocabulary, with one report.

    Args:
        max_bytes: Most bytes per split when a tokenizer is retrained.
    """
    from tilth.lab import plan_shape

    options = options or Options()
    given: PlanOptions = {**options.given(), "max_bytes": max_bytes}
    _run(plan_shape(data, **given), options, options.out or Path("lab/shape"))


@app.command
def tokenizers(
    *,
    data: DataFolders,
    out: Path = Path("lab/tokenizers"),
    max_bytes: int = 50_000_000,
    seed: int = 0,
) -> None:
    """Compare the tokenizers of several data folders, each on its own text and on the others'.

    Args:
        out: The lab's folder.
        max_bytes: Of the text of each split that is read.
        seed: Which ten documents are drawn.
    """
    from tilth.lab import tokenizers as compare

    compare(data, out=out, max_bytes=max_bytes, seed=seed, command=this_command(), tell=say)
    report_labs([out], out)


@app.default
def own(question: Path, /, *, data: DataFolder, options: Options | None = None) -> None:
    """Answer a question of your own (`tilth lab mine.toml`), or a built-in one by its name.

    Args:
        question: A TOML file: a recipe, and changes to compare.
    """
    _ask(question, data, options)


def _ask(question: str | Path, data: Path | list[Path], options: Options | None) -> None:
    from tilth.lab import plan

    options = options or Options()
    planned = plan(question, data, **options.given())
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


@app.command
def sgd(
    *,
    lr: list[float] = [1.0, 10.0, 100.0, 1000.0],  # noqa: B006, cyclopts copies it
    steps: int = 10,
    seed: int = 0,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """SGD on mean(w**2), from w = 5 randn(10, 10): what a learning rate that is too large does.

    Args:
        lr: A learning rate; may come again.
        steps: How many steps to take.
        seed: Which random matrix to begin from.
        out: Write a lab and its report there.
    """
    from tilth.lab import sgd as answer
    from tilth.lab.questions.sgd import as_text, descend
    from tilth.runs.metrics import finite_or_none

    losses = {rate: descend(rate, steps, seed) for rate in lr}
    if json:
        # JSON has no infinity: a loss beyond float32 is null.
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
