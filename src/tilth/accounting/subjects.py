"""The models that `account` takes: by name, as a run directory, a config file or a config.

>>> find_subject("gpt2-xl").config.d_model
1600
>>> find_subject("gpt2-xxl")
Traceback (most recent call last):
ValueError: there is no shape, run or config file 'gpt2-xxl'; did you mean gpt2-xl?
"""

from dataclasses import dataclass, replace
from os import fspath
from pathlib import Path
from typing import Literal

from tilth.config import GPT2_SHAPES, LLAMA_SHAPES, RECIPES, ModelConfig, TrainingConfig
from tilth.config.shapes import gpt2_parameters
from tilth.config.training import Count
from tilth.files import FileError, StrPath, read_toml, refuse_invalid
from tilth.formats.huggingface import is_model_folder, open_model_folder
from tilth.formatting import suggestion


@dataclass(frozen=True)
class Subject:
    """A model, and the settings of its training that change its cost."""

    name: str
    config: ModelConfig
    notes: tuple[str, ...] = ()
    """Caveats about the numbers, a sentence each."""
    batch_size: Count = 1
    microbatch_size: Count = 1
    """The most sequences of a forward pass."""
    steps: Count | None = None
    optimizer: Literal["adamw", "muon", "sgd"] = "adamw"
    dtype: Literal["float32", "tf32", "bfloat16", "float16"] = "float32"
    recompute: bool = False
    """Whether the backward pass repeats the forward pass, to save memory."""

    @property
    def num_microbatches(self) -> int:
        """The microbatches of a step."""
        return -(-self.batch_size // self.microbatch_size)


# A recipe takes its vocabulary size from its data; these are the usual ones.
RECIPE_VOCAB_SIZES = dict.fromkeys(RECIPES, 10_000) | {"openwebtext": 32_000, "leaderboard": 32_000}

SHAPE_NAMES = [*GPT2_SHAPES, *LLAMA_SHAPES, *RECIPES]


def find_subject(subject: StrPath | ModelConfig | TrainingConfig) -> Subject:
    """Look up a shape or a recipe by name, read the config of a run or a file, or take a config."""
    if isinstance(subject, ModelConfig):
        return Subject("a model", subject)
    if isinstance(subject, TrainingConfig):
        return subject_of(subject.recipe, subject)
    name = fspath(subject)
    if config := GPT2_SHAPES.get(name):
        note = (
            "The size of GPT-2 in our architecture: SwiGLU with d_ff = 4 d_model, RoPE, no biases, "
            f"untied. OpenAI's own has {gpt2_parameters(config):,} parameters."
        )
        return Subject(name, config, (note,))
    if name in LLAMA_SHAPES:
        return Subject(name, LLAMA_SHAPES[name])
    if name in RECIPES:
        return _recipe(name)
    path = Path(name)
    if is_model_folder(path) and not (path / "config.toml").is_file():
        return Subject(name, open_model_folder(path).config)
    if path.is_dir():
        path /= "config.toml"
        if not path.is_file():
            problem = "is not a run directory (it has no config.toml)"
            raise FileError(name, problem, "check the path")
    if path.is_file():
        return _from_file(name, path)
    hint = suggestion(name.lower(), SHAPE_NAMES)
    raise ValueError(f"there is no shape, run or config file {name!r}; {hint}")


def subject_of(name: str, config: TrainingConfig) -> Subject:
    """Return the subject of a training config."""
    return Subject(
        name,
        config.model,
        batch_size=config.batch_size,
        microbatch_size=config.microbatch_size or config.batch_size,
        steps=config.steps,
        optimizer=config.optimizer.name,
        dtype=config.machine.dtype or "float32",
    )


def _recipe(name: str) -> Subject:
    vocab_size = RECIPE_VOCAB_SIZES[name]
    config = RECIPES[name](vocab_size, data="")
    notes = [f"The recipe, with a vocabulary of {vocab_size:,}: your data's own may differ."]
    if config.steps is None:
        notes.append("It trains for a time, so the number of steps depends on the machine.")
    return replace(subject_of(name, config), notes=tuple(notes))


def _from_file(name: str, path: Path) -> Subject:
    """Read the config.toml of a run, a training config, or a file with at least a table [model]."""
    values = read_toml(path)
    if not isinstance(values.get("model"), dict):
        raise FileError(path, "has no table [model]", "name the config of a run")
    with refuse_invalid(path, "is not a valid training config", "correct it"):
        # The path of the data does not matter here.
        return subject_of(name, TrainingConfig.from_dict({"data": "", **values}))
