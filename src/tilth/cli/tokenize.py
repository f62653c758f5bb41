"""`tilth tokenize`: a corpus and a tokenizer to token files."""

import json as json_module
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilth.cli.options import CorpusPaths, Field, Json, OnError, Overwrite, Separator, Threads, utf8


def tokenize(
    corpus: CorpusPaths,
    /,
    *,
    tokenizer: Annotated[Path, Parameter(help="A tokenizer.json.")],
    out: Annotated[Path, Parameter(help="The folder to write.")],
    valid: Annotated[
        float | None, Parameter(help="The share of documents kept for validation; default: 0.01.")
    ] = None,
    valid_corpus: Annotated[
        list[Path] | None,
        Parameter(
            negative=(),
            consume_multiple=True,
            help="Take these for validation instead of a share.",
        ),
    ] = None,
    end_token: Annotated[
        str, Parameter(help="The special token behind each document.", converter=utf8)
    ] = "<|endoftext|>",
    separator: Separator = "<|endoftext|>",
    field: Field = "text",
    on_error: OnError = "stop",
    threads: Threads = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Write a corpus as token ids, to train on: train.npy, valid.npy and manifest.json.

    Documents go to validation by a hash of their text. Killed and called again, it goes on.
    """
    from tilth.cli.progress import progress
    from tilth.data import tokenize
    from tilth.formatting import format_bytes
    from tilth.schema import plain
    from tilth.tokenizer import Tokenizer

    began = time.monotonic()
    first_reports: list[int] = []  # a resumed run has not read what it finds
    with progress() as report:

        def watch(phase: str, done: int, total: int) -> None:
            first_reports.append(done) if not first_reports else None
            report(phase, done, total)

        data = tokenize(
            corpus,
            Tokenizer.load(tokenizer),
            out,
            valid=valid,
            valid_corpus=valid_corpus,
            end_token=end_token,
            separator=separator,
            field=field,
            on_error=on_error,
            threads=threads,
            overwrite=overwrite,
            progress=watch,
        )
    seconds = time.monotonic() - began
    sources = data.manifest.sources
    read_bytes = sum(source.size_bytes for source in sources) - sum(first_reports)
    skipped = sum(source.skipped for source in sources)
    if json:
        results = {
            "splits": plain(data.manifest.splits),
            "dtype": data.manifest.dtype,
            "fingerprint": data.fingerprint,
            "skipped": skipped,
            "seconds": seconds,
            "wrote": str(out),
        }
        print(json_module.dumps(results))
        return
    for split, counts in data.manifest.splits.items():
        per_token = counts.text_bytes / max(1, counts.tokens - counts.documents)
        print(
            f"{split}  {counts.documents:>12,} documents  {counts.tokens:>16,} tokens  "
            f"{format_bytes(counts.text_bytes):>11} of text  {per_token:.2f} bytes per token"
        )
    if skipped:
        print(f"skipped {skipped:,} documents that are no text")
    print(f"{format_bytes(read_bytes)} in {seconds:.1f} s: {read_bytes / 1e6 / seconds:,.0f} MB/s")
    print(f"Wrote {out}")
