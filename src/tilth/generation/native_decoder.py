"""Decode on a CPU with the native core, in float32 or int8. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilth.config.model import ModelConfig
from tilth.config.parameters import drop_tied_head
from tilth.generation import _core

if TYPE_CHECKING:
    from tilth.generation.decoding import Logits

CONFIG_NAMES = (
    *("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads"),
    *("d_head", "d_ff", "rope_frequencies", "norm"),
)


class NativeDecoder:
    """A `Decoder` of one sequence; use it from one thread at a time."""

    def __init__(self, network: _core.Network, threads: int) -> None:
        self._decoder = _core.Decoder(network, threads)

    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> Logits:
        """Append ids; return the logits after the last id, or after every id."""
        (row,) = ids
        return self._decoder.extend(row, every)[None]

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` ids only."""
        self._decoder.truncate(length)


def make_network(
    config: ModelConfig, weights: Mapping[str, np.ndarray], *, is_int8: bool = False
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
        is_int8=is_int8,
    )
