"""`tilth tokenizer`: train, inspect, compare, encode, decode, convert, count, merge-counts."""

import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Annotated

from cyclopts import App
from rich.console import Console

from tilth.cli.options import (
    AS_WRITTEN,
    UTF8,
    ClusterOptions,
    CorpusOptions,
    CorpusPaths,
    Json,
    Overwrite,
    Reading,
    Threads,
    TokenizerPath,
    executor_of,
)
from tilth.cli.output import aligned, print_result
from tilth.cli.overrides import changes
from tilth.files import check_target, read_bytes
from tilth.formatting import format_bytes, format_duration, printable
from tilth.tokenizer import inspection
from tilth.tokenizer.patterns import describe

app = App(name="tokenizer", help="Train, inspect, compare, use or convert a tokenizer.")


@app.command(sort_key=1)
def train(
    corpus: CorpusPaths = [],  # noqa: B006, cyclopts copies it
    /,
    *,
    out: Path,
    vocab_size: int = 10_000,
    special: Annotated[list[str], UTF8] = [],  # noqa: B006
    pattern: Annotated[str | None, UTF8] = None,
    from_counts: Path | None = None,
    reading: CorpusOptions | None = None,
    threads: Threads = None,
    where: ClusterOptions | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Train a byte-level BPE tokenizer on a corpus, or on the counts of its pieces.

    Text files are split at special tokens, or at --separator if it is given. Bytes that are not
    UTF-8 count as U+FFFD. With --cluster, several processes or machines count parts of the corpus,
    and the tokenizer is the same.

    Args:
        out: Tokenizer file to write (tokenizer.json).
        vocab_size: Vocabulary size: 256 bytes, special tokens and merges.
        special: Special token, such as '<|endoftext|>'; once for each.
        pattern: Split pattern: gpt2 (default), cl100k, o200k, llama3, qwen2, deepseek-v3, tekken,
            starcoder, or a regex.
        from_counts: File of `tilth tokenizer count` or `merge-counts`, instead of a corpus. It has
            the special tokens and the pattern.

    Examples:
        tilth tokenizer train a.txt --special '<|endoftext|>' --out tokenizer.json
        tilth tokenizer train web/ --vocab-size 32000 --out web.json
        tilth tokenizer train --from-counts web.counts --out web.json
        tilth tokenizer train web/ --cluster local --out web.json
    """
    import resource

    from tilth.cli.progress import progress
    from tilth.tokenizer import train_in_tasks, train_tokenizer
    from tilth.tokenizer.training import SEPARATOR

    given = changes(reading)
    _check_result(out, pattern, overwrite=overwrite)
    if not corpus and from_counts is None:
        raise ValueError("train needs a CORPUS or --from-counts.")
    executor = executor_of(where)
    if executor is not None and from_counts is not None:
        raise ValueError("--cluster counts a corpus, and --from-counts has the counts; give one.")
    with progress() as report:
        report.began["count" if from_counts is None else "read"] = (time.monotonic(), 0)
        if executor is not None:
            tokenizer = train_in_tasks(
                corpus,
                out,
                vocab_size,
                special,
                executor=executor,
                tasks=where.tasks if where is not None else None,
                pattern=pattern or "gpt2",
                threads=threads,
                overwrite=overwrite,
                progress=report,
                **given,
            )
        else:
            tokenizer = train_tokenizer(
                corpus or None,
                vocab_size,
                special or None,
                counts=from_counts,
                pattern=pattern,
                threads=threads,
                progress=report,
                **given,
            )
            report.began["save"] = (time.monotonic(), 0)
            tokenizer.save(out, overwrite=overwrite)
    times = pairwise([*(then for then, _ in report.began.values()), time.monotonic()])
    seconds = {phase: end - start for phase, (start, end) in zip(report.began, times, strict=True)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    separator, field = given.get("separator", SEPARATOR), given.get("field", "text")
    sample = inspection.beginning_of(corpus, separator, field)
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
    rows = [
        ("tokens", f"{len(tokenizer):,} ({len(tokenizer.merges):,} merges)"),
        ("seconds", ", ".join(f"{phase} {took:.2f}" for phase, took in seconds.items())),
        ("peak memory", format_bytes(peak_bytes)),
        ("longest tokens", "  ".join(longest)),
    ]
    if ratio is not None:  # a pipe is read once; counts have no text
        rows.insert(3, ("bytes per token", f"{ratio:.2f} on the first {len(sample):,} bytes"))
    print_result(results, [*aligned(*rows), f"Wrote {out}"], as_json=json)


@app.command(sort_key=2)
def inspect(
    tokenizer: TokenizerPath,
    /,
    *,
    text: Annotated[str | None, UTF8] = None,
    reading: Reading = AS_WRITTEN,
    json: Json = False,
) -> None:
    """Print the size of a tokenizer, its longest tokens, and the tokens of a text.

    Args:
        text: Text to encode and show token by token.

    Examples:
        tilth tokenizer inspect tokenizer.json
        tilth tokenizer inspect tokenizer.json --text "Once upon a time"
    """
    opened = reading.open(tokenizer)
    ids = opened.encode(text or "")
    pieces = [opened.decode_bytes([token_id]) for token_id in ids]
    results = inspection.inspect(opened)
    if text is not None:
        shown = map(inspection.visible, pieces)
        results["text"] = [{"id": i, "token": token} for i, token in zip(ids, shown, strict=True)]
    specials = ", ".join(f"{token} ({i})" for token, i in opened.special_tokens.items()) or "none"
    lengths = "  ".join(f"{length}: {count:,}" for length, count in results["lengths"].items())
    lines = aligned(
        ("tokens", f"{len(opened):,} ({len(opened.merges):,} merges)"),
        ("pattern", printable(describe(opened.pattern))),
        ("special tokens", printable(specials)),
        ("non-ASCII tokens", f"{results['share_of_non_ascii']:.1%}"),
        ("fingerprint", opened.fingerprint[:16]),
        ("lengths in bytes", lengths),
        ("longest tokens", "  ".join(entry["token"] for entry in results["longest_tokens"])),
    )
    print_result(results, lines, as_json=json)
    if text is not None and not json:
        console = Console(highlight=False, soft_wrap=True)
        print_pieces(console, pieces)
        console.print(" ".join(map(str, ids)), markup=False)


@app.command(sort_key=3)
def compare(
    tokenizers: list[Path],
    /,
    *,
    text: list[Path],
    reading: Reading = AS_WRITTEN,
    json: Json = False,
) -> None:
    """Compare tokenizers: shared merges, bytes per token of each text, speed of one thread.

    Args:
        tokenizers: Two or more tokenizers.
        text: Text file to encode with each; once for each file.

    Examples:
        tilth tokenizer compare small.json large.json --text stories.txt
    """
    opened = {str(path): reading.open(path) for path in tokenizers}
    results = inspection.compare(opened, {str(path): read_bytes(path) for path in text})
    lines = []
    for name in opened:
        ratios = results["bytes_per_token"][name].items()
        lines += [
            name,
            *aligned(
                ("  merges", f"{results['merges'][name]:,}"),
                ("  non-ASCII tokens", f"{results['share_of_non_ascii'][name]:.1%}"),
                *((f"  bytes per token of {file}", f"{ratio:.3f}") for file, ratio in ratios),
                ("  one thread", f"{results['bytes_per_second'][name] / 1e6:,.0f} MB/s"),
                ("", f"{results['tokens_per_second'][name] / 1e6:,.1f} million tokens/s"),
                ("  the Pile, 825 GB", format_duration(results["hours_for_the_pile"][name] * 3600)),
            ),
        ]
    shared = results["shared_merges"].items()
    lines += [f"{pair} share {count:,} merges" for pair, count in shared]
    print_result(results, lines, as_json=json)


@app.command(sort_key=4)
def encode(
    tokenizer: TokenizerPath,
    /,
    *,
    allow_special: bool = False,
    add_special_tokens: bool = False,
    reading: Reading = AS_WRITTEN,
) -> None:
    """Encode the text on stdin; print token ids, separated by spaces.

    Args:
        allow_special: Encode special tokens in the text as special tokens.
        add_special_tokens: Add the special tokens of the template, such as <|begin_of_text|>.

    Examples:
        echo "Once upon a time" | tilth tokenizer encode tokenizer.json
    """
    opened = reading.open(tokenizer)
    ids = opened.encode_iterable(
        _stdin_parts(), allow_special=allow_special, add_special_tokens=add_special_tokens
    )
    separator = ""
    while words := " ".join(map(str, islice(ids, 10_000))):
        sys.stdout.write(separator + words)
        separator = " "
    sys.stdout.write("\n")


@app.command(sort_key=5)
def decode(tokenizer: TokenizerPath, /, *, reading: Reading = AS_WRITTEN) -> None:
    """Decode the token ids on stdin, separated by white space; write the text to stdout.

    Examples:
        echo "1 2 3" | tilth tokenizer decode tokenizer.json
    """
    opened = reading.open(tokenizer)
    for line in sys.stdin:
        try:
            ids = [int(word) for word in line.split()]
        except ValueError as error:
            raise ValueError(
                f"stdin must hold token ids, separated by white space; {error}."
            ) from None
        sys.stdout.buffer.write(opened.decode_bytes(ids))
    sys.stdout.buffer.flush()


@app.command(sort_key=6)
def convert(
    tokenizer: TokenizerPath,
    /,
    *,
    out: Path,
    reading: Reading = AS_WRITTEN,
    overwrite: Overwrite = False,
) -> None:
    """Convert a tokenizer to the format that the name of --out selects.

    A format that would give other ids is refused. A note names settings that it does not store.

    Args:
        out: NAME.json (Hugging Face), tekken.json (mistral-common), NAME.tiktoken, or a folder
            (GPT-2 vocab.json and merges.txt).

    Examples:
        tilth tokenizer convert cl100k_base.tiktoken --out tokenizer.json
        tilth tokenizer convert tokenizer.json --out ranks.tiktoken
        tilth tokenizer convert ranks.tiktoken --pattern cl100k --out tokenizer.json
    """
    from tilth.tokenizer.formats import save

    save(reading.open(tokenizer).vocabulary, out, overwrite=overwrite)
    print(f"Wrote {out}")


@app.command(sort_key=7)
def count(
    corpus: CorpusPaths,
    /,
    *,
    out: Path,
    special: Annotated[list[str], UTF8] = [],  # noqa: B006
    pattern: Annotated[str, UTF8] = "gpt2",
    reading: CorpusOptions | None = None,
    threads: Threads = None,
    where: ClusterOptions | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Count the pieces of a corpus, to train a tokenizer later or to merge with other counts.

    Args:
        out: File of counts to write.
        special: Special token, such as '<|endoftext|>'; once for each.
        pattern: Split pattern: gpt2, cl100k, o200k, llama3, qwen2, deepseek-v3, tekken, starcoder,
            or a regex.

    Examples:
        tilth tokenizer count web/ --special '<|endoftext|>' --out web.counts
        tilth tokenizer count web/ --cluster local --out web.counts
    """
    from tilth.cli.progress import progress
    from tilth.tokenizer import count_in_tasks, count_pieces

    _check_result(out, pattern, overwrite=overwrite)
    executor = executor_of(where)
    with progress() as report:
        given = {"pattern": pattern, "progress": report, **changes(reading)}
        if executor is not None and where is not None:
            given |= {"threads": threads, "overwrite": overwrite, "tasks": where.tasks}
            numbers = count_in_tasks(corpus, out, special, executor=executor, **given)
        else:
            counts = count_pieces(corpus, special, threads=threads, **given)
            counts.save(out, overwrite=overwrite)
            numbers = len(counts), counts.total
    _print_counts(*numbers, out, as_json=json)


@app.command(sort_key=8)
def merge_counts(
    counts: list[Path], /, *, out: Path, overwrite: Overwrite = False, json: Json = False
) -> None:
    """Add up counts of `tilth tokenizer count`, in memory that does not depend on their sizes.

    Args:
        counts: Files of counts with the same pattern and special tokens.
        out: File of counts to write.

    Examples:
        tilth tokenizer merge-counts a.counts b.counts --out all.counts
    """
    from tilth.cli.progress import progress
    from tilth.tokenizer import merge_counts as merge

    with progress() as report:
        num_pieces, total = merge(counts, out, overwrite=overwrite, progress=report)
    _print_counts(num_pieces, total, out, as_json=json)


def _check_result(out: Path, pattern: str | None, *, overwrite: bool) -> None:
    """Check, before the work, that the file can be written, and read alike by other tools."""
    from tilth.tokenizer.formats.oniguruma import check_read_alike
    from tilth.tokenizer.patterns import PATTERNS

    check_target(out, overwrite=overwrite)
    if pattern is not None and pattern not in PATTERNS:
        check_read_alike(pattern)


def _print_counts(num_pieces: int, total: int, out: Path, *, as_json: bool) -> None:
    results = {"distinct_pieces": num_pieces, "pieces": total, "wrote": str(out)}
    rows = aligned(("distinct pieces", f"{num_pieces:,}"), ("pieces", f"{total:,}"))
    print_result(results, [*rows, f"Wrote {out}"], as_json=as_json)


def _stdin_parts() -> Iterator[bytes]:
    while part := os.read(sys.stdin.fileno(), 1 << 16):
        yield part


def print_pieces(console: Console, pieces: Sequence[bytes]) -> None:
    """Print pieces or tokens side by side, in alternating colors or separated by |."""
    shown = [inspection.visible(piece, blank=" ") for piece in pieces]
    if console.color_system is None or console.no_color:
        console.print("|".join(shown), markup=False)
        return
    # Readable on dark and on light terminals.
    for colour, text in zip(cycle(("dark_sea_green2", "light_goldenrod2")), shown, strict=False):
        console.print(text, style=f"grey11 on {colour}", markup=False, end="")
    console.print()
