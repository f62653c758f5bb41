"""Logits to the next token: the definitions of temperature, top-k, top-p, min-p and repetition.

What enters: the logits of one position, and `Sampling`. What leaves: the tokens that may come next
with their probabilities, and one of them. Chance depends on (seed, sample index, position) alone,
so equal logits give equal choices. Without torch.

>>> logits = np.log([0.5, 0.3, 0.15, 0.05])
>>> ids, probabilities = next_token_distribution(logits, Sampling(top_p=0.7))
>>> ids.tolist(), probabilities.round(3).tolist()
([0, 1], [0.625, 0.375])
>>> choose(logits, Sampling(temperature=0.0), sample_index=0, position=7)
0
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tilth.generation import _core
from tilth.schema import AT_LEAST_1, POSITIVE, Range, Share, check

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike

    Distribution = tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"]]


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen; each filter acts on the tokens that the one before it kept.

    The only list of these options: `LanguageModel.generate` and `tilth generate` take its fields.
    """

    temperature: Annotated[float, Range(at_least=0.0)] = 1.0
    """Divides the logits: below 1 favours likely tokens (0.4 suits a small run); 0 is greedy."""
    top_k: Annotated[int, AT_LEAST_1] | None = None
    """Keep the k likeliest tokens; default: all."""
    top_p: Share = 1.0
    """Keep the smallest set of likeliest tokens whose mass reaches p, and at least one."""
    min_p: Share = 0.0
    """Keep the tokens that are at least this share as likely as the likeliest."""
    repetition_penalty: Annotated[float, POSITIVE] = 1.0
    """Divides the positive logits of tokens in the context, and multiplies the negative ones."""
    seed: Annotated[int, Range(at_least=0, at_most=2**64 - 1)] = 0
    """Random seed, from 0 to 2**64 - 1: equal seeds, equal text."""

    @property
    def is_greedy(self) -> bool:
        """Whether only the likeliest token is left."""
        return self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    def __post_init__(self) -> None:
        check(self)


def next_token_distribution(
    logits: ArrayLike, sampling: Sampling, previous_ids: Sequence[int] = ()
) -> Distribution:
    """The tokens that may come next, and their probabilities, which sum to 1.

    The repetition penalty, then softmax(logits / temperature), then top-k, top-p and min-p, each
    renormalised. Of equally likely tokens the smaller id goes first. They come by id.
    """
    scores, likeliest = _scores(logits, sampling, previous_ids)
    if sampling.is_greedy:
        return np.array([likeliest]), np.ones(1)
    scores = scores.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature: -inf is as good
        weights = np.exp((scores - scores[likeliest]) / sampling.temperature)
    ids = np.argsort(-weights, kind="stable")[: sampling.top_k]
    if sampling.top_p < 1:
        masses = np.cumsum(weights[ids])
        ids = ids[: np.searchsorted(masses, sampling.top_p * masses[-1]) + 1]
    ids = np.sort(ids[(weights[ids] > 0) & (weights[ids] >= sampling.min_p)])
    return ids, weights[ids] / weights[ids].sum()


def _scores(
    logits: ArrayLike, sampling: Sampling, previous_ids: Sequence[int]
) -> tuple[Float[np.ndarray, " vocab"], int]:
    """The logits after the repetition penalty, and which is the largest of them."""
    scores = np.asarray(logits)
    if scores.dtype != np.float32:
        scores = scores.astype(np.float64)
    likeliest = int(scores.argmax())  # NaN, if there is any
    if not math.isfinite(scores[likeliest]):
        raise ValueError(
            f"there is no token to choose, as the largest logit is {scores[likeliest]}; the "
            "weights are damaged, or the training had diverged."
        )
    if sampling.repetition_penalty != 1 and previous_ids:
        scores = penalised(scores.astype(np.float64), sampling.repetition_penalty, previous_ids)
        likeliest = int(scores.argmax())
    return scores, likeliest


def penalised(
    scores: Float[np.ndarray, " vocab"], penalty: float, previous_ids: Sequence[int]
) -> Float[np.ndarray, " vocab"]:
    """Make what was said less likely, once however often it was said (Keskar et al. 2019)."""
    scores = scores.copy()
    said = np.unique(np.asarray(previous_ids, dtype=np.int64))
    with np.errstate(over="ignore"):  # a penalty of 1e-320: infinity becomes the largest number
        now = np.where(scores[said] > 0, scores[said] / penalty, scores[said] * penalty)
    most = np.finfo(np.float64).max
    scores[said] = np.clip(now, -most, most)
    return scores


def choose(
    logits: ArrayLike,
    sampling: Sampling,
    *,
    sample_index: int,
    position: int,
    previous_ids: Sequence[int] = (),
) -> int:
    """Draw the token that stands at `position`, counted from the start of the prompt.

    From `next_token_distribution`, but in the core, whose weights are float32: of tokens within
    1e-6 of where a filter ends it may keep another. For a vocabulary of 10,000 it takes 0.08 ms
    where NumPy takes 0.9, half of what the network takes at 22.7M parameters.
    """
    scores, likeliest = _scores(logits, sampling, previous_ids)
    if sampling.is_greedy:
        return likeliest
    return _core.draw(
        np.ascontiguousarray(scores),
        largest=float(scores[likeliest]),
        temperature=sampling.temperature,
        top_k=min(sampling.top_k or 0, len(scores)),
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        unit=random_unit(sampling.seed, sample_index, position),
    )


def random_unit(seed: int, sample_index: int, position: int) -> float:
    """A number from 0 to 1 (without it) that depends on these three alone, on every machine."""
    bits = 0
    for value in map(operator.index, (seed, sample_index, position)):  # NumPy's would overflow
        bits = _scrambled(bits ^ value)
    return (bits >> 11) / 2**53


def _scrambled(bits: int) -> int:
    """One step of splitmix64 (Steele et al. 2014): every bit of the result depends on all."""
    bits = (bits + 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)
