"""`tilth tokenize`: encode a corpus into token files."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

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
from tilth.cli.output import print_result
from tilth.cli.overrides import changes


def tokenize(
    corpus: CorpusPaths,
    /,
    *,
    tokenizer: TokenizerPath,
    opening: Reading = AS_WRITTEN,
    out: Path,
    valid: float | None = None,
    valid_corpus: Annotated[list[Path] | None, Parameter(consume_multiple=True)] = None,
    end_token: Annotated[str, UTF8] = "<|endoftext|>",
    shard_tokens: int | None = None,
    reading: CorpusOptions | None = None,
    threads: Threads = None,
    where: ClusterOptions | None = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Encode a corpus into token files for training: train.npy, valid.npy and manifest.json.

    A hash of its text decides whether a document is held out for validation. A killed command
    resumes when it is called again. With --cluster, several processes or machines encode parts of
    the corpus, and the files are the same.

    Args:
        out: Data folder to write.
        valid: Share of documents held out for validation; default: 0.01.
        valid_corpus: Validation corpus, instead of a share of the documents.
        end_token: Special token that ends each document.
        shard_tokens: Write files of that many tokens: train-00000.npy, train-00001.npy, ...

    Examples:
        tilth tokenize stories.txt --tokenizer tokenizer.json --out data/stories
        tilth tokenize web/ --cluster local --tokenizer t.json --out data/web
        tilth tokenize a.txt --valid-corpus b.txt --tokenizer t.json --out data/a
        tilth tokenize a.txt --tokenizer gpt2_folder --out data/a
    """
    from tilth.cli.progress import progress
    from tilth.data import tokenize
    from tilth.formatting import format_bytes
    from tilth.schema import plain

    executor = executor_of(where)
    began = time.monotonic()
    with progress() as report:
        data = tokenize(
            corpus,
            opening.open(tokenizer),
            out,
            valid=valid,
            valid_corpus=valid_corpus,
            end_token=end_token,
            shard_tokens=shard_tokens,
            threads=threads,
            overwrite=overwrite,
            executor=executor,
            tasks=where.tasks if where is not None else None,
            progress=report,
            **changes(reading),
        )
    seconds = time.monotonic() - began
    sources = data.manifest.sources
    # A resumed command does not read what its first report counts as done.
    found_bytes = next((done for _, done in report.began.values()), 0)
    read_bytes = sum(source.size_bytes for source in sources) - found_bytes
    results = {
        "splits": plain(data.manifest.splits),
        "dtype": data.manifest.dtype,
        "fingerprint": data.fingerprint,
        "skipped": sum(source.skipped for source in sources),
        "seconds": seconds,
        "wrote": str(out),
    }
    lines = []
    for split, counts in data.manifest.splits.items():
        per_token = counts.text_bytes / max(1, counts.tokens - counts.documents)
        lines.append(
            f"{split}  {counts.documents:>12,} documents  {counts.tokens:>16,} tokens  "
            f"{format_bytes(counts.text_bytes):>11} of text  {per_token:.2f} bytes per token"
        )
    if results["skipped"]:
        lines.append(f"skipped {results['skipped']:,} documents that are not valid text")
    rate = f"{read_bytes / 1e6 / seconds:,.0f} MB/s"
    lines += [f"{format_bytes(read_bytes)} in {seconds:.1f} s: {rate}", f"Wrote {out}"]
    print_result(results, lines, as_json=json)
