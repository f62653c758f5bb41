"""What a tokenizer is like: its longest tokens, how far it compresses, what two of them share.

What enters: tokenizers and texts. What leaves: numbers and short lists, for `tilth tokenizer
inspect` and `compare`, and for whoever wants to look.

>>> from tilth.tokenizer import train_tokenizer
>>> tokenizer = train_tokenizer(texts=["the cat and the hat"], vocab_size=260)
>>> longest_tokens(tokenizer, 2)
[(259, b' the'), (258, b'the')]
>>> bytes_per_token(tokenizer, "the hat")
1.4
"""

import time
from collections import Counter
from dataclasses import dataclass

from tilth.tokenizer.tokenizer import Tokenizer

PILE_BYTES = (
    825e9  # Gao et al. (2020): 825 GiB by their title, 825 GB in the write-ups compared with
)


def longest_tokens(tokenizer: Tokenizer, most: int = 10) -> list[tuple[int, bytes]]:
    """The longest tokens, special ones apart: (id, bytes), of equal length the later first."""
    special = set(tokenizer.special_tokens.values())
    tokens = [(i, token) for i, token in tokenizer.vocab.items() if i not in special]
    return sorted(tokens, key=lambda item: (-len(item[1]), -item[0]))[:most]


def lengths(tokenizer: Tokenizer) -> dict[int, int]:
    """How many tokens there are of each length in bytes."""
    return dict(sorted(Counter(map(len, tokenizer.vocab.values())).items()))


def share_of_non_ascii(tokenizer: Tokenizer) -> float:
    """The share of tokens with a byte outside ASCII, the 256 single bytes apart."""
    tokens = [token for token in tokenizer.vocab.values() if len(token) > 1]
    return sum(not token.isascii() for token in tokens) / max(1, len(tokens))


def shared_merges(one: Tokenizer, other: Tokenizer) -> int:
    """How many merges two tokenizers have in common, wherever they stand."""
    return len(set(one.merges) & set(other.merges))


def bytes_per_token(tokenizer: Tokenizer, text: str | bytes) -> float:
    """How many bytes of a text one token stands for, on average."""
    size_bytes = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    return size_bytes / max(1, tokenizer.count(text))


@dataclass(frozen=True)
class Speed:
    """How quickly one thread encodes a text."""

    bytes_per_second: float
    tokens_per_second: float

    @property
    def hours_for_the_pile(self) -> float:
        """How long the Pile (825e9 bytes) would take at this rate."""
        return PILE_BYTES / self.bytes_per_second / 3600


def encoding_speed(tokenizer: Tokenizer, text: bytes, seconds: float = 0.5) -> Speed:
    """Encode a text again and again for some time; the best pass counts."""
    start = time.perf_counter()
    best = float("inf")
    while True:
        before = time.perf_counter()
        num_tokens = len(tokenizer.encode_array(text))
        after = time.perf_counter()
        best = min(best, after - before)
        if after - start >= seconds:
            return Speed(len(text) / best, num_tokens / best)
