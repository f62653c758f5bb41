"""`tilth corpus`: text to learn from: made, fetched, or looked at."""

import json as json_module
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from tilth.cli.options import CorpusPaths, Field, Json, OnError, Overwrite, Separator
from tilth.formatting import parse_bytes, printable

app = App(name="corpus", help="Text to learn from: stories, named downloads, your own.")

SHOWN_SENTENCES = 5  # about skipped documents
SHOWN_SOURCES = 10
SAMPLE_BYTES = 4096  # enough for some lines in any script
SAMPLE_LINES = 3
SAMPLE_CHARACTERS = 100  # of a line


@app.command
def stories(
    *,
    out: Annotated[Path, Parameter(help="The text file to write.")],
    size: Annotated[str, Parameter(help="How much: 500kB, 50MB, 1GB, 64MiB, or bytes.")] = "50MB",
    seed: Annotated[int, Parameter(help="Another seed, other stories.")] = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write short stories, made up here, one after the other."""
    from tilth.cli.progress import progress
    from tilth.corpus.stories import write_stories
    from tilth.files import check_target

    size_bytes = parse_bytes(size)
    check_target(out, overwrite=overwrite)
    began = time.monotonic()
    with progress() as report:
        number = write_stories(out, size_bytes, seed, overwrite=overwrite, progress=report)
    seconds = time.monotonic() - began
    written_bytes = out.stat().st_size
    if json:
        results = {
            "stories": number,
            "bytes": written_bytes,
            "seed": seed,
            "seconds": seconds,
            "wrote": str(out),
        }
        print(json_module.dumps(results))
        return
    rate = written_bytes / 1e6 / seconds
    print(f"{number:,} stories, {written_bytes:,} bytes in {seconds:.1f} s: {rate:,.1f} MB/s")
    print(f"Wrote {out}")


@app.command
def fetch(
    name: Annotated[str, Parameter(help="tinystories or openwebtext.")],
    /,
    *,
    out: Annotated[Path, Parameter(help="The folder for its files.")],
    json: Json = False,
) -> None:
    """Download a named corpus from the Hugging Face hub; interrupted, call it again to go on."""
    from tilth.cli.progress import progress
    from tilth.corpus.sources import fetch

    with progress() as report:
        paths = fetch(name, out, progress=report)
    if json:
        print(json_module.dumps({"wrote": [str(path) for path in paths]}))
        return
    for path in paths:
        print(f"Wrote {path}")


@app.command
def info(
    paths: CorpusPaths,
    /,
    *,
    separator: Separator = "<|endoftext|>",
    field: Field = "text",
    on_error: OnError = "skip",
    json: Json = False,
) -> None:
    """Read a corpus through, and show how many documents it has, how long, and what they say."""
    from tilth.cli.progress import progress
    from tilth.corpus import Corpus

    corpus = Corpus(paths, separator=separator, field=field, on_error=on_error)
    documents: Counter[int] = Counter()  # by the number of the source
    text_bytes: Counter[int] = Counter()
    longest_bytes, longest_place = 0, ""
    samples: dict[str, bytes] = {}
    sentences: list[str] = []
    skipped = 0
    with progress() as report:
        report("read", 0, corpus.size_bytes)
        for block in corpus.blocks():
            texts, bad = block.documents()
            source_number = block.start.source
            if texts:
                samples.setdefault("first", texts[0][:SAMPLE_BYTES])
                longest = max(texts, key=len)
                if len(longest) > longest_bytes:
                    number = documents[source_number] + texts.index(longest) + 1
                    path = corpus.sources[source_number].path
                    longest_place = f"document {number:,} of {path}"
                    longest_bytes = len(longest)
                    samples["longest"] = longest[:SAMPLE_BYTES]
            documents[source_number] += len(texts)
            text_bytes[source_number] += sum(map(len, texts))
            skipped += len(bad)
            sentences += bad[: max(0, SHOWN_SENTENCES - len(sentences))]
            report("read", block.read_bytes, corpus.size_bytes)

    for sentence in sentences:
        print(f"note: Skipped: {sentence}.", file=sys.stderr)
    mean_bytes = text_bytes.total() / max(1, documents.total())
    if json:
        results: dict[str, Any] = {
            "documents": documents.total(),
            "text_bytes": text_bytes.total(),
            "disk_bytes": corpus.size_bytes,
            "mean_bytes": mean_bytes,
            "longest_bytes": longest_bytes,
            "longest_is": longest_place,
            "skipped": skipped,
            "sample": {name: _beginning(text) for name, text in samples.items()},
            "sources": [
                {
                    "path": str(source.path),
                    "kind": source.kind,
                    "documents": documents[number],
                    "text_bytes": text_bytes[number],
                    "disk_bytes": source.size_bytes,
                }
                for number, source in enumerate(corpus.sources)
            ],
        }
        print(json_module.dumps(results))
        return
    print(f"documents  {documents.total():,}")
    print(f"bytes      {text_bytes.total():,} of text, {corpus.size_bytes:,} on disk")
    print(f"mean       {mean_bytes:,.0f} bytes")
    if longest_bytes:
        print(f"longest    {longest_bytes:,} bytes: {longest_place}")
    if skipped:
        print(f"skipped    {skipped:,} that are no text")
    if len(corpus.sources) > 1:
        for number, source in enumerate(corpus.sources[:SHOWN_SOURCES]):
            print(f"           {documents[number]:,} in {source.path} ({source.kind})")
        if len(corpus.sources) > SHOWN_SOURCES:
            print(f"           … and {len(corpus.sources) - SHOWN_SOURCES:,} more sources")
    for name, text in samples.items():
        print(f"\nThe {name} document begins:\n")
        for line in _beginning(text):
            print(f"    {line}")


def _beginning(text: bytes) -> list[str]:
    """The first lines that say something, for people."""
    # The cut may have gone through a character.
    lines = text.decode("utf-8", "ignore").splitlines()
    return [
        printable(line[:SAMPLE_CHARACTERS] + "…" * (len(line) > SAMPLE_CHARACTERS))
        for line in [line for line in lines if line.strip()][:SAMPLE_LINES]
    ]
