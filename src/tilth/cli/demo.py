"""`tilth demo`: the whole way, as far as it is built, from nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tilth.cli.options import Overwrite

if TYPE_CHECKING:
    from rich.console import Console

    from tilth.tokenizer import Tokenizer

SHOWN_CHARACTERS = 1000  # of a long text, the beginning
END = "<|endoftext|>"
STORIES_BYTES = 1_000_000
CONTEXT_LENGTH = 64


def demo(
    *,
    text: Annotated[Path | None, Parameter(help="A UTF-8 text file instead of the sample.")] = None,
    vocab_size: Annotated[int, Parameter(help="Tokens to learn, the 256 bytes included.")] = 320,
    steps: Annotated[int, Parameter(help="Steps of training; 0 shows the tokenizer alone.")] = 150,
    out: Annotated[Path | None, Parameter(help="Write the tokenizer there, as JSON.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Cut a text into pieces, learn a tokenizer, make stories into batches, train a small model."""
    from rich.console import Console

    from tilth import files

    if out is not None:
        files.check_target(out, overwrite=overwrite)
    console = Console(highlight=False, soft_wrap=True)
    tokenizer = _show_tokenizer(console, text, vocab_size)
    if steps > 0:
        _show_training(console, steps)
    if out is not None:
        tokenizer.save(out, overwrite=overwrite)
        console.print(f"Wrote {out}", markup=False)


def _show_tokenizer(console: "Console", text: Path | None, vocab_size: int) -> "Tokenizer":
    from tilth.cli.tokenizer import print_pieces
    from tilth.corpus import SAMPLE
    from tilth.tokenizer import reference, split, train_tokenizer

    sample = SAMPLE if text is None else _read_text(text)
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
    return tokenizer


def _show_training(console: "Console", steps: int) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        _train_on_stories(console, Path(folder), steps)


def _train_on_stories(console: "Console", folder: Path, steps: int) -> None:
    import torch

    import tilth
    from tilth.corpus.stories import write_stories

    console.print("\n4. Stories, made up by tilth, become token files:\n")
    num_stories = write_stories(folder / "stories.txt", STORIES_BYTES)
    tokenizer = tilth.train_tokenizer(folder / "stories.txt", 1000, [END])
    data = tilth.tokenize(folder / "stories.txt", tokenizer, folder / "data")
    console.print(
        f"   {num_stories:,} stories, {len(data.train):,} tokens to train on, "
        f"{len(data.valid):,} to validate"
    )

    console.print("\n5. A batch is windows of them; the target is always the next token:\n")
    batches = tilth.Batches(data.train, 16, CONTEXT_LENGTH, seed=0)
    x, y = batches[0]
    for name, row in (("x", x[0]), ("y", y[0])):
        words = [tokenizer.decode([token_id]) for token_id in row[:14].tolist()]
        console.print(f"   {name}  {'|'.join(words)}".replace("\n", "⏎"), markup=False)

    torch.manual_seed(0)
    config = tilth.ModelConfig(
        vocab_size=tokenizer.vocab_size,
        context_length=CONTEXT_LENGTH,
        d_model=96,
        num_layers=2,
        num_heads=4,
    )
    model = tilth.TransformerLM(config)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    console.print(f"\n6. A Transformer of {num_parameters:,} parameters learns to predict it:\n")
    optimizer = tilth.AdamW(model.parameters())
    for step, (x, y) in enumerate(batches.read(stop=steps)):
        lr = tilth.cosine_schedule(step, 4e-3, 4e-4, warmup_steps=10, cosine_steps=steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss = tilth.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        tilth.clip_gradients(model.parameters(), max_norm=1.0)
        optimizer.step()
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            bar = "▇" * round(6 * loss.item())
            console.print(f"   step {step:4}  loss {loss.item():5.2f}  {bar}")

    console.print("\n7. And goes on where a text begins, token by token:\n")
    ids = tokenizer.encode("Once upon a time")
    with torch.no_grad():
        for _ in range(40):
            logits = model(torch.tensor([ids[-CONTEXT_LENGTH:]]))[0, -1]
            ids.append(int(torch.multinomial(tilth.softmax(logits / 0.7, dim=-1), 1)))
    console.print("   " + tokenizer.decode(ids).replace("\n", "⏎"), markup=False)
    console.print(
        "\nSome seconds of training make words and hardly sense; minutes make sentences.",
        style="dim",
    )


def _read_text(path: Path) -> str:
    """A file's text, or a sentence that says where it stops being text."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 (byte {error.start:,} is {error.object[error.start]:#04x}); "
            "convert it first, for instance with iconv"
        ) from None
