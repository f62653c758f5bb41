"""Everything that a tokenizer file says, in one value that is checked when it is made.

What enters: tokens, merges, special tokens, a pattern. What leaves: a `Vocabulary`, which does not
change after; `formats` reads it from files and writes it to them.

>>> tokens = {0: b"l", 1: b"o", 2: b"w", 3: b"lo", 4: b"low"}
>>> merges = [(b"l", b"o"), (b"lo", b"w")]
>>> vocabulary = Vocabulary.from_parts(tokens, merges, special_tokens=["<|endoftext|>"])
>>> vocabulary
<Vocabulary of 6 tokens, 2 merges, 1 special token, pattern gpt2>
>>> vocabulary.special_tokens["<|endoftext|>"]
5
>>> Vocabulary(tokens, ((b"w", b"l"),))
Traceback (most recent call last):
    ...
ValueError: the merge of b'w' and b'l' makes b'wl', which is no token; add it to the tokens
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from operator import add
from types import MappingProxyType
from typing import Self

from tilth.schema import shown
from tilth.tokenizer._core import MAX_VOCAB_SIZE

Pair = tuple[bytes, bytes]

MOST_TOKEN_BYTES = 65_535


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """What decides which ids a text has. Equal if its content is; a key, and picklable."""

    tokens: Mapping[int, bytes]
    """The bytes of each id, special tokens included; ids may have holes, bytes may be missing."""

    merges: tuple[Pair, ...] = ()
    """The pairs that are joined, the first before the second."""

    special_tokens: Mapping[str, int] = field(default_factory=dict)
    """The ids of the tokens that are found in the text before it is cut into pieces."""

    pattern: str = "gpt2"
    """How text is cut into pieces: `gpt2`, `cl100k`, or a pattern for the `regex` package."""

    whole_piece_first: bool = False
    """Whether a piece that is a token is taken whole before any merge, as tiktoken does."""

    def __post_init__(self) -> None:
        for name, kind in (("tokens", Mapping), ("merges", Iterable), ("special_tokens", Mapping)):
            if not isinstance(value := getattr(self, name), kind):
                kinds = "a mapping" if kind is Mapping else "a sequence of pairs"
                raise ValueError(f"the {name} are {shown(value)}; give {kinds}")
        # Copies: what the caller does to its own afterwards changes nothing here.
        object.__setattr__(self, "tokens", MappingProxyType(dict(self.tokens)))
        object.__setattr__(self, "merges", tuple(self.merges))
        object.__setattr__(self, "special_tokens", MappingProxyType(dict(self.special_tokens)))
        _check_ids(self.tokens)
        known = _checked_tokens(self.tokens)
        _check_merges(self.merges, known)
        _check_special_tokens(self.special_tokens, self.tokens)
        if not isinstance(self.pattern, str) or not self.pattern:
            raise ValueError(f"the pattern is {shown(self.pattern)}; give gpt2, cl100k or a regex")
        if not isinstance(self.whole_piece_first, bool):
            value = shown(self.whole_piece_first)
            raise ValueError(f"whole_piece_first is {value}; give True or False")

    @classmethod
    def from_parts(
        cls,
        vocab: Mapping[int, bytes],
        merges: Iterable[Pair],
        special_tokens: Mapping[str, int] | Iterable[str] | None = None,
        *,
        pattern: str = "gpt2",
        whole_piece_first: bool = False,
    ) -> Self:
        """Make one of plain parts, to which special tokens are added that are no tokens yet.

        Special tokens come with their ids, or else follow the largest one.
        """
        if isinstance(special_tokens, str):  # it would be taken for a list of characters
            raise ValueError(
                f"the special tokens are the string {shown(special_tokens)}; give a list of strings"
            )
        tokens = dict(vocab)
        _check_ids(tokens)  # before the largest is sought
        if isinstance(special_tokens, Mapping):
            for special_token, token_id in special_tokens.items():
                tokens.setdefault(token_id, _utf8(special_token))
            return cls(tokens, tuple(merges), special_tokens, pattern, whole_piece_first)
        ids = {token: token_id for token_id, token in tokens.items() if type(token) is bytes}
        next_id = max(tokens, default=-1) + 1
        found: dict[str, int] = {}
        for special_token in special_tokens or ():
            encoded = _utf8(special_token)
            if special_token in found:
                raise ValueError(
                    f"the special token {shown(special_token)} is given twice; give it once"
                )
            if encoded not in ids:
                ids[encoded] = next_id
                tokens[next_id] = encoded
                next_id += 1
            found[special_token] = ids[encoded]
        return cls(tokens, tuple(merges), found, pattern, whole_piece_first)

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of all that decides which ids a text has, in a form that has no order."""
        ids = sorted(self.tokens)
        digest = hashlib.sha256(b"tilth vocabulary 1")
        for part in (
            _joined(str(token_id).encode() for token_id in ids),
            _joined(self.tokens[token_id] for token_id in ids),
            _joined(chain.from_iterable(self.merges)),
            json.dumps(sorted(self.special_tokens.items())).encode(),
            json.dumps([self.pattern, self.whole_piece_first]).encode(),
        ):
            digest.update(b"%d:" % len(part))
            digest.update(part)
        return digest.hexdigest()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[object, ...]:
        # A view cannot be pickled, a dict can.
        tokens, special_tokens = dict(self.tokens), dict(self.special_tokens)
        parts = (tokens, self.merges, special_tokens, self.pattern, self.whole_piece_first)
        return type(self), parts

    def __repr__(self) -> str:
        num_special = len(self.special_tokens)
        return (
            f"<Vocabulary of {len(self.tokens):,} tokens, {len(self.merges):,} merges, "
            f"{num_special:,} special token{'' if num_special == 1 else 's'}, "
            f"pattern {self.pattern}>"
        )


def _joined(parts: Iterable[bytes]) -> bytes:
    """All parts in one, after their lengths: no other parts give the same."""
    parts = list(parts)
    return " ".join(map(str, map(len, parts))).encode() + b":" + b"".join(parts)


# Each check looks at everything at once, in C, and only then for the culprit: a vocabulary of
# 200,000 tokens and as many merges is checked in about 0.1 s.


def _check_ids(tokens: Mapping[int, bytes]) -> None:
    if not set(map(type, tokens)) <= {int}:  # not isinstance, for which True is an int
        token_id = next(token_id for token_id in tokens if type(token_id) is not int)
        raise ValueError(f"the token id {shown(token_id)} is not an int; give whole numbers")
    if tokens and not (min(tokens) >= 0 and max(tokens) < MAX_VOCAB_SIZE):
        token_id = next(token_id for token_id in tokens if not 0 <= token_id < MAX_VOCAB_SIZE)
        raise ValueError(
            f"the token id {shown(token_id)} is out of range; give 0 to {MAX_VOCAB_SIZE - 1}"
        )


def _checked_tokens(tokens: Mapping[int, bytes]) -> set[bytes]:
    """The tokens, each of which is as it should be."""
    values = tokens.values()
    if not set(map(type, values)) <= {bytes}:
        token_id = next(token_id for token_id in tokens if type(tokens[token_id]) is not bytes)
        raise ValueError(f"token {token_id} is {shown(tokens[token_id])}; give bytes")
    if not all(values):
        token_id = next(token_id for token_id in tokens if not tokens[token_id])
        raise ValueError(f"token {token_id} is empty; leave it out")
    if max(map(len, values), default=0) > MOST_TOKEN_BYTES:
        token_id = max(tokens, key=lambda token_id: len(tokens[token_id]))
        raise ValueError(
            f"token {token_id} is {len(tokens[token_id]):,} bytes long; "
            f"leave out tokens of more than {MOST_TOKEN_BYTES:,}"
        )
    known = set(values)
    if len(known) < len(tokens):
        first_ids: dict[bytes, int] = {}
        for token_id, token in tokens.items():
            first_id = first_ids.setdefault(token, token_id)
            if first_id != token_id:
                raise ValueError(
                    f"tokens {first_id} and {token_id} are both {shown(token)}; keep one of them"
                )
    return known


def _check_merges(merges: tuple[Pair, ...], known: set[bytes]) -> None:
    if not (set(map(type, merges)) <= {tuple} and set(map(len, merges)) <= {2}):
        merge = next(merge for merge in merges if type(merge) is not tuple or len(merge) != 2)
        raise ValueError(f"the merge {shown(merge)} is no pair; give tuples of two bytes objects")
    parts = list(chain.from_iterable(merges))
    if not set(map(type, parts)) <= {bytes}:
        merge = next(merge for merge in merges if {*map(type, merge)} != {bytes})
        raise ValueError(f"the merge {shown(merge)} is not of bytes; give tuples of two of them")
    if not known.issuperset(parts):
        merge = next(merge for merge in merges if not known.issuperset(merge))
        part = next(part for part in merge if part not in known)
        raise ValueError(
            f"the merge of {shown(merge[0])} and {shown(merge[1])} needs {shown(part)}, "
            "which is no token; add it to the tokens"
        )
    if not known.issuperset(map(add, parts[::2], parts[1::2])):
        left, right = next(merge for merge in merges if merge[0] + merge[1] not in known)
        raise ValueError(
            f"the merge of {shown(left)} and {shown(right)} makes {shown(left + right)}, "
            "which is no token; add it to the tokens"
        )
    if len(set(merges)) < len(merges):
        left, right = next(merge for merge, count in Counter(merges).items() if count > 1)
        raise ValueError(
            f"the merge of {shown(left)} and {shown(right)} is given twice; keep the first"
        )


def _check_special_tokens(special_tokens: Mapping[str, int], tokens: Mapping[int, bytes]) -> None:
    for special_token, token_id in special_tokens.items():
        encoded = _utf8(special_token)
        if type(token_id) is not int or tokens.get(token_id) != encoded:
            raise ValueError(
                f"the special token {shown(special_token)} has the id {shown(token_id)}, which is "
                "not the id of these bytes; add it to the tokens under its id"
            )


def _utf8(special_token: str) -> bytes:
    if not isinstance(special_token, str) or not special_token:
        raise ValueError(
            f"the special token {shown(special_token)} is not text; give strings of one character "
            "or more"
        )
    try:
        return special_token.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"the special token {shown(special_token)} holds half a character (a lone surrogate); "
            "give whole ones"
        ) from None
