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
from tilth.formatting import parse_bytes

app = App(name="corpus", help="Generate, download or inspect text.")

SHOWN_SOURCES = 10


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
    from tilth.corpus.summary import summarize

    corpus = Corpus(paths, **{"on_error": "skip", **changes(reading)})
    with progress() as report:
        results, notes = summarize(corpus, report)
    for note in notes:
        print(f"note: Skipped: {note}.", file=sys.stderr)
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
