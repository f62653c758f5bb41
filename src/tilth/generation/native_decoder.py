"""Decode on a CPU with the native core, in float32, bfloat16, int8 or int4. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.config.model import ModelConfig
from tilth.config.parameters import drop_tied_head
from tilth.generation import _core

if TYPE_CHECKING:
    from jaxtyping import Float32, Float64

    from tilth.generation.decoding import Logits
    from tilth.generation.sampling import Choice

CONFIG_NAMES = (
    *("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads"),
    *("d_head", "d_ff", "rope_frequencies", "norm"),
)


MIN_SAVED_TOKENS = 32
"""Reading a common prefix first costs a pass over the weights, as much as about 32 tokens."""


class NativeDecoder:
    """A `Decoder` of several rows; use it from one thread at a time.

    A row that begins with the ids of another row shares its cache. The bits of the logits do not
    depend on that, nor on the other rows.
    """

    def __init__(
        self, network: _core.Network, threads: int, rows: int = 1, *, cache: str = "float32"
    ) -> None:
        self._decoder = _core.Decoder(network, threads, rows, cache=cache)
        self._ids: list[list[int]] = [[] for _ in range(rows)]  # in the cache of each row

    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> Logits:
        """Append ids to each row; return the logits after the last id, or after every id."""
        if every or len(ids) == 1:
            return self._read(ids, every)
        rest, sources = self._share_prefixes(ids)
        logits = self._read(rest)
        for row, source in sources.items():
            self._share(source, row, len(self._ids[source]))
            logits[row] = logits[source]
        return logits

    def score(
        self, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocab_size: int
    ) -> Float64[np.ndarray, "rows ids"]:
        """Append ids to each row; return the log-probabilities of targets after its last ids."""
        found = self._decoder.score(ids, targets, vocab_size)
        self._append(ids)
        return found

    def choose(
        self, scores: Float32[np.ndarray, "rows vocab"], choices: Sequence[Choice | None]
    ) -> list[int]:
        """Choose a token for each row with a choice; -1 elsewhere, or without a finite score."""
        return self._decoder.choose(scores, choices)

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` ids of a row only."""
        self._decoder.truncate(row, length)
        del self._ids[row][length:]

    def _read(self, ids: Sequence[Sequence[int]], every: bool = False) -> Logits:
        logits = self._decoder.extend(ids, every)
        self._append(ids)
        return logits

    def _append(self, ids: Sequence[Sequence[int]]) -> None:
        for row, new in enumerate(ids):
            self._ids[row] += new

    def _share_prefixes(
        self, ids: Sequence[Sequence[int]]
    ) -> tuple[list[Sequence[int]], dict[int, int]]:
        """Share caches between rows that begin alike.

        Returns the ids that are left to read, and the rows that need not be read: each has all ids
        of another row, whose cache and logits are its own too.
        """
        rest, sources = list(ids), {}
        several = [row for row, new in enumerate(ids) if len(new) > 1]
        # The last id of a row is always read, as its logits are wanted.
        for row in several:  # share with a row that has read more of the same text
            begin, text = len(self._ids[row]), [*self._ids[row], *ids[row][:-1]]
            lengths = {
                other: common_length(known, text)
                for other, known in enumerate(self._ids)
                # Almost all other rows differ in the next ids.
                if known[begin : begin + MIN_SAVED_TOKENS] == text[begin:][:MIN_SAVED_TOKENS]
            }
            source = max(lengths, key=lambda other: lengths[other], default=row)
            if lengths.get(source, 0) >= begin + MIN_SAVED_TOKENS:
                self._share(source, row, lengths[source])
                rest[row] = ids[row][lengths[source] - begin :]
        while len(several) > 1:
            first, *others = several
            alike = [row for row in others if self._ids[row] == self._ids[first]]
            for row in alike:
                if list(rest[row]) == list(rest[first]):
                    sources[row], rest[row] = first, []
            lengths = {
                row: length
                for row in alike
                if row not in sources
                and (length := common_length(rest[first][:-1], rest[row][:-1]))
            }
            several = [row for row in others if row not in sources]
            if sum(lengths.values()) < MIN_SAVED_TOKENS:
                continue
            longest, begin = max(lengths.values()), len(self._ids[first])
            self._read([rest[first][:longest] if i == first else [] for i in range(len(ids))])
            rest[first] = rest[first][longest:]
            for row, length in lengths.items():
                self._share(first, row, begin + length)
                rest[row] = rest[row][length:]
            several = [row for row in several if row not in lengths]
        return rest, sources

    def _share(self, source: int, row: int, length: int) -> None:
        self._decoder.share(source, row, length)
        self._ids[row] = self._ids[source][:length]


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the number of ids that two sequences begin with in common."""
    shorter = min(len(a), len(b))
    if list(a[:shorter]) == list(b[:shorter]):
        return shorter
    return next(place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def make_network(
    config: ModelConfig, weights: Mapping[str, np.ndarray], *, precision: str = "float32"
) -> _core.Network:
    """Pack weights for the processor; their names are those of a checkpoint."""
    arrays: dict[str, object] = {}
    for name, weight in weights.items():
        arrays[name] = np.ascontiguousarray(weight, np.float32)
        if not np.isfinite(weight).all():
            raise ValueError(f"{name} has values that are not finite")
    if config.tie_embeddings:
        drop_tied_head(arrays)
    shape: dict[str, Any] = {name: getattr(config, name) for name in CONFIG_NAMES}
    return _core.Network(
        arrays,
        **shape,
        norm_epsilon=config.norm_eps,
        is_gated=config.ffn == "swiglu",
        is_tied=config.tie_embeddings,
        has_qk_norm=config.qk_norm,
        has_qkv_bias=config.qkv_bias,
        precision=precision,
    )
