"""The folder that the studio shows: its runs, labs, data folders, tokenizers and models.

The id of an entry is its path below the folder; that of the folder itself is its name. Nothing
outside the folder has an id: symbolic links below it are not followed (a link within the folder
leads to what has an id of its own), and entries with files that link outside are left out.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as place:
...     (Path(place) / "gpt2").mkdir()
...     for name in ("vocab.json", "merges.txt"):
...         _ = (Path(place) / "gpt2" / name).write_text("{}")
...     [(entry.kind, entry.id) for entry in Folder(place).entries()]
[('tokenizer', 'gpt2')]
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilth.data.token_files import MANIFEST as DATA_MANIFEST
from tilth.files import StrPath
from tilth.formats.huggingface import is_model_folder
from tilth.report.lab_file import LAB
from tilth.runs.checkpoints import list_checkpoints
from tilth.runs.run import CONFIG, MANIFEST
from tilth.tokenizer import Tokenizer

Kind = Literal["run", "lab", "data", "tokenizer", "model"]

MAX_DEPTH, MAX_FOLDERS = 8, 20_000
SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages"})
SECONDS = 3.0
"""A listing is used for so long before the folder is looked at again."""
SETTLED_SECONDS = 2.0
"""A folder that changed later than this may change again within the resolution of its mtime."""
MAX_TOKENIZERS = 8
TOKENIZER_MARK = b'"added_tokens"'
"""At the beginning of every `tokenizer.json`, whatever the name of the file."""


@dataclass(frozen=True)
class Entry:
    """Something in the folder."""

    id: str
    kind: Kind
    path: Path

    @property
    def has_tokenizer(self) -> bool:
        """Whether it is a tokenizer or has one."""
        return self.kind != "lab"

    @property
    def is_model(self) -> bool:
        """Whether it has weights: a model folder, or a run with a checkpoint."""
        if self.kind != "run":
            return self.kind == "model"
        with suppress(OSError):  # not readable
            return bool(list_checkpoints(self.path))
        return False


@dataclass(frozen=True)
class _Listing:
    """What one folder has, as of its mtime."""

    mtime_ns: int
    entries: tuple[Entry, ...]
    folders: tuple[Path, ...]

    @property
    def is_settled(self) -> bool:
        return time.time() - self.mtime_ns / 1e9 > SETTLED_SECONDS


class Folder:
    """The entries below a folder, found again when it changes; used by several threads.

    Args:
        root: A folder; it may itself be a run, a lab, a data folder or a model.

    """

    def __init__(self, root: StrPath) -> None:
        self.root = Path(root).resolve()
        if not self.root.is_dir():
            raise FileNotFoundError(f"There is no folder {root}; name the folder of your runs.")
        self.is_truncated = False
        """Whether it has more folders than are looked at."""
        self._listings: dict[Path, _Listing] = {}
        self._entries: list[Entry] = []
        self._models: dict[str, Path] = {}
        self._checked = float("-inf")
        self._tokenizers: OrderedDict[tuple[Path, int], Tokenizer] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.root.name or "/"

    def entries(self, kind: Kind | None = None) -> list[Entry]:
        """Return all entries, or those of a kind, by id."""
        self._refresh()
        return [entry for entry in self._entries if kind in (None, entry.kind)]

    def find(self, entry_id: str, *kinds: Kind) -> Entry:
        """Return an entry by its id, of one of the kinds; raise KeyError if there is none."""
        for entry in self.entries():
            if entry.id == entry_id and (not kinds or entry.kind in kinds):
                return entry
        raise KeyError(entry_id)

    def models(self) -> dict[str, Path]:
        """Return the paths of the entries with weights, by id."""
        self._refresh()
        return dict(self._models)

    def tokenizer(self, entry_id: str) -> Tokenizer:
        """Return the tokenizer of an entry; raise KeyError if there is none of this id."""
        entry = self.find(entry_id, "run", "model", "data", "tokenizer")
        key = entry.path, entry.path.stat().st_mtime_ns
        with self._lock:
            if key in self._tokenizers:
                self._tokenizers.move_to_end(key)
                return self._tokenizers[key]
        tokenizer = Tokenizer.load(entry.path)
        with self._lock:
            self._tokenizers[key] = tokenizer
            if len(self._tokenizers) > MAX_TOKENIZERS:
                self._tokenizers.popitem(last=False)
        return tokenizer

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._checked < SECONDS:
                return
            listings: dict[Path, _Listing] = {}
            self._look(self.root, 0, listings)
            self._listings = listings
            self.is_truncated = len(listings) >= MAX_FOLDERS
            found = (entry for listing in listings.values() for entry in listing.entries)
            self._entries = sorted(found, key=lambda entry: entry.id)
            self._models = {entry.id: entry.path for entry in self._entries if entry.is_model}
            self._checked = time.monotonic()

    def _look(self, path: Path, depth: int, listings: dict[Path, _Listing]) -> None:
        """Add the listings of a folder and of those below it."""
        if depth > MAX_DEPTH or len(listings) >= MAX_FOLDERS:
            return
        with suppress(OSError):  # removed meanwhile, or not readable
            known, mtime_ns = self._listings.get(path), path.stat().st_mtime_ns
            if known is None or known.mtime_ns != mtime_ns or not known.is_settled:
                known = self._list(path, mtime_ns)
            listings[path] = known
            for folder in known.folders:
                self._look(folder, depth + 1, listings)

    def _list(self, path: Path, mtime_ns: int) -> _Listing:
        with os.scandir(path) as scanned:
            files = sorted(scanned, key=lambda each: each.name)
        names = {each.name for each in files if _is_file(each)}
        kind = _kind_of(path, names)
        own = [each for each in files if not each.is_symlink() or self.has_inside(each.path)]
        if kind is not None and path != self.root and len(own) < len(files):
            return _Listing(mtime_ns, (), ())
        paths = [path] if kind else list(_tokenizers(own))
        entries = [Entry(self._id(each), kind or "tokenizer", each) for each in paths]
        folders: tuple[Path, ...] = ()
        if kind in (None, "lab"):
            folders = tuple(Path(each.path) for each in files if _is_visited(each))
        return _Listing(mtime_ns, tuple(entries), folders)

    def has_inside(self, path: StrPath) -> bool:
        """Return whether a path leads, through its links, to a place in the folder."""
        # Not Path.resolve, which raises RuntimeError for a circular link.
        return Path(os.path.realpath(path)).is_relative_to(self.root)

    def _id(self, path: Path) -> str:
        name = self.name if path == self.root else path.relative_to(self.root).as_posix()
        return os.fsencode(name).decode("utf-8", "replace")


def _kind_of(path: Path, names: set[str]) -> Kind | None:
    """Return what a folder is, by its files; None for any other folder."""
    if CONFIG in names and MANIFEST in names:
        return "run"
    if LAB in names:
        return "lab"
    if DATA_MANIFEST in names and ("train.npy" in names or "valid.npy" in names):
        return "data"
    if is_model_folder(path) and any(name.endswith(".safetensors") for name in names):
        return "model"
    return None


def _is_file(entry: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a file; a circular link is none."""
    with suppress(OSError):
        return entry.is_file()
    return False


def _tokenizers(files: list["os.DirEntry[str]"]) -> Iterator[Path]:
    """Yield the tokenizer files of a folder; the folder itself for GPT-2's two files."""
    names = {each.name for each in files}
    for each in files:
        if each.name.startswith(".") or not _is_file(each):
            continue
        path = Path(each.path)
        if each.name == "vocab.json" and "merges.txt" in names:
            yield path.parent
        elif each.name.endswith(".tiktoken") or (
            each.name.endswith(".json") and _is_tokenizer(path)
        ):
            yield path


def _is_tokenizer(path: Path) -> bool:
    if path.name in ("tokenizer.json", "tekken.json"):
        return True
    with suppress(OSError), path.open("rb") as file:
        return TOKENIZER_MARK in file.read(1024)
    return False


def _is_visited(entry: "os.DirEntry[str]") -> bool:
    """Whether to look into a folder. Hidden ones are runs in creation, or of other tools."""
    is_own = not entry.name.startswith(".") and entry.name not in SKIPPED
    return is_own and entry.is_dir(follow_symlinks=False)
