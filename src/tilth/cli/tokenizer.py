"""`tilth tokenizer`: train, inspect, compare, encode, decode, convert."""

import json as json_module
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from tilth.cli.options import CorpusPaths, Field, Json, OnError, Overwrite, Separator, Threads, utf8
from tilth.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console

    from tilth.tokenizer import Tokenizer

app = App(name="tokenizer", help="Text to token ids and back: train, inspect, compare, convert.")

TokenizerPath = Annotated[
    Path,
    Parameter(help="A tokenizer.json, a folder with vocab.json and merges.txt, or a .tiktoken."),
]
Special = Annotated[
    list[str],
    Parameter(
        name="--special",
        negative=(),
        help="A special token, such as '<|endoftext|>'.",
        converter=utf8,
    ),
]
Pattern = Annotated[
    str,
    Parameter(
        help="How text is cut: gpt2, cl100k, or a pattern for the regex package.", converter=utf8
    ),
]
RanksPattern = Annotated[
    str | None,
    Parameter(
        help="How text is cut, for a .tiktoken: gpt2, cl100k, or one for the regex package.",
        converter=utf8,
    ),
]
Out = Annotated[Path, Parameter(help="What to write.")]


@app.command
def train(
    corpus: CorpusPaths,
    /,
    *,
    out: Out,
    vocab_size: Annotated[
        int, Parameter(help="Tokens in all, bytes and special ones too.")
    ] = 10_000,
    special: Special = [],  # noqa: B006, cyclopts copies it
    pattern: Pattern = "gpt2",
    separator: Separator | None = None,
    field: Field = "text",
    on_error: OnError = "stop",
    threads: Threads = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Learn a vocabulary from a corpus.

    Plain text is cut at special tokens, or at --separator if it is given; what is not UTF-8 in it
    counts as U+FFFD.
    """
    import resource

    from tilth.cli.progress import progress
    from tilth.files import check_target
    from tilth.tokenizer import inspection, train_tokenizer
    from tilth.tokenizer.formats.oniguruma import check_read_alike
    from tilth.tokenizer.splitting import NATIVE_PATTERNS
    from tilth.tokenizer.training import SEPARATOR

    # What would be refused after the work is refused before it.
    check_target(out, overwrite=overwrite)
    if pattern not in NATIVE_PATTERNS:
        check_read_alike(pattern)
    began = {"count": time.perf_counter()}
    with progress() as report:

        def watch(phase: str, done: int, total: int) -> None:
            began.setdefault(phase, time.perf_counter())
            report(phase, done, total)

        tokenizer = train_tokenizer(
            corpus,
            vocab_size,
            special,
            pattern=pattern,
            separator=separator,
            field=field,
            on_error=on_error,
            threads=threads,
            progress=watch,
        )
    began["save"] = time.perf_counter()
    tokenizer.save(out, overwrite=overwrite)
    times = pairwise([*began.values(), time.perf_counter()])
    seconds = {phase: end - start for phase, (start, end) in zip(began, times, strict=True)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    sample = inspection.beginning_of(corpus, separator or SEPARATOR, field)
    longest = [inspection.visible(token) for _, token in inspection.longest_tokens(tokenizer)]
    ratio = inspection.bytes_per_token(tokenizer, sample) if sample else None
    results = {
        "tokens": len(tokenizer),
        "merges": len(tokenizer.merges),
        "seconds": seconds,
        "peak_bytes": peak_bytes,
        "bytes_per_token": ratio,
        "longest_tokens": longest,
        "wrote": str(out),
    }
    if json:
        print(json_module.dumps(results))
        return
    print(f"tokens           {len(tokenizer):,} ({len(tokenizer.merges):,} merges)")
    print("seconds         ", ", ".join(f"{phase} {took:.2f}" for phase, took in seconds.items()))
    print(f"peak memory      {peak_bytes / 1e6:,.0f} MB")
    if ratio is not None:  # a pipe is read once
        print(f"bytes per token  {ratio:.2f} on the first {len(sample):,} bytes")
    print(f"longest tokens   {'  '.join(longest)}")
    print(f"Wrote {out}")


@app.command
def inspect(
    tokenizer: TokenizerPath,
    /,
    *,
    text: Annotated[
        str | None, Parameter(help="Show what this text becomes.", converter=utf8)
    ] = None,
    pattern: RanksPattern = None,
    special: Special = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Show a tokenizer's size, its longest tokens, and what a text becomes."""
    from rich.console import Console

    from tilth.tokenizer import inspection

    opened = _open(tokenizer, pattern, special)
    ids = None if text is None else opened.encode(text)
    pieces = [opened.decode_bytes([token_id]) for token_id in ids or ()]
    results = inspection.inspect(opened)
    if json:
        if ids is not None:
            shown = map(inspection.visible, pieces)
            results["text"] = [
                {"id": i, "token": token} for i, token in zip(ids, shown, strict=True)
            ]
        print(json_module.dumps(results))
        return
    specials = ", ".join(f"{token} ({i})" for token, i in opened.special_tokens.items()) or "none"
    _print_rows(
        ("tokens", f"{len(opened):,} ({len(opened.merges):,} merges)"),
        ("pattern", printable(opened.pattern)),
        ("special tokens", printable(specials)),
        ("non-ASCII tokens", f"{results['share_of_non_ascii']:.1%}"),
        ("fingerprint", opened.fingerprint[:16]),
        (
            "lengths in bytes",
            "  ".join(f"{length}: {count:,}" for length, count in results["lengths"].items()),
        ),
        ("longest tokens", "  ".join(entry["token"] for entry in results["longest_tokens"])),
    )
    if ids is not None:
        console = Console(highlight=False, soft_wrap=True)
        print_pieces(console, pieces)
        console.print(" ".join(map(str, ids)), markup=False)


@app.command
def compare(
    tokenizers: Annotated[list[Path], Parameter(help="Two or more tokenizers.")],
    /,
    *,
    text: Annotated[list[Path], Parameter(negative=(), help="Texts to encode with each.")],
    pattern: RanksPattern = None,
    json: Json = False,
) -> None:
    """Compare tokenizers: what they share, how far each compresses each text, how fast."""
    from tilth.files import read_bytes
    from tilth.tokenizer import inspection

    opened = {str(path): _open(path, pattern, []) for path in tokenizers}
    results = inspection.compare(opened, {str(path): read_bytes(path) for path in text})
    if json:
        print(json_module.dumps(results))
        return
    for name in opened:
        print(name)
        _print_rows(
            ("  merges", f"{results['merges'][name]:,}"),
            ("  non-ASCII tokens", f"{results['share_of_non_ascii'][name]:.1%}"),
            *(
                (f"  bytes per token of {file}", f"{ratio:.3f}")
                for file, ratio in results["bytes_per_token"][name].items()
            ),
            ("  one thread", f"{results['bytes_per_second'][name] / 1e6:,.0f} MB/s"),
            ("", f"{results['tokens_per_second'][name] / 1e6:,.1f} million tokens/s"),
            ("  the Pile, 825 GB", f"{results['hours_for_the_pile'][name]:.2f} hours"),
        )
    for pair, count in results["shared_merges"].items():
        print(f"{pair} share {count:,} merges")


@app.command
def encode(
    tokenizer: TokenizerPath,
    /,
    *,
    allow_special: Annotated[
        bool, Parameter(negative=(), help="Recognise special tokens in the text.")
    ] = False,
    pattern: RanksPattern = None,
    special: Special = [],  # noqa: B006
) -> None:
    """Encode the text on stdin; ids go to stdout, separated by blanks."""
    opened = _open(tokenizer, pattern, special)
    chunks: list[str] = []
    separator = ""
    for token_id in opened.encode_iterable(_stdin_parts(), allow_special=allow_special):
        chunks.append(str(token_id))
        if len(chunks) == 10_000:
            sys.stdout.write(separator + " ".join(chunks))
            chunks.clear()
            separator = " "
    sys.stdout.write((separator if chunks else "") + " ".join(chunks) + "\n")


@app.command
def decode(
    tokenizer: TokenizerPath,
    /,
    *,
    pattern: RanksPattern = None,
    special: Special = [],  # noqa: B006
) -> None:
    """Decode the ids on stdin, separated by white space; their bytes go to stdout."""
    opened = _open(tokenizer, pattern, special)
    for line in sys.stdin:
        try:
            ids = [int(word) for word in line.split()]
        except ValueError as error:
            raise ValueError(f"stdin holds ids, separated by white space, but: {error}.") from None
        sys.stdout.buffer.write(opened.decode_bytes(ids))
    sys.stdout.buffer.flush()


@app.command
def convert(
    tokenizer: TokenizerPath,
    /,
    *,
    out: Annotated[
        Path, Parameter(help="NAME.json, NAME.tiktoken, or a folder for vocab.json and merges.txt.")
    ],
    pattern: RanksPattern = None,
    special: Special = [],  # noqa: B006
    overwrite: Overwrite = False,
) -> None:
    """Write a tokenizer in another tool's format; the name of --out says which."""
    from tilth.tokenizer.formats import save

    save(_open(tokenizer, pattern, special).vocabulary, out, overwrite=overwrite)
    print(f"Wrote {out}")


def _open(path: Path, pattern: str | None, special: list[str]) -> "Tokenizer":
    from tilth.tokenizer import Tokenizer

    return Tokenizer.load(path, pattern=pattern, special_tokens=special)


def _stdin_parts() -> Iterator[bytes]:
    while part := os.read(sys.stdin.fileno(), 1 << 16):
        yield part


def print_pieces(console: "Console", pieces: Sequence[bytes]) -> None:
    """Pieces or tokens side by side: where there are colours with these, else with | between."""
    from tilth.tokenizer.inspection import visible

    if console.color_system is not None and not console.no_color:
        for number, piece in enumerate(pieces):
            # Both read on a dark and on a light terminal.
            colour = "light_goldenrod2" if number % 2 else "dark_sea_green2"
            style = f"grey11 on {colour}"
            console.print(visible(piece, blank=" "), style=style, markup=False, end="")
        console.print()
    else:
        console.print("|".join(visible(piece, blank=" ") for piece in pieces), markup=False)


def _print_rows(*rows: tuple[str, str]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
