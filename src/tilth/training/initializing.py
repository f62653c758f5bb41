"""Training from the weights of another run, a checkpoint or a model folder."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilth.config.training import TrainingConfig
from tilth.files import StrPath
from tilth.formats.huggingface import ModelFolder
from tilth.formats.model_files import ModelFiles
from tilth.generation.sources import open_source, read_model
from tilth.schema import short_repr
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.patterns import describe


def with_shape_of(
    config: TrainingConfig, path: StrPath, changes: Mapping[str, Any]
) -> TrainingConfig:
    """Return the config with the shape of a model on disk; `changes` are the user's.

    A shorter or longer context has the same parameters, so it may be given; so may values that the
    model has, as in the config file of a run that started from it.
    """
    source, _ = open_source(path)
    shape = source.config if isinstance(source, ModelFolder) else source.config.model
    for name in changes:
        part, _, field = name.partition(".")
        if part != "model" or field == "context_length":
            continue
        field = field.partition(".")[0]  # rope_scaling has fields of its own
        if getattr(config.model, field) != getattr(shape, field):
            raise ValueError(f"--init {path} decides the shape of the model; omit --{name}.")
    if "model.context_length" in changes:
        shape = replace(shape, context_length=config.model.context_length)
    return replace(config, model=shape)


def read_initial(path: StrPath, config: TrainingConfig, tokenizer: Tokenizer) -> ModelFiles:
    """Read the weights to start from; raise ValueError unless shape and tokenizer are the same."""
    source, step = open_source(path)
    _, model = read_model(source, step)
    own = replace(model.config, context_length=config.model.context_length)
    if own != config.model:
        names = [name for name, value in vars(own).items() if value != getattr(config.model, name)]
        raise ValueError(
            f"{path} has {names[0]} {getattr(own, names[0])}, and the config "
            f"{getattr(config.model, names[0])}; train with the shape of the model."
        )
    if model.tokenizer.fingerprint != tokenizer.fingerprint:
        raise ValueError(
            f"the tokenizer of the data is not that of {path}: {difference(tokenizer, model)}; "
            "tokenize the data with the tokenizer of the model."
        )
    return model


def difference(tokenizer: Tokenizer, model: ModelFiles) -> str:
    """Return in words how the tokenizer of the data differs from that of a model."""
    own, other = tokenizer.vocabulary, model.tokenizer.vocabulary
    if tokenizer.vocab_size != model.tokenizer.vocab_size:
        return f"it has {tokenizer.vocab_size:,} ids instead of {model.tokenizer.vocab_size:,}"
    if own.pattern != other.pattern:
        return f"its pattern is {describe(own.pattern)[:80]}, not {describe(other.pattern)[:80]}"
    for token_id in range(tokenizer.vocab_size):
        one, two = own.tokens.get(token_id), other.tokens.get(token_id)
        if one != two:
            return f"its token {token_id} is {short_repr(one)} instead of {short_repr(two)}"
    return "its merges, special tokens or normalizers differ"
