"""A tokenizer: text to token ids and back, natively.

What enters: a vocabulary and its merges, or a file of them. What leaves: ids, arrays of ids, text.
`reference.py` says what each id must be; this gives the same ids, some thousand times sooner.

>>> tokens = [b" ", b"a", b"c", b"e", b"h", b"t", b"th", b" c", b" a", b"the", b" at"]
>>> merges = [(b"t", b"h"), (b" ", b"c"), (b" ", b"a"), (b"th", b"e"), (b" a", b"t")]
>>> tokenizer = Tokenizer(dict(enumerate(tokens)), merges)
>>> tokenizer.encode("the cat ate")
[9, 7, 1, 5, 10, 3]
>>> tokenizer.decode([9, 7, 1, 5, 10, 3])
'the cat ate'
"""

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tilth.config.threads import checked_threads
from tilth.files import StrPath
from tilth.tokenizer._core import Encoder
from tilth.tokenizer.formats import (
    load,
    load_gpt2,
    save_gpt2,
    save_tiktoken,
    save_tokenizer_json,
)
from tilth.tokenizer.splitting import NATIVE_PATTERNS, CustomSplitter
from tilth.tokenizer.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np

Text = str | bytes


class Tokenizer:
    """Encodes and decodes by one vocabulary. Complete when made, and never changes after.

    It may be shared between threads, forked and pickled. Text is a `str` or UTF-8 `bytes`; what is
    not UTF-8 in them (lone surrogates, malformed bytes) becomes U+FFFD. A byte of the text that has
    no token is a ValueError when it is met.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str = "gpt2",
    ) -> None:
        """Make one of its parts; special tokens that are not in the vocabulary are appended."""
        self._set(Vocabulary.from_parts(vocab, merges, special_tokens, pattern=pattern))

    @classmethod
    def from_vocabulary(cls, vocabulary: Vocabulary) -> Self:
        """Make one of a vocabulary that is complete already."""
        tokenizer = cls.__new__(cls)
        tokenizer._set(vocabulary)
        return tokenizer

    def _set(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._vocab_size = max(vocabulary.tokens, default=-1) + 1
        is_native = vocabulary.pattern in NATIVE_PATTERNS
        self._custom = (
            None if is_native else CustomSplitter(vocabulary.pattern, vocabulary.special_tokens)
        )
        self._encoder = Encoder(
            tokens=list(vocabulary.tokens.items()),
            merges=list(vocabulary.merges),
            special_tokens=[(i, token.encode()) for token, i in vocabulary.special_tokens.items()],
            # Pieces of another pattern come cut already.
            pattern=vocabulary.pattern if is_native else "none",
            whole_piece_first=vocabulary.whole_piece_first,
        )

    # --- files: see formats for what each can hold ---

    @classmethod
    def load(
        cls,
        path: StrPath,
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, int] | Iterable[str] | None = None,
    ) -> Self:
        """Read a `tokenizer.json`, a file of tiktoken's ranks, or a folder of GPT-2's two files.

        The content decides which it is. `pattern` is for ranks and `special_tokens` for both other
        formats: they do not hold them.
        """
        return cls.from_vocabulary(load(path, pattern=pattern, special_tokens=special_tokens))

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write a `tokenizer.json`."""
        save_tokenizer_json(self._vocabulary, path, overwrite=overwrite)

    @classmethod
    def from_files(
        cls,
        vocab_filepath: StrPath,
        merges_filepath: StrPath,
        special_tokens: Iterable[str] | None = None,
    ) -> Self:
        """Read GPT-2's `vocab.json` and `merges.txt`."""
        return cls.from_vocabulary(load_gpt2(vocab_filepath, merges_filepath, special_tokens))

    def save_files(
        self, vocab_filepath: StrPath, merges_filepath: StrPath, *, overwrite: bool = False
    ) -> None:
        """Write GPT-2's `vocab.json` and `merges.txt`."""
        save_gpt2(self._vocabulary, vocab_filepath, merges_filepath, overwrite=overwrite)

    def save_tiktoken(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write tiktoken's ranks."""
        save_tiktoken(self._vocabulary, path, overwrite=overwrite)

    # --- text to ids ---

    def encode(self, text: Text) -> list[int]:
        """The ids of a text; special tokens in it are recognised, the longest first."""
        return self._encode(text, True)

    def encode_ordinary(self, text: Text) -> list[int]:
        """The ids of a text that is not trusted: special tokens in it are text like any other."""
        return self._encode(text, False)

    def _encode(self, text: Text, allow_special: bool) -> list[int]:
        if self._custom:
            return self._encode_custom(text, allow_special)
        return self._encoder.encode(text, allow_special)

    def encode_array(
        self, text: Text, *, allow_special: bool = True, threads: int = 1
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
        """The ids as a NumPy array of uint32, without a Python list in between."""
        if self._custom:
            import numpy as np  # noqa: PLC0415, only arrays need it

            return np.array(self._encode_custom(text, allow_special), dtype=np.uint32)
        return self._encoder.encode_array(text, allow_special, checked_threads(threads))

    def encode_batch(
        self, texts: Sequence[Text], *, allow_special: bool = True, threads: int | None = None
    ) -> list[list[int]]:
        """The ids of each text, on several threads (default: one for each core)."""
        if isinstance(texts, str | bytes):  # it would be taken for a list of characters
            raise ValueError("encode_batch takes a list of texts; for one, call encode.")
        if self._custom:
            return [self._encode_custom(text, allow_special) for text in texts]
        return self._encoder.encode_batch(list(texts), allow_special, checked_threads(threads))

    def encode_documents(
        self,
        documents: Sequence[Text],
        end_token: str = "<|endoftext|>",
        *,
        threads: int = 1,
        check: Callable[[], None] | None = None,
    ) -> "tuple[np.ndarray, np.ndarray]":
        """The ids of each document, then the end token's: one array, and where each ends in it.

        What a document says is text, never a special token. The ids are uint16 while the vocabulary
        fits, else uint32. `check` is called every 50 milliseconds; what it raises ends the work.
        """
        end_id = self.special_tokens.get(end_token)
        if end_id is None:
            names = ", ".join(self.special_tokens) or "none"
            raise ValueError(
                f"The tokenizer has no special token {end_token!r} to end documents with; "
                f"name one that it has ({names}), or train it with this one."
            )
        is_wide = self.vocab_size > 1 << 16
        if self._custom is None:
            threads = checked_threads(threads)
            return self._encoder.encode_documents(list(documents), end_id, is_wide, threads, check)
        import numpy as np  # noqa: PLC0415, only arrays need it

        rows = [[*self._encode_custom(text, False), end_id] for text in documents]
        ids = np.array([i for row in rows for i in row], np.uint32 if is_wide else np.uint16)
        return ids, np.cumsum([len(row) for row in rows], dtype=np.uint64)

    def encode_with_offsets(
        self, text: str, *, allow_special: bool = True
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids, and for each the (start, end) of the characters whose bytes it holds.

        Tokens that share a character both cover it.
        """
        if self._custom:
            return self._custom_with_offsets(text, allow_special)
        return self._encoder.encode_with_offsets(text, allow_special)

    def count(self, text: Text, *, allow_special: bool = True) -> int:
        """How many ids a text has."""
        if self._custom:
            return len(self._encode_custom(text, allow_special))
        return self._encoder.count(text, allow_special)

    def encode_iterable(
        self, iterable: Iterable[Text], *, allow_special: bool = True
    ) -> Iterator[int]:
        """The ids of the joined texts, one by one, however the text is cut.

        Lazy: it holds the last unfinished piece or special token, and no more. (A pattern of one's
        own may look anywhere, so it holds the whole text.)
        """
        if self._custom:
            yield from self._encode_custom("".join(_whole_characters(iterable)), allow_special)
            return
        stream = self._encoder.stream(allow_special)
        for text in _whole_characters(iterable):
            yield from stream.feed(text)
        yield from stream.finish()

    def _encode_custom(self, text: Text, allow_special: bool) -> list[int]:
        assert self._custom is not None
        pieces = self._custom.split(text, allow_special)
        return [
            token_id
            for piece, special_id in pieces
            for token_id in (
                self._encoder.encode(piece, False) if special_id is None else (special_id,)
            )
        ]

    def _custom_with_offsets(
        self, text: str, allow_special: bool
    ) -> tuple[list[int], list[tuple[int, int]]]:
        assert self._custom is not None
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for piece, special_id in self._custom.split(text, allow_special):
            if special_id is None:
                piece_ids, piece_offsets = self._encoder.encode_with_offsets(piece, False)
            else:
                piece_ids, piece_offsets = [special_id], [(0, len(piece))]
            ids += piece_ids
            offsets += [(start + first, start + last) for first, last in piece_offsets]
            start += len(piece)
        return ids, offsets

    # --- ids to text ---

    def decode(self, ids: "Sequence[int] | np.ndarray", errors: str = "replace") -> str:
        """The text of ids; bytes that are no UTF-8 are handled as `bytes.decode` would."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: "Sequence[int] | np.ndarray") -> bytes:
        """The bytes of ids. An id that the vocabulary does not have is a ValueError."""
        return self._encoder.decode_bytes(ids)

    def decoder(self, errors: str = "replace") -> "IncrementalDecoder":
        """A decoder that is given ids as they come and holds back an unfinished character."""
        return IncrementalDecoder(self, errors)

    # --- what it is ---

    def __len__(self) -> int:
        """The number of tokens; `vocab_size` is larger if ids are left out."""
        return len(self.vocab)

    def token_to_id(self, token: Text) -> int | None:
        """The id of a token, special tokens included; None if the vocabulary does not have it."""
        encoded = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token
        return self._ids.get(encoded)

    def id_to_token(self, token_id: int) -> bytes | None:
        """The bytes of a token, special tokens included; None if no token has this id."""
        return self.vocab.get(token_id)

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {token: token_id for token_id, token in self.vocab.items()}

    @property
    def vocabulary(self) -> Vocabulary:
        """Everything that defines it."""
        return self._vocabulary

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The bytes of each id, special tokens included."""
        return self._vocabulary.tokens

    @property
    def merges(self) -> Sequence[tuple[bytes, bytes]]:
        """The pairs that are merged, first learnt first."""
        return self._vocabulary.merges

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The id of each special token."""
        return self._vocabulary.special_tokens

    @property
    def pattern(self) -> str:
        """`gpt2`, `cl100k`, or a pattern for the `regex` package."""
        return self._vocabulary.pattern

    @property
    def vocab_size(self) -> int:
        """One more than the largest id: the rows that an embedding needs."""
        return self._vocab_size

    @property
    def fingerprint(self) -> str:
        """A checksum of all that decides which ids a text has."""
        return self._vocabulary.fingerprint

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tokenizer):
            return NotImplemented
        return self._vocabulary == other._vocabulary

    def __hash__(self) -> int:
        return hash(self._vocabulary)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).from_vocabulary, (self._vocabulary,))

    def __repr__(self) -> str:
        return (
            f"<Tokenizer of {len(self.vocab):,} tokens, {len(self.merges):,} merges, "
            f"pattern {self.pattern}>"
        )


class IncrementalDecoder:
    r"""Ids to text as they come, never half a character.

    >>> decoder = Tokenizer({0: b"a", 1: b"\xc3", 2: b"\xa9"}, []).decoder()
    >>> [decoder.decode([token_id]) for token_id in (0, 1, 2, 1)], decoder.finish()
    (['a', '', 'é', ''], '\ufffd')
    """

    def __init__(self, tokenizer: Tokenizer, errors: str = "replace") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def decode(self, ids: Sequence[int]) -> str:
        """The text that these ids complete."""
        return self._decoder.decode(self._tokenizer.decode_bytes(ids))

    def finish(self) -> str:
        """What is left: nothing, or an unfinished character as `errors` would have it."""
        return self._decoder.decode(b"", final=True)


def _whole_characters(iterable: Iterable[Text]) -> Iterator[str]:
    """Strings that no character straddles: bytes decoded, surrogate pairs kept together."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    half_pair = ""
    for text in iterable:
        if isinstance(text, bytes):
            yield half_pair
            half_pair = ""
            yield decoder.decode(text)
            continue
        yield decoder.decode(b"", final=True)
        joined = half_pair + text
        half_pair = joined[-1:] if "\ud800" <= joined[-1:] <= "\udbff" else ""
        yield joined[: len(joined) - len(half_pair)]
    yield half_pair
    yield decoder.decode(b"", final=True)
