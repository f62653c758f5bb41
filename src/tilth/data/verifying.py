"""Check the integrity of a data folder: read every byte and compare it with the manifest."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilth.data.guarding import GuardedTokens
from tilth.data.token_files import (
    BLOCK_BYTES,
    HEADER_BYTES,
    IDS_FILE,
    SPLITS,
    TOKENIZER,
    DataManifest,
    Split,
    check_size,
    documents_file,
    load_data_manifest,
    open_data,
    read_block,
)
from tilth.files import FileError, Progress, StrPath

DOCUMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Finding:
    """The result for one block of a file, or (block 0) for the whole file."""

    file: str
    block: int
    num_blocks: int
    problem: str  # empty if there is none

    def __str__(self) -> str:
        where = f", block {self.block} of {self.num_blocks}" if self.block else ""
        return f"{self.file}{where}: {self.problem or 'whole'}"


def verify_data(folder: StrPath, progress: Progress | None = None) -> Iterator[Finding]:
    """Yield a finding for each block and file; a changed manifest is a FileError.

    `progress` is called with the phase "verify", in bytes.
    """
    folder = Path(folder)
    manifest = load_data_manifest(folder, exact=True)
    total = sum(file.size_bytes for file in manifest.files.values())
    done = 0
    is_whole = True
    for name, file in manifest.files.items():
        num_blocks = len(file.sha256)
        problem = _problem_of(check_size, folder, name, manifest)
        is_whole &= not problem
        yield Finding(name, 0, num_blocks, problem)
        for number, expected in enumerate(file.sha256):
            start = number * BLOCK_BYTES
            problem = _problem_of(_check_block, folder / name, start, expected, manifest)
            is_whole &= not problem
            yield Finding(name, number + 1, num_blocks, problem)
            done += min(BLOCK_BYTES, file.size_bytes - start)
            if progress is not None:
                progress("verify", done, total)
    if is_whole:  # otherwise the same damage would be reported several times
        for split in SPLITS:
            problem = _problem_of(_check_documents, folder, split)
            yield Finding(documents_file(split), 0, 0, problem)
        yield Finding(TOKENIZER, 0, 0, _problem_of(lambda: open_data(folder).tokenizer()))


def _problem_of(check: Callable[..., object], *arguments: object) -> str:
    try:
        check(*arguments)
    except FileError as error:
        return str(error.args[1])  # the caller names the file and the remedy
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    except ValueError as error:
        return str(error)
    return ""


def _check_block(path: Path, start: int, expected: str, manifest: DataManifest) -> None:
    block = read_block(path, start)
    if hashlib.sha256(block).hexdigest() != expected:
        raise ValueError(f"the bytes from {start:,} on are damaged or missing")
    if IDS_FILE.fullmatch(path.name):
        ids = np.frombuffer(block, np.dtype(manifest.dtype).newbyteorder("<"))
        ids = ids[0 if start else HEADER_BYTES // ids.itemsize :]
        if ids.size and ids.max() >= manifest.vocab_size:
            raise ValueError(f"token id {ids.max()} is outside the vocabulary")


def _check_documents(folder: Path, split: Split) -> None:
    data = open_data(folder)
    ids, starts = GuardedTokens(getattr(data, split)), GuardedTokens(data.documents(split))
    if starts[:1] != 0 or starts[-1:] != len(ids):
        raise ValueError("the documents do not begin or do not end with the ids")
    for first in range(0, len(starts) - 1, DOCUMENTS_AT_ONCE):
        part = starts[first : first + DOCUMENTS_AT_ONCE + 1]
        if (part[1:] <= part[:-1]).any():
            raise ValueError("a document ends before it begins")
        if part[-1] > len(ids):
            raise ValueError("a document ends after the ids")
        if (ids[part[1:].astype(np.int64) - 1] != data.end_token_id).any():
            raise ValueError("a document does not end in the end token")
