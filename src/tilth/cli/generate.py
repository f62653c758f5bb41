"""`tilth generate`: a run and a prompt to text."""

import json as json_module
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tilth.cli.options import Json, Threads
from tilth.formatting import printable
from tilth.generation.sampling import Sampling

if TYPE_CHECKING:
    from tilth.generation import TextStream
    from tilth.tokenizer import Tokenizer

DEFAULT = Sampling()
REASONS = {
    "end token": "at the end token",
    "limit": "at --max-tokens",
    "stop string": "at a stop string",
    "context": "as the context is full",
}


def generate(
    run: Annotated[Path, Parameter(help="A run directory.")],
    /,
    *,
    prompt: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True,
            help="What the text begins with; - reads stdin (without its last line end).",
        ),
    ] = "",
    max_tokens: Annotated[int, Parameter(help="Write at most this many tokens.")] = 256,
    sampling: Annotated[Sampling, Parameter(name="*")] = DEFAULT,
    samples: Annotated[int, Parameter(help="Write so many texts.")] = 1,
    stop: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            allow_leading_hyphen=True,
            help="End before this string; may come again.",
        ),
    ] = None,
    past_context: Annotated[
        Literal["slide", "stop"],
        Parameter(
            help="Where the context is full: forget its older half and read the newer one again "
            "from the start, or stop."
        ),
    ] = "slide",
    allow_special: Annotated[
        bool, Parameter(negative=(), help="Take special tokens in the prompt as such, not as text.")
    ] = False,
    interactive: Annotated[
        bool, Parameter(negative=(), help="Ask for prompts, line by line, until the input ends.")
    ] = False,
    step: Annotated[
        int | None, Parameter(help="The checkpoint of this step; default: the best one.")
    ] = None,
    quantize: Annotated[
        Literal["int8"] | None, Parameter(help="Matrices in a quarter of the bytes, on a CPU.")
    ] = None,
    device: Annotated[str, Parameter(help="cpu (native), or a device of torch.")] = "cpu",
    threads: Threads = None,
    json: Json = False,
    alternatives: Annotated[
        int, Parameter(help="With --json, how many likeliest tokens to show at each place.")
    ] = 5,
) -> None:
    """Write text as a run has learnt it, token by token.

    The text goes to stdout, behind the prompt; why it ended goes to stderr.
    """
    from tilth.generation import PromptError, load

    if samples < 1:
        raise ValueError(f"--samples is {samples}; write 1 text or more.")
    if interactive and (prompt or json):
        raise ValueError("--interactive asks for the prompts; leave --prompt and --json out.")
    written = sys.stdin.buffer.read() if prompt == "-" else os.fsencode(prompt)
    prompt = _decoded(written, ends_line=prompt == "-")
    model = load(run, step=step, device=device, quantize=quantize, threads=threads)

    def streams(prompt: str) -> Iterator["TextStream"]:
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
        print(json_module.dumps({"prompt": prompt, "seed": sampling.seed, "samples": texts}))
        return
    if not interactive:
        _write(prompt, streams(prompt))
        return
    with suppress(PromptError):
        next(streams(""))  # refuses bad values before it asks
    while line := _asked():
        try:
            prompt = _decoded(line, ends_line=True)
            _write(prompt, streams(prompt))
        except PromptError as error:  # the next may do
            print(f"tilth: {printable(str(error))}", file=sys.stderr)
        except KeyboardInterrupt:  # enough of this one
            print("\nstopped by Ctrl-C", file=sys.stderr)


def _write(prompt: str, streams: Iterator["TextStream"]) -> None:
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


def _asked() -> bytes:
    """The next line of the input; nothing at its end."""
    if sys.stdin.isatty():
        print("prompt> ", end="", file=sys.stderr, flush=True)
    return sys.stdin.buffer.readline()


def _decoded(prompt: bytes, *, ends_line: bool) -> str:
    """The text of a prompt, whatever the locale says."""
    from tilth.generation import PromptError

    if ends_line:
        prompt = prompt.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return prompt.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"the prompt is not UTF-8 (its byte {error.start}); convert it first."
        ) from error


def _as_dict(tokenizer: "Tokenizer", stream: "TextStream") -> dict[str, Any]:
    """A whole text with its tokens, for JSON."""

    def token(token_id: int, log_probability: float) -> dict[str, Any]:
        text = tokenizer.decode([token_id])
        return {"id": token_id, "text": text, "log_probability": log_probability}

    text = "".join(stream)
    tokens = [
        {
            **token(each.id, each.log_probability),
            "alternatives": [token(*alternative) for alternative in each.alternatives],
        }
        for each in stream.scored_tokens
    ]
    return {"text": text, "stop_reason": stream.stop_reason, "tokens": tokens}
