"""Models that have a name: GPT-2's sizes in our architecture, some Llamas, and the recipes.

What enters: a name, or the path of a run directory or of a config file. What leaves: a `Subject`:
the model, and what is known of the run (batch size, steps, optimizer).

>>> find_subject("gpt2-xl").config.d_model
1600
>>> find_subject("gpt2-xxl")
Traceback (most recent call last):
ValueError: there is no shape, run or config file 'gpt2-xxl'; did you mean gpt2-xl?
"""

import difflib
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilth.data.token_files import Data
from tilth.files import FileError
from tilth.model.config import ModelConfig
from tilth.recipes import RECIPES, TrainingConfig

GPT2_VOCAB_SIZE = 50_257
GPT2_CONTEXT_LENGTH = 1024


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


def _gpt2(d_model: int, num_layers: int, num_heads: int) -> ModelConfig:
    return ModelConfig(
        GPT2_VOCAB_SIZE, GPT2_CONTEXT_LENGTH, d_model, num_layers, num_heads, d_ff=4 * d_model
    )


GPT2_SHAPES = {
    "gpt2-small": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
}
LLAMA_SHAPES = {
    "tinyllama-1.1b": ModelConfig(32_000, 2048, 2048, 22, 32, d_ff=5632, num_kv_heads=4),
    "llama-2-7b": ModelConfig(32_000, 4096, 4096, 32, 32, d_ff=11_008),
    "llama-2-13b": ModelConfig(32_000, 4096, 5120, 40, 40, d_ff=13_824),
    "llama-2-70b": ModelConfig(32_000, 4096, 8192, 80, 64, d_ff=28_672, num_kv_heads=8),
    "llama-3-8b": ModelConfig(
        128_256, 8192, 4096, 32, 32, d_ff=14_336, num_kv_heads=8, rope_theta=500_000.0
    ),
    "llama-3-70b": ModelConfig(
        128_256, 8192, 8192, 80, 64, d_ff=28_672, num_kv_heads=8, rope_theta=500_000.0
    ),
}
# A recipe leaves the vocabulary to its data; this is what its name stands for.
RECIPE_VOCAB_SIZES = dict.fromkeys(RECIPES, 10_000) | {"openwebtext": 32_000, "leaderboard": 32_000}

SHAPE_NAMES = [*GPT2_SHAPES, *LLAMA_SHAPES, *RECIPES]


def gpt2_parameters(config: ModelConfig) -> int:
    """OpenAI's own count at these widths: GELU, learned positions, biases, one matrix tied."""
    d_model = config.d_model
    matrices_and_biases = 12 * d_model * d_model + 9 * d_model
    norms = 4 * d_model
    rows = config.vocab_size + config.context_length
    return rows * d_model + config.num_layers * (matrices_and_biases + norms) + 2 * d_model


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
    close = difflib.get_close_matches(name.lower(), SHAPE_NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(SHAPE_NAMES)}."
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
    nothing = np.empty(0, dtype=np.uint16)
    config = RECIPES[name](Data(Path(), {"vocab_size": vocab_size}, nothing, nothing))
    notes = [f"The recipe, with a vocabulary of {vocab_size:,}: your data's own may differ."]
    if config.steps is None:
        notes.append("It trains for a time, so the number of steps depends on the machine.")
    return replace(subject_of(name, config), notes=tuple(notes))


def _from_file(name: str, path: Path) -> Subject:
    """A run's config.toml, a training config, or a table [model] alone with what else is known."""
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise FileError(path, f"is not TOML ({error})", "check the path") from error
    if not isinstance(values.get("model"), dict):
        raise FileError(path, "has no table [model]", "give the config of a run")
    try:
        # Where the data lie does not matter here.
        return subject_of(name, TrainingConfig.from_dict({"data": "", **values}))
    except ValueError as error:
        raise FileError(path, f"is no training config: {error}".rstrip("."), "mend it") from error
