"""`tilth demo`: what exists today, shown on a built-in sample."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

SHOWN_CHARACTERS = 1000  # of a long text, the beginning


def demo(
    *,
    text: Annotated[Path | None, Parameter(help="A UTF-8 text file instead of the sample.")] = None,
    vocab_size: Annotated[int, Parameter(help="Tokens to learn, the 256 bytes included.")] = 320,
    out: Annotated[Path | None, Parameter(help="Write the tokenizer there, as JSON.")] = None,
    overwrite: Annotated[bool, Parameter(negative=(), help="Replace --out if it exists.")] = False,
) -> None:
    """Cut a text into pieces, learn a tokenizer from it, and encode it."""
    from rich.console import Console

    from tilth import files
    from tilth.cli.tokenizer import print_pieces
    from tilth.corpus import SAMPLE
    from tilth.tokenizer import reference, split, train_tokenizer

    if out is not None:
        files.check_target(out, overwrite=overwrite)
    sample = SAMPLE if text is None else _read_text(text)
    console = Console(highlight=False, soft_wrap=True)

    console.print("1. A text is cut into pieces; bytes are merged only inside a piece.\n")
    shown = sample[:SHOWN_CHARACTERS]
    print_pieces(console, [piece.encode() for piece in split(shown)])

    tokenizer = train_tokenizer(texts=[sample], vocab_size=vocab_size)
    console.print("\n2. The pair that is most frequent becomes a token, again and again:\n")
    for left, right in tokenizer.merges[:8]:
        console.print(f"   {left!r} + {right!r}", markup=False)
    console.print(f"   … {len(tokenizer.merges)} merges, {len(tokenizer.vocab)} tokens")

    console.print("\n3. So the text becomes tokens:\n")
    print_pieces(console, [tokenizer.decode_bytes([i]) for i in tokenizer.encode(shown)])

    ids = tokenizer.encode(sample)
    assert tokenizer.decode(ids) == sample, "decoding gives back the text"
    expected = reference.encode(shown, tokenizer.vocab, tokenizer.merges)
    assert tokenizer.encode(shown) == expected, "the native ids are the reference's"
    size = len(sample.encode())
    console.print(
        f"\n{len(sample):,} characters, {size:,} bytes, {len(ids):,} tokens: "
        f"{size / max(1, len(ids)):.2f} bytes a token.\n"
        "Decoded, they are the text again; the pure-Python reference gives the same ids."
    )
    if out is not None:
        tokenizer.save(out, overwrite=overwrite)
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
