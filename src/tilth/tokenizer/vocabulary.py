"""The content of a tokenizer file as one immutable value, validated on construction.

`tilth.tokenizer.formats` reads a `Vocabulary` from files and writes it.

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
ValueError: the merge of b'w' and b'l' makes b'wl', which is not a token; add it to the tokens
"""

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Self

from tilth.schema import short_repr
from tilth.tokenizer._core import MAX_VOCAB_SIZE, VocabularyTable, normalize
from tilth.tokenizer.patterns import MAX_STEPS, NAMES, Pattern, canonical, describe, steps_of
from tilth.tokenizer.table import Pair, TableMerges, TableTokens

SpecialTokens = Mapping[str, int] | Iterable[str] | None
"""Special tokens with their ids, or without: then new ones get the ids after the largest."""

MAX_TOKEN_BYTES = 65_535
MAX_TEMPLATE_TOKENS = 64
MAX_NORMALIZERS = 16
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD")


@dataclass(frozen=True)
class TokenOptions:
    """How a special token is found in text; the options of `AddedToken` in `tokenizers`."""

    special: bool = True
    """Kept for other tools, which can omit special tokens when decoding. No effect on ids."""

    lstrip: bool = False
    """Whether an occurrence includes the white space before it."""

    rstrip: bool = False
    """Whether an occurrence includes the white space after it."""

    single_word: bool = False
    """Whether an occurrence next to a letter, mark, digit or connector is ignored."""

    normalized: bool = False
    """Whether to look for the normalized content in normalized text. Others are found before."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {short_repr(value)}; give True or False")


@dataclass(frozen=True)
class Template:
    """The special tokens that `add_special_tokens=True` adds to a text."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


NO_TEMPLATE = Template()


@dataclass(frozen=True, repr=False)
class Vocabulary:
    """Everything that determines the ids of a text. Hashable, picklable, compared by content."""

    tokens: Mapping[int, bytes]
    """The bytes of each id, special tokens included. Ids may have gaps; bytes may be missing."""

    merges: Sequence[Pair] = ()
    """The merges in order of priority, highest first."""

    special_tokens: Mapping[str, int] = field(default_factory=dict)
    """The id of each special token. They are found in the text before it is split into pieces."""

    pattern: Pattern = "gpt2"
    """The pattern that splits text into pieces: a name, a regex, or a tuple of steps.

    A pattern that has a name in `patterns.PATTERNS` is stored by its name.
    """

    whole_piece_first: bool = False
    """Whether a piece that is a token becomes that token before any merge, as in tiktoken."""

    template: Template = field(default=NO_TEMPLATE, kw_only=True)
    """The special tokens around a text that is encoded with `add_special_tokens=True`."""

    add_prefix_space: bool = field(default=False, kw_only=True)
    """Whether text that does not start with a blank gets one, as `ByteLevel` of Hugging Face does.

    Text is what lies between special tokens. With steps before the last step `gpt2`, or without
    that step, each piece of these steps gets a blank.
    """

    chat_template: str | None = field(default=None, kw_only=True, compare=False)
    """The Jinja template of a chat model; it is kept for other tools and has no effect on ids."""

    normalizers: tuple[str, ...] = field(default=(), kw_only=True)
    """Unicode normalization forms (`NORMALIZERS`), applied to text one after the other."""

    token_options: Mapping[str, TokenOptions] = field(default_factory=dict, kw_only=True)
    """The options of special tokens that differ from the default."""

    repeated_ids: frozenset[int] = field(init=False, repr=False, compare=False)
    """The special tokens that have the bytes of another token, which merges refer to."""

    def __post_init__(self) -> None:
        table = self._native_table()
        special = self.tokens.special if isinstance(self.tokens, TableTokens) else {}
        mappings = ("special_tokens", "token_options")
        for name in mappings if table else ("tokens", *mappings):
            if not isinstance(value := getattr(self, name), Mapping):
                raise ValueError(f"{name} is {short_repr(value)}; give a mapping")
            object.__setattr__(self, name, MappingProxyType(dict(value)))  # a copy: immutable
        if table:  # it has checked its tokens and merges
            object.__setattr__(self, "repeated_ids", frozenset())
        else:
            self._check_tokens_and_merges()
        for special_token, token_id in self.special_tokens.items():
            encoded = _utf8(special_token)
            if type(token_id) is not int or (
                self.tokens.get(token_id) != encoded
                if table is None
                else special.get(token_id) != encoded and table.find(encoded) != token_id
            ):
                raise ValueError(
                    f"the special token {short_repr(special_token)} has the id "
                    f"{short_repr(token_id)}, whose bytes differ; add it to the tokens under its id"
                )
        _check_pattern(self.pattern)
        object.__setattr__(self, "pattern", canonical(self.pattern))
        if not isinstance(self.whole_piece_first, bool):
            raise ValueError("whole_piece_first is not a bool; give True or False")
        if not isinstance(self.add_prefix_space, bool):
            raise ValueError("add_prefix_space is not a bool; give True or False")
        _check_template(self.template, self.special_tokens)
        if not isinstance(self.chat_template, str | None):
            raise ValueError(f"chat_template is {short_repr(self.chat_template)}; give a string")
        self._check_normalizers()
        self._check_token_options()

    def _native_table(self) -> VocabularyTable | None:
        """Return the table of which the tokens and merges are views, if they are."""
        if not isinstance(self.tokens, TableTokens) or not isinstance(self.merges, TableMerges):
            return None
        return self.tokens.table if self.tokens.table is self.merges.table else None

    def _check_tokens_and_merges(self) -> None:
        if not isinstance(self.merges, Iterable):
            raise ValueError(f"merges is {short_repr(self.merges)}; give a sequence of pairs")
        object.__setattr__(self, "merges", tuple(self.merges))
        special_ids = {each for each in self.special_tokens.values() if type(each) is int}
        known, repeated = _check_tokens(self.tokens, special_ids)
        object.__setattr__(self, "repeated_ids", repeated)
        _check_merges(self.merges, known)

    @cached_property
    def table(self) -> VocabularyTable:
        """The tokens and merges for the native core.

        Without `repeated_ids`, and possibly without special tokens.
        """
        if table := self._native_table():
            return table
        tokens = [each for each in self.tokens.items() if each[0] not in self.repeated_ids]
        return VocabularyTable(tokens, list(self.merges))

    def _check_normalizers(self) -> None:
        given = self.normalizers
        is_sequence = isinstance(given, tuple | list)
        if (
            not is_sequence
            or len(given) > MAX_NORMALIZERS
            or not all(isinstance(form, str) and form in NORMALIZERS for form in given)
        ):
            names = ", ".join(NORMALIZERS)
            problem = f"the normalizers are {short_repr(given)}"
            raise ValueError(f"{problem}; give a tuple of {names}, {MAX_NORMALIZERS} at most")
        object.__setattr__(self, "normalizers", tuple(given))

    def _check_token_options(self) -> None:
        for token, options in self.token_options.items():
            if token not in self.special_tokens or type(options) is not TokenOptions:
                raise ValueError(
                    f"the options of {short_repr(token)} are {short_repr(options)}; give "
                    "TokenOptions of a special token"
                )
        changed = {each: o for each, o in self.token_options.items() if o != TokenOptions()}
        object.__setattr__(self, "token_options", MappingProxyType(changed))
        contents: dict[str, str] = {}
        for token, options in changed.items():
            if not options.normalized or not self.normalizers:
                continue
            content = token
            for form in self.normalizers:
                content = normalize(content, form)
            if (first := contents.setdefault(content, token)) != token:
                raise ValueError(
                    f"the special tokens {short_repr(first)} and {short_repr(token)} are the same "
                    "after normalization; keep one of them, or make one not normalized"
                )

    @classmethod
    def from_parts(
        cls,
        vocab: Mapping[int, bytes],
        merges: Iterable[Pair],
        special_tokens: SpecialTokens = None,
        **options: Any,  # noqa: ANN401, the other fields
    ) -> Self:
        """Make a vocabulary; special tokens that are missing from `vocab` are added to it."""
        tokens = dict(vocab)
        ids = {token: token_id for token_id, token in tokens.items() if type(token) is bytes}
        next_id = max((each for each in tokens if type(each) is int), default=-1) + 1
        found = _number_special_tokens(special_tokens, ids.get, next_id)
        for special_token, token_id in found.items():
            tokens.setdefault(token_id, _utf8(special_token))
        return cls(tokens, tuple(merges), found, **options)

    @classmethod
    def from_table(
        cls,
        table: VocabularyTable,
        special_tokens: SpecialTokens = None,
        **options: Any,  # noqa: ANN401, the other fields
    ) -> Self:
        """Make a vocabulary of a native table; special tokens that it lacks are added to it."""
        found = _number_special_tokens(special_tokens, table.find, table.vocab_size)
        added: dict[int, bytes] = {}
        for token, token_id in found.items():
            if (known := table.find(encoded := _utf8(token))) == token_id:
                continue
            is_id = type(token_id) is int and 0 <= token_id < MAX_VOCAB_SIZE
            if known is not None or not is_id or table.has_id(token_id) or token_id in added:
                problem = f"the special token {short_repr(token)} has the id {short_repr(token_id)}"
                raise ValueError(
                    f"{problem}, and the table has its id or its bytes; use from_parts"
                )
            added[token_id] = encoded
        return cls(TableTokens(table, added), TableMerges(table), found, **options)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that determines the ids of a text, independent of dict order."""
        tokens = self.tokens
        added = tokens.special if isinstance(tokens, TableTokens) else self.repeated_ids
        # The regex instead of the name: older versions had no other names than gpt2 and cl100k.
        steps = steps_of(self.pattern)
        pattern = steps[0] if len(steps) == 1 else steps
        digest = hashlib.sha256(b"tilth vocabulary 1")
        parts = [
            *self.table.joined([(each, tokens[each]) for each in sorted(added)]),
            json.dumps(sorted(self.special_tokens.items())).encode(),
            json.dumps([pattern, self.whole_piece_first]).encode(),
        ]
        # Fields that older versions did not have, only if set: old fingerprints stay the same.
        later: dict[str, object] = {}
        if self.template != NO_TEMPLATE:
            later["template"] = [self.template.before, self.template.after]
        if self.add_prefix_space:
            later["add_prefix_space"] = True
        options = sorted(
            (token, each.lstrip, each.rstrip, each.single_word, each.normalized)
            for token, each in self.effective_options.items()
        )
        if self.normalizers or options:
            later["normalization"] = [self.normalizers, options]
        if later:
            parts.append(json.dumps(later, sort_keys=True).encode())
        for part in parts:
            digest.update(b"%d:" % len(part) + part)
        return digest.hexdigest()

    @cached_property
    def effective_options(self) -> Mapping[str, TokenOptions]:
        """The token options that have an effect on ids, without the others."""
        keep_normalized = bool(self.normalizers) or self._needs_two_searches()
        effective = {
            token: replace(each, special=True, normalized=each.normalized and keep_normalized)
            for token, each in self.token_options.items()
        }
        return {token: each for token, each in effective.items() if each != TokenOptions()}

    def _needs_two_searches(self) -> bool:
        """Whether one search for all special tokens could differ from the normalized ones last."""
        options = self.token_options
        normalized = {token for token, each in options.items() if each.normalized}
        others = self.special_tokens.keys() - normalized
        if not normalized or not others:
            return False
        if any(each.lstrip or each.rstrip or each.single_word for each in options.values()):
            return True
        # Another token must be a prefix of a normalized one, or start inside it.
        firsts = {token[0] for token in others}
        prefixes: list[str] = []  # sorted; none is a prefix of another
        for token in sorted(others):
            if not prefixes or not token.startswith(prefixes[-1]):
                prefixes.append(token)
        return any(
            token.startswith(tuple(prefixes[max(0, place - 1) : place]))
            or not firsts.isdisjoint(token[1:])
            for token in normalized
            for place in (bisect_right(prefixes, token),)
        )

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[object, ...]:
        parts = {each.name: getattr(self, each.name) for each in fields(self) if each.init}
        # A mapping proxy cannot be pickled, a dict can.
        parts = {k: dict(v) if isinstance(v, Mapping) else v for k, v in parts.items()}
        parts["merges"] = tuple(self.merges)
        return partial(type(self), **parts), ()

    def __repr__(self) -> str:
        num_special = len(self.special_tokens)
        return (
            f"<Vocabulary of {len(self.tokens):,} tokens, {len(self.merges):,} merges, "
            f"{num_special:,} special token{'' if num_special == 1 else 's'}, "
            f"pattern {describe(self.pattern)}>"
        )


def _number_special_tokens(
    special_tokens: SpecialTokens, find: Callable[[bytes], int | None], next_id: int
) -> dict[str, int]:
    """Return the id of each special token: given, found among the tokens, or a new one."""
    if isinstance(special_tokens, str):  # an iterable of characters
        name = short_repr(special_tokens)
        raise ValueError(f"the special tokens are the string {name}; give a list of strings")
    given = special_tokens if isinstance(special_tokens, Mapping) else {}
    found: dict[str, int] = {}
    for special_token in special_tokens or ():
        encoded = _utf8(special_token)
        if special_token in found:
            raise ValueError(
                f"the special token {short_repr(special_token)} is given twice; give it once"
            )
        known_id = given[special_token] if given else find(encoded)
        token_id = next_id if known_id is None and not given else known_id
        next_id += token_id == next_id
        found[special_token] = token_id  # type: ignore[assignment]
    return found


def _check_tokens(
    tokens: Mapping[int, bytes], special_ids: Set[int]
) -> tuple[Set[bytes], frozenset[int]]:
    """Check ids and bytes; return the set of all bytes, and special tokens that repeat them."""
    ids: dict[bytes, int] = {}
    repeated: set[int] = set()
    for token_id, token in tokens.items():
        # Not isinstance: True is an int.
        if type(token_id) is not int or not 0 <= token_id < MAX_VOCAB_SIZE:
            limit = f"give an int from 0 to {MAX_VOCAB_SIZE - 1}"
            raise ValueError(f"the token id {short_repr(token_id)} is out of range; {limit}")
        if type(token) is not bytes:
            raise ValueError(f"token {token_id} is {short_repr(token)}; give bytes")
        if not 0 < len(token) <= MAX_TOKEN_BYTES:
            limit = f"give 1 to {MAX_TOKEN_BYTES:,}"
            raise ValueError(f"token {token_id} is {len(token):,} bytes long; {limit}")
        if (first_id := ids.setdefault(token, token_id)) != token_id:
            if token_id in special_ids or first_id in special_ids:
                repeated.add(token_id if token_id in special_ids else first_id)
                continue
            name = f"tokens {first_id} and {token_id}"
            raise ValueError(f"{name} are both {short_repr(token)}; keep one of them")
    return ids.keys(), frozenset(repeated)


def _check_merges(merges: Iterable[Pair], known: Set[bytes]) -> None:
    """Check that merges are distinct pairs of tokens whose concatenations are tokens too."""
    seen: set[Pair] = set()
    for pair in merges:
        if type(pair) is not tuple or len(pair) != 2 or not type(pair[0]) is type(pair[1]) is bytes:
            problem = f"the merge {short_repr(pair)} is not a pair"
            raise ValueError(f"{problem}; give tuples of two bytes objects")
        left, right = pair
        are_known = left in known and right in known and left + right in known
        if are_known and pair not in seen:
            seen.add(pair)
            continue
        name = f"the merge of {short_repr(left)} and {short_repr(right)}"
        if are_known:
            raise ValueError(f"{name} is given twice; keep the first")
        token = next(each for each in (left, right, left + right) if each not in known)
        use = f"{'needs' if token in pair else 'makes'} {short_repr(token)}"
        raise ValueError(f"{name} {use}, which is not a token; add it to the tokens")


def _check_pattern(pattern: object) -> None:
    steps = pattern if isinstance(pattern, tuple) else (pattern,)
    if not 0 < len(steps) <= MAX_STEPS or not all(isinstance(s, str) and s for s in steps):
        raise ValueError(
            f"the pattern is {short_repr(pattern)}; give one of {NAMES}, a regex, or a tuple of "
            f"{MAX_STEPS} regexes at most"
        )


def _check_template(template: object, special_tokens: Mapping[str, int]) -> None:
    if not isinstance(template, Template):
        raise ValueError(f"template is {short_repr(template)}; give a Template")
    for side in (template.before, template.after):
        if not isinstance(side, tuple) or len(side) > MAX_TEMPLATE_TOKENS:
            limit = f"give tuples of {MAX_TEMPLATE_TOKENS} special tokens at most"
            raise ValueError(f"a side of the template is {short_repr(side)}; {limit}")
        for token in side:
            if not isinstance(token, str) or token not in special_tokens:
                name = f"the template adds {short_repr(token)}"
                raise ValueError(f"{name}, which is not a special token; add it to them")


def _utf8(special_token: str) -> bytes:
    name = f"the special token {short_repr(special_token)}"
    if not isinstance(special_token, str) or not special_token:
        raise ValueError(f"{name} is not text; give strings of one character or more")
    try:
        return special_token.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{name} has a lone surrogate; give valid Unicode") from None
