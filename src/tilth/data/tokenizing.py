"""Text to token files: in parallel, streaming, and never half done.

What enters: a corpus of any size and a tokenizer. What leaves: a data folder (`token_files.py`).

    reader ──blocks of documents──▶ threads ──ids──▶ writer ──▶ OUT/.partial ──renames──▶ OUT

The calling thread reads and writes, in order; the others encode, outside the interpreter's lock. A
few blocks are under way at a time (one, if it is long), so memory does not grow with the corpus.
Each document goes to training or validation by a hash of its text, so neither order, nor threads,
nor machine decide where it goes, and equal documents are never on both sides.

Killed at any moment, the same call goes on where it was (`partial.py`). Finished arrays get their
real names by renames, the manifest last.
"""

import itertools
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tilth.config.threads import checked_threads
from tilth.corpus import Block, Corpus, Position
from tilth.data.partial import PartialArrays, State, clear, load_journal, partial_folder
from tilth.data.token_files import (
    BLOCK_BYTES,
    FILES,
    KIND,
    MANIFEST,
    SPLITS,
    TOKENIZER,
    VERSION,
    Array,
    Counts,
    Data,
    Split,
    block_checksum,
    dtype_of,
    load_data_manifest,
    open_data,
)
from tilth.files import (
    DISK_FULL,
    FileError,
    Progress,
    StrPath,
    checksum_of,
    read_bytes,
    save_manifest,
    sync_folder,
)
from tilth.tokenizer import Tokenizer
from tilth.tokenizer._core import text_hashes

VALID_SHARE = 0.01
BYTES_AHEAD = 4 << 20  # for each thread, so that none ever waits for the reader
MOST_BYTES_AHEAD = 64 << 20
LONG_BLOCK_BYTES = 8 << 20  # one document, most likely: all threads share it
SHOWN_SENTENCES = 5  # of skipped documents: the manifest counts them all

log = logging.getLogger(__name__)


def tokenize(
    paths: StrPath | Iterable[StrPath],
    tokenizer: Tokenizer,
    out: StrPath,
    *,
    valid: float | None = None,
    valid_corpus: StrPath | Iterable[StrPath] | None = None,
    end_token: str = "<|endoftext|>",
    separator: str = "<|endoftext|>",
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Data:
    """Write the ids of a corpus into the folder `out`, and open it.

    `valid` is the share of documents set aside for validation, 0.01 if nothing is said; a
    `valid_corpus` is taken whole instead. `separator`, `field` and `on_error` say how text is read
    (`tilth.corpus.Corpus`). `progress` hears of the phases "tokenize" and "check", in bytes.

    Memory stays under 256 MB and three times the longest document on up to eight threads, except
    for what cannot be cut: one piece of many megabytes, a long document of a tokenizer with a
    pattern of its own, and one of JSON that is not ASCII.
    """
    if valid is not None and valid_corpus is not None:
        raise ValueError("valid and valid_corpus say the same thing in two ways; give one.")
    valid = VALID_SHARE if valid is None else valid
    if not 0 <= valid < 1:
        raise ValueError(f"valid is {valid}; give the share of documents, such as 0.01.")
    tokenizer.encode_documents([], end_token)  # refuses a missing end token, before any work

    def read(paths: StrPath | Iterable[StrPath]) -> Corpus:
        return Corpus(paths, separator=separator, field=field, on_error=on_error)

    if valid_corpus is None:
        parts = [_Part(read(paths), valid_share=valid)]
    else:
        parts = [_Part(read(paths), valid_share=0), _Part(read(valid_corpus), valid_share=1)]
    reading = [separator, field, on_error]
    job = _Job(parts, tokenizer, end_token, reading, checked_threads(threads), progress)
    out = Path(out)
    _check_target(job, out, overwrite)
    with _explained(out), partial_folder(out) as partial:
        if not _is_publishing(job, partial):
            _check_target(job, out, overwrite)  # again: another process may have finished just now
            _write_partial(job, partial)
        _publish(partial, out)
        return open_data(out)


def _is_publishing(job: "_Job", partial: Path) -> bool:
    """Whether a killed call ended between the last block and the last rename."""
    if not (partial / MANIFEST).exists():
        return False
    state = load_journal(partial, job.identity(), job.num_sources, job.bytes_before[-1])
    try:
        splits = load_data_manifest(partial).splits
    except FileError:
        return False
    return state is not None and splits == state.splits


@dataclass(frozen=True)
class _Part:
    """A corpus, and which share of its documents is for validation."""

    corpus: Corpus
    valid_share: float


@dataclass(frozen=True)
class _Job:
    """All that decides what is written (the number of threads does not)."""

    parts: list[_Part]
    tokenizer: Tokenizer
    end_token: str
    reading: list[str]
    """How text is read: separator, field, on_error."""
    threads: int
    progress: Progress | None
    is_stopped: threading.Event = field(default_factory=threading.Event)

    @cached_property
    def bytes_before(self) -> list[int]:
        """The bytes of the parts before each, and of all."""
        return [0, *itertools.accumulate(part.corpus.size_bytes for part in self.parts)]

    @cached_property
    def num_sources(self) -> list[int]:
        """The number of sources in each part."""
        return [len(part.corpus.sources) for part in self.parts]

    @cached_property
    def sources_before(self) -> list[int]:
        """The number of sources in the parts before each, and in all."""
        return [0, *itertools.accumulate(self.num_sources)]

    def identity(self) -> dict[str, Any]:
        """What must be the same for partial work to be of use."""
        return {
            "tokenizer": self.tokenizer.fingerprint,
            "options": [
                self.end_token,
                self.reading,
                [[part.valid_share, len(part.corpus.sources)] for part in self.parts],
            ],
            "sources": [
                [str(source.path.absolute()), source.kind, source.stamp()]
                for part in self.parts
                for source in part.corpus.sources
            ],
        }

    def tell(self, phase: str, done: int, total: int) -> None:
        """Report to whoever wants to know."""
        if self.progress is not None:
            self.progress(phase, done, total)


def _check_target(job: _Job, out: Path, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; name a folder for the token files")
    for part in job.parts:
        for source in part.corpus.sources:
            folder = source.path.resolve()
            if source.kind == "folder" and out.resolve().is_relative_to(folder):
                raise ValueError(
                    f"{out} lies in the corpus {source.path}, which would read its own token files "
                    "the next time; name a folder elsewhere"
                )
    if overwrite:
        _check_kind(out)
        return
    hint = "name another folder, or pass --overwrite (in Python, overwrite=True)"
    if (out / MANIFEST).exists():
        raise FileExistsError(f"{out} already holds token files; {hint}")
    if not (out / ".partial" / MANIFEST).exists():  # else the names are those of a killed publish
        for name in FILES:
            if (out / name).exists():
                raise FileExistsError(f"{out / name} already exists; {hint}")


def _check_kind(out: Path) -> None:
    """Refuse to overwrite a folder of another kind, such as a run; a torn manifest may go."""
    try:
        content = json.loads(read_bytes(out / MANIFEST))
    except (ValueError, RecursionError):  # no such file too
        return
    if not isinstance(content, dict) or content.get("format") != KIND:
        problem = f"has a {MANIFEST} that is not of token files"
        raise FileError(out, problem, "name another folder")


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise OSError(
            f"cannot write {out} ({os.strerror(error.errno)}); "
            "free some space and run the same command: it goes on where it was"
        ) from error


# --- the work -------------------------------------------------------------------------------------


def _write_partial(job: _Job, partial: Path) -> None:
    """Everything up to a partial folder whose files only have to be renamed."""
    dtype = dtype_of(job.tokenizer.vocab_size)
    arrays = PartialArrays(partial, job.identity(), dtype, job.num_sources, job.bytes_before[-1])
    try:
        job.tokenizer.save(partial / TOKENIZER, overwrite=True)  # first: a file may not hold it
        _encode_all(job, arrays)
        if arrays.state.is_empty:
            names = ", ".join(str(s.path) for part in job.parts for s in part.corpus.sources)
            raise ValueError(f"There is no document in {names}; check the paths.")
        arrays.finish()
    except BaseException:
        arrays.abandon()
        raise
    if job.parts[-1].valid_share > 0 and not arrays.state.splits["valid"].documents:
        log.warning("No document fell to validation: there are few; raise --valid, or name some.")
    _save_manifest(job, arrays.state, partial)


def _encode_all(job: _Job, arrays: PartialArrays) -> None:
    job.tell("tokenize", arrays.state.read_bytes, job.bytes_before[-1])
    under_way: deque[tuple[Future[_EncodedBlock], int]] = deque()
    bytes_under_way = 0
    bytes_ahead = min(BYTES_AHEAD * (1 + job.threads), MOST_BYTES_AHEAD)

    def write_until(most_bytes: int) -> None:
        nonlocal bytes_under_way
        while bytes_under_way > most_bytes:
            future, size_bytes = under_way.popleft()
            _append(future.result(), arrays)
            bytes_under_way -= size_bytes
            job.tell("tokenize", arrays.state.read_bytes, job.bytes_before[-1])

    with ThreadPoolExecutor(job.threads, "encode") as threads:
        try:
            for part, block in _blocks_from(job, arrays.state):
                size_bytes = max(1, block.size_bytes)
                under_way.append((threads.submit(_encode, job, part, block), size_bytes))
                bytes_under_way += size_bytes
                del block  # a long one is not to wait here while the next is read
                write_until(bytes_ahead)
            write_until(0)
        finally:
            job.is_stopped.set()
            threads.shutdown(wait=False, cancel_futures=True)


def _blocks_from(job: _Job, state: State) -> Iterator[tuple[int, Block]]:
    for number, part in enumerate(job.parts[state.part :], state.part):
        start = Position(*state.position) if number == state.part else Position(0, 0)
        for block in part.corpus.blocks(start):
            yield number, block
            del block


@dataclass(frozen=True)
class _EncodedBlock:
    """What the writer needs of a block."""

    part: int
    source: int
    end: Position
    read_bytes: int
    skipped: list[str]
    splits: dict[Split, tuple[Array, Array, Counts]]
    """The ids, where each document ends in them, and how much that is."""


class _StoppedError(Exception):
    """The work was given up."""


def _encode(job: _Job, part: int, block: Block) -> _EncodedBlock:
    found = block.documents()

    def check() -> None:
        if job.is_stopped.is_set():
            raise _StoppedError

    try:
        ids, ends = job.tokenizer.encode_documents(
            found.texts,
            job.end_token,
            threads=job.threads if block.size_bytes > LONG_BLOCK_BYTES else 1,
            check=check,
        )
    except ValueError as error:
        path = job.parts[part].corpus.sources[block.start.source].path
        hint = "use a tokenizer that has all 256 bytes"
        raise FileError(path, str(error), hint) from error
    hashes = text_hashes(found.texts)
    is_valid = hashes >> np.uint64(32) < round(job.parts[part].valid_share * 2**32)
    text_bytes = np.fromiter(map(len, found.texts), np.uint64, len(found.texts))
    splits: dict[Split, tuple[Array, Array, Counts]] = {}
    lengths = np.diff(ends, prepend=np.uint64(0))
    for split, rows in _rows_by_split(ids, ends, is_valid).items():
        is_here = is_valid if split == "valid" else ~is_valid
        own = np.concatenate([ids[:0], *rows])
        counts = Counts(int(is_here.sum()), len(own), int(text_bytes[is_here].sum()))
        splits[split] = (own, np.cumsum(lengths[is_here], dtype=np.uint64), counts)
    source = job.sources_before[part] + block.start.source
    read_bytes = job.bytes_before[part] + block.read_bytes
    return _EncodedBlock(part, source, block.end, read_bytes, found.skipped, splits)


def _rows_by_split(ids: Array, ends: Array, is_valid: Array) -> dict[Split, list[Array]]:
    """The ids of each split, those of documents that stand side by side in one row."""
    rows: dict[Split, list[Array]] = {"train": [], "valid": []}
    start = 0
    for last in [*np.flatnonzero(np.diff(is_valid)).tolist(), len(ends) - 1] if len(ends) else []:
        end = int(ends[last])
        rows["valid" if is_valid[last] else "train"].append(ids[start:end])
        start = end
    return rows


def _append(encoded: _EncodedBlock, arrays: PartialArrays) -> None:
    """Write a block and count it."""
    state = arrays.state
    for sentence in encoded.skipped[: max(0, SHOWN_SENTENCES - state.skipped)]:
        log.warning("Skipped: %s.", sentence)
    num_documents = 0
    splits = dict(state.splits)
    for split, (ids, ends, counts) in encoded.splits.items():
        arrays.append(split, ids, ends)
        splits[split] += counts
        num_documents += counts.documents
    sources = list(state.sources)
    documents, skipped = sources[encoded.source]
    sources[encoded.source] = (documents + num_documents, skipped + len(encoded.skipped))
    total = state.skipped + len(encoded.skipped)
    arrays.advance(
        State(encoded.part, encoded.end, encoded.read_bytes, total, splits, tuple(sources))
    )


# --- the end --------------------------------------------------------------------------------------


def _save_manifest(job: _Job, state: State, partial: Path) -> None:
    sources = [source for part in job.parts for source in part.corpus.sources]
    content: dict[str, Any] = {
        "dtype": dtype_of(job.tokenizer.vocab_size),
        "vocab_size": job.tokenizer.vocab_size,
        "end_token": job.end_token,
        "end_token_id": job.tokenizer.special_tokens[job.end_token],
        "tokenizer_fingerprint": job.tokenizer.fingerprint,
        "valid_share": job.parts[0].valid_share if len(job.parts) == 1 else None,
        "splits": {split: asdict(state.splits[split]) for split in SPLITS},
        "sources": [
            {
                "path": str(source.path.absolute()),
                "kind": source.kind,
                "size_bytes": source.size_bytes,
                "documents": documents,
                "skipped": skipped,
            }
            for source, (documents, skipped) in zip(sources, state.sources, strict=True)
        ],
        "files": _checksums(job, partial),
    }
    content["checksum"] = checksum_of(content)
    save_manifest(partial / MANIFEST, content, kind=KIND, version=VERSION, overwrite=True)


def _checksums(job: _Job, folder: Path) -> dict[str, Any]:
    """The size of each file and the SHA-256 of its every block."""
    sizes = {name: (folder / name).stat().st_size for name in FILES}
    found: dict[str, Any] = {name: {"size_bytes": sizes[name], "sha256": []} for name in FILES}
    done = 0
    with ThreadPoolExecutor(job.threads, "check") as threads:
        try:
            blocks = [
                (name, start, threads.submit(block_checksum, folder / name, start))
                for name in FILES
                for start in range(0, sizes[name], BLOCK_BYTES)
            ]
            for name, start, digest in blocks:
                found[name]["sha256"].append(digest.result())
                done += min(BLOCK_BYTES, sizes[name] - start)
                job.tell("check", done, sum(sizes.values()))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    return found


def _publish(partial: Path, out: Path) -> None:
    """Move the files to their real names; killed here, the next call goes on."""
    (out / MANIFEST).unlink(missing_ok=True)  # of what is overwritten: it is about to be untrue
    for name in FILES:
        with suppress(FileNotFoundError):  # moved before the kill
            (partial / name).rename(out / name)
    sync_folder(out)
    (partial / MANIFEST).rename(out / MANIFEST)
    sync_folder(out)
    clear(partial)
