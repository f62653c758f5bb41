"""`tilth generate`: a run and a prompt to text."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from tilth.cli.options import Json, RunFolder, Threads
from tilth.cli.output import print_json
from tilth.formatting import printable
from tilth.generation import PromptError, Sampling, TextStream, load
from tilth.tokenizer import Tokenizer

DEFAULT = Sampling()
ANY_TEXT = Parameter(allow_leading_hyphen=True)
REASONS = {
    "end token": "at the end token",
    "limit": "at --max-tokens",
    "stop string": "at a stop string",
    "context": "as the context is full",
}


def generate(
    run: RunFolder,
    /,
    *,
    prompt: Annotated[str, ANY_TEXT] = "",
    max_tokens: int = 256,
    sampling: Annotated[Sampling, Parameter(name="*")] = DEFAULT,
    samples: int = 1,
    stop: Annotated[list[str] | None, ANY_TEXT] = None,
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
    """Write text as a run has learnt it, token by token.

    The text goes to stdout, behind the prompt; why it ended goes to stderr.

    Args:
        prompt: What the text begins with; - reads stdin (without its last line end).
        max_tokens: Write at most this many tokens.
        samples: Write so many texts.
        stop: End before this string; may come again.
        past_context: When the context is full: slide re-reads its newer half from the start.
        allow_special: Take special tokens in the prompt as such, not as text.
        interactive: Ask for prompts, line by line, until the input ends.
        step: The checkpoint of this step; default: the best one.
        quantize: Quantize weights to int8, on a CPU.
        device: cpu (native), or a device of torch.
        alternatives: With --json, how many likeliest tokens to show at each place.
    """
    if samples < 1:
        raise ValueError(f"--samples is {samples}; write 1 text or more.")
    if interactive and (prompt or json):
        raise ValueError("--interactive asks for the prompts; leave --prompt and --json out.")
    prompt = _text(_line(sys.stdin.buffer.read()) if prompt == "-" else os.fsencode(prompt))
    model = load(run, step=step, device=device, quantize=quantize, threads=threads)

    def streams(prompt: str) -> Iterator[TextStream]:
        for sample_index in range(samples):
            yield model.generate(
                prompt,
                max_tokens=max_tokens,
                stop=stop or (),
                sample_index=sample_index,
                past_context=past_context,
                allow_special=allow_special,
                alternatives=alternatives if json else None,
                **asdict(sampling),
            )

    if json:
        texts = [_as_dict(model.tokenizer, stream) for stream in streams(prompt)]
        print_json({"prompt": prompt, "seed": sampling.seed, "samples": texts})
        return
    if not interactive:
        _write(prompt, streams(prompt))
        return
    with suppress(PromptError):
        next(streams(""))  # refuses bad values before it asks
    while line := _ask():
        try:
            prompt = _text(_line(line))
            _write(prompt, streams(prompt))
        except PromptError as error:  # the next may do
            print(f"tilth: {printable(str(error))}", file=sys.stderr)
        except KeyboardInterrupt:  # enough of this one
            print("\nstopped by Ctrl-C", file=sys.stderr)


def _ask() -> bytes:
    """Return the next line of stdin; nothing at its end."""
    if sys.stdin.isatty():
        print("prompt> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.buffer.readline()


def _line(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _text(prompt: bytes) -> str:
    """Decode a prompt as UTF-8, whatever the locale says."""
    try:
        return prompt.decode("utf-8")
    except UnicodeDecodeError as error:
        sentence = f"the prompt is not UTF-8 (its byte {error.start}); convert it first."
        raise PromptError(sentence) from error


def _write(prompt: str, streams: Iterator[TextStream]) -> None:
    """Print texts as they come, a line between two, and why each ended."""
    for number, stream in enumerate(streams):
        began = time.perf_counter()
        first = next(stream, "")  # before the prompt is shown: it may be an error
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
    """Read a whole text with its tokens, for JSON."""

    def token(token_id: int, log_probability: float) -> dict[str, Any]:
        text = tokenizer.decode([token_id])
        return {"id": token_id, "text": text, "log_probability": log_probability}

    text = "".join(stream)
    tokens = [
        token(chosen, log_probability) | {"alternatives": [token(*each) for each in alternatives]}
        for chosen, log_probability, alternatives in stream.scored_tokens
    ]
    return {"text": text, "stop_reason": stream.stop_reason, "tokens": tokens}
