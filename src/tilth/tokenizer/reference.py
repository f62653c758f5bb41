r"""The specification of the tokenizer in pure Python: slow and simple.

Tests compare the native core with this module, and this module with the `regex` package, tiktoken
and Hugging Face. It has no normalizers: tests compare those with `unicodedata`. Read it from top to
bottom to learn byte-level BPE; call `tilth.tokenizer` for speed.

>>> split("it's  so")
['it', "'s", ' ', ' so']
>>> vocab, merges = train(["low low low lower lower"], vocab_size=259)
>>> merges
[(b'o', b'w'), (b'l', b'ow'), (b' ', b'low')]
>>> [vocab[token_id] for token_id in encode("low lower", vocab, merges)]
[b'low', b' low', b'e', b'r']
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from tilth.tokenizer.unicode_classes import LETTERS, NUMBERS, SPACES

Pair = tuple[bytes, bytes]

# --- 1. Split ------------------------------------------------------------------------------------
#
# A text is split into pieces (pre-tokens) before bytes are merged, so no token spans two words:
# "dog." and "dog!" share the token "dog" instead of being learnt separately. At each place, the
# first alternative of the pattern that matches is taken.

GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
PATTERNS = {"gpt2": GPT2_PATTERN, "cl100k": CL100K_PATTERN}


def _is_in(ranges: tuple[tuple[int, int], ...], character: str) -> bool:
    """Whether a code point is in one of the sorted, disjoint ranges."""
    code_point = ord(character)
    place = bisect_right(ranges, code_point, key=lambda bounds: bounds[0]) - 1
    return place >= 0 and code_point <= ranges[place][1]


def is_letter(character: str) -> bool:
    r"""`\p{L}`: a letter of any script."""
    return _is_in(LETTERS, character)


def is_number(character: str) -> bool:
    r"""`\p{N}`: a digit, a Roman numeral, a fraction such as ½."""
    return _is_in(NUMBERS, character)


def is_space(character: str) -> bool:
    r"""`\s`: white space, including the no-break space and line ends."""
    return _is_in(SPACES, character)


def is_other(character: str) -> bool:
    r"""`[^\s\p{L}\p{N}]`: punctuation, symbols, emoji, combining marks, everything else."""
    return not (is_letter(character) or is_number(character) or is_space(character))


def is_line_end(character: str) -> bool:
    r"""`[\r\n]`."""
    return character in "\r\n"


def split(text: str, pattern: str = "gpt2") -> list[str]:
    """Split a text into pieces, whose concatenation is the text."""
    match_end = {"gpt2": _gpt2_match_end, "cl100k": _cl100k_match_end}[pattern]
    pieces = []
    start = 0
    while start < len(text):
        end = match_end(text, start)
        pieces.append(text[start:end])
        start = end
    return pieces


def _run_end(text: str, start: int, belongs: Callable[[str], bool]) -> int:
    """Return the end of the run of characters from `start` for which `belongs` is true."""
    end = start
    while end < len(text) and belongs(text[end]):
        end += 1
    return end


def _gpt2_match_end(text: str, start: int) -> int:
    """Return the end of the match of the GPT-2 pattern at `start`."""
    # '(?:[sdmt]|ll|ve|re)
    for contraction in ("'s", "'d", "'m", "'t", "'ll", "'ve", "'re"):
        if text.startswith(contraction, start):
            return start + len(contraction)

    #  ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+     A single blank belongs to the next word.
    after_blank = start + 1 if text[start] == " " else start
    for belongs in (is_letter, is_number, is_other):
        end = _run_end(text, after_blank, belongs)
        if end > after_blank:
            return end

    # \s+(?!\S)     A run of spaces, without its last one if a word follows.
    # \s+           A single space, such as a line end before a word.
    end = _run_end(text, start, is_space)
    return end - 1 if start + 1 < end < len(text) else end


def _cl100k_match_end(text: str, start: int) -> int:
    """Return the end of the match of the cl100k pattern (GPT-4) at `start`."""
    # '(?i:[sdmt]|ll|ve|re)     Case-insensitive; the long s, U+017F, is a form of s.
    lowered = text[start : start + 3].replace("ſ", "s").lower()
    for contraction in ("'s", "'d", "'m", "'t", "'ll", "'ve", "'re"):
        if lowered.startswith(contraction):
            return start + len(contraction)

    # [^\r\n\p{L}\p{N}]?+\p{L}++     Letters, after at most one other character.
    first = text[start]
    joins = not (is_line_end(first) or is_letter(first) or is_number(first))
    end = _run_end(text, start + joins, is_letter)
    if end > start + joins:
        return end

    # \p{N}{1,3}+     Numbers, three digits at a time.
    end = _run_end(text, start, is_number)
    if end > start:
        return min(end, start + 3)

    #  ?[^\s\p{L}\p{N}]++[\r\n]*+     Punctuation, with the line ends after it.
    after_blank = start + 1 if first == " " else start
    end = _run_end(text, after_blank, is_other)
    if end > after_blank:
        return _run_end(text, end, is_line_end)

    # \s++$         All spaces at the end of the text.
    end = _run_end(text, start, is_space)
    if end == len(text):
        return end
    # \s*[\r\n]     Spaces up to their last line end.
    last_line_end = max(text.rfind("\r", start, end), text.rfind("\n", start, end))
    if last_line_end >= 0:
        return last_line_end + 1
    # \s+(?!\S)     Spaces without the last one, which may belong to the next piece.
    # \s            A single space.
    return max(end - 1, start + 1)


def split_at_special_tokens(text: str, special_tokens: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text as (part, is_special); of several special tokens, the longest.

    >>> list(split_at_special_tokens("a<|end|><|end|>", ["<|end|>", "<|end|><|end|>"]))
    [('a', False), ('<|end|><|end|>', True)]
    """
    longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
    any_of_them = "|".join(map(re.escape, longest_first)) or "(?!)"
    for place, part in enumerate(re.split(f"({any_of_them})", text)):
        if part:
            yield part, place % 2 == 1


# --- 2. Train ------------------------------------------------------------------------------------
#
# Start with the 256 bytes. At each step, find the most frequent pair of adjacent tokens in the
# corpus and make it a token. Ties go to the greater pair, so the result is deterministic.


def count_pieces(
    texts: Iterable[str], special_tokens: Sequence[str] = (), pattern: str = "gpt2"
) -> Counter[bytes]:
    """Count the pieces of texts; special tokens separate pieces and are not counted."""
    counts: Counter[bytes] = Counter()
    for text in texts:
        for part, is_special in split_at_special_tokens(text, special_tokens):
            if not is_special:
                counts.update(piece.encode("utf-8") for piece in split(part, pattern))
    return counts


def merge_pair(word: tuple[bytes, ...], pair: Pair) -> tuple[bytes, ...]:
    """Join each occurrence of the pair in the word, from left to right.

    >>> merge_pair((b"a", b"a", b"a"), (b"a", b"a"))
    (b'aa', b'a')
    """
    merged = []
    place = 0
    while place < len(word):
        if word[place : place + 2] == pair:
            merged.append(pair[0] + pair[1])
            place += 2
        else:
            merged.append(word[place])
            place += 1
    return tuple(merged)


def learn_merges(counts: Mapping[bytes, int], num_merges: int) -> list[Pair]:
    """Learn `num_merges` merges, most frequent pair first; fewer if no pair is left.

    The example of Sennrich et al. (2016):

    >>> merges = learn_merges({b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}, 6)
    >>> [b" ".join(pair).decode() for pair in merges]
    ['s t', 'e st', 'o w', 'l ow', 'w est', 'n e']
    """
    words = {tuple(bytes([byte]) for byte in piece): count for piece, count in counts.items()}
    merges: list[Pair] = []
    while len(merges) < num_merges:
        pair_counts: Counter[Pair] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pair_counts[pair] += count
        if not pair_counts:
            break
        best = max(pair_counts, key=lambda pair: (pair_counts[pair], pair))
        merges.append(best)
        # The keys stay distinct: the bytes of a word are its piece.
        words = {merge_pair(word, best): count for word, count in words.items()}
    return merges


def train(
    texts: Iterable[str],
    vocab_size: int,
    special_tokens: Sequence[str] = (),
    pattern: str = "gpt2",
) -> tuple[dict[int, bytes], list[Pair]]:
    """Return a vocabulary (special tokens, the 256 bytes, merged tokens) and its merges."""
    tokens = [token.encode("utf-8") for token in special_tokens]
    tokens += [bytes([byte]) for byte in range(256)]
    assert vocab_size >= len(tokens), "the vocabulary holds at least the special tokens and bytes"
    counts = count_pieces(texts, special_tokens, pattern)
    merges = learn_merges(counts, vocab_size - len(tokens))
    tokens += [left + right for left, right in merges]
    return dict(enumerate(tokens)), merges


# --- 3. Encode and decode ------------------------------------------------------------------------
#
# Encoding a piece repeats the merges of training: join the adjacent pair that was learnt first,
# until no pair has a merge.


def encode_piece(piece: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """Return the tokens of one piece, given the rank of each merge."""
    word = [bytes([byte]) for byte in piece]
    while True:
        known = [(ranks[pair], place) for place, pair in enumerate(pairwise(word)) if pair in ranks]
        if not known:
            return word
        _, place = min(known)  # the leftmost of equal ranks
        word[place : place + 2] = [word[place] + word[place + 1]]


def encode(
    text: str,
    vocab: Mapping[int, bytes],
    merges: Sequence[Pair],
    special_tokens: Sequence[str] = (),
    pattern: str = "gpt2",
) -> list[int]:
    """Return the token ids of a text. A byte without a token is a KeyError."""
    ids = {token: token_id for token_id, token in vocab.items()}
    ranks = {pair: rank for rank, pair in reversed([*enumerate(merges)])}
    found: list[int] = []
    for part, is_special in split_at_special_tokens(text, special_tokens):
        if is_special:
            found.append(ids[part.encode("utf-8")])
            continue
        for piece in split(part, pattern):
            found += [ids[token] for token in encode_piece(piece.encode("utf-8"), ranks)]
    return found


def decode(ids: Iterable[int], vocab: Mapping[int, bytes]) -> str:
    """Return the text of token ids. Bytes are joined first: a character may span tokens."""
    return b"".join(vocab[token_id] for token_id in ids).decode("utf-8", errors="replace")
