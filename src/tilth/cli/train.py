"""`tilth train` and `tilth resume`: token files and a recipe to a run directory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tilth.cli.options import DataFolder, RunFolder
from tilth.cli.overrides import changes, overrides_of
from tilth.cli.signals import say
from tilth.config.model import ModelConfig
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.formatting import parse_duration

FIELDS = ("steps", "batch_size", "microbatch_size", "order", "seed", "max_skipped")
TABLES = ("model", "optimizer", "machine", "watch")

if TYPE_CHECKING:
    from tilth.training.loop import PreparedRun


@Parameter(name="*")
class TrainingOverrides(overrides_of(TrainingConfig, FIELDS + TABLES)):  # type: ignore[misc]
    """The fields of a training run, as flags."""


def train(
    recipe: str,
    *,
    data: DataFolder,
    out: Path,
    size: int | None = None,
    budget: Annotated[str | None, Parameter(name=["--budget", "--time-limit"])] = None,
    overrides: TrainingOverrides | None = None,
) -> None:
    """Train a model: print what it will cost, then train it, watched, into a run directory.

    Ctrl-C finishes the step, saves and ends; `tilth resume` goes on to the same bits. Every value
    of the recipe can be changed by a flag, or in a file (--config).

    Args:
        recipe: tiny, small, tinystories, tinystories-cpu, openwebtext or leaderboard.
        out: The run directory to make.
        size: The number of layers; width and learning rate follow.
        budget: How long it may take (90s, 8m, 1h30m): becomes a number of steps at the start.
    """
    from tilth.data import open_data
    from tilth.recipes import recipe_named

    opened = open_data(data)
    seconds = None if budget is None else parse_duration(budget)
    given = changes(overrides)
    steps, layers = given.get("steps"), given.get("model.num_layers", size)
    if recipe == "custom":  # the config file of a run that began in Python
        shape = {"vocab_size": opened.vocab_size, **changes(overrides and overrides.model)}
        model = ModelConfig.from_dict(shape)
        config = TrainingConfig(str(data), model, steps=steps, budget_seconds=seconds)
    elif size is not None and layers != size:
        raise ValueError(
            f"--size {size} is the number of layers, and model.num_layers says {layers}; "
            "give one of the two."
        )
    else:
        config = recipe_named(recipe)(opened, size=size, steps=steps, budget_seconds=seconds)
    config = changed(config, given)
    from tilth.training.loop import prepare  # torch, once the config makes sense

    prepared = prepare(config, out, data=opened, measure=True)
    if prepared.plan is not None:
        say(prepared.plan.summary())
    _drive(prepared, out)


def resume(run: RunFolder, /, *, steps: int | None = None, data: Path | None = None) -> None:
    """Go on with a run that was stopped, to the same bits as if it had not been.

    A finished run is trained further with --steps: the learning rate warms up and falls once more
    over the new steps.

    Args:
        steps: Train a finished run for so many steps more, on a new schedule.
        data: The token files, if they moved.
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
