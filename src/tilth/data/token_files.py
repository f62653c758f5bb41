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
import json
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilth.files import FileError, StrPath, load_manifest

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


def dtype_of(vocab_size: int) -> str:
    """The smallest dtype that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"


@dataclass(frozen=True)
class Data:
    """An open data folder; the arrays are memory maps that nothing has been read of yet."""

    folder: Path
    manifest: dict[str, Any] = field(repr=False)
    train: Array = field(repr=False)
    valid: Array = field(repr=False)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that the tokenizer has."""
        return int(self.manifest["vocab_size"])

    @property
    def end_token_id(self) -> int:
        """The id behind each document."""
        return int(self.manifest["end_token_id"])

    @property
    def tokenizer_fingerprint(self) -> str:
        """The fingerprint of the tokenizer that made the ids."""
        return str(self.manifest["tokenizer_fingerprint"])

    @property
    def fingerprint(self) -> str:
        """A checksum of the ids, their documents and their tokenizer: equal data, equal value."""
        return fingerprint_of(self.manifest)

    def documents(self, split: Split) -> Array:
        """Where each document begins; document i is `ids[starts[i]:starts[i + 1]]`."""
        return _open_array(self.folder, documents_file(split), self.manifest)

    def num_documents(self, split: Split) -> int:
        """How many documents a split has."""
        return int(self.manifest["splits"][split]["documents"])

    def text_bytes(self, split: Split) -> int:
        """The bytes of text that became a split's ids: what bits per byte are counted over."""
        return int(self.manifest["splits"][split]["text_bytes"])

    def tokenizer(self) -> "Tokenizer":
        """The tokenizer that made the ids."""
        from tilth.tokenizer import Tokenizer  # noqa: PLC0415, only decoding needs it

        tokenizer = Tokenizer.load(self.folder / TOKENIZER)
        self.check_tokenizer(tokenizer)
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
    manifest = load_checked_manifest(folder)
    for name in manifest["files"]:
        check_size(folder, name, manifest)
    train, valid = (_open_array(folder, ids_file(split), manifest) for split in SPLITS)
    for split in SPLITS:
        _open_array(folder, documents_file(split), manifest)
    return Data(folder, manifest, train, valid)


def load_checked_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a data folder, if it is the one that was written, to the last letter."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise FileError(folder, "is no data folder", "make one with `tilth tokenize`")
    if not path.exists():
        raise FileError(
            folder, f"has no {MANIFEST}", "name a data folder, or finish `tilth tokenize`"
        )
    manifest = load_manifest(path, kind=KIND, version=VERSION)
    if manifest.pop("checksum", None) != checksum_of(manifest):
        raise FileError(path, "was changed or damaged", "restore a copy, or tokenize again")
    return manifest


def checksum_of(content: dict[str, Any]) -> str:
    """A checksum of a JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def block_checksum(path: Path, start: int) -> str:
    """The SHA-256 of the block of a file that begins at `start`."""
    with path.open("rb") as file:
        file.seek(start)
        return hashlib.sha256(file.read(BLOCK_BYTES)).hexdigest()


def fingerprint_of(manifest: dict[str, Any]) -> str:
    """What two data folders share if they hold the same ids, wherever their text came from."""
    keys = ("dtype", "vocab_size", "end_token_id", "tokenizer_fingerprint", "splits")
    arrays = {name: file for name, file in manifest["files"].items() if name != TOKENIZER}
    return checksum_of({"files": arrays} | {key: manifest[key] for key in keys})


def check_size(folder: Path, name: str, manifest: dict[str, Any]) -> None:
    """Refuse a file that is missing or longer or shorter than it was written."""
    path = folder / name
    expected = manifest["files"][name]["size_bytes"]
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


def expected_header(name: str, manifest: dict[str, Any]) -> bytes:
    """The header that an array of a data folder must have."""
    for split in SPLITS:
        if name == ids_file(split):
            return array_header(manifest["dtype"], manifest["splits"][split]["tokens"])
        if name == documents_file(split):
            return array_header("uint64", manifest["splits"][split]["documents"] + 1)
    raise AssertionError(f"{name} is no array")


def _open_array(folder: Path, name: str, manifest: dict[str, Any]) -> Array:
    path = folder / name
    with path.open("rb") as file:
        if file.read(HEADER_BYTES) != expected_header(name, manifest):
            raise FileError(
                path, "does not begin as its manifest says", "restore a copy, or tokenize again"
            )
    array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array
