"""`tilth generate`: generate text with a run."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from tilth.cli.options import Json, ModelPath, Threads, utf8
from tilth.cli.output import print_json
from tilth.files import read_bytes
from tilth.formatting import printable
from tilth.generation import (
    GeneratedText,
    LanguageModel,
    PromptError,
    Sampling,
    TextStream,
    load,
)
from tilth.tokenizer import Tokenizer

DEFAULT = Sampling()
Prompt = str | Sequence[int]
Generated = TextStream | GeneratedText
ANY_TEXT = Parameter(allow_leading_hyphen=True, converter=utf8)
REASONS = {
    "end token": "at the end token",
    "limit": "at --max-tokens",
    "stop string": "at a stop string",
    "context": "as the context is full",
}


class _Rate:
    """Throughput and the time to the first token, since it was made."""

    def __init__(self) -> None:
        self._began, self._num_tokens, self._waited = time.perf_counter(), 0, 0.0

    def add(self, found: Generated) -> None:
        """Count a complete text."""
        self._num_tokens += len(found.token_ids)
        self._waited = self._waited or found.first_token_seconds or 0.0

    def __str__(self) -> str:
        rate = self._num_tokens / (time.perf_counter() - self._began)
        return f"{rate:,.0f} tokens/s, the first after {1000 * self._waited:,.0f} ms"

    def report(self) -> None:
        """Print the rate of several texts."""
        seconds = time.perf_counter() - self._began
        print(f"generated {self._num_tokens} tokens in {seconds:.1f} s, {self}", file=sys.stderr)


def generate(
    run: ModelPath,
    /,
    *,
    prompt: Annotated[str, ANY_TEXT] = "",
    prompt_ids: Annotated[list[int], Parameter(consume_multiple=True)] = [],  # noqa: B006
    prompt_file: Path | None = None,
    max_tokens: int = 256,
    sampling: Annotated[Sampling, Parameter(name="*")] = DEFAULT,
    samples: int = 1,
    stop: Annotated[list[str], ANY_TEXT] = [],  # noqa: B006, cyclopts copies it
    past_context: Literal["slide", "stop"] = "slide",
    allow_special: bool = False,
    interactive: bool = False,
    step: int | None = None,
    quantize: Literal["bfloat16", "int8", "int4"] | None = None,
    cache: Literal["float32", "int8"] = "float32",
    drafts: bool = False,
    device: str = "cpu",
    threads: Threads = None,
    json: Json = False,
    alternatives: int = 5,
) -> None:
    """Generate text with a run, token by token.

    The prompt and the text go to stdout; the reason of the end, the throughput and the time to the
    first token go to stderr.

    Args:
        prompt: Prompt; - reads stdin, without the last line end.
        prompt_ids: Prompt as token ids: --prompt-ids 1 306.
        prompt_file: File with one prompt a line, in UTF-8.
        max_tokens: Maximum number of new tokens.
        samples: Number of texts for each prompt; up to 64 texts are generated at once.
        stop: Stop string; once for each. The text ends before it.
        past_context: At a full context, slide drops its older half, stop ends the text.
        allow_special: Encode special tokens in the prompt as special tokens.
        interactive: Read prompts from stdin, line by line.
        step: Step of the checkpoint; default: the best one.
        quantize: Precision of the weights, on a CPU; default float32. int4 is for feed-forwards,
            with attention and output matrix in int8.
        cache: Precision of keys and values, on a CPU; int8 takes about a quarter of the memory.
        drafts: Guess tokens from earlier text: the same text, faster where it repeats itself. For
            one text; several texts at once (--samples, --prompt-file) ignore it.
        device: cpu (native decoder), or a torch device.
        alternatives: With --json, number of likeliest tokens at each position.

    Examples:
        tilth generate runs/first --prompt "Once upon a time" --temperature 0.8
        tilth generate runs/first --prompt "One day" --samples 64 --top-p 0.95
        tilth generate runs/first --prompt-file prompts.txt --json
        echo "One day" | tilth generate runs/first --prompt - --json
    """
    if interactive and (prompt or json):
        raise ValueError("--interactive reads prompts from stdin; leave --prompt and --json out.")
    if bool(prompt) + bool(prompt_ids) + (prompt_file is not None) + interactive > 1:
        raise ValueError("give one of --prompt, --prompt-ids, --prompt-file and --interactive.")
    prompt = _text(sys.stdin.buffer.read()) if prompt == "-" else prompt
    prompts: list[Prompt] = [prompt_ids or prompt]
    if prompt_file is not None:
        prompts = [*_prompts(prompt_file)]
    model = load(run, step=step, device=device, quantize=quantize, cache=cache, threads=threads)
    if prompt_file is not None:
        for number, each in enumerate(prompts, start=1):
            with _named_line(prompt_file, number):
                model.prompt_ids(each, allow_special=allow_special)
    options: dict[str, Any] = {
        "max_tokens": max_tokens,
        "stop": stop,
        "past_context": past_context,
        "allow_special": allow_special,
        "alternatives": alternatives if json else None,
        "drafts": drafts,
        **asdict(sampling),
    }
    if json:
        rate = _Rate()
        texts = []
        for text in model.generate_samples(prompts, samples, **options):
            rate.add(text)
            texts.append(_as_dict(model.tokenizer, text))
        rate.report()
        found = [
            {
                "prompt": _shown(model, each),
                "seed": sampling.seed,
                "samples": texts[first : first + samples],
            }
            for each, first in zip(prompts, range(0, len(texts), samples), strict=True)
        ]
        print_json(found[0] if prompt_file is None else {"prompts": found})
        return
    if not interactive:
        _write(model, prompts, samples, options)
        return
    with suppress(PromptError):
        model.generate("", **options)  # raises for bad options before the first prompt
    while line := _ask():
        try:
            _write(model, [_text(line)], samples, options)
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


def _prompts(path: Path) -> Iterator[str]:
    """Yield the lines of a file."""
    lines = read_bytes(path).removesuffix(b"\n").split(b"\n")
    for number, line in enumerate(lines, start=1):
        with _named_line(path, number):
            prompt = _text(line)
        yield prompt


@contextmanager
def _named_line(path: Path, number: int) -> Iterator[None]:
    """Name the line of a prompt in its error."""
    try:
        yield
    except PromptError as error:
        raise PromptError(f"line {number} of {path}: {error}") from error


def _shown(model: LanguageModel, prompt: Prompt) -> str:
    """Return a prompt as text; ids that only pad the model have none."""
    if isinstance(prompt, str):
        return prompt
    return model.tokenizer.decode([i for i in prompt if i < model.tokenizer.vocab_size])


def _write(
    model: LanguageModel, prompts: Sequence[Prompt], samples: int, options: Mapping[str, Any]
) -> None:
    """Print texts, a line between two, and the reason of each end: one as it is generated."""
    rate = _Rate()
    if len(prompts) * samples == 1:
        stream = model.generate(prompts[0], **options)
        first = next(stream, "")  # before the prompt is printed: it may raise
        print(_shown(model, prompts[0]) + first, end="", flush=True)
        for text in stream:
            print(text, end="", flush=True)
        print(flush=True)
        rate.add(stream)
        _explain(stream, rate)
        return
    for number, found in enumerate(model.generate_samples(prompts, samples, **options)):
        separator = "---\n" if number else ""
        print(separator + _shown(model, prompts[number // samples]) + found.text, flush=True)
        rate.add(found)
        _explain(found)
    rate.report()


def _explain(found: Generated, rate: _Rate | None = None) -> None:
    """Print why a text ended, and a rate."""
    reason = REASONS[found.stop_reason or "limit"]
    shown = f", {rate}" if rate and found.token_ids else ""
    print(f"stopped {reason} after {len(found.token_ids)} tokens{shown}", file=sys.stderr)


def _as_dict(tokenizer: Tokenizer, found: GeneratedText) -> dict[str, Any]:
    """Return a text with its tokens."""

    def token(token_id: int, log_probability: float) -> dict[str, Any]:
        text = tokenizer.decode([token_id])
        return {"id": token_id, "text": text, "log_probability": log_probability}

    tokens = [
        token(chosen, log_probability) | {"alternatives": [token(*each) for each in alternatives]}
        for chosen, log_probability, alternatives in found.scored_tokens
    ]
    return {"text": found.text, "stop_reason": found.stop_reason, "tokens": tokens}
