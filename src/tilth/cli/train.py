"""`tilth train` and `tilth resume`: token files and a recipe to a run directory."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tilth.cli.options import DataFolder, RunFolder
from tilth.cli.overrides import changes, overrides_of
from tilth.cli.signals import say
from tilth.config.model import ModelConfig
from tilth.config.overrides import changed, omitted
from tilth.config.training import TrainingConfig
from tilth.formatting import parse_duration

FIELDS = ("steps", "batch_size", "microbatch_size", "order", "seed", "max_skipped")
TABLES = ("model", "optimizer", "machine", "watch", "parallel")

if TYPE_CHECKING:
    from tilth.training.loop import PreparedRun


@Parameter(name="*")
class TrainingOverrides(overrides_of(TrainingConfig, FIELDS + TABLES)):  # type: ignore[misc]
    """The fields of a training config, as options."""


def train(
    recipe: str,
    *,
    data: DataFolder,
    out: Path,
    size: int | None = None,
    budget: Annotated[str | None, Parameter(name=["--budget", "--time-limit"])] = None,
    init: Path | None = None,
    overrides: TrainingOverrides | None = None,
) -> None:
    """Train a model into a run directory; print its cost first.

    Ctrl-C finishes the step, saves a checkpoint and stops; `tilth resume` continues to the same
    bits. Every value of the recipe can be changed by an option or in a file (--config).

    Started by torchrun, several processes train one model: `torchrun --nproc-per-node 2 -m tilth
    train ...`, with --steps.

    Args:
        recipe: tiny, small, tinystories, tinystories-cpu, openwebtext or leaderboard.
        out: Run directory to create.
        size: Number of layers; width and learning rate follow.
        init: Run, checkpoint or model folder to start from; it decides the shape of the model.
        budget: Time budget (90s, 8m, 1h30m), converted by a measurement at the start to steps, and
            to a shape and a batch unless --size or a part of the model is given.

    Examples:
        tilth train small --data data/stories --out runs/first
        tilth train small --data data/stories --out runs/hour --budget 1h
        tilth train tiny --data data/stories --out runs/a --optimizer.lr 0.01
    """
    from tilth.data import open_data
    from tilth.recipes import recipe_named

    opened = open_data(data)
    seconds = None if budget is None else parse_duration(budget)
    given = changes(overrides)
    steps, layers = given.get("steps"), given.get("model.num_layers", size)
    if recipe == "custom":  # the config file of a run that was started in Python
        shape = {"vocab_size": opened.vocab_size, **changes(overrides and overrides.model)}
        model = ModelConfig.from_dict(shape)
        config = TrainingConfig(str(data), model, steps=steps, budget_seconds=seconds)
    elif size is not None and layers != size:
        raise ValueError(
            f"--size {size} and model.num_layers {layers} are both the number of layers; "
            "give one of them."
        )
    else:
        config = recipe_named(recipe)(opened, size=size, steps=steps, budget_seconds=seconds)
    given = {**omitted(given), **given}
    config = changed(config, given)
    from tilth.training.initializing import with_shape_of
    from tilth.training.loop import prepare  # imports torch: after the config is checked

    if init is not None:
        if size is not None:
            raise ValueError(f"--init {init} decides the shape of the model; omit --size.")
        config = with_shape_of(config, init, given)
    chosen = None if size is not None else given  # a budget may decide about the other values
    prepared = prepare(config, out, data=opened, measure=True, init=init, given=chosen)
    if prepared.plan is not None:
        say(prepared.plan.summary())
    _drive(prepared, out)


def resume(run: RunFolder, /, *, steps: int | None = None, data: Path | None = None) -> None:
    """Resume a stopped run, to the same bits as without the stop; or extend a finished one.

    With --steps, a finished run continues on a new schedule: the learning rate warms up and decays
    again over the new steps.

    Args:
        steps: Number of steps to extend a finished run by.
        data: Data folder, if it has moved.

    Examples:
        tilth resume runs/first
        tilth resume runs/first --steps 1000
    """
    from tilth.training.loop import prepare_extension, prepare_resume

    if steps is None:
        _drive(prepare_resume(run, data=data), run)
    else:
        _drive(prepare_extension(run, steps, data=data), run)


def _drive(prepared: "PreparedRun", out: Path) -> None:
    """Train, then print the last evaluation."""
    from tilth.cli.training_view import drive, training_view
    from tilth.training.distributed import open_ranks

    ranks = open_ranks()
    if ranks.size > 1 and ranks.is_first:
        say(prepared.division.summary(prepared.config, ranks))
    quiet = nullcontext(lambda _record: None)
    shown = training_view(prepared.config, total=lambda: prepared.steps)
    view = shown if ranks.is_first else quiet
    record = drive(prepared, view, f"continue with `tilth resume {out}`")
    if not ranks.is_first:
        return
    if record is not None and (found := record.evaluation) is not None:
        print(
            f"validation loss {found.loss:.4f}, perplexity {found.perplexity:.2f}, "
            f"{found.bits_per_byte:.4f} bits per byte"
        )
    print(f"Wrote {out}")
