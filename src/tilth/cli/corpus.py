"""`tilth corpus`: generate, download or inspect text."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cyclopts import App

from tilth.cli.options import CorpusOptions, CorpusPaths, Json, Overwrite
from tilth.cli.output import print_result
from tilth.cli.overrides import changes
from tilth.cli.progress import progress
from tilth.formatting import parse_bytes, printable

app = App(name="corpus", help="Generate, download or inspect text.")

SHOWN_SENTENCES = 5  # notes on skipped documents
SHOWN_SOURCES = 10
SAMPLE_BYTES = 4096  # a few lines in any script
SAMPLE_LINES = 3
SAMPLE_CHARACTERS = 100  # per line


@app.command(sort_key=1)
def stories(
    *,
    out: Path,
    size: str = "50MB",
    seed: int = 0,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a text file of generated short stories, separated by <|endoftext|>.

    Equal sizes and seeds give equal files.

    Args:
        out: Text file to write.
        size: Size of the file: 500kB, 50MB, 1GB, 64MiB, or a number of bytes.
        seed: Random seed.

    Examples:
        tilth corpus stories --out stories.txt
        tilth corpus stories --out large.txt --size 1GB --seed 1
    """
    from tilth.corpus.stories import write_stories
    from tilth.files import check_target

    size_bytes = parse_bytes(size)
    check_target(out, overwrite=overwrite)
    began = time.monotonic()
    with progress() as report:
        number = write_stories(out, size_bytes, seed, overwrite=overwrite, progress=report)
    seconds = time.monotonic() - began
    written = out.stat().st_size
    results = {"stories": number, "bytes": written, "seed": seed, "seconds": seconds}
    rate = f"{written / 1e6 / seconds:,.1f} MB/s"
    lines = [f"{number:,} stories, {written:,} bytes in {seconds:.1f} s: {rate}", f"Wrote {out}"]
    print_result({**results, "wrote": str(out)}, lines, as_json=json)


@app.command(sort_key=2)
def fetch(name: str, /, *, out: Path, json: Json = False) -> None:
    """Download a corpus from the Hugging Face hub. An interrupted download resumes.

    Args:
        name: Name of the corpus: tinystories or openwebtext.
        out: Folder for the files.

    Examples:
        tilth corpus fetch tinystories --out corpora/tinystories
    """
    from tilth.corpus.sources import fetch

    with progress() as report:
        paths = [str(path) for path in fetch(name, out, progress=report)]
    print_result({"wrote": paths}, [f"Wrote {path}" for path in paths], as_json=json)


@app.command(sort_key=3)
def info(
    paths: CorpusPaths, /, *, reading: CorpusOptions | None = None, json: Json = False
) -> None:
    """Read a corpus and print its number of documents, their sizes, and the first lines.

    Examples:
        tilth corpus info stories.txt
        tilth corpus info corpora/web --field content --json
    """
    from tilth.corpus import Corpus

    corpus = Corpus(paths, **{"on_error": "skip", **changes(reading)})
    sources: list[dict[str, Any]] = [
        {
            "path": str(source.path),
            "kind": source.kind,
            "documents": 0,
            "text_bytes": 0,
            "disk_bytes": source.size_bytes,
        }
        for source in corpus.sources
    ]
    longest_bytes, longest_place = 0, ""
    samples: dict[str, bytes] = {}
    sentences: list[str] = []
    skipped = 0
    with progress() as report:
        report("read", 0, corpus.size_bytes)
        for block in corpus.blocks():
            texts, bad = block.documents()
            source = sources[block.start.source]
            longest = max(texts, key=len, default=b"")
            if texts:
                samples.setdefault("first", texts[0][:SAMPLE_BYTES])
            if len(longest) > longest_bytes:
                number = source["documents"] + texts.index(longest) + 1
                longest_place = f"document {number:,} of {source['path']}"
                longest_bytes = len(longest)
                samples["longest"] = longest[:SAMPLE_BYTES]
            source["documents"] += len(texts)
            source["text_bytes"] += sum(map(len, texts))
            skipped += len(bad)
            sentences += bad[: max(0, SHOWN_SENTENCES - len(sentences))]
            report("read", block.read_bytes, corpus.size_bytes)

    for sentence in sentences:
        print(f"note: Skipped: {sentence}.", file=sys.stderr)
    documents, text_bytes = (sum(s[key] for s in sources) for key in ("documents", "text_bytes"))
    results = {
        "documents": documents,
        "text_bytes": text_bytes,
        "disk_bytes": corpus.size_bytes,
        "mean_bytes": text_bytes / max(1, documents),
        "longest_bytes": longest_bytes,
        "longest_is": longest_place,
        "skipped": skipped,
        "sample": {name: _beginning(text) for name, text in samples.items()},
        "sources": sources,
    }
    print_result(results, _lines(results), as_json=json)


def _lines(results: dict[str, Any]) -> Iterator[str]:
    sources = results["sources"]
    yield f"documents  {results['documents']:,}"
    yield f"bytes      {results['text_bytes']:,} of text, {results['disk_bytes']:,} on disk"
    yield f"mean       {results['mean_bytes']:,.0f} bytes"
    if results["longest_bytes"]:
        yield f"longest    {results['longest_bytes']:,} bytes: {results['longest_is']}"
    if results["skipped"]:
        yield f"skipped    {results['skipped']:,} that are not valid text"
    if len(sources) > 1:
        for source in sources[:SHOWN_SOURCES]:
            yield f"           {source['documents']:,} in {source['path']} ({source['kind']})"
    if len(sources) > SHOWN_SOURCES:
        yield f"           … and {len(sources) - SHOWN_SOURCES:,} more sources"
    for name, beginning in results["sample"].items():
        yield f"\nThe {name} document begins:\n"
        yield from (f"    {line}" for line in beginning)


def _beginning(text: bytes) -> list[str]:
    """Return the first lines that are not blank, shortened."""
    # The cut may have split a character.
    lines = [line for line in text.decode("utf-8", "ignore").splitlines() if line.strip()]
    length = SAMPLE_CHARACTERS
    return [printable(line[:length] + "…" * (len(line) > length)) for line in lines[:SAMPLE_LINES]]
