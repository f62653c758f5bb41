"""Tokenize a corpus in tasks, on several processes or machines that share the folders.

A task is a part of the corpus. It writes its ids, the ends of its documents, and last a marker with
the checksums of both, each by an atomic rename. So a task may run again, or twice at once: it
writes the same bytes. A task with a valid marker is not run again. When all are done, the arrays
are joined in the order of the corpus: the data folder is that of one process, byte for byte.

    task-00003-train.ids    token ids, little-endian
    task-00003-train.ends   for each document, the number of ids up to its end, uint64
    task-00003.json         the marker
"""

import atexit
import hashlib
import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from tilth.corpus import Corpus, Position
from tilth.corpus.cutting import cut, size_bytes
from tilth.corpus.readers import MAX_WARNINGS, warn_skipped
from tilth.data.encoding import Job, Part, encode_block
from tilth.data.partial import PartialArrays, State, task_file
from tilth.data.token_files import (
    SPLITS,
    TOKENIZER,
    Counts,
    Number,
    Split,
    dtype_of,
    load_checked,
    save_checked,
)
from tilth.executors import Executor, number_of_tasks, run_tasks
from tilth.files import FileError, atomic_write, checksum_of, open_regular
from tilth.schema import Sha256, plain
from tilth.tokenizer import Tokenizer

Kind = Literal["ids", "ends"]
KINDS: tuple[Kind, ...] = ("ids", "ends")
MARKER_KIND = "tokenizing task"
TASK_BYTES = 256 << 20  # of the corpus, by default: a minute or less for one thread
CHUNK_BYTES = 16 << 20

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Spec:
    """The arguments of a call, from which a worker opens the same corpus and tokenizer."""

    folder: Path
    paths: tuple[tuple[str, ...], ...]  # of each part of the corpus
    valid_shares: tuple[float, ...]
    end_token: str
    reading: tuple[str, ...]
    threads: int
    identity: str  # of the corpus, the tokenizer and the options


@dataclass(frozen=True)
class Task:
    """A part of the corpus to tokenize."""

    spec: Spec
    number: int
    part: int
    start: Position
    stop: Position


@dataclass(frozen=True)
class Marker:
    """The content of the marker of a finished task; `sources` are (index, documents, skipped)."""

    identity: Sha256
    part: Number
    start: tuple[Number, Number]
    stop: tuple[Number, Number]
    splits: dict[Split, Counts]
    sources: tuple[tuple[Number, Number, Number], ...]
    checksums: dict[str, Sha256]
    skipped: tuple[str, ...] = ()  # the first sentences


# --- the calling process --------------------------------------------------------------------------


def run_all(job: Job, partial: Path, executor: Executor, number: int | None) -> list[Task]:
    """Run the tasks of a job that are not done yet; return all, in the order of the corpus."""
    tasks = _tasks_of(job, partial, executor, number)
    missing = [task for task in tasks if load_marker(task) is None]
    sizes = {
        task.number: size_bytes(job.parts[task.part].corpus, (task.start, task.stop))
        for task in tasks
    }
    done = sum(sizes.values()) - sum(sizes[task.number] for task in missing)
    job.progress("tokenize", done, job.size_bytes)
    for index in run_tasks(tokenize_task, missing, executor, partial.parent / "jobs"):
        done += sizes[missing[index].number]
        job.progress("tokenize", done, job.size_bytes)
    return tasks


def _tasks_of(job: Job, partial: Path, executor: Executor, number: int | None) -> list[Task]:
    number = number_of_tasks(number, job.size_bytes, TASK_BYTES, executor)
    spec = Spec(
        partial.absolute(),
        # Absolute: a worker may have another working directory.
        tuple(tuple(str(Path(path).absolute()) for path in paths) for paths in job.paths),
        tuple(part.valid_share for part in job.parts),
        job.end_token,
        tuple(job.reading),
        job.threads,
        identity_of(job),
    )
    tasks: list[Task] = []
    for index, part in enumerate(job.parts):
        share = round(number * part.corpus.size_bytes / max(1, job.size_bytes))
        for start, stop in cut(part.corpus, max(1, share)):
            tasks.append(Task(spec, len(tasks), index, start, stop))
    return tasks


def identity_of(job: Job) -> str:
    """Return a checksum of what determines the results of tasks; they are cut when joined."""
    return checksum_of(replace(job, shard_tokens=None).work().identity)


def join(job: Job, tasks: list[Task], arrays: PartialArrays) -> None:
    """Append the arrays of finished tasks in the order of the corpus."""
    warned = 0
    for task in tasks:
        marker = load_marker(task)
        places = () if marker is None else [source for source, *_ in marker.sources]
        if marker is None or max(places, default=0) >= len(job.sources):
            hint = "run the same command again"
            raise FileError(task_path(task, "json"), "is missing, or is of another task", hint)
        warned = warn_skipped(log, marker.skipped, warned)
        for split in SPLITS:
            _append(task, marker, split, arrays)
        state = arrays.state
        sources = list(state.sources)
        skipped = state.skipped
        for source, more, left_out in marker.sources:
            documents, before = sources[source]
            sources[source] = (documents + more, before + left_out)
            skipped += left_out
        splits = {split: state.splits[split] + marker.splits[split] for split in SPLITS}
        before = sum(part.corpus.size_bytes for part in job.parts[: task.part])
        stop = (Position(0, 0), task.stop)
        read_bytes = before + size_bytes(job.parts[task.part].corpus, stop)
        arrays.advance(State(task.part, task.stop, read_bytes, skipped, splits, tuple(sources)))


def _append(task: Task, marker: Marker, split: Split, arrays: PartialArrays) -> None:
    dtypes = {"ids": dtype_of(task_job(task.spec).tokenizer.vocab_size), "ends": "uint64"}
    counts = marker.splits[split]
    lengths = {"ids": counts.tokens, "ends": counts.documents}
    nothing = {kind: np.zeros(0, dtypes[kind]) for kind in KINDS}
    for kind in KINDS:
        path = task_path(task, kind, split)
        dtype = np.dtype(dtypes[kind]).newbyteorder("<")
        digest, found = hashlib.sha256(), 0
        with open_regular(path) as file:
            while data := file.read(CHUNK_BYTES):
                digest.update(data)
                found += len(data)
                if found > lengths[kind] * dtype.itemsize or len(data) % dtype.itemsize:
                    break
                chunk = {**nothing, kind: np.frombuffer(data, dtype).astype(dtypes[kind])}
                arrays.append(split, chunk["ids"], chunk["ends"])
        if digest.hexdigest() != marker.checksums.get(path.name):
            task_path(task, "json").unlink()
            hint = "run the same command again to repeat its task"
            raise FileError(path, "is damaged (its checksum differs)", hint)


def task_path(task: Task, kind: str, split: str | None = None) -> Path:
    """Return the path of a file of a task."""
    return task.spec.folder / task_file(task.number, kind, split)


def load_marker(task: Task) -> Marker | None:
    """Return the marker of a finished task; None if it is missing or of another task."""
    path = task_path(task, "json")
    if not path.exists():
        return None
    try:
        marker = load_checked(path, MARKER_KIND, Marker)
    except FileError as error:
        log.warning("%s; its task runs again.", error)
        return None
    own = (task.spec.identity, task.part, task.start, task.stop)
    if (marker.identity, marker.part, marker.start, marker.stop) != own:
        return None
    return marker if set(marker.splits) == set(SPLITS) else None


# --- a worker -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def task_job(spec: Spec) -> Job:
    """Open the corpus and the tokenizer of a task; check that they are those of the caller."""
    tokenizer = Tokenizer.load(spec.folder / TOKENIZER)
    separator, field, on_error = spec.reading
    parts = [
        Part(Corpus(paths, separator=separator, field=field, on_error=on_error), share)
        for paths, share in zip(spec.paths, spec.valid_shares, strict=True)
    ]
    job = Job(parts, tokenizer, spec.end_token, [*spec.reading], spec.threads)
    if identity_of(job) != spec.identity:
        hint = "share it between all machines, and leave it unchanged"
        raise FileError(spec.paths[0][0], "is not the corpus that the tasks were cut from", hint)
    return job


# Objects of the core that live until the interpreter ends are reported as leaks.
atexit.register(task_job.cache_clear)


def tokenize_task(task: Task) -> None:
    """Run a task, unless it is done: write its arrays, then its marker."""
    job = task_job(task.spec)
    if load_marker(task) is not None:
        return
    splits = {split: Counts() for split in SPLITS}
    sources: dict[int, tuple[int, int]] = {}
    skipped: list[str] = []
    digests: dict[str, Any] = {}
    with ExitStack() as stack:
        files: dict[tuple[Split, Kind], BinaryIO] = {}
        for split in SPLITS:
            for kind in KINDS:
                path = task_path(task, kind, split)
                files[split, kind] = stack.enter_context(atomic_write(path, overwrite=True))
                digests[path.name] = hashlib.sha256()

        def write(split: Split, kind: Kind, array: Any) -> None:  # noqa: ANN401, an array
            data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            files[split, kind].write(data)
            digests[task_file(task.number, kind, split)].update(data)

        for block in job.parts[task.part].corpus.blocks(task.start, task.stop):
            encoded = encode_block(job, task.part, block)
            skipped += encoded.skipped[: MAX_WARNINGS - len(skipped)]
            documents, left_out = sources.get(encoded.source, (0, 0))
            left_out += len(encoded.skipped)
            for split, (ids, ends, counts) in encoded.splits.items():
                write(split, "ids", ids)
                write(split, "ends", ends + np.uint64(splits[split].tokens))
                splits[split] += counts
                documents += counts.documents
            sources[encoded.source] = (documents, left_out)
    marker = Marker(
        task.spec.identity,
        task.part,
        task.start,
        task.stop,
        splits,
        tuple((source, *counts) for source, counts in sources.items()),
        {name: digest.hexdigest() for name, digest in digests.items()},
        tuple(skipped),
    )
    save_checked(task_path(task, "json"), MARKER_KIND, plain(marker))
