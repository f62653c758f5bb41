"""`tilth lab`: experiments that explain training."""

import json as json_module
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tilth.cli.lab_view import report_labs, watch
from tilth.cli.overrides import dotted
from tilth.cli.signals import say
from tilth.cli.train import MachineOverrides, ModelOverrides, OptimizerOverrides, WatchOverrides

if TYPE_CHECKING:
    from tilth.lab import Plan
    from tilth.lab.planning import Options as PlanOptions

app = App(name="lab", help="Experiments that explain training.")
app.command("tilth.cli.lab_search:search", help="The best values of any fields, by Optuna.")

DataFolder = Annotated[Path, Parameter(help="The folder that `tilth tokenize` wrote.")]
DataFolders = Annotated[
    list[Path], Parameter(negative=(), help="Folders that `tilth tokenize` wrote; two or more.")
]
TABLES = ("model", "optimizer", "machine", "watch")


@Parameter(name="*")
@dataclass(frozen=True)
class Options:
    """What all questions have."""

    out: Annotated[Path | None, Parameter(help="The lab's folder; default lab/NAME.")] = None
    recipe: Annotated[
        str | None, Parameter(help="What the trials are changed from; default small.")
    ] = None
    size: Annotated[int | None, Parameter(help="The number of layers of the base.")] = None
    budget: Annotated[
        str, Parameter(help="How long all of it may take (20m, 1h30m), as far as can be known.")
    ] = "20m"
    steps: Annotated[
        int | None, Parameter(help="Steps of the base, instead of what the budget allows.")
    ] = None
    batch_size: Annotated[int | None, Parameter(help="Sequences in a step of the base.")] = None
    seed: Annotated[int | None, Parameter(help="The first of the seeds.")] = None
    seeds: Annotated[int | None, Parameter(help="How often each trial is repeated.")] = None
    workers: Annotated[int, Parameter(help="Trials at a time, each with its part of cores.")] = 1
    dry_run: Annotated[
        bool, Parameter(negative=(), help="Print the trials and their cost; train nothing.")
    ] = False
    model: Annotated[ModelOverrides | None, Parameter(group="Model")] = None
    optimizer: Annotated[OptimizerOverrides | None, Parameter(group="Optimizer")] = None
    machine: Annotated[MachineOverrides | None, Parameter(group="Machine")] = None
    watch: Annotated[WatchOverrides | None, Parameter(group="Watching")] = None

    def given(self) -> "PlanOptions":
        """The options that were given, as `tilth.lab.plan` takes them."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        tables = {table: values.pop(table) for table in TABLES}
        del values["dry_run"]
        options: PlanOptions = {name: v for name, v in values.items() if v is not None}  # type: ignore[assignment]
        return {**options, "changes": dotted(tables), "command": _command(), "tell": say}


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
def shape(
    *,
    data: DataFolder,
    max_bytes: Annotated[
        int, Parameter(help="Of text for each split, where another vocabulary is tried.")
    ] = 50_000_000,
    options: Options | None = None,
) -> None:
    """Depth against width, context length, and vocabulary size: three labs, a third of time each.

    They are written to lab/shape/depth, context and vocabulary, with one report.
    """
    from tilth.lab import plan_shape

    options = options or Options()
    given: PlanOptions = {**options.given(), "max_bytes": max_bytes}
    _run(plan_shape(data, **given), options, options.out or Path("lab/shape"))


@app.command
def tokenizers(
    *,
    data: DataFolders,
    out: Annotated[Path, Parameter(help="The lab's folder.")] = Path("lab/tokenizers"),
    max_bytes: Annotated[
        int, Parameter(help="Of the text of each split that is read.")
    ] = 50_000_000,
    seed: Annotated[int, Parameter(help="Which ten documents are drawn.")] = 0,
) -> None:
    """Compare the tokenizers of several data folders, each on its own text and on the others'."""
    from tilth.lab import tokenizers as compare

    compare(data, out=out, max_bytes=max_bytes, seed=seed, command=_command(), tell=say)
    report_labs([out], out)


@app.default
def own(
    question: Annotated[Path, Parameter(help="A TOML file: a recipe, and changes to compare.")],
    /,
    *,
    data: DataFolder,
    options: Options | None = None,
) -> None:
    """Answer a question of your own (`tilth lab mine.toml`), or a built-in one by its name."""
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
            continue
        watch(planned.run(), planned.command)
        labs.append(planned.out)
    if labs:
        report_labs(labs, out)


def _command() -> tuple[str, ...]:
    return ("tilth", *sys.argv[1:])


@app.command
def sgd(
    *,
    lr: Annotated[
        list[float], Parameter(name="--lr", negative=(), help="A learning rate; may come again.")
    ] = [1.0, 10.0, 100.0, 1000.0],  # noqa: B006, cyclopts copies it
    steps: Annotated[int, Parameter(help="How many steps to take.")] = 10,
    seed: Annotated[int, Parameter(help="Which random matrix to begin from.")] = 0,
    out: Annotated[Path | None, Parameter(help="Write a lab and its report there.")] = None,
    json: Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")] = False,
) -> None:
    """SGD on mean(w**2), from w = 5 randn(10, 10): what a learning rate that is too large does."""
    from tilth.lab import sgd as answer
    from tilth.lab.questions.sgd import as_text, descend

    losses = {rate: descend(rate, steps, seed) for rate in lr}
    if json:
        # JSON has no infinity: a loss beyond float32 is null.
        rows = [
            {"lr": rate, "losses": [loss if math.isfinite(loss) else None for loss in line]}
            for rate, line in losses.items()
        ]
        print(json_module.dumps({"steps": steps, "seed": seed, "runs": rows}))
        return
    if out is not None:
        answer(lr, steps=steps, seed=seed, out=out, command=_command())
    print(as_text(losses), end="")
    if out is not None:
        report_labs([out], out)
