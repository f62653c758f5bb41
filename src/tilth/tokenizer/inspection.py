"""Statistics of tokenizers: their longest tokens, compression, speed, and the merges they share.

`tilth tokenizer inspect` and `compare` print them.

>>> from tilth.tokenizer import train_tokenizer
>>> tokenizer = train_tokenizer(texts=["the cat and the hat"], vocab_size=260)
>>> longest_tokens(tokenizer, 2)
[(257, b'the'), (259, b'nd')]
>>> bytes_per_token(tokenizer, "the hat")
1.75
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from tilth.corpus.listing import compression_of, kind_of
from tilth.corpus.readers import Corpus
from tilth.tokenizer.tokenizer import Tokenizer

# Gao et al. (2020): 825 GiB in their title, 825 GB in the write-ups that tilth is compared with.
PILE_BYTES = 825e9
SAMPLE_BYTES = 10_000_000  # of a corpus, to measure compression on


def longest_tokens(tokenizer: Tokenizer, most: int = 10) -> list[tuple[int, bytes]]:
    """Return the longest tokens as (id, bytes), special tokens excluded; ties by larger id."""
    special = set(tokenizer.special_tokens.values())
    tokens = [(i, token) for i, token in tokenizer.vocab.items() if i not in special]
    return sorted(tokens, key=lambda item: (-len(item[1]), -item[0]))[:most]


def share_of_non_ascii(tokenizer: Tokenizer) -> float:
    """Return the share of tokens with a non-ASCII byte, among tokens of two bytes or more."""
    tokens = [token for token in tokenizer.vocab.values() if len(token) > 1]
    return sum(not token.isascii() for token in tokens) / max(1, len(tokens))


def shared_merges(one: Tokenizer, other: Tokenizer) -> int:
    """Return the number of merges that two tokenizers have in common, at any rank."""
    return len(set(one.merges) & set(other.merges))


def share_of_merges(one: Tokenizer, other: Tokenizer) -> float:
    """Return the share of common merges among those of the smaller tokenizer."""
    return shared_merges(one, other) / max(1, min(len(one.merges), len(other.merges)))


def bytes_per_token(tokenizer: Tokenizer, text: str | bytes) -> float:
    """Return the mean number of bytes per token of a text."""
    size_bytes = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "replace"))
    return size_bytes / max(1, tokenizer.count(text))


@dataclass(frozen=True)
class Speed:
    """The encoding throughput of one thread."""

    bytes_per_second: float
    tokens_per_second: float

    @property
    def hours_for_the_pile(self) -> float:
        """The time to encode the Pile (825e9 bytes) at this rate."""
        return PILE_BYTES / self.bytes_per_second / 3600


def encoding_speed(
    tokenizer: Tokenizer, text: bytes, *, allow_special: bool = True, passes: int = 3
) -> Speed:
    """Measure the throughput of one thread on a text; the fastest of several passes.

    Each pass uses a new encoder. An encoder caches pieces, so a second pass over the same text is
    up to 9 times as fast, which says nothing about new text.
    """
    if not text:
        raise ValueError("The text to measure is empty; give a file with text.")
    best = math.inf
    for _ in range(passes):
        fresh = Tokenizer.from_vocabulary(tokenizer.vocabulary)
        start = time.perf_counter()
        num_tokens = len(fresh.encode_array(text, allow_special=allow_special))
        best = min(best, time.perf_counter() - start)
    return Speed(len(text) / best, num_tokens / best)


def visible(token: bytes, blank: str = "␣") -> str:
    r"""Format a token for a terminal: white space, controls and invalid UTF-8 become visible.

    >>> visible(b" caf\xc3\xa9\n\x1b\xff")
    '␣café⏎\\x1b\\xff'
    """
    text = token.decode("utf-8", "backslashreplace").replace(" ", blank)
    return "".join(c if c.isprintable() else "⏎" if c == "\n" else repr(c)[1:-1] for c in text)


def inspect(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of `tilth tokenizer inspect --json`."""
    return {
        "tokens": len(tokenizer),
        "merges": len(tokenizer.merges),
        "pattern": tokenizer.pattern,
        "special_tokens": dict(tokenizer.special_tokens),
        "fingerprint": tokenizer.fingerprint,
        "share_of_non_ascii": share_of_non_ascii(tokenizer),
        "lengths": dict(sorted(Counter(map(len, tokenizer.vocab.values())).items())),
        "longest_tokens": [{"id": i, "token": visible(t)} for i, t in longest_tokens(tokenizer)],
    }


def compare(tokenizers: Mapping[str, Tokenizer], texts: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the content of `tilth tokenizer compare --json`, by names of tokenizers and texts."""
    if len(tokenizers) < 2:
        raise ValueError("A comparison takes at least two tokenizers.")
    whole = b"".join(texts.values())
    speeds = {name: encoding_speed(tokenizer, whole) for name, tokenizer in tokenizers.items()}
    return {
        "merges": {name: len(tokenizer.merges) for name, tokenizer in tokenizers.items()},
        "shared_merges": {
            f"{a} and {b}": shared_merges(tokenizers[a], tokenizers[b])
            for a, b in combinations(tokenizers, 2)
        },
        "share_of_non_ascii": {name: share_of_non_ascii(t) for name, t in tokenizers.items()},
        "bytes_per_token": {
            name: {file: bytes_per_token(t, text) for file, text in texts.items()}
            for name, t in tokenizers.items()
        },
        "bytes_per_second": {name: speed.bytes_per_second for name, speed in speeds.items()},
        "tokens_per_second": {name: speed.tokens_per_second for name, speed in speeds.items()},
        "hours_for_the_pile": {name: speed.hours_for_the_pile for name, speed in speeds.items()},
    }


def beginning_of(paths: Iterable[Path], separator: str, field: str) -> bytes:
    """Return the first 10 MB of a corpus; a pipe can be read only once and is skipped."""
    beginning = b""
    for path in paths:
        if path.is_file() and kind_of(path) == "text" and not compression_of(path):
            with path.open("rb") as file:  # it may be one document of any size
                beginning += file.read(max(0, SAMPLE_BYTES - len(beginning)))
        elif path.is_file() or path.is_dir():
            for block in Corpus(path, separator=separator, field=field, on_error="skip").blocks():
                beginning += separator.encode().join(block.documents().texts)
                if len(beginning) >= SAMPLE_BYTES:
                    break
    return beginning[:SAMPLE_BYTES]
