"""
The native core of tilth.tokenizer; its specification is tilth.tokenizer.reference.
"""

from collections.abc import Callable, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray


unicode_version: str = '18.0.0'

MAX_THREADS: int = 1024

MAX_VOCAB_SIZE: int = 16777216

MAX_TOKENS: int = 1048320

def named_patterns() -> dict[str, str]:
    """Return the regexes of the native patterns."""

def split(text: str | bytes, pattern: list[str]) -> list[str]:
    """Split a text into pieces, whose concatenation is the text."""

def count_pieces(text: str | bytes, pattern: list[str]) -> int:
    """Return the number of pieces of a text."""

def normalize(text: str | bytes, form: str) -> str:
    """Return a text in the form NFC, NFD, NFKC or NFKD."""

def text_hashes(texts: list[str] | list[bytes]) -> NDArray[numpy.uint64]:
    """
    Return a stable 64-bit hash of the UTF-8 of each text; see text_hash.hpp.
    """

class VocabularyTable:
    """Tokens and merges; see vocabulary.hpp."""

    def __init__(self, tokens: list[tuple[int, bytes]], merges: list[tuple[bytes, bytes]]) -> None: ...

    def has_id(self, id: int) -> bool: ...

    def __len__(self) -> int: ...

    @property
    def num_merges(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    def tokens(self) -> dict[int, bytes]: ...

    def merges(self) -> tuple[tuple[bytes, bytes], ...]: ...

    def find(self, token: bytes) -> int | None: ...

    def json(self, named: list[tuple[int, bytes]]) -> tuple[bytes, bytes]: ...

    def joined(self, added: list[tuple[int, bytes]]) -> tuple[bytes, bytes, bytes]: ...

def read_ranks(content: bytes) -> VocabularyTable | None:
    """Read tiktoken's ranks; None if the file has an unusual form."""

def read_tokenizer_json(content: bytes) -> tuple[VocabularyTable, bytes, list[str]] | None:
    """
    Read the vocabulary of a tokenizer.json; None if it has an unusual form.
    """

class Encoder:
    """Encodes and decodes with one vocabulary; see encode.hpp."""

    def __init__(self, vocabulary: VocabularyTable, special_tokens: list[tuple[int, bytes]], pattern: list[str], whole_piece_first: bool, token_options: list[tuple[int, bool, bool, bool, bool]] = [], normalizers: list[str] = []) -> None: ...

    def encode(self, text: str | bytes, allow_special: bool) -> list[int]: ...

    def encode_array(self, text: object, allow_special: bool, threads: int) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    def encode_batch(self, texts: list[str | bytes], allow_special: bool, threads: int) -> list[list[int]]: ...

    def encode_documents(self, documents: list[str | bytes], end_id: int, wide: bool, threads: int, check: object | None) -> tuple[NDArray[numpy.uint32] | NDArray[numpy.uint16], NDArray[numpy.uint64]]:
        """
        Return the ids of all documents, each followed by end_id, and where each ends.
        """

    def encode_separated(self, text: bytes, separator: bytes, end_id: int, wide: bool, with_hashes: bool, threads: int, check: object | None) -> tuple[NDArray[numpy.uint32] | NDArray[numpy.uint16], NDArray[numpy.uint64], NDArray[numpy.uint64], NDArray[numpy.uint64]] | None:
        """
        Return the ids, ends, sizes and hashes of the documents between separators; None if the text is not UTF-8.
        """

    def encode_with_offsets(self, text: str | bytes, allow_special: bool) -> tuple[list[int], list[tuple[int, int]]]: ...

    def split_parts(self, text: str | bytes, allow_special: bool, with_offsets: bool) -> list[tuple[str, int | None, list[tuple[int, int]]]]:
        """
        Return the special tokens of a text and the normalized text between them.
        """

    def count(self, text: str | bytes, allow_special: bool) -> int: ...

    def decode_bytes(self, ids: object) -> bytes: ...

    def stream(self, allow_special: bool) -> Stream: ...

class Stream:
    """Encodes text that arrives in chunks; see encode_stream.hpp."""

    def feed(self, text: str | bytes) -> list[int]: ...

    def finish(self) -> list[int]: ...

class Trainer:
    """Learns merges from a corpus; see count.hpp and train.hpp."""

    def __init__(self, special_tokens: Sequence[str], pattern: Sequence[str], threads: int, progress: object | None) -> None: ...

    def add_files(self, paths: Sequence[str]) -> None: ...

    def add_texts(self, texts: list[str] | list[bytes]) -> None: ...

    def add_piece(self, piece: bytes, count: int) -> None: ...

    def train(self, num_merges: int) -> list[tuple[int, int]]: ...

    def add_records(self, read: Callable[[], bytes], num_pieces: int, num_bytes: int) -> tuple[int, int]: ...

    def write_records(self, write: Callable[[bytes], object]) -> tuple[int, int]:
        """
        Write the counted pieces, sorted; return their number and the sum of their counts.
        """

def merge_records(reads: list[Callable[[], bytes]], write: Callable[[bytes], object]) -> list[tuple[int, int]]:
    """
    Write the sum of sorted records; return the number of pieces and the sum of their counts of the result, then of each source.
    """

class RecordError(ValueError):
    pass
