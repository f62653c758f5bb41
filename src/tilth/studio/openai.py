"""Requests and responses of `/v1/completions` and `/v1/chat/completions`, in OpenAI's shape.

A request is validated against its dataclass. Options that the model cannot honour are an error
rather than ignored, unless their value asks for nothing.
"""

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from tilth.generation.decoding import GenerationOptions, PastContext, ScoredToken, StopReason
from tilth.schema import POSITIVE, Length, Range, Share, check_int, read
from tilth.tokenizer import Tokenizer

T = TypeVar("T")

MAX_PROMPTS, MAX_SAMPLES, MAX_LOGPROBS, MAX_STOPS, MAX_BIAS = 64, 16, 20, 4, 1024

Text = Annotated[str, Length(at_most=1 << 20)]
Ids = Annotated[list[int], Length(at_most=1 << 20)]
Penalty = Annotated[float, Range(at_least=-2.0, at_most=2.0)]


@dataclass(frozen=True)
class StreamOptions:
    """Options of a streamed response."""

    include_usage: bool = False
    include_obfuscation: bool = False


@dataclass(frozen=True)
class _Request:
    """The fields that both kinds of requests share; `top_k` to `repetition_penalty` are ours."""

    model: Text | None = None
    max_tokens: Annotated[int, Range(at_least=0, at_most=1 << 20)] | None = None
    temperature: Annotated[float, Range(at_least=0.0, at_most=100.0)] | None = None
    top_p: Share | None = None
    n: Annotated[int, Range(at_least=1, at_most=MAX_SAMPLES)] | None = None
    seed: Annotated[int, Range(at_least=-(2**63), at_most=2**64 - 1)] | None = None
    stop: Text | Annotated[list[Text], Length(at_most=MAX_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    logit_bias: Annotated[dict[str, float], Length(at_most=MAX_BIAS)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    user: Text | None = None
    top_k: Annotated[int, Range(at_least=1)] | None = None
    min_p: Share | None = None
    repetition_penalty: Annotated[float, POSITIVE] | None = None
    past_context: PastContext = "slide"

    def __post_init__(self) -> None:
        for name in ("frequency_penalty", "presence_penalty"):
            if getattr(self, name):
                raise ValueError(f"{name} is not supported; use repetition_penalty.")

    def stops(self) -> tuple[str, ...]:
        """Return the stop strings."""
        found = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(each for each in found if each)

    def options(self, **more: Any) -> GenerationOptions:  # noqa: ANN401
        """Return the options of generation; without a seed, one is drawn."""
        seed = secrets.randbits(63) if self.seed is None else self.seed % 2**64
        chosen: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }
        given = {name: value for name, value in chosen.items() if value is not None}
        return GenerationOptions(
            **given, seed=seed, stop=self.stops(), past_context=self.past_context, **more
        )

    def bias(self, vocab_size: int) -> dict[int, float]:
        """Return the numbers to add to logits, by token id."""
        found = {}
        for key, value in (self.logit_bias or {}).items():
            if not key.isascii() or not key.isdigit() or len(key) > 10:
                raise ValueError(f"logit_bias has the key {key[:40]!r}; keys are token ids.")
            limits = Range(at_least=0, below=vocab_size)
            token_id = check_int("a token id of logit_bias", int(key), limits)
            if not -100 <= value <= 100:
                raise ValueError(f"logit_bias of {key} is {value:g}; it must be from -100 to 100.")
            found[token_id] = value
        return found


@dataclass(frozen=True)
class CompletionRequest(_Request):
    """The body of `/v1/completions`."""

    prompt: Text | Annotated[list[Any], Length(at_least=1)] = ""
    echo: bool | None = None
    logprobs: Annotated[int, Range(at_least=0, at_most=MAX_LOGPROBS)] | None = None
    best_of: Annotated[int, Range(at_least=1)] | None = None
    suffix: Text | None = None
    return_token_ids: bool | None = None
    generated_ids: Ids = field(default_factory=list)
    """Ids after the prompt that were generated before; the text goes on as if it had not stopped.
    Together they may be longer than the context."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.generated_ids and (self.echo or self.past_context != "slide"):
            raise ValueError("generated_ids takes neither echo nor past_context; omit these.")
        if self.suffix:
            raise ValueError("suffix is not supported; the model continues a prompt.")
        if self.best_of not in (None, 1, self.n):
            raise ValueError("best_of is not supported; use n.")

    def prompts(self) -> list[str | list[int]]:
        """Return the prompts: texts, or lists of token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        kinds = {type(each) for each in self.prompt}
        if kinds == {int}:
            return [list(self.prompt)]
        is_flat = kinds == {str} or (
            kinds == {list} and all(type(i) is int for each in self.prompt for i in each)
        )
        if not is_flat:
            raise ValueError("prompt must be a text, a list of token ids, or a list of these.")
        if len(self.prompt) > MAX_PROMPTS:
            raise ValueError(f"prompt has {len(self.prompt)} items; at most {MAX_PROMPTS}.")
        return list(self.prompt)


@dataclass(frozen=True)
class Message:
    """A message of a chat."""

    role: Annotated[str, Length(at_least=1, at_most=40)]
    content: Text | Annotated[list[dict[str, Any]], Length(at_most=100)] | None = ""
    name: Text | None = None

    def to_dict(self) -> dict[str, str]:
        """Return role and content as a chat template reads them."""
        if isinstance(self.content, list):
            if any(part.get("type") != "text" for part in self.content):
                raise ValueError("a message may have text only.")
            return {
                "role": self.role,
                "content": "".join(str(part.get("text", "")) for part in self.content),
            }
        return {"role": self.role, "content": self.content or ""}


@dataclass(frozen=True)
class ChatRequest(_Request):
    """The body of `/v1/chat/completions`."""

    messages: Annotated[list[Message], Length(at_least=1, at_most=1000)] = field(
        default_factory=list
    )
    # At least one, unlike a completion, which may score its prompt alone.
    max_tokens: Annotated[int, Range(at_least=1, at_most=1 << 20)] | None = None
    max_completion_tokens: Annotated[int, Range(at_least=1, at_most=1 << 20)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Range(at_least=0, at_most=MAX_LOGPROBS)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.messages:
            raise ValueError("the key messages is missing from the request; add it.")


Body = CompletionRequest | ChatRequest


def read_request(kind: type[T], body: bytes) -> T:
    """Parse and validate a body; raise ValueError with one sentence."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is not valid JSON.") from None
    return read(kind, values, "the request")


FINISH: Mapping[StopReason | None, str] = {
    "end token": "stop",
    "stop string": "stop",
    "limit": "length",
    "context": "length",
}


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """Return the text of a token; bytes that are not UTF-8 as OpenAI writes them."""
    raw = tokenizer.token(token_id)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def completion_logprobs(
    tokenizer: Tokenizer, tokens: Sequence[ScoredToken], offset: int
) -> dict[str, Any]:
    """Return the `logprobs` of tokens of a completion; NaN marks an unknown log-probability."""
    texts = [token_text(tokenizer, token.id) for token in tokens]
    offsets = [offset + sum(map(len, texts[:place])) for place in range(len(texts))]
    known = [token.log_probability == token.log_probability for token in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [
            token.log_probability if is_known else None
            for token, is_known in zip(tokens, known, strict=True)
        ],
        "top_logprobs": [
            {token_text(tokenizer, i): value for i, value in token.alternatives}
            if is_known
            else None
            for token, is_known in zip(tokens, known, strict=True)
        ],
        "text_offset": offsets,
    }


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[ScoredToken]) -> dict[str, Any]:
    """Return the `logprobs` of tokens of a chat message."""

    def entry(token_id: int, value: float) -> dict[str, Any]:
        raw = tokenizer.token(token_id)
        return {
            "token": token_text(tokenizer, token_id),
            "logprob": value,
            "bytes": list(raw),
        }

    return {
        "content": [
            {
                **entry(token.id, token.log_probability),
                "top_logprobs": [entry(i, value) for i, value in token.alternatives],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def usage(prompt_tokens: int, new_tokens: int) -> dict[str, int]:
    """Return the numbers of tokens of a request."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
    }


def envelope(kind: str, model_id: str) -> dict[str, Any]:
    """Return the fields that all parts of a response share."""
    prefix = "chatcmpl" if kind.startswith("chat") else "cmpl"
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model_id,
    }


def error_body(message: str, kind: str = "invalid_request_error", code: str | None = None) -> bytes:
    """Return the body of an error."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}).encode()
