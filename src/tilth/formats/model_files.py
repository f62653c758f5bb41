"""A model as the formats read and write it: config, weights and tokenizer."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilth.config.model import ModelConfig
from tilth.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class ModelFiles:
    """A model in memory.

    Attributes:
        config: Shape of the model.
        weights: Float32 weights by their names in a checkpoint.
        tokenizer: Its tokenizer.
        end_token: The special token that ends a document.

    """

    config: ModelConfig
    weights: Mapping[str, "np.ndarray"] = field(repr=False)
    tokenizer: Tokenizer
    end_token: str

    def fingerprint(self) -> str:
        """Return a checksum of the weights."""
        digest = hashlib.sha256()
        for _, weight in sorted(self.weights.items()):
            digest.update(weight.tobytes())
        return digest.hexdigest()

    @property
    def end_id(self) -> int:
        """The id of the end token; raise ValueError if the tokenizer does not have it."""
        end_id = self.tokenizer.special_tokens.get(self.end_token)
        if end_id is None:
            raise ValueError(
                f"the tokenizer has no end token {self.end_token!r}, and other tools would not "
                "stop; train it with this special token."
            )
        return end_id


def renamed(name: str, outer: Mapping[str, str], layers: str, parts: Mapping[str, str]) -> str:
    """Return the name of a parameter in another tool; `layers` precedes the number of a layer."""
    if name in outer:
        return outer[name]
    _, layer, rest = name.split(".", 2)
    part, _, kind = rest.rpartition(".")
    return f"{layers}.{layer}.{parts[part]}.{kind}"


def refuse_first(sentence: str, problems: Mapping[str, bool]) -> None:
    """Raise ValueError with the first problem that is present, in the place of {} in a sentence."""
    for problem, is_present in problems.items():
        if is_present:
            raise ValueError(sentence.format(problem))


def refuse_variants(config: ModelConfig, format_name: str) -> None:
    """Raise ValueError for a variant that no format of other tools has."""
    sentence = "cannot express {}; export a model with pre-norm, RoPE and SwiGLU."
    problems = {
        f"{config.norm}-norm" if config.norm != "none" else "a model without norms": (
            config.norm != "pre"
        ),
        "a model without position encoding": config.position != "rope",
        "a SiLU feed-forward without gate": config.ffn != "swiglu",
    }
    refuse_first(f"{format_name} {sentence}", problems)
