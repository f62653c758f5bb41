"""`tilth demo`: what exists today, shown on a built-in sample."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

SHOWN_PIECES = 200  # of a long text, the beginning


def demo(
    *,
    text: Annotated[Path | None, Parameter(help="A UTF-8 text file instead of the sample.")] = None,
    out: Annotated[Path | None, Parameter(help="Write the pieces, a JSON string a line.")] = None,
    overwrite: Annotated[bool, Parameter(negative=(), help="Replace --out if it exists.")] = False,
) -> None:
    """Cut a text into pieces, the first step of a tokenizer, and check every one."""
    from rich.console import Console

    from tilth import files
    from tilth.corpus import SAMPLE
    from tilth.tokenizer import reference, split

    sample = SAMPLE if text is None else _read_text(text)
    pieces, native_seconds = _timed(split, sample)
    expected, reference_seconds = _timed(reference.split, sample)
    assert pieces == expected, "the native splitter differs from the reference"

    if out is not None:
        lines = "".join(json.dumps(piece, ensure_ascii=False) + "\n" for piece in pieces)
        files.write_text_atomically(out, lines, overwrite=overwrite)

    console = Console(highlight=False, soft_wrap=True)
    console.print("A text is cut into pieces; a tokenizer merges bytes only inside a piece.\n")
    if console.is_terminal:
        for number, piece in enumerate(pieces[:SHOWN_PIECES]):
            colour = "on grey23" if number % 2 else "on dark_green"
            console.print(piece, style=colour, markup=False, end="")
    else:
        marked = "|".join(pieces[:SHOWN_PIECES]).replace("\n", "⏎\n")
        console.print(marked, markup=False, end="")
    if len(pieces) > SHOWN_PIECES:
        console.print(f" … and {len(pieces) - SHOWN_PIECES:,} more", end="")
    console.print(
        f"\n\n{len(sample):,} characters, {len(sample.encode()):,} bytes in UTF-8, "
        f"{len(pieces):,} pieces, {len(set(pieces)):,} different ones.\n"
        f"The native splitter and the pure-Python reference agree on all of them; it took "
        f"{native_seconds * 1e6:,.0f} µs, the reference {reference_seconds * 1e6:,.0f} µs."
    )
    if out is not None:
        console.print(f"Wrote {out}", markup=False)


def _read_text(path: Path) -> str:
    """A file's text, or a sentence that says where it stops being text."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 (byte {error.start:,} is {error.object[error.start]:#04x}); "
            "convert it first, for instance with iconv"
        ) from None


def _timed(function: Callable[[str], list[str]], text: str) -> tuple[list[str], float]:
    """A function's answer, and the seconds of its second call: the first one warms up."""
    function(text)
    start = time.perf_counter()
    return function(text), time.perf_counter() - start
