"""tiktoken's rank file: one token in base64, a blank and its rank per line.

The rank of a token is its id and the priority of its merge. Merges, special tokens and the pattern
are not in the file; those of the published files are known by the SHA-256 of the file.

>>> recover_merges({0: b"a", 1: b"b", 2: b"c", 3: b"bc", 4: b"abc"})
[(b'b', b'c'), (b'a', b'bc')]
"""

import binascii
import hashlib
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from tilth.files import FileError, StrPath, write_text_atomically
from tilth.formatting import join_words
from tilth.schema import short_repr
from tilth.tokenizer._core import read_ranks
from tilth.tokenizer.formats.reading import check_plain, explained, read_content
from tilth.tokenizer.patterns import NAMES, Pattern, describe
from tilth.tokenizer.table import Pair
from tilth.tokenizer.vocabulary import SpecialTokens, Vocabulary

log = logging.getLogger(__name__)

_RANK = re.compile(rb"0|[1-9][0-9]{0,9}")
_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?")
MAX_LINE_BYTES = 100_000  # a token of 65,535 bytes and its rank


@dataclass(frozen=True)
class Published:
    """What a published rank file does not say."""

    name: str
    pattern: str
    special_tokens: Mapping[str, int]
    normalizers: tuple[str, ...] = ()


_QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
_FILES = {
    # tiktoken_ext/openai_public.py
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": Published(
        "r50k_base", "gpt2", {"<|endoftext|>": 50_256}
    ),
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": Published(
        "p50k_base", "gpt2", {"<|endoftext|>": 50_256}
    ),
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": Published(
        "cl100k_base",
        "cl100k",
        {
            "<|endoftext|>": 100_257,
            "<|fim_prefix|>": 100_258,
            "<|fim_middle|>": 100_259,
            "<|fim_suffix|>": 100_260,
            "<|endofprompt|>": 100_276,
        },
    ),
    # Also o200k_harmony, whose special tokens have to be named.
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": Published(
        "o200k_base", "o200k", {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
    ),
    # The first Qwen: tokenization_qwen.py
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": Published(
        "qwen",
        "qwen2",
        {token: 151_643 + place for place, token in enumerate(_QWEN)},
        ("NFC",),
    ),
}
PUBLISHED = MappingProxyType(_FILES)
"""By the SHA-256 of the file."""


def looks_like_ranks(content: bytes) -> bool:
    """Whether the first line is a token and its rank."""
    return _LINE.fullmatch(content[:MAX_LINE_BYTES].partition(b"\n")[0]) is not None


def load_tiktoken(
    path: StrPath, pattern: Pattern | None = None, special_tokens: SpecialTokens = None
) -> Vocabulary:
    """Load ranks; special tokens without an id follow the largest rank.

    The pattern and the special tokens of a published file are known, and may be given to replace
    them; those of other files have to be given. Lines may be empty or end in CRLF. The last line
    may lack its newline if its rank is the largest: then it is not truncated.
    """
    return ranks_vocabulary(path, read_content(path), pattern, special_tokens)


def ranks_vocabulary(
    path: StrPath,
    content: bytes,
    pattern: Pattern | None = None,
    special_tokens: SpecialTokens = None,
) -> Vocabulary:
    """Return the vocabulary of the bytes of a rank file; see `load_tiktoken`."""
    with explained(path):
        table = read_ranks(content)
        tokens = {} if table else parse_ranks(content)
        published = PUBLISHED.get(hashlib.sha256(content).hexdigest())
        if pattern is None and published is None:
            hint = f"name its pattern with --pattern: {NAMES}, or a regex"
            raise FileError(path, "does not say how text is split into pieces", hint)
        if special_tokens is None and published:
            special_tokens = published.special_tokens
        elif not isinstance(special_tokens, str | Mapping):
            special_tokens = list(special_tokens or ())
        options: dict[str, Any] = {
            "pattern": pattern or (published.pattern if published else ""),
            "whole_piece_first": True,
            "normalizers": published.normalizers if published else (),
        }
        if table:
            # What the table cannot hold, from_parts explains or reads.
            with suppress(ValueError):
                if not published or isinstance(special_tokens, Mapping):
                    return Vocabulary.from_table(table, special_tokens, **options)
            tokens = table.tokens()
        Vocabulary(tokens)  # first, as recovering the merges of a token of megabytes is slow
        merges = table.merges() if table else recover_merges(tokens)
        if published and isinstance(special_tokens, list):
            known = published.special_tokens
            tokens |= {known[each]: each.encode() for each in special_tokens if each in known}
        return Vocabulary.from_parts(tokens, merges, special_tokens, **options)


def parse_ranks(content: bytes) -> dict[int, bytes]:
    """Return the tokens of a rank file by their ranks."""
    tokens: dict[int, bytes] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.rstrip(b"\r"):
            continue
        encoded, _, digits = line.removesuffix(b"\r").partition(b" ")
        try:
            token = binascii.a2b_base64(encoded, strict_mode=True)
        except binascii.Error:
            token = None
        if token is None or not _RANK.fullmatch(digits):
            raise ValueError(
                f"line {number:,} is not a token in base64, a blank and a rank; restore a copy"
            )
        if (rank := int(digits)) in tokens:
            raise ValueError(
                f"line {number:,} gives the rank {rank} a second time; give each token its own"
            )
        tokens[rank] = token
    if not tokens:
        raise ValueError("it holds no tokens; restore a copy, or check the path")
    if not content.endswith(b"\n") and rank < max(tokens):
        raise ValueError("its last line is truncated; restore a copy")
    return tokens


def save_tiktoken(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Save the ranks of all tokens except special tokens.

    The file stores no pattern, special tokens, template or chat template: a note names them.
    """
    check_plain(vocabulary, path)
    special_ids = {*vocabulary.special_tokens.values()}
    ranks = {
        token_id: token
        for token_id, token in sorted(vocabulary.tokens.items())
        if token_id not in special_ids
    }
    if problem := rank_problem(vocabulary, ranks):
        raise ValueError(
            f"{path} cannot represent the vocabulary: {problem}; write a tokenizer.json"
        )
    lines = (
        f"{binascii.b2a_base64(token, newline=False).decode('ascii')} {token_id}\n"
        for token_id, token in ranks.items()
    )
    write_text_atomically(path, "".join(lines), overwrite=overwrite)
    note_lost(path, vocabulary, pattern=True)


def note_lost(path: StrPath, vocabulary: Vocabulary, *, pattern: bool) -> None:
    """Log the settings that the file does not store."""
    lost = {
        f"the pattern {describe(vocabulary.pattern)}": pattern,
        f"the {len(vocabulary.special_tokens):,} special tokens": vocabulary.special_tokens,
        "the template": vocabulary.template.before + vocabulary.template.after,
    }
    if names := [name for name, value in lost.items() if value]:
        log.warning("%s does not store %s; give them again to load it.", path, join_words(names))


def rank_problem(vocabulary: Vocabulary, ranks: Mapping[int, bytes]) -> str | None:
    """Return why tiktoken would give other ids by these ranks, or None.

    tiktoken looks up the whole piece first. Then it joins the two adjacent parts whose union has
    the lowest rank, exactly as the merges of `recover_merges` do. If these are the merges of the
    vocabulary, ids can differ only for a piece that is a token which no merge makes.
    """
    if not ranks:
        return "it has no tokens"
    if vocabulary.add_prefix_space:
        return "it adds a blank before text (add_prefix_space)"
    ordinary = {*ranks.values()}
    merges = vocabulary.merges
    for number, (pair, by_rank) in enumerate(zip_longest(merges, recover_merges(ranks)), 1):
        if pair != by_rank:
            return f"merge {number:,} by rank is {short_repr(by_rank)}, not {short_repr(pair)}"
        if not ordinary.issuperset(pair):
            return f"a special token is part of merge {number:,}, {short_repr(pair)}"
    if not vocabulary.whole_piece_first:
        made = {left + right for left, right in merges}
        for token_id, token in ranks.items():
            if len(token) > 1 and token not in made:
                return f"no merge makes token {token_id}, {short_repr(token)}"
    return None


def recover_merges(tokens: Mapping[int, bytes]) -> list[Pair]:
    """Return the merges, in rank order, that are equivalent to merging by rank as tiktoken does.

    The merge of a token is the pair of its last two parts when the token alone is merged by rank.
    A token that ends in more than two parts has no merge: it only occurs as a whole piece.
    100,000 tokens take about a second.

    Lemma: no other pair ever becomes this token, for any ranks, learnt or not.
    Proof: consider a moment when a piece has the two parts x and y, and x + y is the token. No
    merge so far has crossed the ends of x + y, so the merges inside were chosen among the pairs
    inside, in the same order as when x + y is merged alone. Hence x and y are its last two parts.
    """
    ranks = {token: rank for rank, token in tokens.items()}
    return [
        (token[:middle], token[middle:])
        for _, token in sorted(tokens.items())
        if (middle := _last_cut(token, ranks))
    ]


def _last_cut(token: bytes, ranks: Mapping[bytes, int]) -> int | None:
    """Return where the last two parts of a token meet when it is merged by rank, if two remain."""
    # A part is identified by its start. The heap also holds outdated pairs. A token of 65,535 bytes
    # takes less than a second; scanning all pairs for each merge takes a minute, and is not faster
    # for tokens of a few bytes.
    size = len(token)
    ends = list(range(1, size + 1))  # the end of the part that starts here; 0 if none does
    previous = list(range(-1, size))  # the start of the part before the one that starts here
    pairs: list[tuple[int, int, int]] = []

    def push(start: int, end: int) -> None:
        if (rank := ranks.get(token[start:end])) is not None:
            heappush(pairs, (rank, start, end))

    for start in range(size - 1):
        push(start, start + 2)
    num_parts = size
    while num_parts > 2 and pairs:
        _, start, end = heappop(pairs)  # the lowest rank; the leftmost of equal ranks
        middle = ends[start]
        if not 0 < middle < end or ends[middle] != end:
            continue  # one of its parts has been merged since
        ends[start], ends[middle] = end, 0
        num_parts -= 1
        if end < size:
            previous[end] = start
            push(start, ends[end])
        if start > 0:
            push(previous[start], end)
    return ends[0] if num_parts == 2 else None
