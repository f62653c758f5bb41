"""`tilth tokenizer`: train, inspect, compare, encode, decode, convert."""

import json as json_module
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from tilth.cli.options import CorpusPaths, Field, Json, OnError, Overwrite, Separator, Threads

if TYPE_CHECKING:
    from rich.console import Console

    from tilth.tokenizer import Tokenizer

SAMPLE_BYTES = 10_000_000  # of a corpus, to measure compression on

app = App(name="tokenizer", help="Text to token ids and back: train, inspect, compare, convert.")

TokenizerPath = Annotated[
    Path,
    Parameter(help="A tokenizer.json, a folder with vocab.json and merges.txt, or a .tiktoken."),
]
Special = Annotated[
    list[str],
    Parameter(name="--special", negative=(), help="A special token, such as '<|endoftext|>'."),
]
Pattern = Annotated[
    str, Parameter(help="How text is cut: gpt2, cl100k, or a pattern for the regex package.")
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
    from tilth.tokenizer.oniguruma import check_read_alike
    from tilth.tokenizer.splitting import NATIVE_PATTERNS
    from tilth.tokenizer.training import SEPARATOR

    # What would be refused after the work is refused before it.
    check_target(out, overwrite=overwrite)
    if pattern not in NATIVE_PATTERNS:
        check_read_alike(pattern)
    phases = Stopwatch()
    with progress() as report:

        def watch(phase: str, done: int, total: int) -> None:
            phases.enter(phase)
            report(phase, done, total)

        phases.enter("count")
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
    phases.enter("save")
    tokenizer.save(out, overwrite=overwrite)
    phases.enter("")

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    sample = _beginning(corpus, separator or SEPARATOR, field)
    results: dict[str, Any] = {
        "tokens": len(tokenizer.vocab),
        "merges": len(tokenizer.merges),
        "seconds": phases.seconds,
        "peak_bytes": peak_bytes,
        "bytes_per_token": inspection.bytes_per_token(tokenizer, sample) if sample else None,
        "longest_tokens": [_shown(token) for _, token in inspection.longest_tokens(tokenizer)],
        "wrote": str(out),
    }
    if json:
        print(json_module.dumps(results, ensure_ascii=False))
        return
    seconds = ", ".join(f"{phase} {value:.2f}" for phase, value in phases.seconds.items())
    print(f"tokens           {results['tokens']:,} ({results['merges']:,} merges)")
    print(f"seconds          {seconds}")
    print(f"peak memory      {peak_bytes / 1e6:,.0f} MB")
    if sample:  # a pipe is read once
        ratio = results["bytes_per_token"]
        print(f"bytes per token  {ratio:.2f} on the first {len(sample):,} bytes")
    print(f"longest tokens   {'  '.join(results['longest_tokens'])}")
    print(f"Wrote {out}")


@app.command
def inspect(
    tokenizer: TokenizerPath,
    /,
    *,
    text: Annotated[str | None, Parameter(help="Show what this text becomes.")] = None,
    pattern: Pattern = "gpt2",
    special: Special = [],  # noqa: B006
    json: Json = False,
) -> None:
    """Show a tokenizer's size, its longest tokens, and what a text becomes."""
    from rich.console import Console

    from tilth.tokenizer import inspection

    opened = _open(tokenizer, pattern, special)
    pieces = None
    if text is not None:
        ids = opened.encode(text)
        pieces = [(token_id, opened.decode_bytes([token_id])) for token_id in ids]
    lengths = inspection.lengths(opened)
    longest = inspection.longest_tokens(opened)
    if json:
        results = {
            "tokens": len(opened.vocab),
            "merges": len(opened.merges),
            "pattern": opened.pattern,
            "special_tokens": dict(opened.special_tokens),
            "fingerprint": opened.fingerprint,
            "share_of_non_ascii": inspection.share_of_non_ascii(opened),
            "lengths": lengths,
            "longest_tokens": [{"id": i, "token": _shown(token)} for i, token in longest],
        }
        if pieces is not None:
            results["text"] = [{"id": i, "token": _shown(token)} for i, token in pieces]
        print(json_module.dumps(results, ensure_ascii=False))
        return
    console = Console(highlight=False, soft_wrap=True)
    specials = ", ".join(f"{token} ({i})" for token, i in opened.special_tokens.items()) or "none"
    _print_rows(
        ("tokens", f"{len(opened.vocab):,} ({len(opened.merges):,} merges)"),
        ("pattern", opened.pattern),
        ("special tokens", specials),
        ("non-ASCII tokens", f"{inspection.share_of_non_ascii(opened):.1%}"),
        ("fingerprint", opened.fingerprint[:16]),
        (
            "lengths in bytes",
            "  ".join(f"{length}: {count:,}" for length, count in lengths.items()),
        ),
        ("longest tokens", "  ".join(_shown(token) for _, token in longest)),
    )
    if pieces is not None:
        print_pieces(console, [token for _, token in pieces])
        console.print(f"{' '.join(str(i) for i, _ in pieces)}", markup=False)


@app.command
def compare(
    tokenizers: Annotated[list[Path], Parameter(help="Two or more tokenizers.")],
    /,
    *,
    text: Annotated[list[Path], Parameter(negative=(), help="Texts to encode with each.")],
    json: Json = False,
) -> None:
    """Compare tokenizers: what they share, how far each compresses each text, how fast."""
    from itertools import combinations

    from tilth.tokenizer import inspection

    if len(tokenizers) < 2:
        raise ValueError("A comparison takes at least two tokenizers.")
    opened = {str(path): _open(path, "gpt2", []) for path in tokenizers}
    texts = {str(path): path.read_bytes() for path in text}
    whole = b"".join(texts.values())
    results: dict[str, Any] = {
        "merges": {name: len(tokenizer.merges) for name, tokenizer in opened.items()},
        "shared_merges": {
            f"{a} and {b}": inspection.shared_merges(opened[a], opened[b])
            for a, b in combinations(opened, 2)
        },
        "share_of_non_ascii": {n: inspection.share_of_non_ascii(t) for n, t in opened.items()},
        "bytes_per_token": {
            name: {file: inspection.bytes_per_token(t, data) for file, data in texts.items()}
            for name, t in opened.items()
        },
    }
    speeds = {name: inspection.encoding_speed(t, whole) for name, t in opened.items()}
    results["bytes_per_second"] = {n: speed.bytes_per_second for n, speed in speeds.items()}
    results["tokens_per_second"] = {n: speed.tokens_per_second for n, speed in speeds.items()}
    results["hours_for_the_pile"] = {n: speed.hours_for_the_pile for n, speed in speeds.items()}
    if json:
        print(json_module.dumps(results))
        return
    for name in opened:
        speed = speeds[name]
        print(name)
        _print_rows(
            ("  merges", f"{results['merges'][name]:,}"),
            ("  non-ASCII tokens", f"{results['share_of_non_ascii'][name]:.1%}"),
            *(
                (f"  bytes per token of {file}", f"{ratio:.3f}")
                for file, ratio in results["bytes_per_token"][name].items()
            ),
            ("  one thread", f"{speed.bytes_per_second / 1e6:,.0f} MB/s"),
            ("", f"{speed.tokens_per_second / 1e6:,.1f} million tokens/s"),
            ("  the Pile, 825 GB", f"{speed.hours_for_the_pile:.2f} hours"),
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
    pattern: Pattern = "gpt2",
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
    pattern: Pattern = "gpt2",
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
    pattern: Pattern = "gpt2",
    special: Special = [],  # noqa: B006
    overwrite: Overwrite = False,
) -> None:
    """Write a tokenizer in another tool's format; the name of --out says which."""
    opened = _open(tokenizer, pattern, special)
    if out.suffix == ".json":
        opened.save(out, overwrite=overwrite)
    elif out.suffix == ".tiktoken":
        opened.save_tiktoken(out, overwrite=overwrite)
    else:
        out.mkdir(exist_ok=True)
        opened.save_files(out / "vocab.json", out / "merges.txt", overwrite=overwrite)
    print(f"Wrote {out}")


class Stopwatch:
    """Seconds spent in each of several phases, one after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase = ""
        self._start = time.perf_counter()

    def enter(self, phase: str) -> None:
        """End the phase that was, unless it is this one."""
        if phase == self._phase:
            return
        now = time.perf_counter()
        if self._phase:
            self.seconds[self._phase] = now - self._start
        self._phase, self._start = phase, now


def _open(path: Path, pattern: str, special: list[str]) -> "Tokenizer":
    from tilth.tokenizer import Tokenizer
    from tilth.tokenizer.formats import load

    return Tokenizer.from_vocabulary(load(path, pattern=pattern, special_tokens=special))


def _stdin_parts() -> Iterator[bytes]:
    while part := os.read(sys.stdin.fileno(), 1 << 16):
        yield part


def _beginning(paths: list[Path], separator: str, field: str) -> bytes:
    """The first bytes of a corpus, to measure compression on; a pipe has none any more."""
    from tilth.corpus import Corpus
    from tilth.corpus.listing import compression_of, kind_of

    beginning = b""
    for path in paths:
        if path.is_file() and kind_of(path) == "text" and not compression_of(path):
            with path.open("rb") as file:  # it may be one document of any size
                beginning += file.read(max(0, SAMPLE_BYTES - len(beginning)))
        elif path.is_file() or path.is_dir():
            for block in Corpus(path, separator=separator, field=field, on_error="skip").blocks():
                beginning += separator.encode().join(block.documents().texts)
                if len(beginning) >= SAMPLE_BYTES:
                    break
    return beginning[:SAMPLE_BYTES]


def print_pieces(console: "Console", pieces: Sequence[bytes]) -> None:
    """Pieces or tokens side by side: where there are colours with these, else with | between."""
    if console.color_system is not None and not console.no_color:
        for number, piece in enumerate(pieces):
            # Both read on a dark and on a light terminal.
            colour = "light_goldenrod2" if number % 2 else "dark_sea_green2"
            style = f"grey11 on {colour}"
            console.print(_shown(piece, blank=" "), style=style, markup=False, end="")
        console.print()
    else:
        console.print("|".join(_shown(piece, blank=" ") for piece in pieces), markup=False)


def _shown(token: bytes, blank: str = "␣") -> str:
    """A token for people: its text where it is text, and white space that can be seen."""
    text = token.decode("utf-8", "backslashreplace").replace(" ", blank)
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else repr(c)[1:-1] for c in text)


def _print_rows(*rows: tuple[str, str]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
