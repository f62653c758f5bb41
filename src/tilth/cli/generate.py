"""`tilth generate`: a run and a prompt to text."""

import json as json_module
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tilth.cli.options import Json, Threads

if TYPE_CHECKING:
    from tilth.generation import LoadedModel, TextStream

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
    temperature: Annotated[
        float,
        Parameter(
            help="Below 1 the likely become likelier, which suits a small run (0.4, say); 0 always "
            "takes the likeliest."
        ),
    ] = 1.0,
    top_k: Annotated[int | None, Parameter(help="Choose from the k likeliest tokens.")] = None,
    top_p: Annotated[
        float, Parameter(help="Choose from the smallest set of tokens whose mass reaches p.")
    ] = 1.0,
    min_p: Annotated[
        float, Parameter(help="Choose from tokens at least this share as likely as the likeliest.")
    ] = 0.0,
    repetition_penalty: Annotated[
        float, Parameter(help="Above 1, what stands in the context already becomes less likely.")
    ] = 1.0,
    seed: Annotated[int, Parameter(help="Where chance begins: equal seeds, equal text.")] = 0,
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
    from tilth.generation import TextStream, generate_tokens, load_decoder
    from tilth.generation.context import PromptError

    if samples < 1:
        raise ValueError(f"--samples is {samples}; write 1 text or more.")
    if interactive and (prompt or json):
        raise ValueError("--interactive asks for the prompts; leave --prompt and --json out.")
    written = sys.stdin.buffer.read() if prompt == "-" else os.fsencode(prompt)
    prompt = _decoded(written, ends_line=prompt == "-")

    def streams(model: "LoadedModel", prompt: str) -> Iterator[TextStream]:
        for sample_index in range(samples):
            tokens = generate_tokens(
                model,
                prompt,
                max_tokens=max_tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                min_p=min_p,
                repetition_penalty=repetition_penalty,
                seed=seed,
                sample_index=sample_index,
                alternatives=alternatives,
                allow_special=allow_special,
                past_context=past_context,
            )
            yield TextStream(tokens, stop or (), keep_scores=json)

    model = load_decoder(run, step=step, device=device, quantize=quantize, threads=threads)
    if json:
        texts = [_as_dict(model, stream) for stream in streams(model, prompt)]
        print(json_module.dumps({"prompt": prompt, "seed": seed, "samples": texts}))
        return
    if not interactive:
        _write(prompt, streams(model, prompt))
        return
    with suppress(PromptError):
        next(streams(model, ""))  # refuses bad values before it asks
    while line := _asked():
        try:
            prompt = _decoded(line, ends_line=True)
            _write(prompt, streams(model, prompt))
        except PromptError as error:  # the next may do
            print(f"tilth: {error}", file=sys.stderr)
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
        num_tokens = stream.tokens.num_tokens
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
    from tilth.generation.context import PromptError

    if ends_line:
        prompt = prompt.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return prompt.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PromptError(
            f"the prompt is not UTF-8 (its byte {error.start}); convert it first."
        ) from error


def _as_dict(model: "LoadedModel", stream: "TextStream") -> dict[str, Any]:
    """A whole text with its tokens, for JSON."""

    def token(token_id: int, log_probability: float) -> dict[str, Any]:
        text = model.tokenizer.decode([token_id])
        return {"id": token_id, "text": text, "log_probability": log_probability}

    text = "".join(stream)
    tokens = [
        {
            **token(each.id, each.log_probability),
            "alternatives": [token(*alternative) for alternative in each.alternatives],
        }
        for each in stream.scored_tokens or ()
    ]
    return {"text": text, "stop_reason": stream.stop_reason, "tokens": tokens}
