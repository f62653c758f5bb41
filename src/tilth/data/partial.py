"""Arrays that grow on disk, and a journal of how much of them counts.

What enters: the ids of document after document. What leaves: a folder `OUT/.partial` in which work
that was killed at any moment goes on. The journal says how much of each array counts and where in
the corpus that ends. It is renamed into place after the arrays are on disk, so it never promises
what is not there; what lies behind its promise is cut off.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tilth.corpus import Position
from tilth.data.token_files import (
    HEADER_BYTES,
    SPLITS,
    VERSION,
    Array,
    Split,
    array_header,
    documents_file,
    ids_file,
)
from tilth.files import FileError, load_manifest, save_manifest

PARTIAL = ".partial"
JOURNAL = "journal.json"
LOCK = "lock"
JOURNAL_KIND = "tokenizing journal"
SECONDS_BETWEEN_JOURNALS = 2.0

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
            partial.mkdir(parents=True, exist_ok=True)
            lock = (partial / LOCK).open("wb")
        except FileNotFoundError:  # whoever had the lock removed the folder between the two
            continue
        except OSError as error:
            raise type(error)(
                f"cannot write {partial.parent} ({error.strerror}); name another folder, or check "
                "its permissions"
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"Another process is tokenizing into {partial.parent}; wait for it, or name "
                    "another folder"
                ) from None
            except OSError:
                log.warning("%s cannot be locked: let no second process in.", partial.parent)
            # A lock on a file that was removed meanwhile keeps nobody out: then begin again.
            with suppress(FileNotFoundError):
                if os.path.samestat((partial / LOCK).stat(), os.fstat(lock.fileno())):
                    yield
                    return


def clear(partial: Path) -> None:
    """Remove all but the lock, the journal first: without it, nothing else counts."""
    (partial / JOURNAL).unlink(missing_ok=True)
    for leftover in partial.iterdir():
        if leftover.name != LOCK:
            leftover.unlink()


@dataclass(frozen=True)
class Counts:
    """What a split holds so far."""

    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.documents + other.documents,
            self.tokens + other.tokens,
            self.text_bytes + other.text_bytes,
        )


@dataclass(frozen=True)
class State:
    """How far the work is: a value, replaced as a whole, so an interruption never tears it."""

    part: int
    position: Position
    read_bytes: int
    skipped: int
    splits: dict[Split, Counts]
    sources: tuple[tuple[int, int], ...]
    """Documents and skipped documents of each source."""

    @classmethod
    def beginning(cls, num_sources: int) -> Self:
        """Nothing is done."""
        nothing = {split: Counts() for split in SPLITS}
        return cls(0, Position(0, 0), 0, 0, nothing, ((0, 0),) * num_sources)

    @property
    def is_empty(self) -> bool:
        """Whether there is no document yet."""
        return not any(counts.documents for counts in self.splits.values())

    def to_json(self) -> dict[str, Any]:
        """A value that JSON can hold."""
        return {
            **asdict(self),
            "position": list(self.position),
            "sources": [list(counts) for counts in self.sources],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The state that `to_json` gave."""
        return cls(
            **{name: value[name] for name in ("part", "read_bytes", "skipped")},
            position=Position(*value["position"]),
            splits={split: Counts(**value["splits"][split]) for split in SPLITS},
            sources=tuple((documents, skipped) for documents, skipped in value["sources"]),
        )


def load_journal(partial: Path, identity: Identity) -> State | None:
    """Where earlier work on this very job ended, if there is any."""
    path = partial / JOURNAL
    if not path.exists():
        return None
    try:
        journal = load_manifest(path, kind=JOURNAL_KIND, version=VERSION)
        changed = [name for name in identity if journal["job"].get(name) != identity[name]]
        if not changed:
            return State.from_json(journal["state"])
        reason = f"the {' and the '.join(changed)} changed"
    except FileError as error:
        reason = f"its journal {error.args[1]}"
    except (AttributeError, KeyError, TypeError):
        reason = "its journal is damaged"
    _discard(partial, reason)
    return None


def _discard(partial: Path, reason: str) -> None:
    log.warning("Partial work in %s is discarded because %s.", partial, reason)
    clear(partial)


class PartialArrays:
    """The arrays of a data folder while they grow."""

    def __init__(self, partial: Path, identity: Identity, dtype: str, num_sources: int) -> None:
        self._partial = partial
        self._identity = identity
        self._dtype = np.dtype(dtype)
        self._files: dict[str, int] = {}  # descriptors: what is written is the system's at once
        # The journal is written beside the work, as a disk may take seconds to sync.
        self._journal_thread = ThreadPoolExecutor(1, "journal")
        self._journaled: Future[None] | None = None
        self._next_journal = time.monotonic() + SECONDS_BETWEEN_JOURNALS
        self.state = load_journal(partial, identity) or State.beginning(num_sources)
        if not self.state.is_empty and not self._are_long_enough():
            _discard(partial, "its arrays are shorter than its journal says")
            self.state = State.beginning(num_sources)
        for name, size_bytes in self._sizes().items():
            flags = os.O_RDWR | os.O_CREAT
            self._files[name] = os.open(partial / name, flags, 0o666)
            os.ftruncate(self._files[name], size_bytes)
            os.lseek(self._files[name], 0, os.SEEK_END)

    def _sizes(self) -> dict[str, int]:
        """The bytes of each file that the state promises."""
        sizes = {}
        for split, counts in self.state.splits.items():
            sizes[ids_file(split)] = HEADER_BYTES + counts.tokens * self._dtype.itemsize
            sizes[documents_file(split)] = HEADER_BYTES + 8 * (counts.documents + 1)
        return sizes

    def _are_long_enough(self) -> bool:
        try:
            return all(
                (self._partial / name).stat().st_size >= size_bytes
                for name, size_bytes in self._sizes().items()
            )
        except FileNotFoundError:
            return False

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
        content = {"job": self._identity, "state": state.to_json()}
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
