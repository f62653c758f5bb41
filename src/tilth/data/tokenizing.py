"""Text to token files: in parallel, streaming, and never half done.

What enters: a corpus of any size and a tokenizer. What leaves: a data folder (`token_files.py`).

    reader ──blocks of documents──▶ threads ──ids──▶ writer ──▶ OUT/.partial ──renames──▶ OUT

The calling thread reads and writes, in order; the others encode, outside the interpreter's lock. A
few blocks are under way at a time (one, if it is long), so memory does not grow with the corpus.
Each document goes to training or validation by a hash of its text, so neither order, nor threads,
nor machine decide where it goes, and equal documents are never on both sides.

Killed at any moment, the same call goes on where it was. `OUT/.partial` holds the arrays as far as
they got and a journal: how much of them counts, and where in the corpus they end. The journal is
renamed into place after the arrays are on disk, so it never promises what is not there; what lies
behind its promise is cut off. Finished arrays get their real names by renames, the manifest last.
"""

import fcntl
import itertools
import logging
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from tilth.corpus.documents import Block, Corpus, Position
from tilth.data.token_files import (
    BLOCK_BYTES,
    HEADER_BYTES,
    KIND,
    MANIFEST,
    SPLITS,
    TOKENIZER,
    VERSION,
    Array,
    Data,
    Split,
    array_header,
    block_checksum,
    checksum_of,
    documents_file,
    dtype_of,
    ids_file,
    open_data,
)
from tilth.files import DISK_FULL, FileError, StrPath, load_manifest, save_manifest, sync_folder
from tilth.tokenizer import Tokenizer
from tilth.tokenizer._core import text_hashes
from tilth.tokenizer.tokenizer import checked_threads

Progress = Callable[[str, int, int], None]
"""Called with a phase ("tokenize", "check"), the bytes done and the bytes in all."""

BYTES_AHEAD = 4 << 20  # for each thread: two blocks, so that none ever waits for the reader
LONG_BLOCK_BYTES = 8 << 20  # one document, most likely: all threads share it
SECONDS_BETWEEN_JOURNALS = 2.0
SHOWN_SENTENCES = 5  # of skipped documents: the manifest counts them all
PARTIAL = ".partial"
JOURNAL = "journal.json"
LOCK = "lock"
JOURNAL_KIND = "tokenizing journal"

log = logging.getLogger(__name__)


def tokenize(
    paths: StrPath | Iterable[StrPath],
    tokenizer: Tokenizer,
    out: StrPath,
    *,
    valid: float = 0.01,
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

    `valid` is the share of documents set aside for validation; a `valid_corpus` is taken whole
    instead. `separator`, `field` and `on_error` say how text is read (`tilth.corpus.documents`).
    """
    if not 0 <= valid < 1:
        raise ValueError(f"valid is {valid}; give the share of documents, such as 0.01.")
    tokenizer.encode_documents([], end_token)  # refuses a missing end token, before any work

    def read(paths: StrPath | Iterable[StrPath]) -> Corpus:
        return Corpus(paths, separator=separator, field=field, on_error=on_error)

    if valid_corpus is None:
        parts = [_Part(read(paths), valid_share=valid)]
    else:
        parts = [_Part(read(paths), valid_share=0), _Part(read(valid_corpus), valid_share=1)]
    out = Path(out)
    if not overwrite and (out / MANIFEST).exists():
        hint = "name another folder, or pass --overwrite (in Python, overwrite=True)"
        raise FileExistsError(f"{out} already holds token files; {hint}")
    reading = [separator, field, on_error]
    job = _Job(parts, tokenizer, end_token, reading, checked_threads(threads), progress)
    with _explained(out), _partial_folder(out) as partial:
        if not ((partial / MANIFEST).exists() and _journal_of(partial, job)):
            _write_partial(job, partial)
        _publish(partial, out)
    return open_data(out)


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise OSError(
            f"cannot write {out} ({error.strerror}); "
            "free some space and run the same command: it goes on where it was"
        ) from error


@contextmanager
def _partial_folder(out: Path) -> Iterator[Path]:
    """Make `out/.partial` and hold its lock, so that no two processes work in it."""
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; name a folder for the token files")
    partial = out / PARTIAL
    while True:
        partial.mkdir(parents=True, exist_ok=True)
        with (partial / LOCK).open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"Another process is tokenizing into {out}; wait for it, or name another folder"
                ) from None
            except OSError:
                log.warning("%s cannot be locked: let no second process write into it.", out)
            # Whoever held the lock before may just have removed the folder: then begin again.
            if not (partial / LOCK).exists():
                continue
            yield partial
            return


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
                [str(source.path), source.kind, source.stamp()]
                for part in self.parts
                for source in part.corpus.sources
            ],
        }

    @property
    def size_bytes(self) -> int:
        return sum(part.corpus.size_bytes for part in self.parts)


# --- what has been done, and how it is kept -------------------------------------------------------


@dataclass(frozen=True)
class _Counts:
    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0

    def __add__(self, other: "_Counts") -> "_Counts":
        return _Counts(
            self.documents + other.documents,
            self.tokens + other.tokens,
            self.text_bytes + other.text_bytes,
        )


@dataclass(frozen=True)
class _State:
    """How far the work is: a value, replaced as a whole, so an interruption never tears it."""

    part: int
    position: Position
    splits: dict[Split, _Counts]
    sources: tuple[tuple[int, int], ...]
    """Documents and skipped documents of each source of every part."""

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "position": list(self.position),
            "splits": {split: asdict(counts) for split, counts in self.splits.items()},
            "sources": [list(counts) for counts in self.sources],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            value["part"],
            Position(*value["position"]),
            {split: _Counts(**value["splits"][split]) for split in SPLITS},
            tuple((documents, skipped) for documents, skipped in value["sources"]),
        )


def _journal_of(partial: Path, job: _Job) -> _State | None:
    """Where earlier work on this very job ended, if there is any."""
    path = partial / JOURNAL
    if not path.exists():
        return None
    try:
        journal = load_manifest(path, kind=JOURNAL_KIND, version=VERSION)
    except FileError:
        changed = "its journal is damaged"
    else:
        identity = job.identity()
        names = [name for name in identity if journal["job"].get(name) != identity[name]]
        if not names:
            return _State.from_json(journal["state"])
        changed = f"the {' and the '.join(names)} changed"
    log.warning("Partial work in %s is discarded because %s.", partial, changed)
    return None


class _PartialArrays:
    """The arrays that grow in the partial folder, and the journal of how much of them counts."""

    def __init__(self, partial: Path, job: _Job) -> None:
        self._partial = partial
        self._identity = job.identity()
        self._dtype = dtype_of(job.tokenizer.vocab_size)
        self._itemsize = np.dtype(self._dtype).itemsize
        self._files: dict[str, BinaryIO] = {}
        # The journal is written beside the work, as a disk may take seconds to sync.
        self._journal_thread = ThreadPoolExecutor(1, "journal")
        self._journaled: Future[None] | None = None
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS
        self.state = _journal_of(partial, job) or self._begin(job)
        for split in SPLITS:
            counts = self.state.splits[split]
            self._open(ids_file(split), counts.tokens * self._itemsize)
            self._open(documents_file(split), 8 * (counts.documents + 1))

    def _begin(self, job: _Job) -> _State:
        for leftover in self._partial.iterdir():
            if leftover.name != LOCK:
                leftover.unlink()
        for split in SPLITS:
            (self._partial / ids_file(split)).write_bytes(bytes(HEADER_BYTES))
            (self._partial / documents_file(split)).write_bytes(bytes(HEADER_BYTES + 8))
        num_sources = sum(len(part.corpus.sources) for part in job.parts)
        nothing = {split: _Counts() for split in SPLITS}
        return _State(0, Position(0, 0), nothing, ((0, 0),) * num_sources)

    def _open(self, name: str, size_bytes: int) -> None:
        file = (self._partial / name).open("r+b")
        self._files[name] = file
        file.truncate(HEADER_BYTES + size_bytes)  # what lies behind the journal's promise
        file.seek(0, os.SEEK_END)

    def append(self, parts: dict[Split, list[Array]], ends: dict[Split, Array]) -> None:
        """Write what the next state will count."""
        for split in SPLITS:
            for ids in parts[split]:
                assert ids.dtype == self._dtype
                self._files[ids_file(split)].write(_little_endian(ids))
            starts = ends[split] + np.uint64(self.state.splits[split].tokens)
            self._files[documents_file(split)].write(_little_endian(starts))

    def advance(self, state: _State) -> None:
        """Count what was appended, and journal it now and then."""
        self.state = state
        if time.monotonic() >= self._next_journal and (
            self._journaled is None or self._journaled.done()
        ):
            self.journal()

    def journal(self) -> None:
        """Begin to write the journal of the present state; an earlier one's failure is raised."""
        if self._journaled is not None:
            self._journaled.result()
        for file in self._files.values():
            file.flush()
        self._journaled = self._journal_thread.submit(self._save_journal, self.state)
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS

    def _save_journal(self, state: _State) -> None:
        for file in self._files.values():
            os.fsync(file.fileno())
        content = {"job": self._identity, "state": state.to_json()}
        path = self._partial / JOURNAL
        save_manifest(path, content, kind=JOURNAL_KIND, version=VERSION, overwrite=True)

    def finish(self) -> None:
        """Give each array its header; then the journal says that all is done."""
        for split in SPLITS:
            counts = self.state.splits[split]
            for name, dtype, length in (
                (ids_file(split), self._dtype, counts.tokens),
                (documents_file(split), "uint64", counts.documents + 1),
            ):
                self._files[name].seek(0)
                self._files[name].write(array_header(dtype, length))
        self.journal()

    def close(self) -> None:
        """Wait for the journal and close the files."""
        try:
            if self._journaled is not None:
                self._journaled.result()
        finally:
            self._journal_thread.shutdown()
            for file in self._files.values():
                file.close()

    def abandon(self) -> None:
        """After an error, which is the one to report: keep what can be kept."""
        with suppress(OSError):  # a full disk; the journal before this one still holds
            self.journal()
        with suppress(OSError):
            self.close()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing worth keeping."""
        return not any(counts.documents for counts in self.state.splits.values())


def _little_endian(array: Array) -> memoryview:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B")


# --- the work -------------------------------------------------------------------------------------


def _write_partial(job: _Job, partial: Path) -> None:
    """Everything up to a partial folder whose files only have to be renamed."""
    arrays = _PartialArrays(partial, job)
    try:
        job.tokenizer.save(partial / TOKENIZER, overwrite=True)  # first: a file may not hold it
        _encode_all(job, arrays)
        if arrays.is_empty:
            names = ", ".join(str(s.path) for part in job.parts for s in part.corpus.sources)
            raise ValueError(f"There is no document in {names}; check the paths.")
        arrays.finish()
    except BaseException:
        arrays.abandon()
        if arrays.is_empty:
            shutil.rmtree(partial)
            with suppress(OSError):  # something else is in it
                partial.parent.rmdir()
        raise
    arrays.close()
    if job.parts[-1].valid_share > 0 and not arrays.state.splits["valid"].documents:
        log.warning("No document fell to validation: there are few; raise --valid, or name some.")
    _save_manifest(job, arrays.state, partial)


def _encode_all(job: _Job, arrays: _PartialArrays) -> None:
    tell = job.progress or (lambda _phase, _done, _total: None)
    tell("tokenize", 0, job.size_bytes)
    under_way: deque[tuple[Future[_EncodedBlock], int]] = deque()
    bytes_under_way = 0

    def write_until(most_bytes: int) -> None:
        nonlocal bytes_under_way
        while bytes_under_way > most_bytes:
            future, size_bytes = under_way.popleft()
            encoded = future.result()
            _append(encoded, arrays)
            bytes_under_way -= size_bytes
            tell("tokenize", encoded.read_bytes, job.size_bytes)

    with ThreadPoolExecutor(job.threads, "encode") as threads:
        try:
            for part, block in _blocks_from(job, arrays.state):
                size_bytes = max(1, block.size_bytes)
                under_way.append((threads.submit(_encode, job, part, block), size_bytes))
                bytes_under_way += size_bytes
                del block  # a long one is not to wait here while the next is read
                write_until(BYTES_AHEAD * (1 + job.threads))
            write_until(0)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    tell("tokenize", job.size_bytes, job.size_bytes)


def _blocks_from(job: _Job, state: _State) -> Iterator[tuple[int, Block]]:
    for number, part in enumerate(job.parts[state.part :], state.part):
        start = state.position if number == state.part else Position(0, 0)
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
    ids: Array
    ends: Array
    is_valid: Array
    text_bytes: Array
    skipped: list[str]


def _encode(job: _Job, part: int, block: Block) -> _EncodedBlock:
    corpora = [part.corpus for part in job.parts]
    found = block.documents()
    try:
        ids, ends = job.tokenizer.encode_documents(
            found.texts,
            job.end_token,
            threads=job.threads if block.size_bytes > LONG_BLOCK_BYTES else 1,
        )
    except ValueError as error:
        hint = "use a tokenizer that has all 256 bytes"
        raise FileError(corpora[part].sources[block.start.source].path, str(error), hint) from error
    valid_below = round(job.parts[part].valid_share * 2**32)
    return _EncodedBlock(
        part=part,
        source=sum(len(corpus.sources) for corpus in corpora[:part]) + block.start.source,
        end=block.end,
        read_bytes=sum(corpus.size_bytes for corpus in corpora[:part]) + block.read_bytes,
        ids=ids,
        ends=ends,
        is_valid=text_hashes(found.texts) >> np.uint64(32) < valid_below,
        text_bytes=np.fromiter(map(len, found.texts), np.uint64, len(found.texts)),
        skipped=found.skipped,
    )


def _append(encoded: _EncodedBlock, arrays: _PartialArrays) -> None:
    """Write a block, split into training and validation, and count it."""
    starts = np.concatenate([[np.uint64(0)], encoded.ends])
    lengths = np.diff(starts)
    rows: dict[Split, list[Array]] = {"train": [], "valid": []}
    # Documents of one side that stand side by side are written at once.
    changes = np.flatnonzero(np.diff(encoded.is_valid)) + 1
    edges = [0, *changes.tolist(), len(lengths)] if len(lengths) else []
    for first, last in itertools.pairwise(edges):
        split: Split = "valid" if encoded.is_valid[first] else "train"
        rows[split].append(encoded.ids[starts[first] : starts[last]])
    splits = dict(arrays.state.splits)
    ends: dict[Split, Array] = {}
    for split, is_here in (("train", ~encoded.is_valid), ("valid", encoded.is_valid)):
        ends[split] = np.cumsum(lengths[is_here], dtype=np.uint64)
        splits[split] += _Counts(
            documents=int(is_here.sum()),
            tokens=int(lengths[is_here].sum()),
            text_bytes=int(encoded.text_bytes[is_here].sum()),
        )
    arrays.append(rows, ends)
    sources = list(arrays.state.sources)
    shown = sum(skipped for _, skipped in sources)
    for sentence in encoded.skipped[: max(0, SHOWN_SENTENCES - shown)]:
        log.warning("Skipped: %s.", sentence)
    documents, skipped = sources[encoded.source]
    sources[encoded.source] = (documents + len(lengths), skipped + len(encoded.skipped))
    arrays.advance(_State(encoded.part, encoded.end, splits, tuple(sources)))


# --- the end --------------------------------------------------------------------------------------


def _save_manifest(job: _Job, state: _State, partial: Path) -> None:
    sources = [source for part in job.parts for source in part.corpus.sources]
    names = [*map(ids_file, SPLITS), *map(documents_file, SPLITS), TOKENIZER]
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
                "path": str(source.path),
                "kind": source.kind,
                "size_bytes": source.size_bytes,
                "documents": documents,
                "skipped": skipped,
            }
            for source, (documents, skipped) in zip(sources, state.sources, strict=True)
        ],
        "files": _checksums(partial, names, job.threads, job.progress),
    }
    content["checksum"] = checksum_of(content)
    save_manifest(partial / MANIFEST, content, kind=KIND, version=VERSION, overwrite=True)


def _checksums(
    folder: Path, names: list[str], threads: int, progress: Progress | None
) -> dict[str, Any]:
    """The size of each file and the SHA-256 of its every block."""
    sizes = {name: (folder / name).stat().st_size for name in names}
    blocks = [(name, start) for name in names for start in range(0, sizes[name], BLOCK_BYTES)]
    found: dict[str, Any] = {name: {"size_bytes": sizes[name], "sha256": []} for name in names}
    with ThreadPoolExecutor(threads, "check") as pool:
        digests = pool.map(lambda block: block_checksum(folder / block[0], block[1]), blocks)
        for number, ((name, _), digest) in enumerate(zip(blocks, digests, strict=True), 1):
            found[name]["sha256"].append(digest)
            if progress is not None:
                done = min(number * BLOCK_BYTES, sum(sizes.values()))
                progress("check", done, sum(sizes.values()))
    return found


def _publish(partial: Path, out: Path) -> None:
    """Move the files to their real names; killed here, the next call goes on."""
    names = load_manifest(partial / MANIFEST, kind=KIND, version=VERSION)["files"]
    (out / MANIFEST).unlink(missing_ok=True)  # of what is overwritten: it is about to be untrue
    for name in names:
        with suppress(FileNotFoundError):  # moved before the kill
            (partial / name).rename(out / name)
    sync_folder(out)
    (partial / MANIFEST).rename(out / MANIFEST)
    sync_folder(out)
    shutil.rmtree(partial)
