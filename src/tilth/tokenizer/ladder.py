"""Byte-level BPE made faster one idea at a time: the steps from `reference.py` to the native core.

Each function returns the result of its definition in `reference.py`; a test compares them on random
texts. `docs/bpe.md` explains the steps and has their times.

>>> counts = {b"low": 5, b"lower": 2, b"widest": 3, b"newest": 6}
>>> [b"".join(pair).decode() for pair in learn_merges_by_heap(counts, 6)]
['st', 'est', 'ow', 'low', 'west', 'ne']
>>> encode_by_heap(b"lower", {(b"l", b"o"): 1, (b"o", b"w"): 0, (b"l", b"ow"): 2})
[b'low', b'e', b'r']
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from tilth.tokenizer.reference import Pair, merge_pair

# --- training: the definition is reference.learn_merges -------------------------------------------


class _Pairs:
    """Words, the counts of their pairs, and the words in which each pair occurs."""

    def __init__(self, counts: Mapping[bytes, int]) -> None:
        self.words = [tuple(bytes([byte]) for byte in piece) for piece in counts]
        self.word_counts = list(counts.values())
        self.counts: Counter[Pair] = Counter()
        self.places: defaultdict[Pair, set[int]] = defaultdict(set)
        for index, word in enumerate(self.words):
            for pair in pairwise(word):
                self.counts[pair] += self.word_counts[index]
                self.places[pair].add(index)

    def merge(self, best: Pair) -> set[Pair]:
        """Merge a pair in the words that contain it; return the pairs whose counts changed."""
        changed = set()
        for index in self.places.pop(best):
            word, count = self.words[index], self.word_counts[index]
            merged = merge_pair(word, best)
            for pair in pairwise(word):
                self.counts[pair] -= count
                changed.add(pair)
                self.places[pair].discard(index)
            for pair in pairwise(merged):
                self.counts[pair] += count
                changed.add(pair)
                self.places[pair].add(index)
            self.words[index] = merged
        for pair in changed:
            if not self.counts[pair]:
                del self.counts[pair]
                del self.places[pair]
        return changed


def learn_merges_incrementally(counts: Mapping[bytes, int], num_merges: int) -> list[Pair]:
    """Count all pairs once; a merge updates the counts in the words that contain the pair."""
    pairs = _Pairs(counts)
    merges: list[Pair] = []
    while len(merges) < num_merges and pairs.counts:
        best = max(pairs.counts, key=lambda pair: (pairs.counts[pair], pair))
        merges.append(best)
        pairs.merge(best)
    return merges


class _Entry:
    """A pair and its count when it was pushed; the heap returns the greatest first."""

    __slots__ = ("count", "pair")

    def __init__(self, count: int, pair: Pair) -> None:
        self.count, self.pair = count, pair

    def __lt__(self, other: "_Entry") -> bool:
        return (other.count, other.pair) < (self.count, self.pair)


def learn_merges_by_heap(counts: Mapping[bytes, int], num_merges: int) -> list[Pair]:
    """Take the maximum from a heap. A changed count is pushed again; stale entries are skipped."""
    pairs = _Pairs(counts)
    heap = [_Entry(count, pair) for pair, count in pairs.counts.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while len(merges) < num_merges and heap:
        entry = heapq.heappop(heap)
        if pairs.counts.get(entry.pair) != entry.count:
            continue
        merges.append(entry.pair)
        for pair in pairs.merge(entry.pair):
            if count := pairs.counts.get(pair):
                heapq.heappush(heap, _Entry(count, pair))
    return merges


# --- encoding: the definition is reference.encode_piece -------------------------------------------


def encode_by_merges(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    """Apply every merge of the vocabulary, in order, as training did."""
    word = tuple(bytes([byte]) for byte in piece)
    for pair in merges:
        word = merge_pair(word, pair)
    return list(word)


def encode_by_filter(piece: bytes, merges: Sequence[Pair]) -> list[bytes]:
    """Apply every merge whose pair is in the set of pairs of the word."""
    word = tuple(bytes([byte]) for byte in piece)
    present = set(pairwise(word))
    for pair in merges:
        if pair in present:
            word = merge_pair(word, pair)
            present = set(pairwise(word))
    return list(word)


def encode_by_heap(piece: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """Take the lowest rank from a heap; a linked list joins neighbours without copying."""
    tokens = [bytes([byte]) for byte in piece]
    last = len(tokens) - 1
    right = list(range(1, last + 2))
    left = list(range(-1, last))
    heap = [
        (ranks[pair], place, pair) for place, pair in enumerate(pairwise(tokens)) if pair in ranks
    ]
    heapq.heapify(heap)
    while heap:
        _, place, pair = heapq.heappop(heap)
        after = right[place]
        # An entry is stale if a merge has changed or removed one of its tokens.
        if after > last or (tokens[place], tokens[after]) != pair:
            continue
        tokens[place] += tokens[after]
        tokens[after] = b""
        right[place] = right[after]
        if right[place] <= last:
            left[right[place]] = place
        for first in (left[place], place):
            second = right[first] if first >= 0 else last + 1
            if second <= last and (found := (tokens[first], tokens[second])) in ranks:
                heapq.heappush(heap, (ranks[found], first, found))
    return [token for token in tokens if token]


def cached(encode: Callable[[bytes], list[bytes]]) -> Callable[[bytes], list[bytes]]:
    """Return an encoder that remembers every piece: most pieces of a text repeat."""
    known: dict[bytes, list[bytes]] = {}

    def encode_cached(piece: bytes) -> list[bytes]:
        if piece not in known:
            known[piece] = encode(piece)
        return known[piece]

    return encode_cached
