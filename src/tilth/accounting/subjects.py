"""Models that have a name: GPT-2's sizes in our architecture, some Llamas, and the recipes.

What enters: a name, or the path of a run directory or of a config file. What leaves: a `Subject`:
the model, and what is known of the run (batch size, steps, optimizer).

>>> find_subject("gpt2-xl").config.d_model
1600
>>> find_subject("gpt2-xxl")
Traceback (most recent call last):
ValueError: there is no shape, run or config file 'gpt2-xxl'; did you mean gpt2-xl?
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tilth.config import GPT2_SHAPES, LLAMA_SHAPES, RECIPES, ModelConfig, TrainingConfig
from tilth.config.shapes import gpt2_parameters
from tilth.files import FileError, read_toml
from tilth.formatting import suggestion


@dataclass(frozen=True)
class Subject:
    """A model to account for, and what is known of how it is trained."""

    name: str
    config: ModelConfig
    notes: tuple[str, ...] = ()
    """What a reader must know about the numbers."""
    batch_size: int | None = None
    num_microbatches: int = 1
    steps: int | None = None
    optimizer: str | None = None
    dtype: str | None = None


# A recipe leaves the vocabulary to its data; this is what its name stands for.
RECIPE_VOCAB_SIZES = dict.fromkeys(RECIPES, 10_000) | {"openwebtext": 32_000, "leaderboard": 32_000}

SHAPE_NAMES = [*GPT2_SHAPES, *LLAMA_SHAPES, *RECIPES]


def find_subject(name: str) -> Subject:
    """Look up a shape or a recipe by name, or read the config of a run or a file."""
    if name in GPT2_SHAPES:
        config = GPT2_SHAPES[name]
        notes = (
            "The size of GPT-2 in our architecture: SwiGLU with d_ff = 4 d_model, RoPE, no biases, "
            f"untied. OpenAI's own has {gpt2_parameters(config):,} parameters.",
        )
        return Subject(name, config, notes)
    if name in LLAMA_SHAPES:
        return Subject(name, LLAMA_SHAPES[name])
    if name in RECIPES:
        return _recipe(name)
    path = Path(name)
    if path.is_dir():
        path /= "config.toml"
        if not path.is_file():
            raise FileError(name, "is no run directory: it has no config.toml", "check the path")
    if path.is_file():
        return _from_file(name, path)
    hint = suggestion(name.lower(), SHAPE_NAMES)
    raise ValueError(f"there is no shape, run or config file {name!r}; {hint}")


def subject_of(name: str, config: TrainingConfig) -> Subject:
    """What there is to account for in a whole training config."""
    microbatch_size = config.microbatch_size or config.batch_size
    return Subject(
        name,
        config.model,
        batch_size=config.batch_size,
        num_microbatches=-(-config.batch_size // microbatch_size),
        steps=config.steps,
        optimizer=config.optimizer.name,
        dtype=config.machine.dtype,
    )


def _recipe(name: str) -> Subject:
    vocab_size = RECIPE_VOCAB_SIZES[name]
    config = RECIPES[name](vocab_size, data="")
    notes = [f"The recipe, with a vocabulary of {vocab_size:,}: your data's own may differ."]
    if config.steps is None:
        notes.append("It trains for a time, so the number of steps depends on the machine.")
    return replace(subject_of(name, config), notes=tuple(notes))


def _from_file(name: str, path: Path) -> Subject:
    """A run's config.toml, a training config, or a table [model] alone with what else is known."""
    values = read_toml(path)
    if not isinstance(values.get("model"), dict):
        raise FileError(path, "has no table [model]", "give the config of a run")
    try:
        # Where the data lie does not matter here.
        return subject_of(name, TrainingConfig.from_dict({"data": "", **values}))
    except ValueError as error:
        raise FileError(path, f"is no training config: {error}".rstrip("."), "mend it") from error
