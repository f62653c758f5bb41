"""The unfinished arrays of a data folder, and the journal from which tokenizing resumes.

`OUT/.partial` holds the arrays while they grow. The journal says how much of each array is valid
and where in the corpus that ends. It is renamed into place after the arrays are synced to disk, so
it never claims bytes that are not there; bytes after its claim are truncated.

The journal is trusted like the rest of the user's folder: its checksum carries no key, and a forged
position in the corpus would skip text. Only a contradiction to the arrays or the corpus is
detected.
"""

import logging
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from tilth.data.token_files import (
    FILES,
    HEADER_BYTES,
    IDS_FILE,
    MANIFEST,
    SPLITS,
    Array,
    ArrayLayout,
    Counts,
    Number,
    Split,
    array_layouts,
    documents_file,
    ids_file,
    ids_layouts,
    load_checked,
    save_checked,
)
from tilth.files import DISK_FULL, FileError, check_own_folder, open_lock, try_lock
from tilth.schema import plain

PARTIAL = ".partial"
JOURNAL = "journal.json"
LOCK = "lock"
JOURNAL_KIND = "tokenizing journal"
SECONDS_BETWEEN_JOURNALS = 2.0
# Every name that tokenizing writes in the partial folder, and the temporary names of these
# (`files.atomic_write`). No other file is opened for writing or removed there.
_NAMES = "|".join((*map(re.escape, (*FILES, MANIFEST, JOURNAL)), IDS_FILE.pattern))
_TASKS = r"task-[0-9]{5,}(?:\.json|-(?:train|valid)\.(?:ids|ends))"
_WRITTEN = rf"{_NAMES}|{_TASKS}"
KNOWN_NAME = re.compile(rf"{LOCK}|{_WRITTEN}|\.(?:{_WRITTEN})\.[0-9a-f]{{16}}\.partial")

log = logging.getLogger(__name__)


def task_file(number: int, kind: str, split: str | None = None) -> str:
    """Return the name of a file of a task (`tasks.py`): its marker, or an array of a split."""
    name = f"task-{number:05}"
    return f"{name}.{kind}" if split is None else f"{name}-{split}.{kind}"


def has_tasks(partial: Path) -> bool:
    """Return whether a task is done."""
    return any(path.suffix == ".json" for path in partial.glob("task-*"))


class Work(NamedTuple):
    """The work that a journal belongs to.

    `identity` must be equal for partial work to be valid; `num_sources` has the number of sources
    of each part of the corpus, `size_bytes` is the size of all parts on disk.
    """

    identity: dict[str, Any]
    num_sources: list[int]
    size_bytes: int


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """Create `out/.partial` and hold its lock: one process at a time works in it.

    At the end, an empty folder is removed, and `out` too if it was created here.
    """
    partial = out / PARTIAL
    was_there = out.exists()
    with _locked(partial):
        try:
            yield partial
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            hint = "free some space and run the same command to resume"
            raise OSError(f"cannot write {out} ({os.strerror(error.errno)}); {hint}") from error
        finally:
            if {path.name for path in partial.iterdir()} <= {LOCK}:
                (partial / LOCK).unlink()
                with suppress(OSError):  # another process is about to lock it
                    partial.rmdir()
                    if not was_there:
                        out.rmdir()


@contextmanager
def _locked(partial: Path) -> Iterator[None]:
    out = partial.parent
    while True:
        try:
            with suppress(FileExistsError):
                partial.mkdir(parents=True)
            check_own_folder(partial, LOCK, KNOWN_NAME)
            lock = open_lock(partial / LOCK)
        except (FileNotFoundError, FileError) as error:
            if isinstance(error, FileError) and os.path.lexists(partial):
                raise
            if out.is_symlink() and not out.exists():
                hint = "remove it, or name another folder"
                raise FileError(out, "is a broken link", hint) from None
            continue  # another process removed the folder between the calls
        except OSError as error:
            problem = f"cannot write {out} ({error.strerror})"
            hint = "name another folder, or check its permissions"
            raise type(error)(f"{problem}; {hint}") from error
        with lock:
            try:
                if not try_lock(lock):
                    hint = "wait for it, or name another folder"
                    raise ValueError(f"Another process is tokenizing into {out}; {hint}")
            except OSError:
                log.warning("%s cannot be locked: run no second process on it.", out)
            # A lock on a file that was removed meanwhile has no effect: then try again.
            is_there = False
            with suppress(FileNotFoundError):
                is_there = os.path.samestat((partial / LOCK).stat(), os.fstat(lock.fileno()))
            if is_there:
                yield
                return


def clear(partial: Path) -> None:
    """Remove the files of tokenizing except the lock, the journal first: it validates the rest."""
    (partial / JOURNAL).unlink(missing_ok=True)
    for leftover in partial.iterdir():
        if leftover.name != LOCK and KNOWN_NAME.fullmatch(leftover.name):
            leftover.unlink()


@dataclass(frozen=True)
class State:
    """The progress of tokenizing: an immutable value, so an interruption never leaves half of it.

    `position` is a `corpus.Position` in the part; `sources` counts the documents and the skipped
    documents of each source.
    """

    part: Number
    position: tuple[Number, Number]
    read_bytes: Number
    skipped: Number
    splits: dict[Split, Counts]
    sources: tuple[tuple[Number, Number], ...]

    @classmethod
    def beginning(cls, num_sources: int) -> Self:
        """Return the state before the first document."""
        nothing = {split: Counts() for split in SPLITS}
        return cls(0, (0, 0), 0, 0, nothing, ((0, 0),) * num_sources)

    @property
    def is_empty(self) -> bool:
        """True before the first document."""
        return not any(counts.documents for counts in self.splits.values())

    def agrees(self, work: Work) -> bool:
        """Return whether the state can belong to this work."""
        sources = work.num_sources
        if self.part >= len(sources) or self.position[0] > sources[self.part]:
            return False
        current = sum(sources[: self.part]) + self.position[0]
        counts = self.splits.values()
        return (
            set(self.splits) == set(SPLITS)
            and len(self.sources) == sum(sources)
            and self.read_bytes <= work.size_bytes
            and sum(documents for documents, _ in self.sources) == sum(c.documents for c in counts)
            and sum(skipped for _, skipped in self.sources) == self.skipped
            and not any(map(any, self.sources[current + 1 :]))
            and all(c.tokens >= c.documents for c in counts)
        )


@dataclass(frozen=True)
class Journal:
    """The content of the journal file."""

    job: dict[str, Any]
    state: State


def load_journal(partial: Path, work: Work) -> State | None:
    """Return the state of earlier work on the same job, or None.

    A journal that is damaged, has no checksum or contradicts the work is discarded, with the
    arrays.
    """
    path = partial / JOURNAL
    if not path.exists():
        return None
    try:
        journal = load_checked(path, JOURNAL_KIND, Journal)
        changed = [name for name in work.identity if journal.job.get(name) != work.identity[name]]
        if not changed and journal.state.agrees(work):
            return journal.state
        reason = "its journal does not agree with the corpus"
        if changed:
            reason = f"the {' and the '.join(changed)} changed"
    except FileError as error:
        reason = f"its journal {error.args[1]}"
    _discard(partial, reason)
    return None


def _discard(partial: Path, reason: str) -> None:
    log.warning("Partial work in %s is discarded because %s.", partial, reason)
    clear(partial)


class PartialArrays:
    """The arrays of a data folder while they grow.

    A shard that is full gets its header, is synced and closed.
    """

    def __init__(
        self, partial: Path, work: Work, dtype: str, shard_tokens: int | None = None
    ) -> None:
        self._partial = partial
        self._identity = work.identity
        self._dtype = dtype
        self._shard_tokens = shard_tokens
        # In another thread, as a disk may take seconds to sync.
        self._journal_thread = ThreadPoolExecutor(1, "journal")
        self._journaled: Future[None] | None = None
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS
        beginning = State.beginning(sum(work.num_sources))
        self.state = load_journal(partial, work) or beginning
        if not self.state.is_empty and (problem := self._problem()):
            _discard(partial, problem)
            self.state = beginning
        # Descriptors, without a buffer: written bytes belong to the system at once.
        self._files: dict[str, int] = {}
        self._truncate()
        self._written = {split: counts.tokens for split, counts in self.state.splits.items()}

    def _layouts(self) -> dict[str, ArrayLayout]:
        return array_layouts(self.state.splits, self._dtype, self._shard_tokens)

    def _file(self, name: str) -> int:
        """Return the descriptor of a file, opened at its end, at least after its header."""
        if name not in self._files:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = self._files[name] = os.open(self._partial / name, flags, 0o666)
            if os.lseek(descriptor, 0, os.SEEK_END) < HEADER_BYTES:
                os.lseek(descriptor, HEADER_BYTES, os.SEEK_SET)
        return self._files[name]

    def _truncate(self) -> None:
        """Cut the files to the sizes of the state; remove shards that begin after it."""
        layouts = self._layouts()
        for path in self._partial.iterdir():
            if IDS_FILE.fullmatch(path.name) and path.name not in layouts:
                path.unlink()
                if path.name in self._files:
                    os.close(self._files.pop(path.name))
        for name, layout in layouts.items():
            path = self._partial / name
            if not path.exists() or path.stat().st_size != layout.size_bytes:
                os.ftruncate(self._file(name), layout.size_bytes)
                os.lseek(self._file(name), 0, os.SEEK_END)

    def _problem(self) -> str:
        """Return why the arrays are not those of the journal; empty if they may be."""
        for name, layout in self._layouts().items():
            path = self._partial / name
            if not path.is_file() or path.stat().st_size < layout.size_bytes:
                return "its arrays are shorter than its journal says"
        for split, counts in self.state.splits.items():
            with (self._partial / documents_file(split)).open("rb") as file:
                file.seek(HEADER_BYTES + 8 * counts.documents)
                if int.from_bytes(file.read(8), "little") != counts.tokens:
                    return "its documents end elsewhere than its journal says"
        return ""

    def append(self, split: Split, ids: Array, ends: Array) -> None:
        """Write ids that the next state will count; `ends` are relative to the first of them."""
        assert ids.dtype == self._dtype
        if len(ends):
            starts = ends + np.uint64(self.state.splits[split].tokens)
            self._write(documents_file(split), starts)
        if self._shard_tokens is None:
            self._write(ids_file(split), ids)
            return
        while len(ids):
            shard, used = divmod(self._written[split], self._shard_tokens)
            name, size = ids_file(split, shard), min(len(ids), self._shard_tokens - used)
            self._write(name, ids[:size])
            self._written[split] += size
            if used + size == self._shard_tokens:
                self._complete(name, ArrayLayout(self._dtype, self._shard_tokens))
            ids = ids[size:]

    def _write(self, name: str, array: Array) -> None:
        rest = array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B")
        while rest:
            rest = rest[os.write(self._file(name), rest) :]

    def _complete(self, name: str, layout: ArrayLayout) -> None:
        """Write the header of a full shard, and close it."""
        if self._journaled is not None:
            self._journaled.result()  # it may be syncing the file
        descriptor = self._file(name)
        os.pwrite(descriptor, layout.header(), 0)
        os.fsync(descriptor)
        os.close(self._files.pop(name))

    def advance(self, state: State) -> None:
        """Take over the next state; write a journal every `SECONDS_BETWEEN_JOURNALS`."""
        self.state = state
        is_idle = self._journaled is None or self._journaled.done()
        if is_idle and time.monotonic() >= self._next_journal:
            self.journal()

    def journal(self) -> None:
        """Start writing the journal of the state; raise the error of the previous one."""
        if self._journaled is not None:
            self._journaled.result()
        descriptors = [*self._files.values()]
        self._journaled = self._journal_thread.submit(self._save_journal, self.state, descriptors)
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS

    def _save_journal(self, state: State, descriptors: list[int]) -> None:
        for descriptor in descriptors:
            os.fsync(descriptor)
        content = {"job": self._identity, "state": plain(state)}
        save_checked(self._partial / JOURNAL, JOURNAL_KIND, content)

    def finish(self) -> None:
        """Write the headers that are missing, and start the last journal; then call `close`."""
        layouts = self._layouts()
        for split, counts in self.state.splits.items():
            *_, last = ids_layouts(split, counts.tokens, self._dtype, self._shard_tokens)
            for name in (last, documents_file(split)):
                os.pwrite(self._file(name), layouts[name].header(), 0)
        self.journal()

    def abandon(self) -> None:
        """Save the valid part after an error, which is the error to report."""
        with suppress(OSError):  # the disk may still be full; then the last journal is valid
            self._truncate()  # frees space for the journal
            if not self.state.is_empty:
                self.journal()
        with suppress(OSError):
            self.close()
        if self.state.is_empty and not has_tasks(self._partial):
            clear(self._partial)

    def close(self) -> None:
        """Wait until the last journal, and the arrays before it, are on disk."""
        try:
            if self._journaled is not None:
                self._journaled.result()
        finally:
            self._journal_thread.shutdown()
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files = {}
