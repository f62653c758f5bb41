"""Key/value cache of a batch of sequences of different lengths.

>>> from tilth import ModelConfig, TransformerLM
>>> model = TransformerLM(ModelConfig(100, 16, d_model=32, num_layers=2, num_heads=4))
>>> cache = KeyValueCache(model.config, 2, model.head_weight.device, model.head_weight.dtype)
>>> ids, positions = cache.begin([[5, 17, 99], [3]])
>>> model.hidden(ids, positions, cache.layers).shape
torch.Size([2, 3, 32])
>>> cache.lengths
[3, 1]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilth.config.model import ModelConfig

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


class LayerCache:
    """Keys and values of one attention layer, allocated once for the whole context.

    Attributes:
        tokens: Rows and columns of the new tokens in a padded batch.
        positions: Their positions in the cache.
        visible: Attention mask of the new tokens over all keys.

    """

    tokens: tuple[Int[Tensor, " tokens"], ...]
    positions: Int[Tensor, " tokens"]
    visible: Bool[Tensor, "batch 1 seq keys"]

    def __init__(self, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros_like(self.keys)

    def update(
        self,
        k: Float[Tensor, "batch num_kv_heads seq d_head"],
        v: Float[Tensor, "batch num_kv_heads seq d_head"],
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values; return all of them, up to the longest sequence."""
        rows, columns = self.tokens
        self.keys[rows, :, self.positions] = k.transpose(1, 2)[rows, columns]
        self.values[rows, :, self.positions] = v.transpose(1, 2)[rows, columns]
        longest = self.visible.shape[-1]
        return self.keys[:, :, :longest], self.values[:, :, :longest]


class KeyValueCache:
    """The caches of all layers of a model.

    Attributes:
        lengths: Number of cached tokens of each sequence.
        layers: One `LayerCache` for each layer.

    """

    def __init__(
        self, config: ModelConfig, batch_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.lengths = [0] * batch_size
        shape = (batch_size, config.num_kv_heads, config.context_length, config.d_head)
        self.layers = [LayerCache(shape, device, dtype) for _ in range(config.num_layers)]
        self._context_length, self._device = config.context_length, device

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of a sequence only."""
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"cannot keep {length} ids of {self.lengths[row]}")
        self.lengths[row] = length

    def begin(
        self, ids: Sequence[Sequence[int]]
    ) -> tuple[Int[Tensor, "batch seq"], Int[Tensor, "batch seq"]]:
        """Add the next ids of each sequence; a sequence may have none.

        Returns the ids, padded on the right, and their positions, for `TransformerLM.hidden`.
        """
        counts = [len(row) for row in ids]
        if len(counts) != len(self.lengths) or not any(counts):
            raise ValueError(
                f"give one list of ids for each of the {len(self.lengths)} sequences, not all empty"
            )
        for count, length in zip(counts, self.lengths, strict=True):
            if length + count > self._context_length:
                raise ValueError(
                    f"the context length is {self._context_length}, and {length} tokens and "
                    f"{count} more do not fit"
                )
        device = self._device
        padded = [[*row, *[0] * (max(counts) - len(row))] for row in ids]
        starts = torch.tensor(self.lengths, device=device)[:, None]
        # The positions of padding do not matter: it is neither stored nor returned.
        steps = torch.arange(max(counts), device=device)
        positions = (starts + steps).clamp(max=self._context_length - 1)  # (batch, seq)
        kept = (steps < torch.tensor(counts, device=device)[:, None]).nonzero(as_tuple=True)
        self.lengths = [a + b for a, b in zip(counts, self.lengths, strict=True)]
        visible = torch.arange(max(self.lengths), device=device) <= positions[:, None, :, None]
        for layer in self.layers:
            layer.tokens, layer.positions, layer.visible = kept, positions[kept], visible
        return torch.tensor(padded, device=device), positions
