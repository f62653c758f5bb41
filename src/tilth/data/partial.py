"""Arrays that grow on disk, and a journal of how much of them counts.

What enters: the ids of document after document. What leaves: a folder `OUT/.partial` in which work
that was killed at any moment goes on. The journal says how much of each array counts and where in
the corpus that ends. It is renamed into place after the arrays are on disk, so it never promises
what is not there; what lies behind its promise is cut off.
"""

import logging
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tilth.data.token_files import (
    FILES,
    HEADER_BYTES,
    MANIFEST,
    SPLITS,
    VERSION,
    Array,
    Counts,
    Number,
    Split,
    array_header,
    documents_file,
    ids_file,
)
from tilth.files import (
    FileError,
    checked,
    checksum_of,
    load_manifest,
    open_lock,
    save_manifest,
    try_lock,
)
from tilth.schema import plain

PARTIAL = ".partial"
JOURNAL = "journal.json"
LOCK = "lock"
JOURNAL_KIND = "tokenizing journal"
SECONDS_BETWEEN_JOURNALS = 2.0
# Every name that tokenizing writes in the partial folder, and the temporary names of these
# (`files.atomic_write`). Nothing else is ever opened for writing or removed there.
_NAMES = "|".join(map(re.escape, (*FILES, MANIFEST, JOURNAL)))
OWN_NAME = re.compile(rf"{LOCK}|{_NAMES}|\.(?:{_NAMES})\.[0-9a-f]{{16}}\.partial")

log = logging.getLogger(__name__)

Identity = dict[str, Any]
"""What must be the same for partial work to be of use."""


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """Make `out/.partial` and hold its lock, so that no two processes work in it.

    What is in it stays; where nothing is, it goes, and `out` with it if it was made here.
    """
    partial = out / PARTIAL
    was_there = out.exists()
    with _lock_of(partial):
        try:
            yield partial
        finally:
            if {path.name for path in partial.iterdir()} <= {LOCK}:
                (partial / LOCK).unlink()
                with suppress(OSError):  # another process is about to lock it
                    partial.rmdir()
                    if not was_there:
                        out.rmdir()


@contextmanager
def _lock_of(partial: Path) -> Iterator[None]:
    while True:
        try:
            with suppress(FileExistsError):
                partial.mkdir(parents=True)
            _check_own(partial)
            lock = open_lock(partial / LOCK)
        except (FileNotFoundError, FileError) as error:
            if isinstance(error, FileError) and os.path.lexists(partial):
                raise
            continue  # another process removed the folder between the calls
        except OSError as error:
            raise type(error)(
                f"cannot write {partial.parent} ({error.strerror}); name another folder, or check "
                "its permissions"
            ) from error
        with lock:
            try:
                if not try_lock(lock):
                    raise ValueError(
                        f"Another process is tokenizing into {partial.parent}; wait for it, or "
                        "name another folder"
                    )
            except OSError:
                log.warning("%s cannot be locked: let no second process in.", partial.parent)
            # A lock on a file that was removed meanwhile keeps nobody out: then begin again.
            is_there = False
            with suppress(FileNotFoundError):
                is_there = os.path.samestat((partial / LOCK).stat(), os.fstat(lock.fileno()))
            if is_there:
                yield
                return


def _check_own(partial: Path) -> None:
    """Refuse a partial folder that tokenizing did not make: its files would be replaced.

    The lock is the first file made in the folder and the last one removed.
    """
    hint = "move it elsewhere, or name another folder for the token files"
    if not stat.S_ISDIR(partial.lstat().st_mode):
        raise FileError(partial, "is a link to another folder, or a file", hint)
    names = sorted(path.name for path in partial.iterdir())
    if names and LOCK not in names:
        raise FileError(partial, f"was not made by `tilth tokenize` (it has no file {LOCK})", hint)
    for name in names:
        is_file = stat.S_ISREG((partial / name).lstat().st_mode)
        if not is_file or not OWN_NAME.fullmatch(name):
            raise FileError(partial, f"holds {name!r}, which `tilth tokenize` did not write", hint)


def clear(partial: Path) -> None:
    """Remove what tokenizing wrote, the journal first: without it, nothing else counts.

    The lock stays.
    """
    (partial / JOURNAL).unlink(missing_ok=True)
    for leftover in partial.iterdir():
        if leftover.name != LOCK and OWN_NAME.fullmatch(leftover.name):
            leftover.unlink()


@dataclass(frozen=True)
class State:
    """How far the work is: a value, replaced as a whole, so an interruption never tears it."""

    part: Number
    position: tuple[Number, Number]
    """A `corpus.Position`: the source in the part, and the place in it."""
    read_bytes: Number
    skipped: Number
    splits: dict[Split, Counts]
    sources: tuple[tuple[Number, Number], ...]
    """Documents and skipped documents of each source."""

    @classmethod
    def beginning(cls, num_sources: int) -> Self:
        """Nothing is done."""
        nothing = {split: Counts() for split in SPLITS}
        return cls(0, (0, 0), 0, 0, nothing, ((0, 0),) * num_sources)

    @property
    def is_empty(self) -> bool:
        """Whether there is no document yet."""
        return not any(counts.documents for counts in self.splits.values())

    def agrees(self, sources: Sequence[int], size_bytes: int) -> bool:
        """Whether a state can belong to parts of so many sources, `size_bytes` in all."""
        if self.part >= len(sources) or self.position[0] > sources[self.part]:
            return False
        current = sum(sources[: self.part]) + self.position[0]
        counts = self.splits.values()
        return (
            set(self.splits) == set(SPLITS)
            and len(self.sources) == sum(sources)
            and self.read_bytes <= size_bytes
            and sum(documents for documents, _ in self.sources) == sum(c.documents for c in counts)
            and sum(skipped for _, skipped in self.sources) == self.skipped
            and not any(map(any, self.sources[current + 1 :]))
            and all(c.tokens >= c.documents for c in counts)
        )


@dataclass(frozen=True)
class Journal:
    """What the journal file holds."""

    job: dict[str, Any]
    state: State


def load_journal(
    partial: Path, identity: Identity, sources: Sequence[int], size_bytes: int
) -> State | None:
    """Where earlier work on this very job ended, if there is any.

    The job reads parts of so many `sources`, `size_bytes` in all. A journal that is damaged, has no
    checksum or contradicts the job is discarded, with all that it counts.
    """
    path = partial / JOURNAL
    if not path.exists():
        return None
    try:
        content = load_manifest(path, kind=JOURNAL_KIND, version=VERSION)
        if content.pop("checksum", None) != checksum_of(content):
            raise FileError(path, "is damaged or has no checksum", "start again")
        journal = checked(Journal, content, path)
        changed = [name for name in identity if journal.job.get(name) != identity[name]]
        if not changed and journal.state.agrees(sources, size_bytes):
            return journal.state
        reason = f"the {' and the '.join(changed)} changed"
        if not changed:
            reason = "its journal does not agree with the corpus"
    except FileError as error:
        reason = f"its journal {error.args[1]}"
    _discard(partial, reason)
    return None


def _discard(partial: Path, reason: str) -> None:
    log.warning("Partial work in %s is discarded because %s.", partial, reason)
    clear(partial)


class PartialArrays:
    """The arrays of a data folder while they grow."""

    def __init__(
        self,
        partial: Path,
        identity: Identity,
        dtype: str,
        sources: Sequence[int],
        size_bytes: int,
    ) -> None:
        self._partial = partial
        self._identity = identity
        self._dtype = np.dtype(dtype)
        self._files: dict[str, int] = {}  # descriptors: what is written is the system's at once
        # The journal is written beside the work, as a disk may take seconds to sync.
        self._journal_thread = ThreadPoolExecutor(1, "journal")
        self._journaled: Future[None] | None = None
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS
        beginning = State.beginning(sum(sources))
        self.state = load_journal(partial, identity, sources, size_bytes) or beginning
        if not self.state.is_empty and (problem := self._problem()):
            _discard(partial, problem)
            self.state = beginning
        for name, length in self._sizes().items():
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            self._files[name] = os.open(partial / name, flags, 0o666)
            os.ftruncate(self._files[name], length)
            os.lseek(self._files[name], 0, os.SEEK_END)

    def _sizes(self) -> dict[str, int]:
        """The bytes of each file that the state promises."""
        sizes = {}
        for split, counts in self.state.splits.items():
            sizes[ids_file(split)], sizes[documents_file(split)] = counts.size_bytes(
                self._dtype.name
            )
        return sizes

    def _problem(self) -> str:
        """Why the arrays are not those of the journal; empty if they may be."""
        try:
            for name, size_bytes in self._sizes().items():
                if (self._partial / name).lstat().st_size < size_bytes:
                    return "its arrays are shorter than its journal says"
            for split, counts in self.state.splits.items():
                with (self._partial / documents_file(split)).open("rb") as file:
                    file.seek(HEADER_BYTES + 8 * counts.documents)
                    if int.from_bytes(file.read(8), "little") != counts.tokens:
                        return "its documents end elsewhere than its journal says"
        except FileNotFoundError:
            return "its arrays are shorter than its journal says"
        return ""

    def append(self, split: Split, ids: Array, ends: Array) -> None:
        """Write what the next state will count; `ends` count from the first of these ids."""
        assert ids.dtype == self._dtype
        starts = ends + np.uint64(self.state.splits[split].tokens)
        for name, array in ((ids_file(split), ids), (documents_file(split), starts)):
            rest = array.astype(array.dtype.newbyteorder("<"), copy=False).data.cast("B")
            while rest:
                rest = rest[os.write(self._files[name], rest) :]

    def advance(self, state: State) -> None:
        """Count what was appended, and journal it now and then."""
        self.state = state
        is_idle = self._journaled is None or self._journaled.done()
        if is_idle and time.monotonic() >= self._next_journal:
            self.journal()

    def journal(self) -> None:
        """Begin to write the journal of the present state; an earlier one's failure is raised."""
        if self._journaled is not None:
            self._journaled.result()
        self._journaled = self._journal_thread.submit(self._save_journal, self.state)
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS

    def _save_journal(self, state: State) -> None:
        for descriptor in self._files.values():
            os.fsync(descriptor)
        content: dict[str, Any] = {"job": self._identity, "state": plain(state)}
        content["checksum"] = checksum_of(content)
        path = self._partial / JOURNAL
        save_manifest(path, content, kind=JOURNAL_KIND, version=VERSION, overwrite=True)

    def finish(self) -> None:
        """Give each array its header, and wait for the journal of all."""
        for split, counts in self.state.splits.items():
            header = array_header(self._dtype.name, counts.tokens)
            os.pwrite(self._files[ids_file(split)], header, 0)
            header = array_header("uint64", counts.documents + 1)
            os.pwrite(self._files[documents_file(split)], header, 0)
        self.journal()
        self._close()

    def abandon(self) -> None:
        """After an error, which is the one to report: keep what can be kept."""
        with suppress(OSError):  # even now the disk may be full; then the last journal holds
            for name, size_bytes in self._sizes().items():
                os.ftruncate(self._files[name], size_bytes)  # room for the journal
            if not self.state.is_empty:
                self.journal()
        with suppress(OSError):
            self._close()
        if self.state.is_empty:
            clear(self._partial)

    def _close(self) -> None:
        try:
            if self._journaled is not None:
                self._journaled.result()
        finally:
            self._journal_thread.shutdown()
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files = {}
