"""`tilth train` and `tilth resume`: token files and a recipe to a run directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from cyclopts import Parameter

from tilth.cli.overrides import changes, dotted, flag_of, overrides_of
from tilth.cli.signals import say
from tilth.config.model import ModelConfig
from tilth.config.overrides import changed
from tilth.config.training import (
    MachineConfig,
    OptimizerConfig,
    Order,
    TrainingConfig,
    WatchConfig,
)
from tilth.formatting import parse_duration

if TYPE_CHECKING:
    from tilth.training.loop import PreparedRun

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
    steps: Annotated[int | None, flag_of(TrainingConfig, "steps")] = None,
    batch_size: Annotated[int | None, flag_of(TrainingConfig, "batch_size")] = None,
    microbatch_size: Annotated[int | None, flag_of(TrainingConfig, "microbatch_size")] = None,
    order: Annotated[Order | None, flag_of(TrainingConfig, "order")] = None,
    seed: Annotated[int | None, flag_of(TrainingConfig, "seed")] = None,
    max_skipped: Annotated[int | None, flag_of(TrainingConfig, "max_skipped")] = None,
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
    from tilth.recipes import recipe_named

    opened = open_data(data)
    seconds = None if budget is None else parse_duration(budget)
    if recipe == "custom":  # the config file of a run that began in Python
        shape = ModelConfig.from_dict({"vocab_size": opened.vocab_size, **changes(model)})
        config = TrainingConfig(str(data), shape, steps=steps, budget_seconds=seconds)
    else:
        layers = changes(model).get("num_layers", size)
        if size is not None and layers != size:
            raise ValueError(
                f"--size {size} is the number of layers, and model.num_layers says {layers}; "
                "give one of the two."
            )
        config = recipe_named(recipe)(opened, size=size, steps=steps, budget_seconds=seconds)
    own = {
        "batch_size": batch_size,
        "microbatch_size": microbatch_size,
        "order": order,
        "seed": seed,
        "max_skipped": max_skipped,
    }
    tables = {"model": model, "optimizer": optimizer, "machine": machine, "watch": watch}
    config = changed(config, {**{k: v for k, v in own.items() if v is not None}, **dotted(tables)})
    from tilth.training.loop import prepare  # torch, once the config makes sense

    prepared = prepare(config, out, data=opened, measure=True)
    if prepared.plan is not None:
        say(prepared.plan.summary())
    _drive(prepared, out)


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
    from tilth.training.loop import prepare_extension, prepare_resume

    if steps is None:
        _drive(prepare_resume(run, data=data), run)
    else:
        _drive(prepare_extension(run, steps, data=data), run)


def _drive(prepared: "PreparedRun", out: Path) -> None:
    """Train, and print how well the model does in the end."""
    from tilth.cli.training_view import drive, training_view

    view = training_view(prepared.config)
    record = drive(prepared, view, f"go on with `tilth resume {out}`")
    if record is not None and record.evaluation is not None:
        found = record.evaluation
        print(
            f"validation loss {found.loss:.4f}, perplexity {found.perplexity:.2f}, "
            f"{found.bits_per_byte:.4f} bits per byte"
        )
    print(f"Wrote {out}")
