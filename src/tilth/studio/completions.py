"""The handlers of `/v1/completions` and `/v1/chat/completions`.

Each sample of each prompt is a job of the model's engine. The parts of all jobs of a request meet
in one queue, from which the response is streamed, or collected. A client that goes away cancels
its jobs.
"""

import asyncio
import json
import math
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tilth.generation.decoding import Decoder, GenerationOptions, ScoredToken, score_ids
from tilth.generation.language_model import LanguageModel
from tilth.studio import chat, openai
from tilth.studio.engine import BusyError, Engine, Job, Part
from tilth.studio.errors import RequestError, invalid, unreadable
from tilth.studio.metrics import Metrics
from tilth.studio.models import Models
from tilth.studio.openai import ChatRequest, CompletionRequest
from tilth.studio.security import MAX_BODY_BYTES
from tilth.studio.turns import Turns, unless_gone

if TYPE_CHECKING:
    from tilth.generation.decoding import Logits

T = TypeVar("T")

BODY_SECONDS = 30.0
DEFAULT_MAX_TOKENS = 16  # of a completion, as OpenAI's
MAX_JOBS = 256  # samples of one request
MAX_SCORED = 256  # requests that wait until their prompts are scored
MAX_NAMED = 20  # models in an error message


@dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Attributes:
        max_tokens: New tokens of one text.
        seconds: Time of one text; it ends then.

    """

    max_tokens: int = 4096
    seconds: float = 600.0


@dataclass
class _Text:
    """One text of a response; an echoed prompt is a part of it."""

    index: int
    prompt_ids: list[int]
    text: str = ""
    tokens: list[ScoredToken] = field(default_factory=list)
    num_characters: int = 0  # of the tokens whose log-probabilities were sent
    finish_reason: str | None = None
    job: Job | None = None


@dataclass
class _Checked:
    """A decoder that calls a function before it reads ids; the function may raise."""

    decoder: Decoder
    check: Callable[[], None]

    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> "Logits":
        self.check()
        return self.decoder.extend(ids, every)

    def truncate(self, row: int, length: int) -> None:
        self.decoder.truncate(row, length)


@dataclass
class Completions:
    """The handlers, and what they share."""

    models: Models
    metrics: Metrics
    limits: Limits = field(default_factory=Limits)
    _scoring: Turns = field(default_factory=lambda: Turns(MAX_SCORED))

    async def complete(self, request: Request) -> Response:
        """Answer `/v1/completions`."""
        asked = await read_asked(request, CompletionRequest)
        model_id, engine = await self.engine(asked.model)
        with invalid():
            generated = engine.model.checked_ids(asked.generated_ids)
            prompts = [[*engine.model.prompt_ids(each), *generated] for each in asked.prompts()]
        echoes = [
            await run_in_threadpool(_echo, engine.model, each, ids) if asked.echo else ""
            for each, ids in zip(asked.prompts(), prompts, strict=True)
        ]
        texts = _texts(prompts, asked.n or 1)
        for each in texts:
            each.text = echoes[each.index // (asked.n or 1)]
        if asked.echo and asked.logprobs is not None:
            scored = await self._score(request, engine.model, prompts, asked.logprobs)
            for each in texts:
                each.tokens = list(scored[each.index // (asked.n or 1)])
        max_tokens = DEFAULT_MAX_TOKENS if asked.max_tokens is None else asked.max_tokens

        def choice(text: _Text, new: str, tokens: list[ScoredToken]) -> dict[str, Any]:
            logprobs = None
            if asked.logprobs is not None:
                tokenizer = engine.model.tokenizer
                logprobs = openai.completion_logprobs(tokenizer, tokens, text.num_characters)
                text.num_characters += sum(map(len, logprobs["tokens"]))
            said = {
                "index": text.index,
                "text": new,
                "logprobs": logprobs,
                "finish_reason": text.finish_reason,
            }
            if asked.return_token_ids:
                said["token_ids"] = [token.id for token in tokens]
            return said

        def event(text: _Text, part: Part, *, is_first: bool) -> dict[str, Any]:
            if is_first:  # with the echoed prompt, whose tokens are there already
                return choice(text, text.text + part.text, text.tokens)
            return choice(text, part.text, [] if part.token is None else [part.token])

        return await self._respond(
            request,
            asked,
            engine,
            texts,
            self._options(
                asked,
                max_tokens,
                0 if asked.logprobs is None and asked.return_token_ids else asked.logprobs,
            ),
            openai.envelope("text_completion", model_id),
            whole=lambda text: choice(text, text.text, text.tokens),
            event=event,
        )

    async def chat(self, request: Request) -> Response:
        """Answer `/v1/chat/completions`."""
        asked = await read_asked(request, ChatRequest)
        model_id, engine = await self.engine(asked.model)
        model = engine.model
        template = model.tokenizer.chat_template
        if template is None:
            raise RequestError(
                400,
                f"{model_id} has no chat template, so it cannot chat; use /v1/completions.",
                code="no_chat_template",
            )
        begin, end = model.tokenizer.template.before, model.end_token
        variables = {"bos_token": begin[0] if begin else "", "eos_token": end}
        with invalid():
            messages = [message.to_dict() for message in asked.messages]
            prompt = await run_in_threadpool(chat.render, template, messages, variables)
            # A template writes special tokens, those that begin a text included.
            ids = model.prompt_ids(model.tokenizer.encode(prompt))
        space = max(1, model.config.context_length - len(ids))
        default = min(space, self.limits.max_tokens)
        max_tokens = asked.max_completion_tokens or asked.max_tokens or default
        alternatives = (asked.top_logprobs or 0) if asked.logprobs else None

        def logprobs(tokens: list[ScoredToken]) -> dict[str, Any] | None:
            if alternatives is None:
                return None
            return openai.chat_logprobs(model.tokenizer, tokens)

        def whole(text: _Text) -> dict[str, Any]:
            message = {"role": "assistant", "content": text.text, "refusal": None}
            return {
                "index": text.index,
                "message": message,
                "logprobs": logprobs(text.tokens),
                "finish_reason": text.finish_reason,
            }

        def event(text: _Text, part: Part, *, is_first: bool) -> dict[str, Any]:
            delta = {"role": "assistant"} if is_first else {}
            tokens = [] if part.token is None else [part.token]
            return {
                "index": text.index,
                "delta": {**delta, "content": part.text},
                "logprobs": logprobs(tokens),
                "finish_reason": text.finish_reason,
            }

        kind = "chat.completion.chunk" if asked.stream else "chat.completion"
        return await self._respond(
            request,
            asked,
            engine,
            _texts([ids], asked.n or 1),
            self._options(asked, max_tokens, alternatives),
            openai.envelope(kind, model_id),
            whole=whole,
            event=event,
        )

    async def engine(self, name: str | None) -> tuple[str, Engine]:
        """Return the id and the engine of a model; load it if needed."""
        ids = self.models.ids
        model_id = ids[0] if name is None and len(ids) == 1 else name
        if model_id not in ids:
            known = ", ".join(ids[:MAX_NAMED]) + (", …" if len(ids) > MAX_NAMED else "")
            raise RequestError(404, f"unknown model; there is {known}.", code="model_not_found")
        try:
            return model_id, await run_in_threadpool(self.models.engine, model_id)
        except (OSError, ValueError, MemoryError) as error:
            raise unreadable(f"{model_id} cannot be loaded", error, "model_not_loaded") from error

    def _options(
        self, asked: openai.Body, max_tokens: int, alternatives: int | None
    ) -> GenerationOptions | None:
        """Return the options of generation; None for no new tokens."""
        if max_tokens > self.limits.max_tokens:
            raise RequestError(
                400, f"max_tokens is {max_tokens}; this server allows {self.limits.max_tokens}."
            )
        with invalid():
            return (
                asked.options(max_tokens=max_tokens, alternatives=alternatives)
                if max_tokens
                else None
            )

    async def _score(
        self, request: Request, model: LanguageModel, prompts: list[list[int]], alternatives: int
    ) -> list[list[ScoredToken]]:
        """Score the tokens of prompts; the first of each has nothing before it."""
        deadline, is_left = time.monotonic() + self.limits.seconds, threading.Event()

        def check() -> None:
            if is_left.is_set() or time.monotonic() > deadline:
                seconds = f"{self.limits.seconds:g} s"
                raise RequestError(
                    400, f"scoring takes more than {seconds}; send fewer or shorter prompts."
                )

        def score() -> list[list[ScoredToken]]:
            decoder = _Checked(model.decoder(1), check)
            lengths = model.config.context_length, model.tokenizer.vocab_size
            return [
                [ScoredToken(ids[0], math.nan), *score_ids(decoder, ids, *lengths, alternatives)]
                for ids in prompts
            ]

        try:
            return await self._scoring.run(request, score)
        finally:
            is_left.set()

    async def _respond(
        self,
        request: Request,
        asked: openai.Body,
        engine: Engine,
        texts: list[_Text],
        options: GenerationOptions | None,
        envelope: dict[str, Any],
        *,
        whole: Callable[[_Text], dict[str, Any]],
        event: Callable[..., dict[str, Any]],
    ) -> Response:
        with invalid():
            bias = asked.bias(engine.model.tokenizer.vocab_size)
        parts = self._parts(engine, texts, options, bias, asked.n or 1)
        if not asked.stream:
            await unless_gone(request, _collect(parts))
            return JSONResponse(
                {**envelope, "choices": [whole(each) for each in texts], "usage": _usage(texts)}
            )
        wants_usage = asked.stream_options is not None and asked.stream_options.include_usage
        # The first part decides about the status: a full queue is no stream.
        first = await unless_gone(request, anext(parts))

        async def stream() -> AsyncIterator[bytes]:
            begun: set[int] = set()
            usage = {"usage": None} if wants_usage else {}
            async with aclosing(parts):
                async for text, part in _chain(first, parts):
                    if part.problem is not None:
                        yield _line(json.loads(openai.error_body("the model failed.")))
                        return
                    is_first = text.index not in begun
                    begun.add(text.index)
                    said = event(text, part, is_first=is_first)
                    yield _line({**envelope, "choices": [said], **usage})
            if wants_usage:
                yield _line({**envelope, "choices": [], "usage": _usage(texts)})
            yield b"data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _parts(
        self,
        engine: Engine,
        texts: list[_Text],
        options: GenerationOptions | None,
        bias: dict[int, float],
        samples: int,
    ) -> AsyncGenerator[tuple[_Text, Part]]:
        """Run the jobs of a request; yield their parts as they come."""
        if options is None:
            for text in texts:
                text.finish_reason = "length"
                yield text, Part("", None, "limit")
            return
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[tuple[_Text, Part]]()

        def tell(text: _Text, part: Part) -> None:
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(queue.put_nowait, (text, part))

        try:
            for text in texts:
                text.job = engine.submit(
                    text.prompt_ids,
                    replace(options, sample_index=text.index % samples),
                    lambda part, text=text: tell(text, part),  # type: ignore[misc]
                    bias=bias,
                    seconds=self.limits.seconds,
                )
            left = len(texts)
            while left:
                text, part = await queue.get()
                if part.token is not None:
                    text.tokens.append(part.token)
                if part.stop_reason is not None or part.problem is not None:
                    text.finish_reason = openai.FINISH.get(part.stop_reason, "stop")
                    left -= 1
                yield text, part
        except BusyError as error:
            raise RequestError(503, str(error), code="busy") from error
        finally:
            for text in texts:
                if text.job is not None:
                    text.job.cancel()
                    job = text.job
                    self.metrics.add(len(text.prompt_ids), job.num_tokens, job.first_token_seconds)


async def _read_body(request: Request) -> bytes:
    """Read the body of a request; slow and long ones are refused."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise RequestError(413, f"the body may have at most {MAX_BODY_BYTES:,} bytes.")
    except TimeoutError:
        raise RequestError(408, "the body took too long to arrive.") from None
    except ClientDisconnect:
        raise RequestError(499, "the client went away.") from None
    return bytes(body)


async def read_asked(request: Request, kind: type[T]) -> T:
    """Read and validate the body of a request."""
    body = await _read_body(request)
    with invalid():
        return openai.read_request(kind, body)


async def _collect(parts: AsyncGenerator[tuple[_Text, Part]]) -> None:
    """Wait for all texts."""
    async with aclosing(parts):
        async for text, part in parts:
            if part.problem is not None:
                raise RequestError(500, "the model could not continue this prompt.")
            text.text += part.text


def _texts(prompts: list[list[int]], samples: int) -> list[_Text]:
    if len(prompts) * samples > MAX_JOBS:
        raise RequestError(400, f"a request may have at most {MAX_JOBS} texts.")
    return [
        _Text(place * samples + sample, ids)
        for place, ids in enumerate(prompts)
        for sample in range(samples)
    ]


def _echo(model: LanguageModel, prompt: str | list[int], ids: list[int]) -> str:
    return prompt if isinstance(prompt, str) else model.tokenizer.decode(ids)


def _usage(texts: list[_Text]) -> dict[str, int]:
    prompts = {id(text.prompt_ids): len(text.prompt_ids) for text in texts}
    new = sum(text.job.num_tokens for text in texts if text.job is not None)
    return openai.usage(sum(prompts.values()), new)


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


async def _chain(
    first: tuple[_Text, Part], rest: AsyncIterator[tuple[_Text, Part]]
) -> AsyncIterator[tuple[_Text, Part]]:
    yield first
    async for each in rest:
        yield each
