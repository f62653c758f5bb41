"""Decode on a CPU with the native core, in float32 or int8. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilth.config.model import NORM_EPSILON, ModelConfig
from tilth.config.parameters import drop_tied_head
from tilth.generation import _core

if TYPE_CHECKING:
    from jaxtyping import Float32


class NativeDecoder:
    """A `Decoder` of one sequence; it belongs to one thread at a time."""

    def __init__(self, network: _core.Network, threads: int) -> None:
        self._decoder = _core.Decoder(network, threads)

    def extend(
        self, ids: Sequence[Sequence[int]], every: bool = False
    ) -> Float32[np.ndarray, "rows ids vocab_size"]:
        """Read ids; return the logits after the last, or after every one."""
        (row,) = ids
        return self._decoder.extend(row, every)[None]

    def truncate(self, row: int, length: int) -> None:
        """Forget all ids but the first `length`."""
        self._decoder.truncate(length)


def make_network(
    config: ModelConfig, weights: Mapping[str, np.ndarray], *, is_int8: bool = False
) -> _core.Network:
    """Lay weights out for the processor, under the names of a checkpoint."""
    arrays: dict[str, object] = {}
    for name, weight in weights.items():
        arrays[name] = np.ascontiguousarray(weight, np.float32)
        if not np.isfinite(weight).all():
            raise ValueError(f"not every number of {name} is finite")
    if config.tie_embeddings:
        drop_tied_head(arrays)
    return _core.Network(
        arrays,
        vocab_size=config.vocab_size,
        context_length=config.context_length,
        d_model=config.d_model,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        d_ff=config.d_ff,
        rope_theta=config.rope_theta,
        norm_epsilon=NORM_EPSILON,
        norm=config.norm,
        has_rope=config.position == "rope",
        is_gated=config.ffn == "swiglu",
        is_tied=config.tie_embeddings,
        has_qk_norm=config.qk_norm,
        is_int8=is_int8,
    )
