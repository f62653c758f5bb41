"""tiktoken's file of ranks: a token in base64, a blank and its rank on each line.

What enters: the file, or a `Vocabulary`. What leaves: the other of the two. The rank of a token is
its id and says when it is merged; merges themselves, special tokens and the pattern are not in the
file.

>>> recover_merges({0: b"a", 1: b"b", 2: b"c", 3: b"bc", 4: b"abc"})
[(b'b', b'c'), (b'a', b'bc')]
"""

import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush
from pathlib import Path

from tilth.files import FileError, StrPath, open_regular, read_bytes, write_text_atomically
from tilth.schema import short_repr
from tilth.tokenizer.formats.reading import MAX_TOKENIZER_BYTES, explained
from tilth.tokenizer.splitting import NATIVE_PATTERNS
from tilth.tokenizer.vocabulary import Pair, Vocabulary

_RANK = re.compile(rb"0|[1-9][0-9]{0,9}")
_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n?")
MOST_LINE_BYTES = 100_000  # of a token of 65,535 bytes and its rank
# SHA-256 of the files that OpenAI publishes (tiktoken_ext/openai_public.py) and their patterns.
_KNOWN = {
    "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930": "gpt2",  # r50k_base
    "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069": "gpt2",  # p50k_base
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k",  # cl100k_base
}


def holds_ranks(path: Path) -> bool:
    """Whether a file begins with a line of ranks, or is called so and begins otherwise."""
    if not path.is_file():
        return path.suffix == ".tiktoken"
    with open_regular(path) as file:
        line = file.readline(MOST_LINE_BYTES)
    is_json = line.lstrip().startswith(b"{")
    return (path.suffix == ".tiktoken" and not is_json) or _LINE.fullmatch(line) is not None


def load_tiktoken(
    path: StrPath,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
) -> Vocabulary:
    """Read ranks; special tokens without an id follow the largest rank.

    Without a `pattern`, only OpenAI's own files are read, which are known by their checksums. Lines
    may end in CRLF and be empty; the last needs no end if its rank is the largest, as that of a
    torn line is not.
    """
    with explained(path):
        tokens: dict[int, bytes] = {}
        content = read_bytes(path, MAX_TOKENIZER_BYTES)
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.rstrip(b"\r"):
                continue
            encoded, _, digits = line.removesuffix(b"\r").partition(b" ")
            if not _RANK.fullmatch(digits):
                raise ValueError(
                    f"line {number:,} is not a token in base64, a blank and a rank; restore a copy"
                )
            try:
                token = binascii.a2b_base64(encoded, strict_mode=True)
            except binascii.Error:
                raise ValueError(
                    f"{short_repr(encoded)} in line {number:,} is not base64; restore a copy"
                ) from None
            if (rank := int(digits)) in tokens:
                raise ValueError(
                    f"line {number:,} gives the rank {rank} a second time; give each token its own"
                )
            tokens[rank] = token
        if not tokens:
            raise FileError(path, "holds no tokens", "restore a copy, or check the path")
        if not content.endswith(b"\n") and rank < max(tokens):
            raise FileError(path, "is torn in its last line", "restore a copy")
        if pattern is None:
            pattern = _KNOWN.get(hashlib.sha256(content).hexdigest())
            if pattern is None:
                names = ", ".join(NATIVE_PATTERNS)
                hint = f"name its pattern with --pattern: {names}, or one for the regex package"
                raise FileError(path, "does not say how text is cut into pieces", hint)
        # Before the merges are sought, which would be slow for a token of megabytes.
        Vocabulary(tokens)
        merges = recover_merges(tokens)
        return Vocabulary.from_parts(
            tokens, merges, special_tokens, pattern=pattern, whole_piece_first=True
        )


def save_tiktoken(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Write the ranks of all tokens but the special ones."""
    special_ids = {*vocabulary.special_tokens.values()}
    ranks = {
        token_id: token
        for token_id, token in sorted(vocabulary.tokens.items())
        if token_id not in special_ids
    }
    problem = _what_ranks_cannot_say(vocabulary, ranks)
    if problem:
        raise ValueError(f"{path} cannot say that {problem}; write a tokenizer.json")
    lines = (
        f"{binascii.b2a_base64(token, newline=False).decode('ascii')} {token_id}\n"
        for token_id, token in ranks.items()
    )
    write_text_atomically(path, "".join(lines), overwrite=overwrite)


def _what_ranks_cannot_say(vocabulary: Vocabulary, ranks: Mapping[int, bytes]) -> str | None:
    # tiktoken joins any two parts that are a token together, the lowest rank first, after it looked
    # whether the whole piece is one. It does so exactly as the merges that `recover_merges` finds
    # (the reason stands there). So if these are the vocabulary's own, in the same order, the ids
    # are the same, but for pieces that are tokens which no merge makes: those it takes whole.
    if not ranks:
        return "there are no tokens"
    ids = {token: token_id for token_id, token in ranks.items()}
    previous = -1
    makers: dict[int, Pair] = {}
    for left, right in vocabulary.merges:
        if not (left in ids and right in ids and left + right in ids):
            return f"a special token is part of the merge of {short_repr(left)} and {short_repr(right)}"
        made = ids[left + right]
        if made in makers:
            return f"two merges make {short_repr(left + right)}"
        if made < previous:
            return f"the token {made}, {short_repr(left + right)}, is merged after token {previous}"
        makers[made] = (left, right)
        previous = made
    recovered = {ids[left + right]: (left, right) for left, right in recover_merges(ranks)}
    if recovered != makers:
        made = next(i for i in ranks if recovered.get(i) != makers.get(i))
        pair = makers.get(made)
        way = f"from {short_repr(pair[0])} and {short_repr(pair[1])}" if pair else "by no merge"
        return f"the token {made}, {short_repr(ranks[made])}, is made {way}"
    if not vocabulary.whole_piece_first:
        for token_id, token in ranks.items():
            if len(token) > 1 and token_id not in makers:
                return f"the token {token_id}, {short_repr(token)}, is made by no merge, nor taken whole"
    return None


def recover_merges(tokens: Mapping[int, bytes]) -> list[Pair]:
    """The merges, in rank order, that join bytes as tiktoken does by rank alone.

    A token's merge is the last two parts that remain of it when it is merged by rank. There is no
    other pair of parts that ever become it: while a piece is merged, what lies between two places
    that no merge has crossed is merged as if it stood alone, so when a token lies there in two
    parts, they are the two that remain of it alone. A token of which more remain has no merge: it
    is only ever taken whole, as a piece. This holds for any ranks, not only for learnt ones.

    100,000 tokens take about a second.
    """
    ranks = {token: rank for rank, token in tokens.items()}
    merges = []
    for _, token in sorted(tokens.items()):
        if len(token) == 2:
            merges.append((token[:1], token[1:]))
        elif len(token) > 2 and (middle := _last_cut(token, ranks)):
            merges.append((token[:middle], token[middle:]))
    return merges


def _last_cut(token: bytes, ranks: Mapping[bytes, int]) -> int | None:
    """Where the last two parts of a token meet when it is merged by rank; None if more remain."""
    # A part is known by where it begins. A heap of all pairs, also outdated ones, keeps a token of
    # 65,535 bytes under a second, where looking at every pair for every merge takes a minute; for
    # tokens of a few bytes it is no slower.
    size = len(token)
    ends = list(range(1, size + 1))  # of the part that begins here; 0 where none does any more
    previous = list(range(-1, size))  # the beginning of the part before the one that begins here
    pairs = [
        (rank, start, start + 2)
        for start in range(size - 1)
        if (rank := ranks.get(token[start : start + 2])) is not None
    ]
    heapify(pairs)
    num_parts = size
    while num_parts > 2 and pairs:
        _, start, end = heappop(pairs)  # the lowest rank, the leftmost of equal ones
        middle = ends[start]
        if not 0 < middle < end or ends[middle] != end:
            continue  # one of its parts has been merged since
        ends[start], ends[middle] = end, 0
        num_parts -= 1
        if end < size:
            previous[end] = start
            if (rank := ranks.get(token[start : ends[end]])) is not None:
                heappush(pairs, (rank, start, ends[end]))
        if start > 0:
            before = previous[start]
            if (rank := ranks.get(token[before:end])) is not None:
                heappush(pairs, (rank, before, end))
    return ends[0] if num_parts == 2 else None
