"""Continuous batching: one thread decodes all requests to a model, in the rows of one decoder.

A request takes a row when one is free and leaves it when its text ends; the others go on. The text
of a request does not depend on the others: it equals that of `LanguageModel.generate`.

>>> class Constant:  # a decoder whose likeliest token is always "b"
...     def extend(self, ids, every=False):
...         return np.tile(np.eye(1, 256, k=98, dtype=np.float32), (len(ids), 1, 1))
...     def truncate(self, row, length):
...         pass
>>> from tilth.config import ModelConfig
>>> from tilth.tokenizer import Tokenizer
>>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
>>> config = ModelConfig(256, context_length=8, d_model=8, num_layers=1, num_heads=1)
>>> model = LanguageModel(config, tokenizer, lambda rows: Constant(), has_batches=True)
>>> parts = []
>>> with Engine(model, rows=2) as engine:
...     job = engine.submit([97], GenerationOptions(temperature=0, max_tokens=3), parts.append)
...     reason = job.wait()
>>> "".join(part.text for part in parts), reason
('bbb', 'limit')
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from tilth.generation.decoding import (
    Continuation,
    GenerationOptions,
    ScoredToken,
    StopReason,
    TextBuilder,
    decode,
    scored_token,
)
from tilth.generation.language_model import LanguageModel

if TYPE_CHECKING:
    from jaxtyping import Float32

    from tilth.generation.sampling import Choice

log = logging.getLogger(__name__)


class BusyError(RuntimeError):
    """The queue is full, or the engine is closed."""


@dataclass(frozen=True)
class Part:
    """The text that became certain with one token, or the rest at the end.

    Attributes:
        text: Whole characters; empty if the token ends within a character.
        token: The token with its log-probability, if `alternatives` was given; at the end, the end
            token or None.
        stop_reason: Why the text ended; None before the last part.
        problem: Why decoding failed; None if it did not.

    """

    text: str
    token: ScoredToken | None = None
    stop_reason: StopReason | None = None
    problem: str | None = None


class _Sequence(Continuation):
    """A sequence with biased logits, which remembers the score of its end token.

    Attributes:
        end_if_due: Called before each step of the decoder; may end the sequence.
        bias: Numbers to add to logits, by token id.
        end_token: The end token with its log-probability, if `alternatives` was given.

    """

    end_if_due: Callable[[], None]
    bias: Mapping[int, float] | None = None
    end_token: ScoredToken | None = None

    def part(self, at_most: int | None = None) -> list[int]:
        """Return the ids that the decoder reads next; none once the request is cancelled or due."""
        self.end_if_due()
        return super().part(at_most)

    def choice(self, vocab_size: int) -> "Choice | None":
        """Return how a decoder chooses the next token; None with biased logits."""
        return None if self.bias else super().choice(vocab_size)

    def choose(self, logits: "Float32[np.ndarray, ' vocab_size']", chosen: int = -1) -> int | None:
        """Choose the next token by the biased logits; None for the end token."""
        scores = logits
        if self.bias:
            scores = logits.copy()
            scores[list(self.bias)] += np.array(list(self.bias.values()), np.float32)
        token_id = super().choose(scores, chosen)
        alternatives, end_id = self.options.alternatives, self._end_id
        if token_id is None and alternatives is not None and end_id is not None:
            self.end_token = scored_token(logits, end_id, alternatives)
        return token_id


@dataclass(eq=False)
class Job:
    """A request in the engine.

    Attributes:
        sequence: The state of decoding.
        num_tokens: Number of new tokens so far.
        first_token_seconds: Time from the submission to the first token; None before it.

    """

    sequence: _Sequence
    num_tokens: int = 0
    first_token_seconds: float | None = None
    _tell: Callable[[Part], None] = field(kw_only=True, repr=False)
    _text: TextBuilder = field(kw_only=True, repr=False)
    _leave: Callable[["Job"], None] = field(kw_only=True, repr=False)
    _deadline: float = field(kw_only=True)
    _began: float = field(default_factory=time.monotonic)
    _is_cancelled: bool = False
    _done: threading.Event = field(default_factory=threading.Event, repr=False)

    def cancel(self) -> None:
        """End the text after the step that is being computed; other threads may call this.

        A job that waits leaves the queue at once.
        """
        self._is_cancelled = True
        self._leave(self)

    def wait(self, seconds: float | None = None) -> StopReason | None:
        """Wait until the text has ended; return why. None: not yet, or decoding failed."""
        self._done.wait(seconds)
        return self.sequence.stop_reason

    def _add(self, token_id: int, logits: "Float32[np.ndarray, ' vocab_size']") -> None:
        if self.first_token_seconds is None:
            self.first_token_seconds = time.monotonic() - self._began
        self.num_tokens += 1
        alternatives = self.sequence.options.alternatives
        token = None if alternatives is None else scored_token(logits, token_id, alternatives)
        self._tell(Part(self._text.add(token_id), token))

    def _end_if_due(self) -> None:
        is_over = self._is_cancelled or time.monotonic() > self._deadline
        if is_over and self.sequence.stop_reason is None:
            self.sequence.stop("limit")

    def _finish(self, problem: str | None = None) -> None:
        rest = "" if problem else self._text.finish()
        self._tell(Part(rest, self.sequence.end_token, self.sequence.stop_reason, problem))
        # The request and its sequence refer to each other, and so would keep the model in memory.
        self._leave = lambda _job: None
        self._done.set()


class Engine:
    """A model that serves many requests at once.

    Args:
        model: The model; its decoder is used by the engine's thread only.
        rows: Sequences that are decoded at once.
        queue: Requests that may wait for a row.

    """

    def __init__(self, model: LanguageModel, *, rows: int = 16, queue: int = 256) -> None:
        self.model = model
        self._rows, self._queue = rows if model.has_batches else 1, queue
        self._decoder = model.decoder(self._rows)
        self._waiting: deque[Job] = deque()
        self._running: dict[Continuation, Job] = {}
        self._changed = threading.Condition()
        self._is_closed = self._is_retired = False
        self._thread = self._start()

    def submit(
        self,
        prompt_ids: Sequence[int],
        options: GenerationOptions,
        tell: Callable[[Part], None],
        *,
        bias: Mapping[int, float] | None = None,
        seconds: float = 600.0,
    ) -> Job:
        """Queue a request; `tell` is called in the engine's thread with each part of the text.

        Args:
            prompt_ids: A valid prompt, as `LanguageModel.prompt_ids` returns it. More ids than the
                context has are a text that is continued.
            options: Options of generation.
            tell: Receives the parts; the last one has a stop reason or a problem. The last part of
                a job that is cancelled while it waits comes from the thread that cancels it.
            bias: Numbers to add to logits, by token id.
            seconds: The text ends after this time.

        Raises:
            BusyError: The queue is full, or the engine is closed.

        """
        config, end_id = self.model.config, self.model.end_id
        sequence = _Sequence(
            prompt_ids, options, context_length=config.context_length, end_id=end_id
        )
        sequence.bias = bias
        text = TextBuilder(self.model.tokenizer, sequence)
        deadline = time.monotonic() + seconds
        job = Job(sequence, _tell=tell, _text=text, _leave=self._leave, _deadline=deadline)
        sequence.end_if_due = job._end_if_due
        with self._changed:
            if self._is_closed:
                raise BusyError("the server is stopping.")
            if len(self._waiting) >= self._queue:
                raise BusyError(f"{len(self._waiting)} requests are waiting; try again later.")
            self._waiting.append(job)
            if self._has_ended:
                self._thread = self._start()
            self._changed.notify()
        return job

    @property
    def load(self) -> tuple[int, int]:
        """The numbers of running and of waiting requests."""
        return len(self._running), len(self._waiting)

    def retire(self) -> None:
        """End the thread whenever nothing runs or waits; a later request starts it again."""
        with self._changed:
            self._is_retired = True
            self._changed.notify()

    def close(self) -> None:
        """End all requests and the thread."""
        with self._changed:
            self._is_closed = True
            for job in (*self._waiting, *self._running.values()):
                job.cancel()
            self._changed.notify()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _start(self) -> threading.Thread:
        self._has_ended = False
        thread = threading.Thread(target=self._run, name="tilth engine", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed or self._is_retired)
                if not self._waiting:
                    self._has_ended = True
                    return
            try:
                self._decode()
            except Exception as error:  # a request fails, the server does not
                log.exception("decoding failed")
                for row in range(self._rows):
                    self._decoder.truncate(row, 0)
                for job in self._running.values():
                    job._finish(str(error) or type(error).__name__)
                self._running.clear()

    def _decode(self) -> None:
        """Decode until no request runs or waits."""
        vocab_size = self.model.tokenizer.vocab_size
        for sequence, token_id, logits in decode(
            self._decoder, self._next(), vocab_size, self._rows
        ):
            self._running[sequence]._add(token_id, logits)
        self._finish_ended()

    def _next(self) -> Iterator[Continuation | None]:
        """Yield the next sequence that waits, or None; called whenever a row is free."""
        while True:
            self._finish_ended()
            with self._changed:
                job = self._waiting.popleft() if self._waiting else None
                if job is not None:
                    self._running[job.sequence] = job
            yield None if job is None else job.sequence

    def _leave(self, job: Job) -> None:
        """End a job that waits, and free its place in the queue."""
        with self._changed:
            if job not in self._waiting:
                return
            self._waiting.remove(job)
        job._end_if_due()
        job._finish()

    def _finish_ended(self) -> None:
        ended = [job for job in self._running.values() if job.sequence.stop_reason is not None]
        for job in ended:
            del self._running[job.sequence]
            job._finish()
