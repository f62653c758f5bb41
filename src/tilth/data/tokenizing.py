"""Tokenize a corpus into a data folder (`token_files.py`): parallel, streaming, atomic.

    reader ──blocks of documents──▶ threads ──ids──▶ writer ──▶ OUT/.partial ──renames──▶ OUT

The calling thread reads and writes, in order; the others encode, without the GIL. A few blocks are
in flight at a time (one, if it is long), so memory does not grow with the corpus. A hash of its
text assigns each document to training or validation: neither order, threads nor machine matter, and
equal documents are always in the same split.

Killed at any moment, the same call resumes (`partial.py`). Finished arrays are renamed to their
final names, the manifest last.
"""

import functools
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Any

from tilth.config.threads import checked_threads
from tilth.corpus import Block, Corpus, Position
from tilth.corpus.readers import warn_skipped
from tilth.data.encoding import EncodedBlock, Job, Part, encode_block
from tilth.data.partial import (
    JOURNAL,
    PartialArrays,
    State,
    clear,
    has_tasks,
    load_journal,
    partial_folder,
)
from tilth.data.tasks import join, run_all
from tilth.data.token_files import (
    BLOCK_BYTES,
    FILES,
    IDS_FILE,
    KIND,
    MANIFEST,
    SPLITS,
    TOKENIZER,
    Data,
    SourceEntry,
    array_layouts,
    block_checksum,
    dtype_of,
    load_data_manifest,
    open_data,
    save_checked,
)
from tilth.executors import Executor
from tilth.files import (
    MAX_JSON_BYTES,
    FileError,
    Progress,
    StrPath,
    no_progress,
    read_bytes,
    sync_folder,
)
from tilth.schema import Range, check_int
from tilth.tokenizer import Tokenizer
from tilth.tokenizer.formats import save_tokenizer_json

VALID_SHARE = 0.01
BYTES_AHEAD = 4 << 20  # for each thread, so none waits for the reader
MAX_BYTES_AHEAD = 64 << 20

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
    executor: Executor | None = None,
    tasks: int | None = None,
    shard_tokens: int | None = None,
) -> Data:
    """Tokenize a corpus into the data folder `out`, and open it.

    `valid` is the share of documents for validation, 0.01 by default; a `valid_corpus` is used
    whole instead. `separator`, `field` and `on_error` are those of `tilth.corpus.Corpus`.
    `progress` is called with the phases "tokenize" and "check", in bytes.

    With an `executor`, the corpus is cut into `tasks` parts (by default of 256 MB) for its workers,
    each with `threads` threads, by default one. The result is the same, byte for byte.

    With `shard_tokens`, the ids are cut into files of that many tokens; batches are the same.

    Memory stays below 256 MB plus three times the longest document on up to eight threads.
    Exceptions are one piece of many megabytes, a long document with a tokenizer of another pattern,
    and long JSON that is not ASCII.
    """
    if valid is not None and valid_corpus is not None:
        raise ValueError("valid and valid_corpus define the split in two ways; give one.")
    valid = VALID_SHARE if valid is None else valid
    if not 0 <= valid < 1:
        raise ValueError(f"valid is {valid}; give the share of documents, such as 0.01.")
    if shard_tokens is not None:
        check_int("shard_tokens", shard_tokens, Range(at_least=1, below=2**63))
    tokenizer.encode_documents([], end_token)  # checks the end token before any work

    def read(paths: StrPath | Iterable[StrPath]) -> Corpus:
        return Corpus(paths, separator=separator, field=field, on_error=on_error)

    if tasks is not None and executor is None:
        raise ValueError("tasks is the number of tasks of an executor; give one, or omit tasks.")
    given = [paths] if valid_corpus is None else [paths, valid_corpus]
    named = [_listed(each) for each in given]
    shares = [valid] if valid_corpus is None else [0, 1]
    parts = [Part(read(each), share) for each, share in zip(named, shares, strict=True)]
    reading = [separator, field, on_error]
    progress = progress or no_progress
    threads = 1 if executor is not None and threads is None else checked_threads(threads)
    job = Job(
        parts, tokenizer, end_token, reading, threads, progress, named, shard_tokens=shard_tokens
    )
    out = Path(out)
    _check_target(job, out, overwrite)
    with partial_folder(out) as partial:
        if not _is_publishing(job, partial):
            _check_target(job, out, overwrite)  # again: another process may have finished just now
            if executor is None:
                _write_partial(job, partial)
            else:
                _write_in_tasks(job, partial, executor, tasks)
        _publish(partial, out)
        return open_data(out)


def _is_publishing(job: "Job", partial: Path) -> bool:
    """Return whether an earlier call was killed between the last block and the last rename."""
    with suppress(FileError):  # the usual case: there is no manifest yet
        splits = load_data_manifest(partial).splits
        state = load_journal(partial, job.work())
        return state is not None and splits == state.splits
    return False


def _listed(paths: StrPath | Iterable[StrPath]) -> list[StrPath]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _check_target(job: Job, out: Path, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; name a folder for the token files")
    for source in job.sources:
        if source.kind == "folder" and out.resolve().is_relative_to(source.path.resolve()):
            problem = f"{out} is inside the corpus {source.path}"
            raise ValueError(f"{problem}; name a folder outside it for the token files")
    if overwrite:
        _check_kind(out)
        return
    hint = "name another folder, or pass --overwrite (in Python, overwrite=True)"
    if (out / MANIFEST).exists():
        raise FileExistsError(f"{out} already holds token files; {hint}")
    if not (out / ".partial" / MANIFEST).exists():  # else a killed call was publishing them
        for path in sorted(out.glob("*")):
            if path.name in FILES or IDS_FILE.fullmatch(path.name):
                raise FileExistsError(f"{path} already exists; {hint}")


def _check_kind(out: Path) -> None:
    """Raise FileError for a folder of another kind, such as a run; a truncated manifest passes."""
    try:
        content = json.loads(read_bytes(out / MANIFEST, MAX_JSON_BYTES))
    except (ValueError, RecursionError):  # no such file too
        return
    if not isinstance(content, dict) or content.get("format") != KIND:
        problem = f"has a {MANIFEST} that is not of token files"
        raise FileError(out, problem, "name another folder")


# --- encoding -------------------------------------------------------------------------------------


def _write_in_tasks(job: Job, partial: Path, executor: Executor, number: int | None) -> None:
    """Write the complete files in tasks; those of an earlier call that are done stay."""
    (partial / JOURNAL).unlink(missing_ok=True)  # the arrays of one process are of no use here
    save_tokenizer_json(
        job.tokenizer.vocabulary, partial / TOKENIZER, overwrite=True
    )  # the workers load it
    try:
        tasks = run_all(job, partial, executor, number)
    except BaseException:
        if not has_tasks(partial):
            clear(partial)
        raise
    _write_partial(job, partial, lambda arrays: join(job, tasks, arrays))


def _write_partial(
    job: Job, partial: Path, fill: Callable[[PartialArrays], None] | None = None
) -> None:
    """Write the complete files; only the renames are left. `fill` appends to the arrays."""
    fill = fill or functools.partial(_encode_all, job)
    dtype = dtype_of(job.tokenizer.vocab_size)
    arrays = PartialArrays(partial, job.work(), dtype, job.shard_tokens)
    try:
        save_tokenizer_json(
            job.tokenizer.vocabulary, partial / TOKENIZER, overwrite=True
        )  # first: it may fail
        fill(arrays)
        if arrays.state.is_empty:
            names = ", ".join(str(source.path) for source in job.sources)
            raise ValueError(f"There is no document in {names}; check the paths.")
        arrays.finish()
        written = [*array_layouts(arrays.state.splits, dtype, job.shard_tokens), TOKENIZER]
        files = _checksums(job, partial, written)  # while the arrays are synced
        arrays.close()
    except BaseException:
        arrays.abandon()
        raise
    if job.parts[-1].valid_share > 0 and not arrays.state.splits["valid"].documents:
        log.warning("The validation split is empty; raise --valid, or name a validation corpus.")
    _save_manifest(job, arrays.state, partial, files)


def _encode_all(job: Job, arrays: PartialArrays) -> None:
    job.progress("tokenize", arrays.state.read_bytes, job.size_bytes)
    in_flight: deque[tuple[Future[EncodedBlock], int]] = deque()
    bytes_in_flight = 0
    bytes_ahead = min(BYTES_AHEAD * (1 + job.threads), MAX_BYTES_AHEAD)

    def write_until(max_bytes: int) -> None:
        nonlocal bytes_in_flight
        while bytes_in_flight > max_bytes:
            future, size_bytes = in_flight.popleft()
            _append(future.result(), arrays)
            bytes_in_flight -= size_bytes
            job.progress("tokenize", arrays.state.read_bytes, job.size_bytes)

    with ThreadPoolExecutor(job.threads, "encode") as threads:
        try:
            for part, block in _blocks_from(job, arrays.state):
                size_bytes = max(1, block.size_bytes)
                in_flight.append((threads.submit(encode_block, job, part, block), size_bytes))
                bytes_in_flight += size_bytes
                del block  # a long one would stay in memory while the next one is read
                write_until(bytes_ahead)
            write_until(0)
        finally:
            job.is_stopped.set()
            threads.shutdown(wait=False, cancel_futures=True)


def _blocks_from(job: Job, state: State) -> Iterator[tuple[int, Block]]:
    for number, part in enumerate(job.parts[state.part :], state.part):
        start = Position(*state.position) if number == state.part else Position(0, 0)
        for block in part.corpus.blocks(start):
            yield number, block
            del block


def _append(encoded: EncodedBlock, arrays: PartialArrays) -> None:
    """Write a block and count it."""
    state = arrays.state
    splits = dict(state.splits)
    sources = list(state.sources)
    documents, skipped = sources[encoded.source]
    for split, (ids, ends, counts) in encoded.splits.items():
        arrays.append(split, ids, ends)
        splits[split] += counts
        documents += counts.documents
    sources[encoded.source] = (documents, skipped + len(encoded.skipped))
    total = warn_skipped(log, encoded.skipped, state.skipped)
    part, end, read_bytes = encoded.part, encoded.end, encoded.read_bytes
    arrays.advance(State(part, end, read_bytes, total, splits, tuple(sources)))


# --- publishing -----------------------------------------------------------------------------------


def _save_manifest(job: Job, state: State, partial: Path, files: dict[str, Any]) -> None:
    content: dict[str, Any] = {
        "dtype": dtype_of(job.tokenizer.vocab_size),
        "vocab_size": job.tokenizer.vocab_size,
        "end_token": job.end_token,
        "end_token_id": job.tokenizer.special_tokens[job.end_token],
        "tokenizer_fingerprint": job.tokenizer.fingerprint,
        "valid_share": job.parts[0].valid_share if len(job.parts) == 1 else None,
        "splits": {split: asdict(state.splits[split]) for split in SPLITS},
        "sources": [
            asdict(
                SourceEntry(str(source.path.absolute()), source.kind, source.size_bytes, *counts)
            )
            for source, counts in zip(job.sources, state.sources, strict=True)
        ],
        "files": files,
    }
    if job.shard_tokens is not None:
        content["shard_tokens"] = job.shard_tokens
    save_checked(partial / MANIFEST, KIND, content)


def _checksums(job: Job, folder: Path, names: list[str]) -> dict[str, Any]:
    """Return the size of each file and the SHA-256 of each of its blocks."""
    sizes = {name: (folder / name).stat().st_size for name in names}
    found: dict[str, Any] = {name: {"size_bytes": sizes[name], "sha256": []} for name in names}
    done = 0
    with ThreadPoolExecutor(job.threads, "check") as threads:
        try:
            for name in names:
                starts = range(0, sizes[name], BLOCK_BYTES)
                blocks = threads.map(block_checksum, repeat(folder / name), starts)
                for start, digest in zip(starts, blocks, strict=True):
                    found[name]["sha256"].append(digest)
                    done += min(BLOCK_BYTES, sizes[name] - start)
                    job.progress("check", done, sum(sizes.values()))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
    return found


def _publish(partial: Path, out: Path) -> None:
    """Rename the files to their final names; if it is killed here, the next call resumes."""
    names = load_data_manifest(partial).files
    (out / MANIFEST).unlink(missing_ok=True)  # of an overwritten folder: it is about to be wrong
    for path in out.iterdir():  # shards of an overwritten folder
        if IDS_FILE.fullmatch(path.name) and path.name not in names:
            path.unlink()
    for name in names:
        with suppress(FileNotFoundError):  # moved before the kill
            (partial / name).rename(out / name)
    sync_folder(out)
    (partial / MANIFEST).rename(out / MANIFEST)
    sync_folder(out)
    clear(partial)
