"""Is a data folder whole? Every byte is read and compared with the manifest.

What enters: a data folder. What leaves: one finding for each block of each file, and for each file
as a whole, which says what is wrong or that nothing is.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilth.data.guarding import GuardedTokens
from tilth.data.token_files import (
    BLOCK_BYTES,
    HEADER_BYTES,
    KIND,
    MANIFEST,
    SPLITS,
    TOKENIZER,
    VERSION,
    DataManifest,
    Split,
    block_checksum,
    check_size,
    documents_file,
    ids_file,
    load_data_manifest,
    open_data,
)
from tilth.files import FileError, Progress, StrPath, load_manifest, manifest_bytes, read_bytes

DOCUMENTS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Finding:
    """What was found in one block of a file, or (block 0) in the file as a whole."""

    file: str
    block: int
    num_blocks: int
    problem: str
    """Empty: nothing is wrong."""

    def __str__(self) -> str:
        where = f", block {self.block} of {self.num_blocks}" if self.block else ""
        return f"{self.file}{where}: {self.problem or 'whole'}"


def verify_data(folder: StrPath, progress: Progress | None = None) -> Iterator[Finding]:
    """Yield what is found, block by block; a damaged manifest is a FileError at once.

    `progress` hears of the phase "verify", in bytes.
    """
    folder = Path(folder)
    manifest = load_data_manifest(folder)
    _check_every_letter(folder)
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
            problem = _block_problem(folder, name, start, expected, manifest)
            is_whole &= not problem
            yield Finding(name, number + 1, num_blocks, problem)
            done += min(BLOCK_BYTES, file.size_bytes - start)
            if progress is not None:
                progress("verify", done, total)
    if is_whole:  # otherwise one damage would be reported under many names
        for split in SPLITS:
            problem = _problem_of(_check_documents, folder, split)
            yield Finding(documents_file(split), 0, 0, problem)
        yield Finding(TOKENIZER, 0, 0, _problem_of(lambda: open_data(folder).tokenizer()))


def _check_every_letter(folder: Path) -> None:
    """Find what a checksum of the content cannot see, such as another spelling of a number."""
    path = folder / MANIFEST
    content = load_manifest(path, kind=KIND, version=VERSION)
    if read_bytes(path) != manifest_bytes(content, kind=KIND, version=VERSION):
        raise FileError(path, "was changed or damaged", "restore a copy, or tokenize again")


def _problem_of(check: Callable[..., object], *arguments: object) -> str:
    try:
        check(*arguments)
    except FileError as error:
        return str(error.args[1])  # the caller names the file, and says what to do
    except (OSError, ValueError) as error:
        return str(error)
    return ""


def _block_problem(
    folder: Path, name: str, start: int, expected: str, manifest: DataManifest
) -> str:
    path = folder / name
    try:
        if block_checksum(path, start) != expected:
            return f"the bytes from {start:,} on are damaged or missing"
        if name in map(ids_file, SPLITS):
            first = max(start, HEADER_BYTES)
            dtype = np.dtype(manifest.dtype).newbyteorder("<")
            count = (start + BLOCK_BYTES - first) // dtype.itemsize
            ids = np.fromfile(path, dtype, count, offset=first)
            if ids.size and ids.max() >= manifest.vocab_size:
                return f"token id {ids.max()} is outside the vocabulary"
    except (FileError, OSError) as error:
        reason = error.args[1] if isinstance(error, FileError) else error.strerror
        return f"the bytes from {start:,} on cannot be read ({reason})"
    return ""


def _check_documents(folder: Path, split: Split) -> None:
    data = open_data(folder)
    ids, starts = GuardedTokens(getattr(data, split)), GuardedTokens(data.documents(split))
    if starts[:1] != 0 or starts[-1:] != len(ids):
        raise ValueError(
            "the first document does not begin, or the last does not end, with the ids"
        )
    for first in range(0, len(starts) - 1, DOCUMENTS_AT_ONCE):
        part = starts[first : first + DOCUMENTS_AT_ONCE + 1]
        if (part[1:] <= part[:-1]).any():
            raise ValueError("a document ends before it begins")
        if part[-1] > len(ids):
            raise ValueError("a document ends behind the ids")
        if (ids[part[1:].astype(np.int64) - 1] != data.end_token_id).any():
            raise ValueError("a document does not end in the end token")
