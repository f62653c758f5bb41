r"""A prompt to text, as it comes.

What enters: a run (or a `LoadedModel`), a prompt, and how to choose. What leaves: an iterator of
text that never holds half a character, or of tokens with their log-probabilities; at its end,
`stop_reason` says why.

>>> from tilth.model import ModelConfig, TransformerLM
>>> from tilth.tokenizer import Tokenizer
>>> config = ModelConfig(257, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> weights = {name: 0 * w.numpy() for name, w in TransformerLM(config).state_dict().items()}
>>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
>>> model = LoadedModel.from_weights(config, weights, tokenizer)
>>> stream = generate(model, "hi", max_tokens=3, temperature=0.0)  # of equals, the smallest id
>>> list(stream), stream.stop_reason
(['\x00', '\x00', '\x00'], 'limit')
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from tilth.files import StrPath
from tilth.generation.context import END_TOKEN, Context, check_max_tokens, prompt_ids
from tilth.generation.loading import LoadedModel, load_decoder
from tilth.generation.sampling import Sampling, choose
from tilth.generation.scoring import ScoredToken, scored_token
from tilth.runs.run import Run

if TYPE_CHECKING:
    from jaxtyping import Float32

PastContext = Literal["slide", "stop"]
StopReason = Literal["end token", "limit", "stop string", "context"]


def generate(
    run: StrPath | Run | LoadedModel,
    prompt: str,
    *,
    max_tokens: int = 256,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    sample_index: int = 0,
    stop: Sequence[str] = (),
    allow_special: bool = False,
    past_context: PastContext = "slide",
) -> TextStream:
    """Continue a prompt; iterate over the result for its text, without the prompt.

    It ends at the end token, after `max_tokens`, before a string of `stop`, or, with
    `past_context="stop"`, where the context is full. With "slide", a full context forgets its older
    half. Equal seeds and sample indices give equal text. To generate often, load the run once with
    `load_decoder`.
    """
    tokens = generate_tokens(
        run,
        prompt,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        sample_index=sample_index,
        allow_special=allow_special,
        past_context=past_context,
    )
    return TextStream(tokens, stop)


def generate_tokens(
    run: StrPath | Run | LoadedModel,
    prompt: str,
    *,
    max_tokens: int = 256,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    sample_index: int = 0,
    alternatives: int = 0,
    allow_special: bool = False,
    past_context: PastContext = "slide",
) -> TokenStream:
    """The tokens of `generate`, each with its log-probability and the likeliest `alternatives`."""
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
    check_max_tokens(max_tokens)
    if not 0 <= operator.index(sample_index) < 2**64:
        raise ValueError(f"sample_index is {sample_index}; give 0 or more.")
    if operator.index(alternatives) < 0:
        raise ValueError(f"alternatives is {alternatives}; give 0 or more.")
    if past_context not in get_args(PastContext):
        raise ValueError(f"past_context is {past_context!r}; choose slide or stop.")
    model = run if isinstance(run, LoadedModel) else load_decoder(run)
    length = model.config.context_length
    ids = prompt_ids(model.tokenizer, prompt, length, allow_special=allow_special)
    return TokenStream(
        model, ids, sampling, max_tokens, sample_index, alternatives, past_context == "slide"
    )


class TokenStream(Iterator[ScoredToken]):
    """The tokens that continue a prompt; the end token is not among them."""

    def __init__(
        self,
        model: LoadedModel,
        prompt: Sequence[int],
        sampling: Sampling,
        max_tokens: int,
        sample_index: int,
        num_alternatives: int,
        slides: bool,
    ) -> None:
        self.tokenizer = model.tokenizer
        self.num_tokens = 0
        """How many have come."""
        self.stop_reason: StopReason | None = None
        """Why no more come; None while they do."""
        self._decoder = model.decoder()
        self._context = Context(prompt, model.config.context_length)
        self._unread = list(prompt)
        self._next_position = len(prompt)
        self._sampling, self._sample_index = sampling, sample_index
        self._max_tokens, self._num_alternatives = max_tokens, num_alternatives
        self._slides = slides
        self._end_id = model.tokenizer.special_tokens.get(END_TOKEN)

    def __next__(self) -> ScoredToken:
        token_id, logits = self.advance()
        return scored_token(logits, token_id, self._num_alternatives)

    def advance(self) -> tuple[int, Float32[np.ndarray, " vocab"]]:
        """The next token's id, and the logits that it was drawn from: unlike a score, free."""
        if self.stop_reason is None and self.num_tokens == self._max_tokens:
            self.stop_reason = "limit"
        if self.stop_reason is None and not self._unread:
            self.stop_reason = "context"
        if self.stop_reason is not None:
            raise StopIteration
        if len(self._unread) == len(self._context.ids):  # the prompt, or what a slide has left
            self._decoder.truncate(0)
        # A vocabulary may be padded: what the tokenizer cannot say is never chosen.
        logits = self._decoder.extend(self._unread)[0, : self.tokenizer.vocab_size]
        token_id = choose(
            logits,
            self._sampling,
            sample_index=self._sample_index,
            position=self._next_position,
            previous_ids=self._context.ids,
        )
        if token_id == self._end_id:
            self.stop_reason = "end token"
            raise StopIteration
        self.num_tokens += 1
        self._next_position += 1
        if self._slides or not self._context.is_full:
            self._unread = self._context.append(token_id)
        else:
            self._unread = []
        return token_id, logits


class TextStream(Iterator[str]):
    """The text of a `TokenStream`, in parts of whole characters, up to a stop string."""

    def __init__(
        self, tokens: TokenStream, stop: Sequence[str] = (), *, keep_scores: bool = False
    ) -> None:
        if isinstance(stop, str) or not all(stop):
            raise ValueError(f"stop is {stop!r}; give a list of texts that are not empty.")
        self.tokens = tokens
        self.scored_tokens: list[ScoredToken] | None = [] if keep_scores else None
        """All tokens so far with their scores, if they are to be kept."""
        self._stop = tuple(stop)
        self._stopped = False
        self._parts = self._read()

    @property
    def stop_reason(self) -> StopReason | None:
        """Why no more text comes; None while it does."""
        return "stop string" if self._stopped else self.tokens.stop_reason

    def __next__(self) -> str:
        return next(self._parts)

    def _read(self) -> Iterator[str]:
        decoder = self.tokens.tokenizer.decoder()
        held = ""  # what may be the beginning of a stop string
        while True:
            try:
                held += decoder.decode([self._next_id()])
            except StopIteration:
                held += decoder.finish()
            starts = [start for text in self._stop if (start := held.find(text)) >= 0]
            if starts:
                self._stopped = True
                held = held[: min(starts)]
            is_over = self.stop_reason is not None
            ready = len(held) if is_over else len(held) - self._begun(held)
            if ready:
                yield held[:ready]
            if is_over:
                return
            held = held[ready:]

    def _next_id(self) -> int:
        if self.scored_tokens is None:
            return self.tokens.advance()[0]
        self.scored_tokens.append(next(self.tokens))
        return self.scored_tokens[-1].id

    def _begun(self, text: str) -> int:
        """How many characters at the end of `text` a stop string may begin with."""
        lengths = (
            length
            for stop in self._stop
            for length in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:length])
        )
        return max(lengths, default=0)
