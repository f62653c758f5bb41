r"""The decode loop: one for streams, batches and training samples. No torch.

A `Decoder` turns token ids into logits, a `Continuation` turns logits into the next token, and
`decode` drives both until every sequence is over. `score_ids` reads through the same decoder.

>>> class Constant:  # a decoder whose likeliest token is always 3
...     def extend(self, ids, every=False):
...         return np.eye(1, 5, k=3, dtype=np.float32)[None]
...     def truncate(self, row, length):
...         pass
>>> sequence = Continuation([0, 1], Sampling(temperature=0), context_length=4, max_tokens=3)
>>> [(row, token_id) for row, token_id, _ in decode(Constant(), [sequence], vocab_size=5)]
[(0, 3), (0, 3), (0, 3)]
>>> sequence.stop_reason, sequence.context
('limit', [0, 1, 3, 3])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from tilth.generation.sampling import Sampling, choose
from tilth.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jaxtyping import Float, Float32

StopReason = Literal["end token", "limit", "stop string", "context"]
PART = 64  # tokens whose logits are held at once while a text is scored


class Decoder(Protocol):
    """Reads token ids of one or more sequences, and scores the tokens that may follow each."""

    def extend(
        self, ids: Sequence[Sequence[int]], every: bool = False
    ) -> Float32[np.ndarray, "rows ids vocab_size"]:
        """Read the next ids of each row; return the logits after the last, or after every one."""

    def truncate(self, row: int, length: int) -> None:
        """Forget all ids of a row but the first `length`."""


class Continuation:
    """One sequence while it is decoded: the ids in its context, and why it ended."""

    def __init__(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        *,
        context_length: int,
        max_tokens: int,
        end_id: int | None = None,
        sample_index: int = 0,
        slides: bool = True,
    ) -> None:
        self.context = list(prompt)
        """The ids that the next token depends on, at most `context_length`."""
        self.unread = self.context
        """Of these, the ids that the decoder reads next; empty once the sequence is over."""
        self.num_tokens = 0
        """How many tokens were chosen; the end token does not count."""
        self.stop_reason: StopReason | None = None
        self._sampling, self._sample_index = sampling, sample_index
        self._context_length, self._slides = context_length, slides
        self._max_tokens, self._end_id = max_tokens, end_id
        self._start = len(prompt)

    def choose(self, logits: Float32[np.ndarray, " vocab_size"]) -> int | None:
        """Choose the next token by the logits after the context; None at the end token."""
        token_id = choose(
            logits,
            self._sampling,
            sample_index=self._sample_index,
            position=self._start + self.num_tokens,
            previous_ids=self.context,
        )
        if token_id == self._end_id:
            self.stop("end token")
            return None
        self.num_tokens += 1
        if self.num_tokens == self._max_tokens:
            self.stop("limit")
        elif len(self.context) < self._context_length:
            self.unread = [token_id]
            self.context.append(token_id)
        elif self._slides:
            # Keep the newer half. Its positions begin at 0 again, so it is read anew: one pass over
            # half a context for every half a context that is written.
            self.context = [*self.context, token_id][-max(1, self._context_length // 2) :]
            self.unread = self.context
        else:
            self.stop("context")
        return token_id

    def stop(self, reason: StopReason) -> None:
        """End the sequence."""
        self.stop_reason = reason
        self.unread = []


def decode(
    decoder: Decoder, sequences: Sequence[Continuation], vocab_size: int
) -> Iterator[tuple[int, int, Float32[np.ndarray, " vocab_size"]]]:
    """Continue sequences together until each is over: yields (row, token id, logits).

    A model's vocabulary may be padded: ids from `vocab_size` on are never chosen.
    """
    while any(sequence.unread for sequence in sequences):
        for row, sequence in enumerate(sequences):
            if sequence.unread is sequence.context:  # a prompt, or the half that a slide has kept
                decoder.truncate(row, 0)
        logits = decoder.extend([sequence.unread for sequence in sequences])
        for row, sequence in enumerate(sequences):
            if sequence.unread:
                scores = logits[row, 0, :vocab_size]
                if (token_id := sequence.choose(scores)) is not None:
                    yield row, token_id, scores


# --- log-probabilities ----------------------------------------------------------------------------


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


def score_ids(
    decoder: Decoder,
    ids: Sequence[int],
    *,
    context_length: int,
    vocab_size: int,
    num_alternatives: int = 0,
) -> list[ScoredToken]:
    """Score every id but the first; each sees at least half a context before it."""
    scored: list[ScoredToken] = []
    start = 0  # of the window that the decoder reads
    # Behind the last token there is nothing to score.
    while (place := len(scored)) < len(ids) - 1:
        decoder.truncate(0, 0)
        if place > start:
            decoder.extend([ids[start:place]])
        # In parts, as the logits of a whole context may be large.
        end = min(start + context_length, len(ids) - 1)
        for first in range(place, end, PART):
            last = min(first + PART, end)
            rows = decoder.extend([ids[first:last]], every=True)[0, :, :vocab_size]
            for logits, token_id in zip(rows, ids[first + 1 : last + 1], strict=True):
                scored.append(scored_token(logits, token_id, num_alternatives))
        start += max(1, context_length - context_length // 2)
    return scored


# --- text -----------------------------------------------------------------------------------------


class TextBuilder:
    """Turns token ids into parts of text that hold whole characters, up to a stop string."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()) -> None:
        self.is_stopped = False
        """Whether a stop string has come."""
        self._decoder, self._stop = tokenizer.decoder(), stop
        self._held = ""  # characters that may be the beginning of a stop string

    def add(self, token_id: int) -> str:
        """The text that is certain once this token has come."""
        return self._ready(self._decoder.decode([token_id]), is_last=False)

    def finish(self) -> str:
        """The rest of the text, after the last token."""
        return "" if self.is_stopped else self._ready(self._decoder.finish(), is_last=True)

    def _ready(self, new: str, *, is_last: bool) -> str:
        held = self._held + new
        if starts := [start for text in self._stop if (start := held.find(text)) >= 0]:
            self.is_stopped = True
            return held[: min(starts)]
        ready = len(held) if is_last else len(held) - self._begun(held)
        self._held = held[ready:]
        return held[:ready]

    def _begun(self, text: str) -> int:
        """How many characters at the end of `text` a stop string may begin with."""
        lengths = (
            length
            for stop in self._stop
            for length in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:length])
        )
        return max(lengths, default=0)


class TextStream(Iterator[str]):
    """The text that continues a prompt, in parts of whole characters, up to a stop string.

    Iterate over it for text, or over `tokens` for token ids with log-probabilities.
    """

    def __init__(
        self,
        decoder: Decoder,
        sequence: Continuation,
        tokenizer: Tokenizer,
        stop: Sequence[str] = (),
        alternatives: int | None = None,
    ) -> None:
        self.token_ids: list[int] = []
        """All token ids so far; the end token is not one."""
        self.scored_tokens: list[ScoredToken] = []
        """All tokens so far with log-probabilities, if a number of alternatives was given."""
        self._sequence, self._alternatives = sequence, alternatives
        self._decoded = decode(decoder, [sequence], tokenizer.vocab_size)
        self._parts = self._read(TextBuilder(tokenizer, stop))

    @property
    def stop_reason(self) -> StopReason | None:
        """Why no more text comes; None while it does."""
        return self._sequence.stop_reason

    @property
    def tokens(self) -> Iterator[ScoredToken]:
        """The tokens that are still to come, with log-probabilities; stop strings do not count."""
        for _, token_id, logits in self._decoded:
            self.token_ids.append(token_id)
            yield scored_token(logits, token_id, self._alternatives or 0)

    def __next__(self) -> str:
        return next(self._parts)

    def _read(self, text: TextBuilder) -> Iterator[str]:
        for _, token_id, logits in self._decoded:
            self.token_ids.append(token_id)
            if self._alternatives is not None:
                self.scored_tokens.append(scored_token(logits, token_id, self._alternatives))
            part = text.add(token_id)
            if text.is_stopped:
                self._sequence.stop("stop string")
            if part:
                yield part
        rest = text.finish()
        if text.is_stopped:
            self._sequence.stop("stop string")
        if rest:
            yield rest
