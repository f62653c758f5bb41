"""The tokenizer: text to token ids and back, natively.

`reference.py` specifies every id; the native core gives the same ids, some thousand times faster.

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
from tilth.tokenizer.formats import gpt2, huggingface, load, tiktoken
from tilth.tokenizer.patterns import Pattern, describe, is_native, steps_of
from tilth.tokenizer.splitting import CustomSplitter
from tilth.tokenizer.vocabulary import Pair, SpecialTokens, Vocabulary

if TYPE_CHECKING:
    import numpy as np

Text = str | bytes
Offsets = list[tuple[int, int]]


class Tokenizer:
    """Encodes and decodes with one vocabulary. Immutable.

    It can be shared between threads, forked and pickled. Text is a `str` or UTF-8 `bytes`; lone
    surrogates and malformed bytes become U+FFFD. Encoding a byte that has no token is a ValueError.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[Pair],
        special_tokens: SpecialTokens = None,
        *,
        pattern: Pattern = "gpt2",
    ) -> None:
        """Make a tokenizer; special tokens that are not in the vocabulary are appended."""
        self._set(Vocabulary.from_parts(vocab, merges, special_tokens, pattern=pattern))

    @classmethod
    def from_vocabulary(cls, vocabulary: Vocabulary) -> Self:
        """Make a tokenizer of a complete vocabulary."""
        tokenizer = cls.__new__(cls)
        tokenizer._set(vocabulary)
        return tokenizer

    def _set(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._vocab_size = max(vocabulary.tokens, default=-1) + 1
        self._custom = None
        if not (native := is_native(vocabulary.pattern)):
            self._custom = CustomSplitter(vocabulary.pattern, {})  # the core finds special tokens
        tokens = list(vocabulary.tokens.items())
        if repeated := vocabulary.repeated_ids:
            tokens = [(i, token) for i, token in tokens if i not in repeated]
        self._encoder = Encoder(
            tokens=tokens,
            merges=list(vocabulary.merges),
            special_tokens=[(i, token.encode()) for token, i in vocabulary.special_tokens.items()],
            # The encoder receives the pieces of a custom pattern one by one.
            pattern=steps_of(vocabulary.pattern) if native else [],
            whole_piece_first=vocabulary.whole_piece_first,
            token_options=[
                (vocabulary.special_tokens[token], o.lstrip, o.rstrip, o.single_word, o.normalized)
                for token, o in vocabulary.effective_options.items()
            ],
            normalizers=list(vocabulary.normalizers),
        )

    # --- files; `tilth.tokenizer.formats` says what each format can represent ---

    @classmethod
    def load(
        cls,
        path: StrPath,
        *,
        pattern: Pattern | None = None,
        special_tokens: SpecialTokens = None,
    ) -> Self:
        """Load a `tokenizer.json`, tiktoken ranks, or a folder with GPT-2's two files.

        The content decides the format. `pattern` is for ranks, `special_tokens` for ranks and
        GPT-2's files: these formats do not store them.
        """
        return cls.from_vocabulary(load(path, pattern=pattern, special_tokens=special_tokens))

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Save a `tokenizer.json`."""
        huggingface.save_tokenizer_json(self._vocabulary, path, overwrite=overwrite)

    @classmethod
    def from_files(
        cls, vocab_filepath: StrPath, merges_filepath: StrPath, special_tokens: SpecialTokens = None
    ) -> Self:
        """Load GPT-2's `vocab.json` and `merges.txt`."""
        return cls.from_vocabulary(gpt2.load_gpt2(vocab_filepath, merges_filepath, special_tokens))

    def save_files(
        self, vocab_filepath: StrPath, merges_filepath: StrPath, *, overwrite: bool = False
    ) -> None:
        """Save GPT-2's `vocab.json` and `merges.txt`."""
        gpt2.save_gpt2(self._vocabulary, vocab_filepath, merges_filepath, overwrite=overwrite)

    def save_tiktoken(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Save tiktoken's ranks."""
        tiktoken.save_tiktoken(self._vocabulary, path, overwrite=overwrite)

    # --- encoding ---

    def encode(self, text: Text) -> list[int]:
        """Return the ids of a text; special tokens are recognised, the longest first."""
        return self._encode(text, True)

    def encode_ordinary(self, text: Text) -> list[int]:
        """Return the ids of untrusted text: special tokens are encoded like any other text."""
        return self._encode(text, False)

    def _encode(self, text: Text, allow_special: bool) -> list[int]:
        if not self._custom:
            return self._encoder.encode(text, allow_special)
        ids: list[int] = []
        for part, special_id, _ in self._encoder.split_parts(text, allow_special, False):
            if special_id is not None:
                ids.append(special_id)
                continue
            for piece in self._custom.pieces(part):
                ids += self._encoder.encode(piece, False)
        return ids

    def encode_array(
        self, text: Text, *, allow_special: bool = True, threads: int = 1
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
        """Return the ids as a NumPy array of uint32, without a Python list in between."""
        if self._custom:
            import numpy as np  # noqa: PLC0415, only arrays need it

            return np.array(self._encode(text, allow_special), dtype=np.uint32)
        return self._encoder.encode_array(text, allow_special, checked_threads(threads))

    def encode_batch(
        self, texts: Sequence[Text], *, allow_special: bool = True, threads: int | None = None
    ) -> list[list[int]]:
        """Return the ids of each text, on several threads (default: one for each core)."""
        if isinstance(texts, str | bytes):  # a sequence of characters
            raise ValueError("encode_batch takes a list of texts; for one, call encode.")
        if self._custom:
            return [self._encode(text, allow_special) for text in texts]
        return self._encoder.encode_batch(list(texts), allow_special, checked_threads(threads))

    def encode_documents(
        self,
        documents: Sequence[Text],
        end_token: str = "<|endoftext|>",
        *,
        threads: int = 1,
        check: Callable[[], None] | None = None,
    ) -> "tuple[np.ndarray, np.ndarray]":
        """Return the ids of all documents, each followed by the end token, and where each ends.

        Special tokens in a document are encoded as text. The ids are uint16 while the vocabulary
        fits, else uint32; the ends are uint64. `check` is called every 50 ms and may raise to stop.
        """
        end_id = self.special_tokens.get(end_token)
        if end_id is None:
            names = ", ".join(self.special_tokens) or "none"
            raise ValueError(
                f"The tokenizer has no special token {end_token!r} to end documents with; "
                f"name one that it has ({names}), or train it with this one."
            )
        is_wide = self.vocab_size > 1 << 16
        if not self._custom:
            threads = checked_threads(threads)
            return self._encoder.encode_documents(list(documents), end_id, is_wide, threads, check)
        import numpy as np  # noqa: PLC0415, only arrays need it

        rows = [[*self._encode(text, False), end_id] for text in documents]
        ids = np.array([i for row in rows for i in row], np.uint32 if is_wide else np.uint16)
        return ids, np.cumsum([len(row) for row in rows], dtype=np.uint64)

    def encode_with_offsets(
        self, text: str, *, allow_special: bool = True
    ) -> tuple[list[int], Offsets]:
        """Return the ids, and for each the (start, end) of the characters whose bytes it holds.

        A character that is split between tokens is in the range of each of them. With normalizers,
        the ranges refer to the text before normalization, as in `tokenizers`.
        """
        if not self._custom:
            return self._encoder.encode_with_offsets(text, allow_special)
        ids: list[int] = []
        offsets: Offsets = []
        for part, special_id, places in self._encoder.split_parts(text, allow_special, True):
            if special_id is not None:
                ids.append(special_id)
                offsets += places
                continue
            start = 0
            for piece in self._custom.pieces(part):
                # A part of normalized text is normalized: these offsets refer to the piece.
                piece_ids, found = self._encoder.encode_with_offsets(piece, False)
                ids += piece_ids
                offsets += [
                    (places[start + first][0], places[start + last - 1][1]) for first, last in found
                ]
                start += len(piece)
        return ids, offsets

    def count(self, text: Text, *, allow_special: bool = True) -> int:
        """Return the number of ids of a text."""
        if self._custom:
            return len(self._encode(text, allow_special))
        return self._encoder.count(text, allow_special)

    def encode_iterable(
        self, iterable: Iterable[Text], *, allow_special: bool = True
    ) -> Iterator[int]:
        """Yield the ids of the concatenated texts, wherever they are cut.

        Lazy: only the last unfinished piece or special token is buffered. A custom pattern may look
        ahead without limit, so it needs the whole text.
        """
        if self._custom:
            yield from self._encode("".join(_whole_characters(iterable)), allow_special)
            return
        stream = self._encoder.stream(allow_special)
        for text in _whole_characters(iterable):
            yield from stream.feed(text)
        yield from stream.finish()

    # --- decoding ---

    def decode(self, ids: "Sequence[int] | np.ndarray", errors: str = "replace") -> str:
        """Return the text of ids; `errors` is for invalid UTF-8, as in `bytes.decode`."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: "Sequence[int] | np.ndarray") -> bytes:
        """Return the bytes of ids; an id that is not in the vocabulary is a ValueError."""
        return self._encoder.decode_bytes(ids)

    def decoder(self, errors: str = "replace") -> "IncrementalDecoder":
        """Return an incremental decoder, which buffers an incomplete character."""
        return IncrementalDecoder(self, errors)

    # --- properties ---

    def __len__(self) -> int:
        """The number of tokens; `vocab_size` is larger if ids have gaps."""
        return len(self.vocab)

    def token_to_id(self, token: Text) -> int | None:
        """Return the id of a token, special tokens included, or None."""
        encoded = token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token
        return self._ids.get(encoded)

    def id_to_token(self, token_id: int) -> bytes | None:
        """Return the bytes of a token, special tokens included, or None."""
        return self.vocab.get(token_id)

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        ids = {token: token_id for token_id, token in self.vocab.items()}
        return ids | {token.encode(): i for token, i in self.special_tokens.items()}

    @property
    def vocabulary(self) -> Vocabulary:
        """Everything that determines the ids of a text."""
        return self._vocabulary

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The bytes of each id, special tokens included."""
        return self._vocabulary.tokens

    @property
    def merges(self) -> Sequence[Pair]:
        """The merges in order of priority, the first learnt first."""
        return self._vocabulary.merges

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The id of each special token."""
        return self._vocabulary.special_tokens

    @property
    def pattern(self) -> Pattern:
        """The split pattern: a name, a regex, or a tuple of steps; see `patterns.PATTERNS`."""
        return self._vocabulary.pattern

    @property
    def vocab_size(self) -> int:
        """The largest id plus one: the number of rows of an embedding."""
        return self._vocab_size

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text."""
        return self._vocabulary.fingerprint

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self._vocabulary == other._vocabulary

    def __hash__(self) -> int:
        return hash(self._vocabulary)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).from_vocabulary, (self._vocabulary,))

    def __repr__(self) -> str:
        tokens, merges = f"{len(self.vocab):,} tokens", f"{len(self.merges):,} merges"
        return f"<Tokenizer of {tokens}, {merges}, pattern {describe(self.pattern)}>"


class IncrementalDecoder:
    r"""Decodes a stream of ids; never emits a part of a character.

    >>> decoder = Tokenizer({0: b"a", 1: b"\xc3", 2: b"\xa9"}, []).decoder()
    >>> [decoder.decode([token_id]) for token_id in (0, 1, 2, 1)], decoder.finish()
    (['a', '', 'é', ''], '\ufffd')
    """

    def __init__(self, tokenizer: Tokenizer, errors: str = "replace") -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the characters that these ids complete."""
        return self._decoder.decode(self._tokenizer.decode_bytes(ids))

    def finish(self) -> str:
        """Return the rest: empty, or an incomplete character as `errors` replaces it."""
        return self._decoder.decode(b"", final=True)


def _whole_characters(iterable: Iterable[Text]) -> Iterator[str]:
    """Decode a stream of bytes and strings; no character or surrogate pair is cut in two."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    high_surrogate = ""
    for text in iterable:
        if isinstance(text, bytes):
            yield high_surrogate + decoder.decode(text)
            high_surrogate = ""
            continue
        joined = decoder.decode(b"", final=True) + high_surrogate + text
        high_surrogate = joined[-1:] if "\ud800" <= joined[-1:] <= "\udbff" else ""
        yield joined[: len(joined) - len(high_surrogate)]
    yield high_surrogate + decoder.decode(b"", final=True)
