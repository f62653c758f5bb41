"""A data folder: token ids on disk, and what they belong to.

What enters: a folder that `tokenize` wrote. What leaves: its ids as memory maps.

| file | what |
|---|---|
| `train.npy`, `valid.npy` | token ids, uint16 or uint32; each document ends in the end token |
| `train_documents.npy`, `valid_documents.npy` | uint64: where document i begins, and the end |
| `tokenizer.json` | what made the ids |
| `manifest.json` | counts, dtype, fingerprints, sources, and the checksum of every 16 MiB |

`np.load(mmap_mode="r")` reads the arrays; `open_data` does that and checks what is cheap to check
each time: names, sizes, dtypes, fingerprints. `verify` reads every byte.

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

import hashlib
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from tilth.config.model import END_TOKEN
from tilth.files import FileError, StrPath, checked, checksum_of, load_manifest, open_regular
from tilth.schema import Range, Sha256, plain, short_repr
from tilth.tokenizer._core import MAX_VOCAB_SIZE

if TYPE_CHECKING:
    from tilth.tokenizer import Tokenizer

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = ("train", "valid")
KIND = "token files"
VERSION = 1
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.json"
HEADER_BYTES = 128  # of every .npy here: NumPy pads its header to a multiple of 64
BLOCK_BYTES = 16 << 20  # the unit of checksums

Array = np.ndarray[tuple[int], np.dtype[Any]]


def ids_file(split: Split) -> str:
    """The name of the file of a split's token ids."""
    return f"{split}.npy"


def documents_file(split: Split) -> str:
    """The name of the file that says where a split's documents begin."""
    return f"{split}_documents.npy"


FILES = (*map(ids_file, SPLITS), *map(documents_file, SPLITS), TOKENIZER)
"""The files that a manifest lists, in the order of their checks."""


def dtype_of(vocab_size: int) -> str:
    """The smallest dtype that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


# --- the manifest ---------------------------------------------------------------------------------

Number = Annotated[int, Range(at_least=0, below=2**63)]


@dataclass(frozen=True)
class Counts:
    """What a split holds."""

    documents: Number = 0
    tokens: Number = 0
    text_bytes: Number = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.documents + other.documents,
            self.tokens + other.tokens,
            self.text_bytes + other.text_bytes,
        )

    def size_bytes(self, dtype: str) -> tuple[int, int]:
        """The sizes of the file of ids and of the file of documents."""
        ids_bytes = HEADER_BYTES + self.tokens * np.dtype(dtype).itemsize
        return ids_bytes, HEADER_BYTES + 8 * (self.documents + 1)


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
    """The manifest of a data folder; it agrees with itself."""

    dtype: Literal["uint16", "uint32"]
    vocab_size: Annotated[int, Range(at_least=1, at_most=MAX_VOCAB_SIZE)]
    end_token_id: Number
    tokenizer_fingerprint: Sha256
    splits: dict[Split, Counts]
    sources: tuple[SourceEntry, ...]
    files: dict[str, FileEntry]
    end_token: str = END_TOKEN
    valid_share: float | None = None

    def __post_init__(self) -> None:
        if self.dtype != dtype_of(self.vocab_size):
            raise ValueError(f"dtype is {self.dtype} for a vocabulary of {self.vocab_size}.")
        if self.end_token_id >= self.vocab_size:
            raise ValueError(f"end_token_id {self.end_token_id} is outside the vocabulary.")
        if set(self.splits) != set(SPLITS):
            raise ValueError(f"splits are {short_repr([*self.splits])} instead of {list(SPLITS)}.")
        if set(self.files) != set(FILES):
            raise ValueError(f"files are {short_repr([*self.files])} instead of {list(FILES)}.")
        for name, file in self.files.items():
            if len(file.sha256) != -(-file.size_bytes // BLOCK_BYTES):
                raise ValueError(f"files.{name} has {len(file.sha256)} checksums.")
        for split, counts in self.splits.items():
            if counts.tokens < counts.documents or (counts.tokens and not counts.documents):
                raise ValueError(f"splits.{split} has fewer tokens than documents, or only tokens.")
            names = (ids_file(split), documents_file(split))
            for name, size_bytes in zip(names, counts.size_bytes(self.dtype), strict=True):
                if self.files[name].size_bytes != size_bytes:
                    raise ValueError(f"files.{name}.size_bytes does not agree with its split.")


# --- the folder -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """An open data folder; the arrays are memory maps that nothing has been read of yet."""

    folder: Path
    manifest: DataManifest = field(repr=False)
    train: Array = field(repr=False)
    valid: Array = field(repr=False)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that the tokenizer has."""
        return self.manifest.vocab_size

    @property
    def end_token(self) -> str:
        """The special token behind each document."""
        return self.manifest.end_token

    @property
    def end_token_id(self) -> int:
        """The id behind each document."""
        return self.manifest.end_token_id

    @property
    def tokenizer_fingerprint(self) -> str:
        """The fingerprint of the tokenizer that made the ids."""
        return self.manifest.tokenizer_fingerprint

    @property
    def fingerprint(self) -> str:
        """A checksum of the ids, their documents and their tokenizer: equal data, equal value."""
        return fingerprint_of(self.manifest)

    def documents(self, split: Split) -> Array:
        """Where each document begins; document i is `ids[starts[i]:starts[i + 1]]`."""
        return _open_array(self.folder, documents_file(split), self.manifest)

    def num_documents(self, split: Split) -> int:
        """How many documents a split has."""
        return self.manifest.splits[split].documents

    def text_bytes(self, split: Split) -> int:
        """The bytes of text that became a split's ids: what bits per byte are counted over."""
        return self.manifest.splits[split].text_bytes

    def tokenizer(self) -> "Tokenizer":
        """The tokenizer that made the ids."""
        from tilth.tokenizer import Tokenizer  # noqa: PLC0415, only decoding needs it

        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        self.check_tokenizer(tokenizer)
        end_id = tokenizer.special_tokens.get(self.end_token)
        if (tokenizer.vocab_size, end_id) != (self.vocab_size, self.end_token_id):
            problem = f"does not agree with its {TOKENIZER} (vocabulary or end token)"
            raise FileError(self.folder / MANIFEST, problem, "restore a copy, or tokenize again")
        return tokenizer

    def check_tokenizer(self, tokenizer: "Tokenizer") -> None:
        """Refuse a tokenizer that did not make these ids."""
        if tokenizer.fingerprint != self.tokenizer_fingerprint:
            raise FileError(
                self.folder,
                f"was made by another tokenizer (fingerprint {self.tokenizer_fingerprint[:12]}, "
                f"this one has {tokenizer.fingerprint[:12]})",
                f"use its own {TOKENIZER}, or tokenize the corpus again",
            )


def open_data(folder: StrPath) -> Data:
    """Open a data folder, once names, sizes, dtypes and fingerprints are right."""
    folder = Path(folder)
    manifest = load_data_manifest(folder)
    for name in manifest.files:
        check_size(folder, name, manifest)
    train, valid = (_open_array(folder, ids_file(split), manifest) for split in SPLITS)
    for split in SPLITS:
        _open_array(folder, documents_file(split), manifest)
    return Data(folder, manifest, train, valid)


def load_data_manifest(folder: Path) -> DataManifest:
    """The manifest of a data folder, if it is the one that was written, to the last letter."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise FileError(folder, "is no data folder", "make one with `tilth tokenize`")
    if not path.exists():
        raise FileError(
            folder, f"has no {MANIFEST}", "name a data folder, or finish `tilth tokenize`"
        )
    content = load_manifest(path, kind=KIND, version=VERSION)
    if content.pop("checksum", None) != checksum_of(content):
        raise FileError(path, "was changed or damaged", "restore a copy, or tokenize again")
    return checked(DataManifest, content, path)


def block_checksum(path: Path, start: int) -> str:
    """The SHA-256 of the block of a file that begins at `start`."""
    with open_regular(path) as file:
        file.seek(start)
        return hashlib.sha256(file.read(BLOCK_BYTES)).hexdigest()


def fingerprint_of(manifest: DataManifest) -> str:
    """What two data folders share if they hold the same ids, wherever their text came from."""
    content = plain(manifest)
    keys = ("dtype", "vocab_size", "end_token_id", "tokenizer_fingerprint", "splits")
    arrays = {name: file for name, file in content["files"].items() if name != TOKENIZER}
    return checksum_of({"files": arrays} | {key: content[key] for key in keys})


def check_size(folder: Path, name: str, manifest: DataManifest) -> None:
    """Refuse a file that is missing or longer or shorter than it was written."""
    path = folder / name
    expected = manifest.files[name].size_bytes
    try:
        size_bytes = path.stat().st_size
    except FileNotFoundError:
        raise FileError(path, "is missing", "restore a copy, or tokenize again") from None
    if size_bytes != expected:
        problem = f"has {size_bytes:,} bytes instead of {expected:,}"
        raise FileError(path, problem, "restore a copy, or tokenize again")


def array_header(dtype: str, length: int) -> bytes:
    """The first bytes of a .npy file of one dimension, little-endian on every machine."""
    header = BytesIO()
    description = np.dtype(dtype).newbyteorder("<").str
    np.lib.format.write_array_header_1_0(
        header, {"descr": description, "fortran_order": False, "shape": (length,)}
    )
    assert len(header.getvalue()) == HEADER_BYTES
    return header.getvalue()


def _open_array(folder: Path, name: str, manifest: DataManifest) -> Array:
    headers: dict[str, tuple[str, int]] = {}
    for split, counts in manifest.splits.items():
        headers[ids_file(split)] = (manifest.dtype, counts.tokens)
        headers[documents_file(split)] = ("uint64", counts.documents + 1)
    path = folder / name
    with open_regular(path) as file:
        if file.read(HEADER_BYTES) != array_header(*headers[name]):
            raise FileError(
                path, "does not begin as its manifest says", "restore a copy, or tokenize again"
            )
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
