r"""The decode loop of streams, batches and training samples. No torch.

A `Decoder` turns token ids into logits, a `Continuation` turns logits into the next token, and
`decode` runs both until every sequence has ended. `score_ids` uses the same decoders.

>>> class Constant:  # a decoder whose likeliest token is always 3
...     def extend(self, ids, every=False):
...         return np.eye(1, 5, k=3, dtype=np.float32)[None]
...     def truncate(self, row, length):
...         pass
>>> options = GenerationOptions(temperature=0, max_tokens=3)
>>> sequence = Continuation([0, 1], options, context_length=4)
>>> [token_id for _, token_id, _ in decode(Constant(), [sequence], vocab_size=5)]
[3, 3, 3]
>>> sequence.stop_reason, sequence.context
('limit', [0, 1, 3, 3])
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tilth.generation.sampling import Sampling, choice, choose
from tilth.schema import AT_LEAST_1, Length, Range
from tilth.tokenizer import Tokenizer

if TYPE_CHECKING:
    from jaxtyping import Float, Float32, Float64

    from tilth.generation.sampling import Choice

    Logits = Float32[np.ndarray, "rows ids vocab_size"]

PastContext = Literal["slide", "stop"]
StopReason = Literal["end token", "limit", "stop string", "context"]
PART_TOKENS = 256
"""Tokens of a prompt that a row reads in one step; the other rows wait for as long. With 22.7M
parameters these take 0.03 s, and 0.4 s after 32,000 tokens, whose whole prompt takes 24 s."""

SCORED_TOKENS = 64  # whose logits are in memory at once
MAX_GROUP_TOKENS = 4096
"""Tokens that are scored in one call: a reading of the weights serves 64, and the last may serve
fewer. The caches of all are in memory."""


@dataclass(frozen=True)
class GenerationOptions(Sampling):
    """The options of `LanguageModel.generate`: those of `Sampling`, and where the text ends.

    Args:
        max_tokens: Maximum number of new tokens.
        stop: Stop strings; the text ends before the first one.
        sample_index: Index of the sample; equal seeds and indices give equal text.
        past_context: What to do when the context is full: "slide" drops its older half, "stop" ends
            the text.
        allow_special: Encode special tokens in the prompt as special tokens, not as text.
        alternatives: Record the log-probability of each token and of this many likeliest tokens
            in its place, in `TextStream.scored_tokens`. Default: record nothing.
        drafts: Read up to 8 tokens that followed the same three tokens before, together with the
            last token, and keep those that are drawn. The text is the same: it pays where a text
            repeats itself. For one text in the native decoder; batches ignore it.

    """

    max_tokens: Annotated[int, AT_LEAST_1] = 256
    stop: tuple[Annotated[str, Length(at_least=1)], ...] = ()
    sample_index: Annotated[int, Range(at_least=0, at_most=2**64 - 1)] = 0
    past_context: PastContext = "slide"
    allow_special: bool = False
    alternatives: Annotated[int, Range(at_least=0)] | None = None
    drafts: bool = False


class Decoder(Protocol):
    """Computes the logits of one or more sequences incrementally."""

    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> Logits:
        """Append ids to each row; return the logits after the last id, or after every id."""

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` ids of a row only."""


@runtime_checkable
class ScoringDecoder(Decoder, Protocol):
    """A decoder that scores and chooses tokens itself, for several rows at once.

    The bits of its logits do not depend on how ids are split into calls, so drafts are exact.
    """

    def score(
        self, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocab_size: int
    ) -> Float64[np.ndarray, "rows ids"]:
        """Append ids to each row; return the log-probabilities of targets after its last ids."""

    def choose(
        self, scores: Float32[np.ndarray, "rows vocab_size"], choices: Sequence[Choice | None]
    ) -> list[int]:
        """Choose a token for each row with a choice; -1 elsewhere, or without a finite score."""


class Drafter:
    """Predicts the next ids of a context: those after the last occurrence of its last three ids.

    >>> Drafter().draft([1, 2, 3, 4, 5, 1, 2, 3], at_most=2)
    [4, 5]
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], int] = {}  # the place after each three ids
        self._known = 0  # ids whose places are known

    def draft(self, context: Sequence[int], at_most: int) -> list[int]:
        """Return at most 8 ids; the context has grown since the last call, or slid."""
        if len(context) < self._known:
            self._places, self._known = {}, 0
        for end in range(max(3, self._known), len(context)):
            self._places[tuple(context[end - 3 : end])] = end
        self._known = len(context)
        place = self._places.get(tuple(context[-3:]))
        return [] if place is None else list(context[place : place + min(8, at_most)])


def slid_context(ids: Sequence[int], context_length: int) -> list[int]:
    """Return the ids of a text that its next token depends on.

    When the context is full, a slide keeps its newer half, and it grows again. Its length is a
    function of the number of ids, however many of them are the prompt.

    >>> [len(slid_context(range(length), 4)) for length in range(12)]
    [0, 1, 2, 3, 4, 2, 3, 4, 2, 3, 4, 2]
    """
    if len(ids) <= context_length:
        return list(ids)
    kept = max(1, context_length // 2)
    return list(ids[-(kept + (len(ids) - context_length - 1) % (context_length - kept + 1)) :])


class Continuation:
    """A sequence during decoding; the ids of a prompt beyond the context are slid.

    Attributes:
        options: When the sequence ends, and how its tokens are chosen.
        context: The ids that the next token depends on, at most `context_length`.
        unread: The ids of the context that the decoder has not read; empty after the end.
        num_tokens: Number of chosen tokens, without the end token.
        stop_reason: Why the sequence ended; None before.

    """

    def __init__(
        self,
        prompt: Sequence[int],
        options: GenerationOptions,
        *,
        context_length: int,
        end_id: int | None = None,
    ) -> None:
        self.options = options
        self.context = self.unread = slid_context(prompt, context_length)
        self.num_tokens = 0
        self.stop_reason: StopReason | None = None
        self._start, self._context_length, self._end_id = len(prompt), context_length, end_id
        self._drafter = Drafter()

    def part(self, at_most: int | None = None) -> list[int]:
        """Return the ids that the decoder reads next: the first of `unread`."""
        return self.unread[:at_most]

    def draft(self) -> list[int]:
        """Return the ids that may follow the context, as they followed its last ids before."""
        if not self.options.drafts or len(self.unread) != 1:
            return []
        return self._drafter.draft(
            self.context,
            min(
                self._context_length - len(self.context),
                self.options.max_tokens - self.num_tokens - 1,
            ),
        )

    def choice(self, vocab_size: int) -> Choice | None:
        """Return how a `ScoringDecoder` chooses the next token; None if `choose` must do it."""
        position = self._start + self.num_tokens
        sample_index = self.options.sample_index
        return choice(self.options, vocab_size, sample_index=sample_index, position=position)

    def choose(self, logits: Float32[np.ndarray, " vocab_size"], chosen: int = -1) -> int | None:
        """Choose the next token by the logits after the context; None for the end token.

        `chosen` is the token that a decoder has chosen by `choice`, or -1.
        """
        token_id = chosen
        if token_id < 0:
            token_id = choose(
                logits,
                self.options,
                sample_index=self.options.sample_index,
                position=self._start + self.num_tokens,
                previous_ids=self.context,
            )
        if token_id == self._end_id:
            self.stop("end token")
            return None
        self.num_tokens += 1
        if self.num_tokens == self.options.max_tokens:
            self.stop("limit")
        elif len(self.context) < self._context_length:
            self.unread = [token_id]
            self.context.append(token_id)
        elif self.options.past_context == "slide":
            # Keep the newer half. Its positions restart at 0, so it is read again: one pass over
            # half a context for every half a context of new tokens.
            self.context = slid_context([*self.context, token_id], self._context_length)
            self.unread = self.context
        else:
            self.stop("context")
        return token_id

    def stop(self, reason: StopReason) -> None:
        """End the sequence."""
        self.stop_reason = reason
        self.unread = []


def decode(
    decoder: Decoder,
    sequences: Iterable[Continuation | None],
    vocab_size: int,
    rows: int = 1,
) -> Iterator[tuple[Continuation, int, Float32[np.ndarray, " vocab_size"]]]:
    """Continue sequences together until each has ended; yield (sequence, token id, logits).

    The decoder has `rows` rows. A sequence that ends leaves its row to the next one, which is taken
    from the iterable only then; None means that there is none at the moment. Prompts are read in
    parts beside other rows, which continue meanwhile.

    A model may have more logits than its tokenizer has ids: only ids below `vocab_size` are chosen.
    """
    waiting = iter(sequences)
    chooser = decoder if isinstance(decoder, ScoringDecoder) else None
    running: dict[int, Continuation] = {}
    most = None if rows == 1 else PART_TOKENS
    while True:
        for row in range(rows):
            if row not in running or not running[row].unread:
                running.pop(row, None)
                if (following := next(waiting, None)) is not None:
                    running[row] = following
        parts = [running[row].part(most) if row in running else [] for row in range(rows)]
        if not any(parts):
            if not running:
                return
            continue  # all had ended before
        for row, sequence in running.items():
            if sequence.unread is sequence.context:  # a prompt, or the half that a slide has kept
                decoder.truncate(row, 0)
        if chooser and rows == 1 and (draft := running[0].draft()):
            yield from _choose_drafted(decoder, running[0], draft, vocab_size)
            continue
        logits = decoder.extend(parts)[:, 0, :vocab_size]
        read = {}  # the sequences whose next token is chosen
        for row, sequence in running.items():
            if len(parts[row]) < len(sequence.unread):
                sequence.unread = sequence.unread[len(parts[row]) :]
            elif parts[row]:
                read[row] = sequence
        chosen = [-1] * rows
        if chooser and read:
            choices = [read[row].choice(vocab_size) if row in read else None for row in range(rows)]
            chosen = chooser.choose(logits, choices)
        for row, sequence in read.items():
            if (token_id := sequence.choose(logits[row], chosen[row])) is not None:
                yield sequence, token_id, logits[row]


def _choose_drafted(
    decoder: Decoder, sequence: Continuation, draft: Sequence[int], vocab_size: int
) -> Iterator[tuple[Continuation, int, Float32[np.ndarray, " vocab_size"]]]:
    """Read the last token and a draft; choose tokens while they are those of the draft.

    The bits of the logits do not depend on how ids are split into calls, so the tokens are those
    that are chosen without a draft.
    """
    length = len(sequence.context)  # of ids that are read, once the last token is
    logits = decoder.extend([[*sequence.unread, *draft]], every=True)[0]
    for place, scores in enumerate(logits[:, :vocab_size]):
        token_id = sequence.choose(scores)
        is_drafted = place < len(draft) and sequence.unread == [draft[place]]
        if not is_drafted:
            decoder.truncate(0, length + place)
        if token_id is not None:
            yield sequence, token_id, scores
        if not is_drafted or not sequence.unread:
            return


# --- log-probabilities ----------------------------------------------------------------------------


class ScoredToken(NamedTuple):
    """A token with its log-probability under the model, without temperature or filters.

    Attributes:
        id: Token id.
        log_probability: Natural logarithm of the probability.
        alternatives: The likeliest tokens in its place and their log-probabilities, likeliest
            first.

    """

    id: int
    log_probability: float
    alternatives: tuple[tuple[int, float], ...] = ()


def scored_token(
    logits: Float[np.ndarray, " vocab"], token_id: int, num_alternatives: int
) -> ScoredToken:
    """Score a token by the logits after the tokens before it."""
    wide = logits.astype(np.float64)
    largest = wide.max()
    log_total = largest + np.log(np.exp(wide - largest).sum())
    alternatives = []
    if number := min(num_alternatives, len(wide)):
        least = np.partition(wide, -number)[-number]
        candidates = np.flatnonzero(wide >= least)  # by id; more than `number` if some are equal
        # Equal logits in the order of their ids, as in sampling.
        likeliest = candidates[np.argsort(-wide[candidates], kind="stable")[:number]]
        alternatives = [(int(i), float(wide[i] - log_total)) for i in likeliest]
    return ScoredToken(token_id, float(wide[token_id] - log_total), tuple(alternatives))


class Window(NamedTuple):
    """The ids that a decoder reads, and the ids after the last of them, which are scored."""

    ids: Sequence[int]
    targets: Sequence[int]


def windows(ids: Sequence[int], context_length: int) -> Iterator[Window]:
    """Yield windows in which every id but the first is a target once.

    A target follows at least half a context, or all ids before it.

    >>> [tuple(window) for window in windows([5, 6, 7, 8, 9], context_length=3)]
    [([5, 6, 7], [6, 7, 8]), ([7, 8], [9])]
    """
    start, place = 0, 0
    while place < len(ids) - 1:
        end = min(start + context_length, len(ids) - 1)
        yield Window(ids[start:end], ids[place + 1 : end + 1])
        place = end
        start += max(1, context_length - context_length // 2)


def score_ids(
    decoder: Decoder, ids: Sequence[int], context_length: int, vocab_size: int, alternatives: int
) -> list[ScoredToken]:
    """Score every id but the first, with alternatives."""
    scored: list[ScoredToken] = []
    for window in windows(ids, context_length):
        decoder.truncate(0, 0)
        unscored = len(window.ids) - len(window.targets)
        if unscored:
            decoder.extend([window.ids[:unscored]])
        # In parts, as the logits of a whole context may be large.
        for first in range(0, len(window.targets), SCORED_TOKENS):
            targets = window.targets[first : first + SCORED_TOKENS]
            read = window.ids[unscored + first : unscored + first + len(targets)]
            rows = decoder.extend([read], every=True)[0, :, :vocab_size]
            for logits, token_id in zip(rows, targets, strict=True):
                scored.append(scored_token(logits, token_id, alternatives))
    return scored


def score_texts(
    decoder: Decoder,
    texts: Sequence[Sequence[int]],
    context_length: int,
    vocab_size: int,
    rows: int = 1,
) -> list[list[ScoredToken]]:
    """Score every id but the first of each text, in a decoder of `rows` rows."""
    if not isinstance(decoder, ScoringDecoder):
        return [score_ids(decoder, ids, context_length, vocab_size, 0) for ids in texts]
    scored: list[list[ScoredToken]] = [[] for _ in texts]
    group: list[tuple[int, Window]] = []  # the text of each window

    def score_group() -> None:
        read = [window.ids for _, window in group] + [[]] * (rows - len(group))
        targets = [window.targets for _, window in group] + [[]] * (rows - len(group))
        for row in range(rows):
            decoder.truncate(row, 0)
        found = decoder.score(read, targets, vocab_size)
        for (text, window), numbers in zip(group, found.tolist(), strict=False):
            scored[text] += map(ScoredToken, window.targets, numbers)
        group.clear()

    for text, ids in enumerate(texts):
        for window in windows(ids, context_length):
            num_tokens = len(window.ids) + sum(len(each.ids) for _, each in group)
            if len(group) == rows or (group and num_tokens > MAX_GROUP_TOKENS):
                score_group()
            group.append((text, window))
    if group:
        score_group()
    return scored


# --- text -----------------------------------------------------------------------------------------


class TextBuilder:
    """Turns the token ids of a sequence into text of whole characters, up to a stop string."""

    def __init__(self, tokenizer: Tokenizer, sequence: Continuation) -> None:
        after = sequence.context[-1] if sequence.context else None
        self._decoder, self._sequence = tokenizer.decoder(after=after), sequence
        self._held = ""  # characters that may begin a stop string

    def add(self, token_id: int) -> str:
        """Return the text that is certain after this token; end the sequence at a stop string."""
        return self._ready(self._decoder.decode([token_id]))

    def finish(self) -> str:
        """Return the rest of the text, after the last token."""
        if self._sequence.stop_reason == "stop string":
            return ""
        return self._ready(self._decoder.finish(), is_last=True)

    def _ready(self, new: str, *, is_last: bool = False) -> str:
        held, stop_strings = self._held + new, self._sequence.options.stop
        if starts := [start for stop in stop_strings if (start := held.find(stop)) >= 0]:
            self._sequence.stop("stop string")
            return held[: min(starts)]
        lengths = (  # of suffixes of the text that begin a stop string
            length
            for stop in stop_strings
            for length in range(min(len(stop) - 1, len(held)), 0, -1)
            if held.endswith(stop[:length])
        )
        ready = len(held) - (0 if is_last else max(lengths, default=0))
        self._held = held[ready:]
        return held[:ready]


@dataclass
class GeneratedText:
    """A text of a batch, complete once `stop_reason` is set.

    Attributes:
        sequence: The state of decoding.
        text: The new text so far.
        token_ids: All token ids so far, without the end token.
        scored_tokens: All tokens so far with log-probabilities, if `alternatives` was given.
        first_token_seconds: Time from the start of the batch to the first token.

    """

    sequence: Continuation
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    scored_tokens: list[ScoredToken] = field(default_factory=list)
    first_token_seconds: float | None = None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text ended; None before."""
        return self.sequence.stop_reason


def generate_texts(
    decoder: Decoder, sequences: Iterable[Continuation], tokenizer: Tokenizer, rows: int
) -> Iterator[GeneratedText]:
    """Continue sequences in a decoder of `rows` rows; yield the texts in order, when complete."""
    texts: dict[Continuation, tuple[GeneratedText, TextBuilder]] = {}  # in order, not yet complete
    began = time.perf_counter()

    def begun() -> Iterator[Continuation]:
        for sequence in sequences:
            texts[sequence] = GeneratedText(sequence), TextBuilder(tokenizer, sequence)
            yield sequence

    def complete() -> Iterator[GeneratedText]:
        while texts and next(iter(texts)).stop_reason is not None:
            found, builder = texts.pop(next(iter(texts)))
            found.text += builder.finish()
            yield found

    for sequence, token_id, logits in decode(decoder, begun(), tokenizer.vocab_size, rows):
        found, builder = texts[sequence]
        if found.first_token_seconds is None:
            found.first_token_seconds = time.perf_counter() - began
        found.token_ids.append(token_id)
        if (alternatives := sequence.options.alternatives) is not None:
            found.scored_tokens.append(scored_token(logits, token_id, alternatives))
        found.text += builder.add(token_id)
        yield from complete()
    yield from complete()


class TextStream(Iterator[str]):
    """An iterator over the text that continues a prompt, in parts of whole characters.

    Attributes:
        token_ids: All token ids so far, without the end token.
        scored_tokens: All tokens so far with log-probabilities, if `alternatives` was given.
        first_token_seconds: Time from the first call of `next` to the first token.

    """

    def __init__(self, decoder: Decoder, sequence: Continuation, tokenizer: Tokenizer) -> None:
        self.token_ids: list[int] = []
        self.scored_tokens: list[ScoredToken] = []
        self.first_token_seconds: float | None = None
        self._sequence = sequence
        self._decoded = self._count(decode(decoder, [sequence], tokenizer.vocab_size))
        self._parts = self._read(TextBuilder(tokenizer, sequence))

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text ended; None before."""
        return self._sequence.stop_reason

    @property
    def tokens(self) -> Iterator[ScoredToken]:
        """The tokens to come, with log-probabilities; stop strings are ignored."""
        for token_id, logits in self._decoded:
            yield scored_token(logits, token_id, self._sequence.options.alternatives or 0)

    def __next__(self) -> str:
        return next(self._parts)

    def _count(
        self, decoded: Iterator[tuple[Continuation, int, Float32[np.ndarray, " vocab_size"]]]
    ) -> Iterator[tuple[int, Float32[np.ndarray, " vocab_size"]]]:
        began = time.perf_counter()
        for _, token_id, logits in decoded:
            if self.first_token_seconds is None:
                self.first_token_seconds = time.perf_counter() - began
            self.token_ids.append(token_id)
            yield token_id, logits

    def _read(self, text: TextBuilder) -> Iterator[str]:
        alternatives = self._sequence.options.alternatives
        for token_id, logits in self._decoded:
            if alternatives is not None:
                self.scored_tokens.append(scored_token(logits, token_id, alternatives))
            if part := text.add(token_id):
                yield part
        if rest := text.finish():
            yield rest
