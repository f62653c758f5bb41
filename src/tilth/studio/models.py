"""The models that a server offers: loaded at the first request, shared, released under pressure.

A run is loaded again when another checkpoint is its best, as `tilth.load` would read it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from tilth.accounting.hardware import free_memory_bytes
from tilth.generation.language_model import LanguageModel
from tilth.generation.sources import open_source
from tilth.runs.checkpoints import CHECKPOINTS, MODEL
from tilth.runs.run import Run
from tilth.studio.engine import Engine

WEIGHTS = "*.safetensors"
SPARE_BYTES = 1 << 30
"""Memory that stays free when a model is loaded beside others."""


Stamp = tuple[tuple[str, int], ...]


@dataclass
class _Entry:
    path: Path
    engine: Engine | None = None
    stamp: Stamp = ()
    """Of the folder of the model, when it was last looked at."""
    weights: Stamp = ()
    """Of the files of the weights: of the best checkpoint of a run."""
    last_use: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


def by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the paths of models by the names of their folders."""
    named: dict[str, Path] = {}
    for path in paths:
        open_source(path)  # a path that is not a model is an error now, not at a request
        name = path.resolve().name
        if name in named:
            raise ValueError(
                f"{path} and {named[name]} have the same name; rename one, as the name of the "
                "folder is the id of the model."
            )
        named[name] = path
    return named


class Models:
    """Models by id.

    Args:
        find: Returns the paths of the models that there are now, by id.
        load: Loads a model from a path.
        rows: Sequences that each model decodes at once.
        queue: Requests that may wait for each model.

    """

    def __init__(
        self,
        find: Callable[[], Mapping[str, Path]],
        load: Callable[[Path], LanguageModel],
        *,
        rows: int = 16,
        queue: int = 256,
    ) -> None:
        self._find, self._load, self._rows, self._queue = find, load, rows, queue
        self._entries: dict[str, _Entry] = {}
        self._retired: WeakKeyDictionary[Engine, str] = WeakKeyDictionary()
        """Engines of older checkpoints, with the model, until their last text has ended."""
        self._retiring = threading.Lock()

    @property
    def ids(self) -> list[str]:
        """The ids of all models."""
        return list(self._find())

    def modified(self, model_id: str) -> int:
        """Return when the folder of a model was last changed, in seconds since 1970."""
        with suppress(OSError, KeyError):
            return int(self._find()[model_id].stat().st_mtime)
        return 0

    def engine(self, model_id: str) -> Engine:
        """Return the engine of a model; load it if needed. Raises KeyError for an unknown id."""
        entry = self._entries.setdefault(model_id, _Entry(self._find()[model_id]))
        with entry.lock:
            self._retire_old(model_id, entry)
            if entry.engine is None:
                self._release_idle(_weight_bytes(entry.path))
                model = self._load(entry.path)
                entry.engine = Engine(model, rows=self._rows, queue=self._queue)
            entry.last_use = time.monotonic()
            return entry.engine

    def load_once(self, path: Path) -> LanguageModel:
        """Load a model that is not shared, such as a checkpoint that a page looks at once."""
        self._release_idle(_weight_bytes(path))
        return self._load(path)

    def loads(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of running and waiting requests of each loaded model."""
        with self._retiring:
            engines = list(self._retired.items())
        entries = list(self._entries.items())
        engines += [(entry.engine, name) for name, entry in entries if entry.engine is not None]
        found: dict[str, tuple[int, int]] = {}
        for engine, name in engines:
            (running, waiting), before = engine.load, found.get(name, (0, 0))
            found[name] = before[0] + running, before[1] + waiting
        return found

    def close(self) -> None:
        """End all requests."""
        for entry in self._entries.values():
            with entry.lock:
                if entry.engine is not None:
                    entry.engine.close()
                    entry.engine = None
        for engine in list(self._retired):
            engine.close()

    def _retire_old(self, model_id: str, entry: _Entry) -> None:
        """Give up the engine of a model whose weights are others now; its texts go on."""
        files = entry.path, entry.path / CHECKPOINTS, *entry.path.glob(WEIGHTS)
        stamp = _stamp(files)
        if stamp == entry.stamp:  # a few calls of stat, instead of reading all states
            return
        weights = _stamp(_weight_files(entry.path))
        if entry.engine is not None and weights != entry.weights:
            entry.engine.retire()
            with self._retiring:
                self._retired[entry.engine] = model_id
            entry.engine = None
        entry.stamp, entry.weights = stamp, weights

    def _release_idle(self, needed: int) -> None:
        """Release idle models, the longest unused first, until `needed` bytes are free."""
        for entry in sorted(self._entries.values(), key=lambda each: each.last_use):
            if free_memory_bytes() >= 2 * needed + SPARE_BYTES:
                return
            if entry.engine is None or not entry.lock.acquire(blocking=False):
                continue  # the lock of the model that is loaded is held
            try:
                if entry.engine.load == (0, 0):
                    entry.engine.close()
                    entry.engine = None
            finally:
                entry.lock.release()


def _weight_files(path: Path) -> list[Path]:
    """Return the files whose weights `tilth.load` reads."""
    source, step = open_source(path)
    if not isinstance(source, Run):
        return source.weight_files()
    while True:
        checkpoint = source.checkpoint(step)
        try:
            return [
                checkpoint.folder / name for name in checkpoint.files(MODEL, checkpoint.state())
            ]
        except (OSError, ValueError):
            if checkpoint.folder.is_dir():  # else a training has removed it for a better one
                raise


def _stamp(paths: Iterable[Path]) -> Stamp:
    """Return paths with the times of their last changes."""
    return tuple((str(path), found.st_mtime_ns) for path, found in _stats(paths))


def _weight_bytes(path: Path) -> int:
    """Return the size of the weights of a model."""
    return sum(found.st_size for _, found in _stats(_weight_files(path)))


def _stats(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in sorted(paths):
        with suppress(OSError):  # removed by a training meanwhile
            yield path, path.stat()
