"""The summary of a corpus: numbers and sizes of documents, and their first lines.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder) / "a.txt"
...     _ = path.write_text("a cat<|endoftext|>a mouse")
...     summary, _ = summarize(Corpus(path))
>>> summary["documents"], summary["mean_bytes"], summary["sample"]["longest"]
(2, 6.0, ['a mouse'])
"""

from typing import Any

from tilth.corpus.readers import Corpus
from tilth.files import Progress, no_progress
from tilth.formatting import printable

NOTES = 5  # on skipped documents
SAMPLE_BYTES = 4096  # a few lines in any script
SAMPLE_LINES = 3
SAMPLE_CHARACTERS = 100  # per line


def summarize(corpus: Corpus, progress: Progress = no_progress) -> tuple[dict[str, Any], list[str]]:
    """Return the summary of a corpus, and sentences about the first documents it skipped."""
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
    notes: list[str] = []
    skipped = 0
    progress("read", 0, corpus.size_bytes)
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
        notes += bad[: max(0, NOTES - len(notes))]
        progress("read", block.read_bytes, corpus.size_bytes)
    documents, text_bytes = (sum(s[key] for s in sources) for key in ("documents", "text_bytes"))
    return {
        "documents": documents,
        "text_bytes": text_bytes,
        "disk_bytes": corpus.size_bytes,
        "mean_bytes": text_bytes / max(1, documents),
        "longest_bytes": longest_bytes,
        "longest_is": longest_place,
        "skipped": skipped,
        "sample": {name: _beginning(text) for name, text in samples.items()},
        "sources": sources,
    }, notes


def _beginning(text: bytes) -> list[str]:
    """Return the first lines that are not blank, shortened."""
    # The cut may have split a character.
    lines = [line for line in text.decode("utf-8", "ignore").splitlines() if line.strip()]
    length = SAMPLE_CHARACTERS
    return [printable(line[:length] + "…" * (len(line) > length)) for line in lines[:SAMPLE_LINES]]
