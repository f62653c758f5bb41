"""`tilth lab`: experiments that explain training."""

import json as json_module
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tilth.cli.lab_view import report_labs, watch
from tilth.cli.overrides import dotted
from tilth.cli.train import (
    MachineOverrides,
    ModelOverrides,
    OptimizerOverrides,
    WatchOverrides,
    recipe_of,
    seconds_of,
)
from tilth.recipes.changing import changed
from tilth.recipes.config import TrainingConfig, differences

if TYPE_CHECKING:
    from tilth.lab.experiment import Question

app = App(name="lab", help="Experiments that explain training.")
app.command("tilth.cli.lab_search:search", help="The best values of any fields, by Optuna.")

DataFolder = Annotated[Path, Parameter(help="The folder that `tilth tokenize` wrote.")]
DataFolders = Annotated[
    list[Path], Parameter(negative=(), help="Folders that `tilth tokenize` wrote; two or more.")
]
EVALUATION_TOKENS = 32_768  # half of a usual evaluation: trials are short
SOME_STEPS = 10_000  # until the budget has become steps


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


@app.command(name="lr")
def learning_rates(*, data: DataFolder, options: Options | None = None) -> None:
    """Sweep the learning rate, from far too small to divergent, then finer around the best."""
    options = options or Options()
    from tilth.lab.learning_rates import LearningRates

    seeds = _seeds(options)
    _ask(lambda base: LearningRates(base, seeds), "lr", data, options)


@app.command(name="batch-size")
def batch_sizes(*, data: DataFolder, options: Options | None = None) -> None:
    """Sweep the batch size, from 1 to what memory allows, at equal tokens and at equal time."""
    options = options or Options()
    from tilth.lab.batch_sizes import BatchSizes

    seeds = _seeds(options)
    _ask(
        lambda base: BatchSizes(base, seeds),
        "batch-size",
        data,
        options,
        by_clock=BatchSizes.by_clock,
    )


@app.command
def ablations(*, data: DataFolder, options: Options | None = None) -> None:
    """Take the parts of the model away one by one, over several seeds (three by default)."""
    options = options or Options()
    from tilth.lab.ablations import Ablations

    seeds = _seeds(options, 3)
    _ask(lambda base: Ablations(base, seeds), "ablations", data, options)


@app.command
def corpora(*, data: DataFolders, options: Options | None = None) -> None:
    """Train one model on each of several texts, and ask each about the others'."""
    options = options or Options()
    from tilth.lab.corpora import Corpora

    seeds = _seeds(options)
    out = options.out or Path("lab/corpora")
    _ask(lambda base: Corpora(base, seeds, data, out), "corpora", data[0], options)


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
    options = options or Options()
    from tilth.lab.folder import check_folder
    from tilth.lab.shapes import Context, Depth, Vocabulary

    seeds = _seeds(options)
    folder = options.out or Path("lab/shape")
    third = replace(options, budget=f"{seconds_of(options.budget) / 3}s")
    questions: dict[str, Callable[[TrainingConfig], Question]] = {
        "depth": lambda base: Depth(base, seeds),
        "context": lambda base: Context(base, seeds),
        "vocabulary": lambda base: Vocabulary(base, seeds, folder / "vocabulary", max_bytes),
    }
    check_folder(folder, "shape", tuple(questions))
    for name, question in questions.items():
        print(f"{name}:", file=sys.stderr)
        of_three = replace(third, out=folder / name)
        _ask(question, name, data, of_three, by_clock=name == "context", is_last=False)
    if not options.dry_run:
        report_labs([folder / name for name in questions], folder)


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
    from tilth.lab.folder import check_folder, new_lab, save_lab
    from tilth.lab.tokenizers import compare_tokenizers

    check_folder(out, "tokenizers")
    lab = compare_tokenizers(data, max_bytes=max_bytes, seed=seed, tell=_tell)
    save_lab(new_lab(out, lab.name), replace(lab, command=_command()))
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
    options = options or Options()
    from tilth.lab.own import Own, read_own

    if question.suffix != ".toml":
        names = ", ".join(name for name in app if not name.startswith("-"))
        raise ValueError(
            f"There is no question {str(question)!r}: there are {names}, and any TOML file of your "
            "own."
        )
    asked = read_own(question)
    if "steps" in asked.base:
        raise ValueError(f"{question} gives steps in [base]; leave them out, and give --steps.")
    if asked.varies_steps and options.steps is None:
        raise ValueError(
            f"{question} varies steps, which a budget of time would decide; give --steps as well, "
            "or leave steps out of it."
        )
    options = replace(options, recipe=options.recipe or asked.recipe)
    _ask(lambda base: Own(asked, base, options.seeds), question.stem, data, options, asked.base)


# --- asking ---------------------------------------------------------------------------------------


def _ask(
    make: "Callable[[TrainingConfig], Question]",
    name: str,
    data: Path,
    options: Options,
    base_changes: Mapping[str, Any] | None = None,
    *,
    by_clock: bool = False,
    is_last: bool = True,
) -> None:
    """Decide how long the trials are, then train what is missing, and write the report."""
    from tilth.lab.folder import LAB, check_folder

    out = options.out or Path("lab") / name
    check_folder(out, name)
    if options.workers < 1:
        raise ValueError(f"workers is {options.workers}; take at least one.")
    if by_clock and options.workers > 1:
        _tell("this question compares times, so its trials run one at a time")
        options = replace(options, workers=1)
    base = changed(_base(data, options), base_changes or {})
    seconds = None
    if (out / LAB).exists():
        base = _same_base(out, base, options)
    else:
        base, seconds = _with_length(make, base, options)
    question = make(base)
    if options.dry_run:
        print(describe(question, seconds, options.workers))
        return
    _train(question, out, options.workers)
    if is_last:
        report_labs([out], out)


def _seeds(options: Options, default: int = 1) -> int:
    return default if options.seeds is None else options.seeds


def _base(data: Path, options: Options) -> TrainingConfig:
    recipe = recipe_of(options.recipe or "small")
    steps = SOME_STEPS if options.steps is None else options.steps
    config: TrainingConfig = recipe(data, size=options.size, steps=steps)
    values: dict[str, Any] = {
        "watch.evaluation_tokens": EVALUATION_TOKENS,
        "watch.norms_every": 0,
        "watch.keep_checkpoints": 1,
    }
    if options.workers > 1:
        values["machine.threads"] = max(1, (os.cpu_count() or 1) // options.workers)
    own = {"batch_size": options.batch_size, "seed": options.seed}
    values |= {name: value for name, value in own.items() if value is not None}
    tables = ("model", "optimizer", "machine", "watch")
    values |= dotted({table: getattr(options, table) for table in tables})
    return changed(config, values)


def _same_base(out: Path, base: TrainingConfig, options: Options) -> TrainingConfig:
    """The base of a lab that has begun, if it is what is asked for."""
    from tilth.lab.folder import load_lab

    old = TrainingConfig.from_dict(load_lab(out).base)
    steps = old.steps if options.steps is None else base.steps
    given = dotted({"machine": options.machine})
    for name, (then, now) in differences(old, replace(base, steps=steps)).items():
        if name == "data" or (name.startswith("machine.") and name not in given):
            continue  # it may have moved; and what the first call decided holds
        raise ValueError(
            f"{out} was begun with {name} = {then}, and {now} is asked for; ask as before, or name "
            "another --out."
        )
    return replace(old, data=base.data)


def _with_length(
    make: "Callable[[TrainingConfig], Question]", base: TrainingConfig, options: Options
) -> tuple[TrainingConfig, float]:
    """The base with its steps and machine, and how long it will take."""
    from tilth.data import open_data
    from tilth.training import plan

    wanted = base
    if options.steps is None:
        cost = make(replace(base, steps=SOME_STEPS)).cost()
        # Evaluations, samples and starts take their part too.
        seconds = 0.9 * seconds_of(options.budget) * options.workers / cost
        wanted = replace(base, steps=None, budget_seconds=seconds)  # type: ignore[arg-type]
    planned = plan(wanted, open_data(base.data))
    found = planned.config
    return replace(base, steps=found.steps, machine=found.machine), planned.seconds


def describe(question: "Question", seconds: float | None, workers: int = 1) -> str:
    """The trials and what they cost, by the accounting; the time by one measurement of the base."""
    from tilth.accounting import count_parameters, training_flops
    from tilth.accounting.report import big, duration
    from tilth.lab.experiment import relative_cost

    lines = [question.asks, ""]
    setups = question.setups({})
    width = max(len(setup.label) for setup in setups)
    head = ("trial", "steps", "tokens", "parameters", "FLOPs", "time")
    lines.append(
        f"{head[0]:{width}} {head[1]:>8} {head[2]:>12} {head[3]:>12} {head[4]:>12} {head[5]:>10}"
    )
    for setup in setups:
        config = setup.config
        flops = config.steps * training_flops(config.model, config.batch_size)
        share = relative_cost(config, question.base)
        time = "–" if seconds is None else duration(seconds * share)
        lines.append(
            f"{setup.label:{width}} {config.steps:8,} {config.tokens:12,} "
            f"{count_parameters(config.model).total:12,} {big(flops):>12} {time:>10}"
        )
    expected = "" if seconds is None else duration(seconds * question.cost() / workers)
    total = f", about {expected} in all" if expected else ""
    known = sum(relative_cost(setup.config, question.base) for setup in setups)
    later = " and those that their outcomes lead to" if question.cost() > 1.01 * known else ""
    lines += ["", f"{len(setups)} trials{later}{total}; nothing was trained."]
    return "\n".join(lines)


def _train(question: "Question", out: Path, workers: int) -> None:
    from tilth.lab.running import run_question

    command = _command()
    watch(run_question(question, out, command=command, workers=workers, tell=_tell), command)


def _command() -> tuple[str, ...]:
    return ("tilth", *sys.argv[1:])


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
    from tilth.lab.sgd import as_lab, curve, descend

    if out is not None:
        from tilth.lab.folder import check_folder, new_lab, save_lab

        check_folder(out, "sgd")
    losses = {rate: descend(rate, steps, seed) for rate in lr}
    if json:
        # JSON has no infinity: a loss beyond float32 is null.
        rows = [
            {"lr": rate, "losses": [loss if math.isfinite(loss) else None for loss in line]}
            for rate, line in losses.items()
        ]
        print(json_module.dumps({"steps": steps, "seed": seed, "runs": rows}))
        return
    print("step" + "".join(f"{f'lr {rate:g}':>12}" for rate in losses))
    for step in range(steps + 1):
        print(f"{step:4}" + "".join(f"{line[step]:12.4g}" for line in losses.values()))
    print(f"\n{curve(losses)}", end="")
    if out is not None:
        save_lab(new_lab(out, "sgd"), replace(as_lab(losses), command=_command()))
        report_labs([out], out)
