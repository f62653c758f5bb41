"""Encode a block of documents, in a thread of `tokenizing.py` or in a task of `tasks.py`."""

import functools
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilth.corpus import Block, Corpus, Position, Source
from tilth.data.partial import Work
from tilth.data.token_files import SPLITS, Array, Counts, Split
from tilth.files import FileError, Progress, StrPath, no_progress
from tilth.tokenizer import Tokenizer
from tilth.tokenizer._core import text_hashes

LONG_BLOCK_BYTES = 8 << 20  # probably one document: all threads share it


class Part(NamedTuple):
    """A corpus, and the share of its documents for validation."""

    corpus: Corpus
    valid_share: float


@dataclass(frozen=True)
class Job:
    """The arguments of a call; `reading` is [separator, field, on_error]."""

    parts: list[Part]
    tokenizer: Tokenizer
    end_token: str
    reading: list[str]
    threads: int
    progress: Progress = no_progress
    paths: list[list[StrPath]] = field(default_factory=list)  # of each part
    is_stopped: threading.Event = field(default_factory=threading.Event)
    shard_tokens: int | None = None

    @functools.cached_property
    def sources(self) -> list[Source]:
        """The sources of all parts."""
        return [source for part in self.parts for source in part.corpus.sources]

    @functools.cached_property
    def size_bytes(self) -> int:
        """The size of all sources on disk."""
        return sum(source.size_bytes for source in self.sources)

    def work(self) -> Work:
        """Return the parameters that determine the arrays; the number of threads does not."""
        num_sources = [len(part.corpus.sources) for part in self.parts]
        splits = [[part.valid_share, len(part.corpus.sources)] for part in self.parts]
        identity = {
            "tokenizer": self.tokenizer.fingerprint,
            "options": [self.end_token, self.reading, splits, self.shard_tokens],
            "sources": [
                [str(source.path.absolute()), source.kind, source.stamp()]
                for source in self.sources
            ],
        }
        return Work(identity, num_sources, self.size_bytes)


class EncodedBlock(NamedTuple):
    """The tokens of a block: for each split the ids, the end of each document, and the counts."""

    part: int
    source: int
    end: Position
    read_bytes: int
    skipped: list[str]
    splits: dict[Split, tuple[Array, Array, Counts]]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise FileError(path, str(error), "use a tokenizer that has all 256 bytes") from error


def encode_block(job: Job, part: int, block: Block) -> EncodedBlock:
    """Encode the documents of a block; each goes to a split by the hash of its text."""

    def check() -> None:
        if job.is_stopped.is_set():
            raise CancelledError

    tokenizer, (corpus, share) = job.tokenizer, job.parts[part]
    has_hashes = share not in (0, 1)  # else no document needs its hash
    threads = job.threads if block.size_bytes > LONG_BLOCK_BYTES else 1
    path = corpus.sources[block.start.source].path
    text, end_token, found = block.text, job.end_token, None
    skipped: list[str] = []
    with _explained(path):
        if text is not None:
            found = tokenizer.encode_separated(
                text,
                corpus.separator,
                end_token,
                with_hashes=has_hashes,
                threads=threads,
                check=check,
            )
    if found is None:
        texts, skipped = block.documents()
        with _explained(path):
            ids, ends = tokenizer.encode_documents(texts, end_token, threads=threads, check=check)
        sizes = np.fromiter(map(len, texts), np.uint64, len(texts))
        found = ids, ends, sizes, text_hashes(texts) if has_hashes else sizes[:0]
    ids, ends, text_bytes, hashes = found
    if has_hashes:
        is_valid = hashes >> np.uint64(32) < round(share * 2**32)
    else:
        is_valid = np.full(len(ends), share == 1)
    lengths = np.diff(ends, prepend=np.uint64(0))
    # Slices of adjacent documents of one split, beginning with the training split.
    bounds = np.flatnonzero(np.diff(is_valid, prepend=False))
    rows = np.split(ids, (ends - lengths)[bounds])
    splits: dict[Split, tuple[Array, Array, Counts]] = {}
    for number, split in enumerate(SPLITS):
        is_here = is_valid == bool(number)
        here = rows[number::2]
        own = here[0] if len(here) == 1 else np.concatenate([ids[:0], *here])
        counts = Counts(int(is_here.sum()), len(own), int(text_bytes[is_here].sum()))
        splits[split] = (own, np.cumsum(lengths[is_here], dtype=np.uint64), counts)
    before = job.parts[:part]
    source = sum(len(each.corpus.sources) for each in before) + block.start.source
    read_bytes = sum(each.corpus.size_bytes for each in before) + block.read_bytes
    return EncodedBlock(part, source, block.end, read_bytes, skipped, splits)
