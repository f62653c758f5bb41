"""`tilth generate`: generate text with a run."""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from tilth.cli.options import Json, ModelPath, Threads, utf8
from tilth.cli.output import print_json
from tilth.formatting import printable
from tilth.generation import PromptError, Sampling, TextStream, load
from tilth.tokenizer import Tokenizer

DEFAULT = Sampling()
ANY_TEXT = Parameter(allow_leading_hyphen=True, converter=utf8)
REASONS = {
    "end token": "at the end token",
    "limit": "at --max-tokens",
    "stop string": "at a stop string",
    "context": "as the context is full",
}


def generate(
    run: ModelPath,
    /,
    *,
    prompt: Annotated[str, ANY_TEXT] = "",
    prompt_ids: Annotated[list[int], Parameter(consume_multiple=True)] = [],  # noqa: B006
    max_tokens: int = 256,
    sampling: Annotated[Sampling, Parameter(name="*")] = DEFAULT,
    samples: int = 1,
    stop: Annotated[list[str], ANY_TEXT] = [],  # noqa: B006, cyclopts copies it
    past_context: Literal["slide", "stop"] = "slide",
    allow_special: bool = False,
    interactive: bool = False,
    step: int | None = None,
    quantize: Literal["int8"] | None = None,
    device: str = "cpu",
    threads: Threads = None,
    json: Json = False,
    alternatives: int = 5,
) -> None:
    """Generate text with a run, token by token.

    The prompt and the text go to stdout, the reason of the end to stderr.

    Args:
        prompt: Prompt; - reads stdin, without the last line end.
        prompt_ids: Prompt as token ids: --prompt-ids 1 306.
        max_tokens: Maximum number of new tokens.
        samples: Number of texts.
        stop: Stop string; once for each. The text ends before it.
        past_context: At a full context, slide drops its older half, stop ends the text.
        allow_special: Encode special tokens in the prompt as special tokens.
        interactive: Read prompts from stdin, line by line.
        step: Step of the checkpoint; default: the best one.
        quantize: Weight quantization, on a CPU.
        device: cpu (native decoder), or a torch device.
        alternatives: With --json, number of likeliest tokens at each position.

    Examples:
        tilth generate runs/first --prompt "Once upon a time" --temperature 0.8
        tilth generate runs/first --prompt "One day" --samples 3 --top-p 0.95
        echo "One day" | tilth generate runs/first --prompt - --json
    """
    if samples < 1:
        raise ValueError(f"--samples is {samples}; it must be at least 1.")
    if interactive and (prompt or json):
        raise ValueError("--interactive reads prompts from stdin; leave --prompt and --json out.")
    if prompt_ids and (prompt or interactive):
        raise ValueError("--prompt-ids is a prompt; leave --prompt and --interactive out.")
    prompt = _text(sys.stdin.buffer.read()) if prompt == "-" else prompt
    model = load(run, step=step, device=device, quantize=quantize, threads=threads)

    def streams(prompt: str) -> Iterator[TextStream]:
        for sample_index in range(samples):
            yield model.generate(
                prompt_ids or prompt,
                max_tokens=max_tokens,
                stop=stop,
                sample_index=sample_index,
                past_context=past_context,
                allow_special=allow_special,
                alternatives=alternatives if json else None,
                **asdict(sampling),
            )

    if prompt_ids:
        prompt = model.tokenizer.decode([i for i in prompt_ids if i < model.tokenizer.vocab_size])
    if json:
        texts = [_as_dict(model.tokenizer, stream) for stream in streams(prompt)]
        print_json({"prompt": prompt, "seed": sampling.seed, "samples": texts})
        return
    if not interactive:
        _write(prompt, streams(prompt))
        return
    with suppress(PromptError):
        next(streams(""))  # raises for bad options before the first prompt
    while line := _ask():
        try:
            prompt = _text(line)
            _write(prompt, streams(prompt))
        except PromptError as error:  # the next prompt may work
            print(f"tilth: {printable(str(error))}", file=sys.stderr)
        except KeyboardInterrupt:  # ends this text only
            print("\nstopped by Ctrl-C", file=sys.stderr)


def _ask() -> bytes:
    """Return the next line of stdin; empty at its end."""
    if sys.stdin.isatty():
        print("prompt> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.buffer.readline()


def _text(line: bytes) -> str:
    """Decode a prompt of stdin as UTF-8, in every locale, without its line end."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        sentence = f"the prompt is not UTF-8 (its byte {error.start}); convert it first."
        raise PromptError(sentence) from error


def _write(prompt: str, streams: Iterator[TextStream]) -> None:
    """Print texts as they are generated, a line between two, and the reason of each end."""
    for number, stream in enumerate(streams):
        began = time.perf_counter()
        first = next(stream, "")  # before the prompt is printed: it may raise
        print(("---\n" if number else "") + prompt + first, end="", flush=True)
        for text in stream:
            print(text, end="", flush=True)
        seconds = time.perf_counter() - began
        print(flush=True)
        num_tokens = len(stream.token_ids)
        reason = REASONS[stream.stop_reason or "limit"]
        rate = f", {num_tokens / seconds:,.0f} tokens/s" if num_tokens else ""
        print(f"stopped {reason} after {num_tokens} tokens{rate}", file=sys.stderr)


def _as_dict(tokenizer: Tokenizer, stream: TextStream) -> dict[str, Any]:
    """Generate a whole text; return it with its tokens."""

    def token(token_id: int, log_probability: float) -> dict[str, Any]:
        text = tokenizer.decode([token_id])
        return {"id": token_id, "text": text, "log_probability": log_probability}

    text = "".join(stream)
    tokens = [
        token(chosen, log_probability) | {"alternatives": [token(*each) for each in alternatives]}
        for chosen, log_probability, alternatives in stream.scored_tokens
    ]
    return {"text": text, "stop_reason": stream.stop_reason, "tokens": tokens}
