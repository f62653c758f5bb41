"""Data folders: token ids on disk, as `tokenize` writes them, opened as memory maps.

| file | content |
|---|---|
| `train.npy`, `valid.npy` | token ids, uint16 or uint32; each document ends in the end token |
| `train_documents.npy`, `valid_documents.npy` | uint64: the start of each document, and the end |
| `tokenizer.json` | the tokenizer that made the ids |
| `manifest.json` | counts, dtype, fingerprints, sources, and the checksum of every 16 MiB |

With `shard_tokens` in the manifest, `train-00000.npy`, `train-00001.npy`, … hold that many ids
each, the last one the rest, instead of `train.npy`; `valid` alike.

`np.load(mmap_mode="r")` reads the arrays. `open_data` also makes the cheap checks: names, sizes,
dtypes, fingerprints. `verify_data` reads every byte.

>>> import tempfile
>>> from tilth.data.tokenizing import tokenize
>>> from tilth.tokenizer import train_tokenizer
>>> tokenizer = train_tokenizer(texts=["a b a b"], vocab_size=258, special_tokens=["<|endoftext|>"])
>>> with tempfile.TemporaryDirectory() as folder:
...     written = (Path(folder) / "two.txt").write_text("a b<|endoftext|>b b")
...     data = tokenize(f"{folder}/two.txt", tokenizer, f"{folder}/data", valid=0)
...     data.train.tolist(), data.documents("train").tolist()
([98, 257, 0, 99, 257, 0], [0, 3, 6])
"""

import functools
import hashlib
import re
from dataclasses import astuple, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np

from tilth.config.model import END_TOKEN
from tilth.data.guarding import ShardedTokens
from tilth.files import (
    FileError,
    StrPath,
    checked,
    checksum_of,
    load_manifest,
    manifest_bytes,
    open_regular,
    read_bytes,
    save_manifest,
)
from tilth.schema import Range, Sha256, plain, short_repr
from tilth.tokenizer._core import MAX_VOCAB_SIZE

if TYPE_CHECKING:
    from tilth.tokenizer import Tokenizer

T = TypeVar("T")
Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = ("train", "valid")
KIND = "token files"
VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
HEADER_BYTES = 128  # of every .npy here: NumPy pads its header to a multiple of 64
BLOCK_BYTES = 16 << 20  # the unit of checksums
MAX_SHARDS = 100_000  # of a split: their names have five digits
REMEDY = "restore a copy, or tokenize again"

Array = np.ndarray[tuple[int], np.dtype[Any]]
IDS_FILE = re.compile(rf"(?:{'|'.join(SPLITS)})(?:-[0-9]{{5}})?\.npy")


def ids_file(split: Split, shard: int | None = None) -> str:
    """Return the name of the file of a split's token ids, or of one shard of them."""
    return f"{split}.npy" if shard is None else f"{split}-{shard:05}.npy"


def documents_file(split: Split) -> str:
    """Return the name of the file of the starts of a split's documents."""
    return f"{split}_documents.npy"


# The files of a manifest without shards, in the order of their checks.
FILES = (*map(ids_file, SPLITS), *map(documents_file, SPLITS), TOKENIZER)


def dtype_of(vocab_size: int) -> str:
    """Return the smallest dtype that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


# --- the manifest ---------------------------------------------------------------------------------

Number = Annotated[int, Range(at_least=0, below=2**63)]


@dataclass(frozen=True)
class Counts:
    """The size of a split."""

    documents: Number = 0
    tokens: Number = 0
    text_bytes: Number = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class ArrayLayout(NamedTuple):
    """The dtype and the length of a one-dimensional .npy file, little-endian on every machine."""

    dtype: str
    length: int

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return HEADER_BYTES + self.length * np.dtype(self.dtype).itemsize

    def header(self) -> bytes:
        """Return the first `HEADER_BYTES` bytes of the file."""
        header = BytesIO()
        description = np.dtype(self.dtype).newbyteorder("<").str
        np.lib.format.write_array_header_1_0(
            header, {"descr": description, "fortran_order": False, "shape": (self.length,)}
        )
        assert len(header.getvalue()) == HEADER_BYTES
        return header.getvalue()


def ids_layouts(
    split: Split, tokens: int, dtype: str, shard_tokens: int | None = None
) -> dict[str, ArrayLayout]:
    """Return the layout of each file of a split's token ids, by file name."""
    if shard_tokens is None:
        return {ids_file(split): ArrayLayout(dtype, tokens)}
    number = max(1, -(-tokens // shard_tokens))
    if number > MAX_SHARDS:
        problem = f"{tokens:,} tokens in shards of {shard_tokens:,} are {number:,} files"
        raise ValueError(f"{problem}; at most {MAX_SHARDS:,} are possible: give longer shards.")
    return {
        ids_file(split, shard): ArrayLayout(dtype, min(shard_tokens, tokens - shard * shard_tokens))
        for shard in range(number)
    }


def array_layouts(
    splits: dict[Split, Counts], dtype: str, shard_tokens: int | None = None
) -> dict[str, ArrayLayout]:
    """Return the layout of each array of a data folder, by file name."""
    layouts: dict[str, ArrayLayout] = {}
    for split in SPLITS:
        layouts |= ids_layouts(split, splits[split].tokens, dtype, shard_tokens)
    for split in SPLITS:
        layouts[documents_file(split)] = ArrayLayout("uint64", splits[split].documents + 1)
    return layouts


@dataclass(frozen=True)
class FileEntry:
    """A file of a data folder, with the checksum of every 16 MiB."""

    size_bytes: Number
    sha256: tuple[Sha256, ...]


@dataclass(frozen=True)
class SourceEntry:
    """A source of the corpus, as it was read."""

    path: str
    kind: str
    size_bytes: Number
    documents: Number
    skipped: Number


@dataclass(frozen=True)
class DataManifest:
    """The manifest of a data folder; its fields agree with each other."""

    dtype: Literal["uint16", "uint32"]
    vocab_size: Annotated[int, Range(at_least=1, at_most=MAX_VOCAB_SIZE)]
    end_token_id: Number
    tokenizer_fingerprint: Sha256
    splits: dict[Split, Counts]
    sources: tuple[SourceEntry, ...]
    files: dict[str, FileEntry]
    end_token: str = END_TOKEN
    valid_share: float | None = None
    shard_tokens: Annotated[int, Range(at_least=1, below=2**63)] | None = None

    def __post_init__(self) -> None:
        if self.dtype != dtype_of(self.vocab_size):
            raise ValueError(f"dtype is {self.dtype} for a vocabulary of {self.vocab_size}.")
        if self.end_token_id >= self.vocab_size:
            raise ValueError(f"end_token_id {self.end_token_id} is outside the vocabulary.")
        if set(self.splits) != set(SPLITS):
            raise ValueError(f"splits are {short_repr([*self.splits])} instead of {list(SPLITS)}.")
        if set(self.files) != (names := {*self.layouts, TOKENIZER}):
            found, expected = short_repr([*self.files]), short_repr(sorted(names))
            raise ValueError(f"files are {found} instead of {expected}.")
        for name, file in self.files.items():
            if len(file.sha256) != -(-file.size_bytes // BLOCK_BYTES):
                raise ValueError(f"files.{name} has {len(file.sha256)} checksums.")
        for split, counts in self.splits.items():
            if counts.tokens < counts.documents or (counts.tokens and not counts.documents):
                raise ValueError(f"splits.{split} has fewer tokens than documents, or only tokens.")
        for name, layout in self.layouts.items():
            if self.files[name].size_bytes != layout.size_bytes:
                raise ValueError(f"files.{name}.size_bytes does not agree with its split.")

    @functools.cached_property
    def layouts(self) -> dict[str, ArrayLayout]:
        """The layout of each array, by file name."""
        return array_layouts(self.splits, self.dtype, self.shard_tokens)

    def ids_bytes(self, split: Split) -> int:
        """Return the size of the files of a split's token ids."""
        tokens = self.splits[split].tokens
        names = ids_layouts(split, tokens, self.dtype, self.shard_tokens)
        return sum(self.files[name].size_bytes for name in names)

    @property
    def fingerprint(self) -> str:
        """A checksum of the ids, their documents and their tokenizer: equal data, equal value."""
        content = plain(self)
        keys = ("dtype", "vocab_size", "end_token_id", "tokenizer_fingerprint", "splits")
        arrays = {name: file for name, file in content["files"].items() if name != TOKENIZER}
        return checksum_of({"files": arrays} | {key: content[key] for key in keys})


# --- the folder -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """An open data folder; the arrays are memory maps, of shards those that were read last."""

    folder: Path
    manifest: DataManifest = field(repr=False)
    train: Array | ShardedTokens = field(repr=False)
    valid: Array | ShardedTokens = field(repr=False)

    @property
    def vocab_size(self) -> int:
        """The vocabulary size of the tokenizer."""
        return self.manifest.vocab_size

    @property
    def end_token(self) -> str:
        """The special token after each document."""
        return self.manifest.end_token

    @property
    def end_token_id(self) -> int:
        """The id of the end token."""
        return self.manifest.end_token_id

    @property
    def tokenizer_fingerprint(self) -> str:
        """The fingerprint of the tokenizer that made the ids."""
        return self.manifest.tokenizer_fingerprint

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the manifest: equal data, equal value."""
        return self.manifest.fingerprint

    def documents(self, split: Split) -> Array:
        """Return the start of each document; document i is `ids[starts[i]:starts[i + 1]]`."""
        return _open_array(self.folder, documents_file(split), self.manifest)

    def num_documents(self, split: Split) -> int:
        """Return the number of documents of a split."""
        return self.manifest.splits[split].documents

    def text_bytes(self, split: Split) -> int:
        """Return the bytes of text of a split, without end tokens: the base of bits per byte."""
        return self.manifest.splits[split].text_bytes

    def tokenizer(self) -> "Tokenizer":
        """Load the tokenizer that made the ids."""
        from tilth.tokenizer import Tokenizer  # noqa: PLC0415, only decoding needs it

        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        self.check_tokenizer(tokenizer)
        end_id = tokenizer.special_tokens.get(self.end_token)
        if (tokenizer.vocab_size, end_id) != (self.vocab_size, self.end_token_id):
            problem = f"does not agree with its {TOKENIZER} (vocabulary or end token)"
            raise FileError(self.folder / MANIFEST, problem, REMEDY)
        return tokenizer

    def check_tokenizer(self, tokenizer: "Tokenizer") -> None:
        """Raise FileError if a tokenizer did not make these ids."""
        if tokenizer.fingerprint != self.tokenizer_fingerprint:
            known, given = self.tokenizer_fingerprint[:12], tokenizer.fingerprint[:12]
            problem = f"was made by another tokenizer (fingerprint {known}, this one has {given})"
            hint = f"use its own {TOKENIZER}, or tokenize the corpus again"
            raise FileError(self.folder, problem, hint)


def open_data(folder: StrPath) -> Data:
    """Open a data folder; check names, sizes, dtypes and fingerprints first."""
    folder = Path(folder)
    manifest = load_data_manifest(folder)
    for name in manifest.files:
        check_size(folder, name, manifest)
    for split in SPLITS:
        _open_array(folder, documents_file(split), manifest)
    return Data(folder, manifest, *(_open_ids(folder, split, manifest) for split in SPLITS))


def load_data_manifest(folder: Path, *, exact: bool = False) -> DataManifest:
    """Load the manifest of a data folder, and check its checksum and schema (`load_checked`)."""
    path = folder / MANIFEST
    if not path.exists():
        hint = "name a data folder, or make one with `tilth tokenize`"
        raise FileError(folder, f"is not a data folder (it has no {MANIFEST})", hint)
    return load_checked(path, KIND, DataManifest, exact=exact)


def save_checked(path: Path, kind: str, content: dict[str, Any]) -> None:
    """Write a manifest with the checksum of its content."""
    content = {**content, "checksum": checksum_of(content)}
    save_manifest(path, content, kind=kind, version=VERSION, overwrite=True)


def load_checked(path: Path, kind: str, schema: type[T], *, exact: bool = False) -> T:
    """Load a manifest of `save_checked`; a missing or wrong checksum is a FileError.

    The checksum is of the content: 1E-5 and 1e-05 are equal. `exact` compares the bytes too.
    """
    content = load_manifest(path, kind=kind, version=VERSION)
    if exact and read_bytes(path) != manifest_bytes(content, kind=kind, version=VERSION):
        raise FileError(path, "has other bytes than were written", REMEDY)
    if content.pop("checksum", None) != checksum_of(content):
        raise FileError(path, "is damaged or has no checksum", REMEDY)
    return checked(schema, content, path)


def read_block(path: Path, start: int) -> bytes:
    """Return the block of a file that begins at `start`."""
    with open_regular(path) as file:
        file.seek(start)
        return file.read(BLOCK_BYTES)


def block_checksum(path: Path, start: int) -> str:
    """Return the SHA-256 of the block of a file that begins at `start`."""
    return hashlib.sha256(read_block(path, start)).hexdigest()


def check_size(folder: Path, name: str, manifest: DataManifest) -> None:
    """Raise FileError if a file is missing or does not have the size in the manifest."""
    path = folder / name
    expected = manifest.files[name].size_bytes
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        raise FileError(path, "is missing", REMEDY) from None
    if size_bytes != expected:
        raise FileError(path, f"has {size_bytes:,} bytes instead of {expected:,}", REMEDY)


def _open_ids(folder: Path, split: Split, manifest: DataManifest) -> Array | ShardedTokens:
    if manifest.shard_tokens is None:
        return _open_array(folder, ids_file(split), manifest)

    def open_shard(number: int) -> Array:
        return _open_array(folder, ids_file(split, number), manifest)

    tokens = manifest.splits[split].tokens
    return ShardedTokens(open_shard, manifest.shard_tokens, tokens, manifest.dtype)


def _open_array(folder: Path, name: str, manifest: DataManifest) -> Array:
    path, layout = folder / name, manifest.layouts[name]
    check_size(folder, name, manifest)
    with open_regular(path) as file:
        if file.read(HEADER_BYTES) != layout.header():
            raise FileError(path, "does not begin as its manifest says", REMEDY)
        # Of the file that was checked: another one may have its name by now.
        dtype = np.dtype(layout.dtype).newbyteorder("<")
        return np.memmap(file, dtype, "r", HEADER_BYTES, layout.length)
