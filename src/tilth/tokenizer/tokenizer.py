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
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Self

from tilth.config.threads import checked_threads
from tilth.files import StrPath
from tilth.tokenizer._core import Encoder
from tilth.tokenizer.formats import gpt2, load, save_native, tekken, tiktoken
from tilth.tokenizer.patterns import Pattern, describe, is_native, steps_of
from tilth.tokenizer.splitting import CustomSplitter
from tilth.tokenizer.table import Pair
from tilth.tokenizer.vocabulary import SpecialTokens, Template, Vocabulary

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger(__name__)

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
        special_ids = vocabulary.special_tokens.values()
        self._vocab_size = max(vocabulary.table.vocab_size, max(special_ids, default=-1) + 1)
        special_tokens = vocabulary.special_tokens
        template = vocabulary.template
        self._before = [special_tokens[token] for token in template.before]
        self._after = [special_tokens[token] for token in template.after]
        self._splitter = None
        # The splitter divides text into parts, and the encoder splits each of them by its steps.
        steps: list[str] = []
        encoder_steps = steps_of(vocabulary.pattern)
        native = is_native(vocabulary.pattern)
        if vocabulary.add_prefix_space and encoder_steps[-1] == "gpt2":
            *steps, _ = encoder_steps
            encoder_steps, native = ["gpt2"], is_native(tuple(steps))
        elif vocabulary.add_prefix_space or not native:
            steps, encoder_steps = encoder_steps, []
        if vocabulary.add_prefix_space or not native:
            self._splitter = CustomSplitter(tuple(steps), {}, native=native)
        # Normalizers come before the blank of add_prefix_space, and may make one.
        self._is_split_by_encoder = not steps and not (self._splitter and vocabulary.normalizers)
        self._encoder = Encoder(
            vocabulary.table,
            special_tokens=[(i, token.encode()) for token, i in special_tokens.items()],
            pattern=encoder_steps,
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
        """Load a tokenizer file of any format, detected by content, or a folder with one.

        The formats are `tokenizer.json`, tiktoken ranks, `tekken.json`, and GPT-2's two files in a
        folder. `pattern` and `special_tokens` are for ranks and GPT-2's files, which do not store
        them. The published rank files of OpenAI and Qwen are recognised; beside GPT-2's files,
        JSON files of `transformers` may have both.
        """
        tokenizer = cls.from_vocabulary(load(path, pattern=pattern, special_tokens=special_tokens))
        if not is_native(tokenizer.pattern):
            pattern = describe(tokenizer.pattern)
            log.warning("The pattern %r is not native; regex is slower.", pattern)
        return tokenizer

    def save(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Save a `tokenizer.json`, also into a folder that exists.

        A chat template is written beside a file with the name `tokenizer.json`.
        """
        save_native(self._vocabulary, path, overwrite=overwrite)

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

    def save_tekken(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Save a `tekken.json` for mistral-common."""
        tekken.save_tekken(self._vocabulary, path, overwrite=overwrite)

    # --- encoding ---
    #
    # allow_special: special tokens in the text are recognised; otherwise they are encoded as text.
    # add_special_tokens: the special tokens of the template are added before and after the text.

    def encode(self, text: Text, *, add_special_tokens: bool = False) -> list[int]:
        """Return the ids of a text; special tokens are recognised, the longest first.

        With `add_special_tokens`, the special tokens of the vocabulary's template are added, such
        as `<|begin_of_text|>` of Llama 3.
        """
        ids = self._encode(text, True)
        return self._framed(ids) if add_special_tokens else ids

    def encode_ordinary(self, text: Text) -> list[int]:
        """Return the ids of untrusted text: special tokens are encoded like any other text."""
        return self._encode(text, False)

    def _framed(self, ids: list[int]) -> list[int]:
        return [*self._before, *ids, *self._after]

    def _encode(self, text: Text, allow_special: bool) -> list[int]:
        if not self._splitter:
            return self._encoder.encode(text, allow_special)
        ids: list[int] = []
        for piece, special_id, *_ in self._parts(text, allow_special, False):
            ids += self._encoder.encode(piece, False) if special_id is None else [special_id]
        return ids

    def _parts(
        self, text: Text, allow_special: bool, with_places: bool
    ) -> Iterator[tuple[str, int | None, Offsets, bool]]:
        """Yield pieces of normalized text, and special tokens with their ids.

        Each comes with the place of each of its characters in the text, if `with_places`, and
        whether a blank was added before it. Only if there is a splitter.
        """
        for part, special_id, places in self._encoder.split_parts(text, allow_special, with_places):
            if special_id is not None or self._splitter is None:
                yield part, special_id, places, False
                continue
            start = 0
            for piece in self._splitter.pieces(part):
                add_blank = self._vocabulary.add_prefix_space and not piece.startswith(" ")
                its_places = places[start : start + len(piece)]
                yield " " + piece if add_blank else piece, None, its_places, add_blank
                start += len(piece)

    def encode_array(
        self,
        text: Text,
        *,
        allow_special: bool = True,
        add_special_tokens: bool = False,
        threads: int = 1,
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint32]]":
        """Return the ids as a NumPy array of uint32, without a Python list in between."""
        threads = checked_threads(threads)
        if not self._splitter and not add_special_tokens:
            return self._encoder.encode_array(text, allow_special, threads)
        import numpy as np  # noqa: PLC0415, only arrays need it

        if self._splitter:
            ids = np.array(self._encode(text, allow_special), dtype=np.uint32)
        else:
            ids = self._encoder.encode_array(text, allow_special, threads)
        if add_special_tokens:
            before, after = (np.array(side, np.uint32) for side in (self._before, self._after))
            ids = np.concatenate([before, ids, after])
        return ids

    def encode_batch(
        self,
        texts: Sequence[Text],
        *,
        allow_special: bool = True,
        add_special_tokens: bool = False,
        threads: int | None = None,
    ) -> list[list[int]]:
        """Return the ids of each text, on several threads (default: one for each core)."""
        if isinstance(texts, str | bytes):  # a sequence of characters
            raise ValueError("encode_batch takes a list of texts; for one, call encode.")
        threads = checked_threads(threads)
        if not self._splitter:
            rows = self._encoder.encode_batch(list(texts), allow_special, threads)
        else:
            rows = [self._encode(text, allow_special) for text in texts]
        return [self._framed(row) for row in rows] if add_special_tokens else rows

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
        end_id = self._end_id(end_token)
        is_wide = self.vocab_size > 1 << 16
        if self._is_split_by_encoder:
            threads = checked_threads(threads)
            texts = list(documents)
            if self._splitter:  # only to find special tokens, which documents do not have
                texts = [_with_blank(text) for text in texts]
            return self._encoder.encode_documents(texts, end_id, is_wide, threads, check)
        import numpy as np  # noqa: PLC0415, only arrays need it

        rows = [[*self._encode(text, False), end_id] for text in documents]
        ids = np.array([i for row in rows for i in row], np.uint32 if is_wide else np.uint16)
        return ids, np.cumsum([len(row) for row in rows], dtype=np.uint64)

    def encode_separated(
        self,
        text: bytes,
        separator: bytes,
        end_token: str = "<|endoftext|>",
        *,
        with_hashes: bool = False,
        threads: int = 1,
        check: Callable[[], None] | None = None,
    ) -> "tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None":
        """Return `encode_documents` of the documents between separators, and their sizes in bytes.

        Documents of ASCII white space only are left out. The last array has the stable hashes of
        the documents, or nothing. None if the text is not UTF-8, or if only Python can split it:
        then call `encode_documents`. Without an object for each document, this is faster.
        """
        end_id = self._end_id(end_token)
        if self._splitter or not self._is_split_by_encoder:
            return None
        is_wide = self.vocab_size > 1 << 16
        threads = checked_threads(threads)
        return self._encoder.encode_separated(
            text, separator, end_id, is_wide, with_hashes, threads, check
        )

    def _end_id(self, end_token: str) -> int:
        end_id = self.special_tokens.get(end_token)
        if end_id is None:
            names = ", ".join(self.special_tokens) or "none"
            raise ValueError(
                f"The tokenizer has no special token {end_token!r} to end documents with; "
                f"name one that it has ({names}), or train it with this one."
            )
        return end_id

    def encode_with_offsets(
        self, text: str, *, allow_special: bool = True, add_special_tokens: bool = False
    ) -> tuple[list[int], Offsets]:
        """Return the ids, and for each the (start, end) of the characters whose bytes it holds.

        A character that is split between tokens is in the range of each of them. With normalizers,
        the ranges refer to the text before normalization. A blank that `add_prefix_space` adds has
        the range of the character after it, as in Hugging Face. The special tokens that
        `add_special_tokens` adds have the range (0, 0).
        """
        if not self._splitter:
            ids, offsets = self._encoder.encode_with_offsets(text, allow_special)
        else:
            ids, offsets = self._encode_parts_with_offsets(text, allow_special)
        if add_special_tokens:
            outside = [(0, 0)]
            sides = outside * len(self._before), outside * len(self._after)
            ids, offsets = self._framed(ids), [*sides[0], *offsets, *sides[1]]
        return ids, offsets

    def _encode_parts_with_offsets(
        self, text: str, allow_special: bool
    ) -> tuple[list[int], Offsets]:
        ids: list[int] = []
        offsets: Offsets = []
        for piece, special_id, places, has_blank in self._parts(text, allow_special, True):
            if special_id is not None:
                ids.append(special_id)
                offsets += places
                continue
            # A piece of normalized text is normalized: these offsets refer to the piece.
            piece_ids, found = self._encoder.encode_with_offsets(piece, False)
            if has_blank:
                found = [(max(a, 1) - 1, max(b, 2) - 1) for a, b in found]
            ids += piece_ids
            offsets += [(places[first][0], places[last - 1][1]) for first, last in found]
        return ids, offsets

    def count(
        self, text: Text, *, allow_special: bool = True, add_special_tokens: bool = False
    ) -> int:
        """Return the number of ids of a text."""
        added = len(self._before) + len(self._after) if add_special_tokens else 0
        if self._splitter:
            return len(self._encode(text, allow_special)) + added
        return self._encoder.count(text, allow_special) + added

    def encode_iterable(
        self,
        iterable: Iterable[Text],
        *,
        allow_special: bool = True,
        add_special_tokens: bool = False,
    ) -> Iterator[int]:
        """Yield the ids of the concatenated texts, wherever they are cut.

        Lazy: only the last unfinished piece or special token is buffered. A custom pattern may look
        ahead without limit, so it needs the whole text; so does `add_prefix_space`.
        """
        if add_special_tokens:
            yield from self._before
        if self._splitter:
            yield from self._encode("".join(_whole_characters(iterable)), allow_special)
        else:
            stream = self._encoder.stream(allow_special)
            for text in _whole_characters(iterable):
                yield from stream.feed(text)
            yield from stream.finish()
        if add_special_tokens:
            yield from self._after

    # --- decoding ---

    def decode(self, ids: "Sequence[int] | np.ndarray", errors: str = "replace") -> str:
        """Return the text of ids; `errors` is for invalid UTF-8, as in `bytes.decode`."""
        return self.decode_bytes(ids).decode("utf-8", errors)

    def decode_bytes(self, ids: "Sequence[int] | np.ndarray") -> bytes:
        """Return the bytes of ids; an id that is not in the vocabulary is a ValueError."""
        return self._encoder.decode_bytes(ids)

    def decoder(
        self,
        errors: str = "replace",
        *,
        after: int | None = None,
    ) -> "IncrementalDecoder":
        """Return an incremental decoder, which buffers an incomplete character.

        `after` is the id before the first one.
        """
        return IncrementalDecoder(self, errors)

    # --- properties ---

    def __len__(self) -> int:
        """The number of tokens; `vocab_size` is larger if ids have gaps."""
        return len(self.vocab)

    def __contains__(self, token: object) -> bool:
        """Whether a token, as text or bytes, is in the vocabulary; special tokens included."""
        return isinstance(token, str | bytes) and _encoded(token) in self._ids

    def id(self, token: Text) -> int:
        """Return the id of a token, as text or bytes; special tokens included."""
        try:
            return self._ids[_encoded(token)]
        except KeyError:
            problem = f"{token!r} is not a token; call encode for the ids of text"
            raise UnknownToken(problem) from None

    def token(self, token_id: int) -> bytes:
        """Return the bytes of an id; special tokens included."""
        try:
            return self.vocab[token_id]
        except KeyError:
            limit = f"ids are below {self.vocab_size}, with gaps" if self.vocab else "it has none"
            raise UnknownToken(f"the vocabulary has no id {token_id!r}; {limit}") from None

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
    def template(self) -> Template:
        """The special tokens that `add_special_tokens=True` adds before and after a text."""
        return self._vocabulary.template

    @property
    def chat_template(self) -> str | None:
        """The Jinja template of a chat model that was beside the file, for other tools."""
        return self._vocabulary.chat_template

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


class UnknownToken(KeyError, ValueError):
    """A token or an id that is not in the vocabulary; the message is one sentence."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError shows its repr


def _with_blank(text: Text) -> Text:
    if isinstance(text, bytes):
        return text if text[:1] in (b"", b" ") else b" " + text
    return text if text[:1] in ("", " ") else " " + text


def _encoded(token: Text) -> bytes:
    return token.encode("utf-8", "surrogatepass") if isinstance(token, str) else token


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
