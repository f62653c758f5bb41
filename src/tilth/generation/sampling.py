"""Sample the next token: temperature, top-k, top-p, min-p and repetition penalty. No torch.

`next_token_distribution` is the definition. The random number of a draw depends on (seed, sample
index, position) only, so equal logits give equal choices.

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

from tilth.data.splitmix64 import splitmix64
from tilth.generation import _core
from tilth.schema import AT_LEAST_1, POSITIVE, Range, Share, check

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from numpy.typing import ArrayLike

    Choice = tuple[float, int, float, float, float]
    """Temperature, top-k, top-p, min-p and the random number; temperature 0 is greedy."""
    Distribution = tuple[Int[np.ndarray, " kept"], Float[np.ndarray, " kept"]]


@dataclass(frozen=True)
class Sampling:
    """Sampling options; each filter applies to the tokens that the one before it kept.

    `LanguageModel.generate` and `tilth generate` take these fields as options.
    """

    temperature: Annotated[float, Range(at_least=0.0)] = 1.0
    """Softmax temperature; below 1 favours likely tokens (0.4 suits a small run), 0 is greedy."""
    top_k: Annotated[int, AT_LEAST_1] | None = None
    """Keep the k likeliest tokens; default: all."""
    top_p: Share = 1.0
    """Nucleus sampling: keep the smallest set of likeliest tokens with total probability p."""
    min_p: Share = 0.0
    """Keep tokens with at least this fraction of the largest probability."""
    repetition_penalty: Annotated[float, POSITIVE] = 1.0
    """Divide positive logits of tokens in the context by this, and multiply negative ones."""
    seed: Annotated[int, Range(at_least=0, at_most=2**64 - 1)] = 0
    """Random seed, from 0 to 2**64 - 1; equal seeds give equal text."""

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token is always chosen."""
        return self.temperature == 0 or self.top_k == 1 or self.top_p == 0

    def __post_init__(self) -> None:
        check(self)


def next_token_distribution(
    logits: ArrayLike, sampling: Sampling, previous_ids: Sequence[int] = ()
) -> Distribution:
    """Return the ids of the tokens that may come next, ascending, and their probabilities.

    Applies the repetition penalty, then softmax(logits / temperature), then top-k, top-p and min-p,
    each renormalized. Of equally likely tokens, filters keep the smaller id.

    Shape:
        - logits: (vocab,).
        - Output: two arrays (kept,). The probabilities sum to 1.
    """
    scores, likeliest = _scores(logits, sampling, previous_ids)
    if sampling.is_greedy:
        return np.array([likeliest]), np.ones(1)
    scores = scores.astype(np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature: -inf is right
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
    """Return the logits after the repetition penalty, and the index of the largest.

    The penalty applies once to each token of the context (Keskar et al. 2019).
    """
    scores = np.asarray(logits)
    if scores.dtype != np.float32:
        scores = scores.astype(np.float64)
    likeliest = int(scores.argmax())  # the index of a NaN, if there is one
    if not math.isfinite(scores[likeliest]):
        raise ValueError(
            f"there is no token to choose, as the largest logit is {scores[likeliest]}; the "
            "weights are damaged, or the training has diverged."
        )
    if sampling.repetition_penalty != 1 and previous_ids:
        scores, penalty = scores.astype(np.float64), sampling.repetition_penalty
        ids = np.unique(np.asarray(previous_ids, dtype=np.int64))
        with np.errstate(over="ignore"):  # a penalty of 1e-320: infinity becomes the largest number
            lower = np.where(scores[ids] > 0, scores[ids] / penalty, scores[ids] * penalty)
        scores[ids] = np.nan_to_num(lower, nan=math.nan)
        likeliest = int(scores.argmax())
    return scores, likeliest


def choose(
    logits: ArrayLike,
    sampling: Sampling,
    *,
    sample_index: int,
    position: int,
    previous_ids: Sequence[int] = (),
) -> int:
    """Draw the token at `position`, counted from the start of the prompt.

    Samples from `next_token_distribution` in the native core, whose weights are float32: among
    tokens within 1e-6 of the limit of a filter it may keep another one. With a vocabulary of 10,000
    it takes 0.02 ms. NumPy takes 0.9 ms, as long as a network of 22.7M parameters.
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


def choice(
    sampling: Sampling, vocab_size: int, *, sample_index: int, position: int
) -> Choice | None:
    """Return the arguments of a native draw at `position`; None with a repetition penalty.

    >>> choice(Sampling(top_k=1), 5, sample_index=0, position=7)
    (0.0, 0, 1.0, 0.0, 0.0)
    """
    if sampling.repetition_penalty != 1:
        return None
    if sampling.is_greedy:
        return 0.0, 0, 1.0, 0.0, 0.0
    top_k = min(sampling.top_k or 0, vocab_size)
    unit = random_unit(sampling.seed, sample_index, position)
    return sampling.temperature, top_k, sampling.top_p, sampling.min_p, unit


def random_unit(seed: int, sample_index: int, position: int) -> float:
    """Return a random number in [0, 1), the same on every machine for equal arguments."""
    bits = 0
    for value in (seed, sample_index, position):
        bits = splitmix64(bits ^ operator.index(value))  # NumPy integers would overflow
    return (bits >> 11) / 2**53
