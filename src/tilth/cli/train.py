"""`tilth train` and `tilth resume`: token files and a recipe to a run directory."""

import re
import sys
from collections.abc import Iterator
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from tilth.cli.overrides import changes, dotted, overrides_of
from tilth.cli.signals import first_signal, say, silence_stderr
from tilth.model.config import ModelConfig
from tilth.recipes.changing import changed
from tilth.recipes.config import (
    MachineConfig,
    OptimizerConfig,
    Order,
    TrainingConfig,
    WatchConfig,
)

if TYPE_CHECKING:
    from tilth.runs.metrics import StepRecord
    from tilth.training.planning import Plan

    # For the type checker, which takes no variable for a type.
    ModelOverrides: TypeAlias = Any
    OptimizerOverrides: TypeAlias = Any
    MachineOverrides: TypeAlias = Any
    WatchOverrides: TypeAlias = Any
else:
    ModelOverrides, OptimizerOverrides, MachineOverrides, WatchOverrides = map(
        overrides_of, (ModelConfig, OptimizerConfig, MachineConfig, WatchConfig)
    )

DataFolder = Annotated[Path | None, Parameter(help="The token files, if they moved.")]


def train(
    recipe: Annotated[
        str,
        Parameter(help="tiny, small, tinystories, tinystories-cpu, openwebtext or leaderboard."),
    ],
    *,
    data: Annotated[Path, Parameter(help="The folder that `tilth tokenize` wrote.")],
    out: Annotated[Path, Parameter(help="The run directory to make.")],
    size: Annotated[
        int | None, Parameter(help="The number of layers; width and learning rate follow.")
    ] = None,
    budget: Annotated[
        str | None,
        Parameter(
            name=["--budget", "--time-limit"],
            help="How long it may take (90s, 8m, 1h30m): becomes a number of steps at the start.",
        ),
    ] = None,
    steps: Annotated[int | None, Parameter(help="How many updates, instead of a budget.")] = None,
    batch_size: Annotated[int | None, Parameter(help="Sequences in one step.")] = None,
    microbatch_size: Annotated[
        int | None, Parameter(help="Sequences in memory at a time; the gradient is the same.")
    ] = None,
    order: Annotated[
        Order | None, Parameter(help="Every window once an epoch, or drawn with repeats.")
    ] = None,
    seed: Annotated[int | None, Parameter(help="What weights and batches are drawn from.")] = None,
    max_skipped: Annotated[
        int | None, Parameter(help="Stop after so many steps in a row that are not finite.")
    ] = None,
    model: Annotated[ModelOverrides | None, Parameter(group="Model")] = None,
    optimizer: Annotated[OptimizerOverrides | None, Parameter(group="Optimizer")] = None,
    machine: Annotated[MachineOverrides | None, Parameter(group="Machine")] = None,
    watch: Annotated[WatchOverrides | None, Parameter(group="Watching")] = None,
) -> None:
    """Train a model: print what it will cost, then train it, watched, into a run directory.

    Ctrl-C finishes the step, saves and ends; `tilth resume` goes on to the same bits. Every value
    of the recipe can be changed by a flag, or in a file (--config).
    """
    from tilth.data import open_data
    from tilth.runs.run import check_new_folder

    check_new_folder(out)
    opened = open_data(data)
    seconds = None if budget is None else seconds_of(budget)
    if recipe == "custom":  # the config file of a run that began in Python
        shape = ModelConfig.from_dict({"vocab_size": opened.vocab_size, **changes(model)})
        config = TrainingConfig(str(data), shape, steps=steps, budget_seconds=seconds)  # type: ignore[arg-type]
    else:
        layers = changes(model).get("num_layers", size)
        if size is not None and layers != size:
            raise ValueError(
                f"--size {size} is the number of layers, and model.num_layers says {layers}; "
                "give one of the two."
            )
        config = recipe_of(recipe)(opened, size=size, steps=steps, budget_seconds=seconds)
    own = {
        "batch_size": batch_size,
        "microbatch_size": microbatch_size,
        "order": order,
        "seed": seed,
        "max_skipped": max_skipped,
    }
    tables = {"model": model, "optimizer": optimizer, "machine": machine, "watch": watch}
    config = changed(config, {**{k: v for k, v in own.items() if v is not None}, **dotted(tables)})
    from tilth.training import plan  # torch, once the config makes sense
    from tilth.training import train as train_steps
    from tilth.training.loop import check_before

    check_before(config, opened, out)  # a plan takes some seconds, and compiling most of a minute
    planned = plan(config, opened)
    say(describe(planned))
    _drive(train_steps(planned.config, out), planned.config, out)


def resume(
    run: Annotated[Path, Parameter(help="The run directory.")],
    /,
    *,
    steps: Annotated[
        int | None,
        Parameter(help="Train a finished run for so many steps more, on a new schedule."),
    ] = None,
    data: DataFolder = None,
) -> None:
    """Go on with a run that was stopped, to the same bits as if it had not been.

    A finished run is trained further with --steps: the learning rate warms up and falls once more
    over the new steps.
    """
    from tilth.runs import open_run
    from tilth.training import extend
    from tilth.training import resume as resume_steps

    records = resume_steps(run, data=data) if steps is None else extend(run, steps, data=data)
    _drive(records, open_run(run).config, run)


def _drive(records: "Iterator[StepRecord]", config: TrainingConfig, out: Path) -> None:
    """Show each step; on the first signal leave the loop, which saves; on the second, at once."""
    from tilth.cli.training_view import training_view

    record = None
    with first_signal() as signals, training_view(config) as show, closing(records):  # type: ignore[type-var]  # a generator
        for record in records:
            try:
                show(record)
            except OSError:  # nobody looks any more, which is no reason to stop
                silence_stderr()
            if signals:
                break
    if signals and record is not None and record.step < config.steps:
        say(
            f"tilth: stopped after step {record.step:,} of {config.steps:,}, which is saved; go on "
            f"with `tilth resume {out}`"
        )
        sys.exit(128 + signals[0])
    if record is not None and record.evaluation is not None:
        found = record.evaluation
        print(
            f"validation loss {found.loss:.4f}, perplexity {found.perplexity:.2f}, "
            f"{found.bits_per_byte:.4f} bits per byte"
        )
    print(f"Wrote {out}")


def recipe_of(name: str) -> Any:  # noqa: ANN401, a Recipe
    """The recipe of this name, or a sentence with the nearest one."""
    from tilth.recipes import RECIPES

    if name in RECIPES:
        return RECIPES[name]
    nearest = get_close_matches(name, RECIPES, n=1)
    hint = f"Did you mean {nearest[0]}?" if nearest else f"There are {', '.join(RECIPES)}."
    raise ValueError(f"There is no recipe {name!r}. {hint}")


def seconds_of(budget: str) -> float:
    """The seconds of a time like 90s, 8m or 1h30m."""
    match = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s)?", budget.strip())
    try:
        hours, minutes, seconds = (float(part or 0) for part in match.groups())  # type: ignore[union-attr]
        total = 3600 * hours + 60 * minutes + seconds
    except (AttributeError, ValueError):
        total = 0.0
    if total <= 0:
        raise ValueError(f"The budget {budget!r} is no time; write it like 90s, 8m or 1h30m.")
    return total


def describe(planned: "Plan") -> str:
    """What a run will cost, in some lines."""
    from tilth.accounting.report import duration

    config = planned.config
    model, machine = config.model, config.machine
    length = f"{config.steps:,} steps of {config.tokens_per_step:,} tokens"
    compiling = "compiled" if machine.compile else "not compiled"
    return "\n".join(
        [
            f"model    {planned.parameters:,} parameters: {model.num_layers} layers of width "
            f"{model.d_model}, {model.num_heads} heads, vocabulary {model.vocab_size:,}",
            f"length   {config.tokens:,} tokens: {length}",
            f"cost     {planned.flops:.3g} FLOPs, {planned.memory_bytes / 1e9:.2f} GB of memory",
            f"machine  {machine.device}, {machine.threads} threads, {machine.dtype}, {compiling}; "
            f"peak {planned.peak_flops / 1e9:,.0f} GFLOP/s",
            f"time     {duration(planned.seconds)} expected: {planned.step_seconds:.3g} s a step, "
            f"{planned.utilisation:.0%} of the peak",
        ]
    )
