"""How likely a given text is, token by token.

What enters: a model and a text. What leaves: for each token the logarithm of its probability given
those before it, under the model itself: no temperature, no filter.

>>> from tilth.generation.loading import LoadedModel
>>> from tilth.model import ModelConfig, TransformerLM
>>> from tilth.tokenizer import Tokenizer
>>> config = ModelConfig(257, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> weights = {name: 0 * w.numpy() for name, w in TransformerLM(config).state_dict().items()}
>>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
>>> scored = score(LoadedModel.from_weights(config, weights, tokenizer), "hi")
>>> [(token.id, round(token.log_probability, 3)) for token in scored]  # log(1 / 257)
[(104, -5.549), (105, -5.549)]
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilth.files import StrPath
from tilth.generation.context import END_TOKEN
from tilth.generation.loading import LoadedModel, load_decoder
from tilth.runs.run import Run

if TYPE_CHECKING:
    from jaxtyping import Float

PART = 64  # tokens whose logits are held at once


class ScoredToken(NamedTuple):
    """A token, and how likely it was."""

    id: int
    log_probability: float
    """Its natural logarithm, under the model itself: no temperature, no filter."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The likeliest tokens there, the likeliest first, each with its log-probability."""


def scored_token(
    logits: Float[np.ndarray, " vocab"], token_id: int, num_alternatives: int
) -> ScoredToken:
    """Score one token by the logits behind those before it."""
    wide = logits.astype(np.float64)
    largest = wide.max()
    log_total = largest + np.log(np.exp(wide - largest).sum())
    alternatives = []
    if number := min(num_alternatives, len(wide)):
        least = np.partition(wide, -number)[-number]
        candidates = np.flatnonzero(wide >= least)  # by id, and of equals more than are wanted
        # The smaller id first among equals, as the sampling has it.
        likeliest = candidates[np.argsort(-wide[candidates], kind="stable")[:number]]
        alternatives = [(int(i), float(wide[i] - log_total)) for i in likeliest]
    return ScoredToken(token_id, float(wide[token_id] - log_total), tuple(alternatives))


def score(
    run: StrPath | Run | LoadedModel,
    text: str,
    *,
    alternatives: int = 0,
    allow_special: bool = False,
) -> list[ScoredToken]:
    """The log-probability of each token of a text; their sum is that of the text.

    The text begins a document: its first token is scored behind the end token (where a tokenizer
    has none, the first token is not scored). In a text longer than the context, each token sees at
    least half a context before it. Special tokens in the text are text, unless they are allowed.
    """
    if operator.index(alternatives) < 0:
        raise ValueError(f"alternatives is {alternatives}; give 0 or more.")
    model = run if isinstance(run, LoadedModel) else load_decoder(run)
    tokenizer = model.tokenizer
    ids = tokenizer.encode(text) if allow_special else tokenizer.encode_ordinary(text)
    if END_TOKEN in tokenizer.special_tokens:
        ids = [tokenizer.special_tokens[END_TOKEN], *ids]
    decoder = model.decoder()
    length = model.config.context_length
    scored: list[ScoredToken] = []
    start = 0  # of the window that the decoder reads
    # Behind the last token there is nothing to score.
    while (place := len(scored)) < len(ids) - 1:
        decoder.truncate(0)
        if place > start:
            decoder.extend(ids[start:place])
        # In parts, as the logits of a whole context may be large.
        for first in range(place, min(start + length, len(ids) - 1), PART):
            last = min(first + PART, start + length, len(ids) - 1)
            # As in `generate_tokens`: what the tokenizer cannot say takes no share.
            rows = decoder.extend(ids[first:last], every=True)[:, : tokenizer.vocab_size]
            for logits, token_id in zip(rows, ids[first + 1 : last + 1], strict=True):
                scored.append(scored_token(logits, token_id, alternatives))
        start += max(1, length - length // 2)
    return scored
