"""Decode with torch: on any device, in batches, or with a model in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from tilth.accounting.hardware import host_memory_bytes
from tilth.config import ModelConfig
from tilth.formatting import format_bytes
from tilth.model import KeyValueCache, TransformerLM

if TYPE_CHECKING:
    from tilth.generation.decoding import Logits


class TorchDecoder:
    """A `Decoder` of several sequences, with a key/value cache."""

    def __init__(self, model: TransformerLM, rows: int = 1) -> None:
        check_memory(model.config, rows)
        # The same weights without the fast path, which concatenates matrices for every product: for
        # one token that costs more than the product.
        self._model = TransformerLM(model.config, device="meta").use_fast_path(False)
        self._model.load_state_dict(model.state_dict(), assign=True)
        weight = model.token_embeddings.weight
        self._cache = KeyValueCache(model.config, rows, weight.device, weight.dtype)

    @torch.no_grad()
    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> Logits:
        """Append ids to each row; return the logits after the last id, or after every id."""
        token_ids, positions = self._cache.begin(ids)
        hidden = self._model.hidden(token_ids, positions, self._cache.layers)
        if not every:
            last = torch.tensor([max(0, len(row) - 1) for row in ids], device=hidden.device)
            hidden = hidden[torch.arange(len(ids), device=hidden.device), last][:, None]
        logits: np.ndarray = (hidden @ self._model.head_weight.T).float().cpu().numpy()
        return logits

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` ids of a row only."""
        self._cache.truncate(row, length)


class UncachedDecoder:
    """A `Decoder` of one sequence without a cache: it reads the whole context for every token.

    For samples of a model in training: the logits are those of its forward pass.
    """

    def __init__(self, model: TransformerLM) -> None:
        self._model = model
        self._ids: list[int] = []

    @torch.no_grad()
    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> Logits:
        """Append ids; return the logits after the last id, or after every id."""
        (row,) = ids
        self._ids += row
        model = self._model
        read = torch.tensor([self._ids], device=model.token_embeddings.weight.device)
        hidden = model.hidden(read)[0]
        # A vector for the last id: as a matrix of one row the product may round differently.
        logits = (hidden[-len(row) :] if every else hidden[-1]) @ model.head_weight.T
        return logits.float().cpu().numpy().reshape(1, -1, logits.shape[-1])

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` ids only."""
        del self._ids[length:]


def numpy_weights(model: TransformerLM) -> dict[str, np.ndarray]:
    """Return the weights in float32."""
    return {name: each.detach().float().cpu().numpy() for name, each in model.state_dict().items()}


def check_memory(config: ModelConfig, rows: int) -> None:
    """Reject a cache and rotation tables larger than the memory: no weight bounds their size."""
    per_position = 8 * config.num_layers * config.num_kv_heads * config.d_head * rows
    needed = config.context_length * (per_position + 16 * config.d_head)
    present = host_memory_bytes()
    if needed > present:
        raise ValueError(
            f"a context of {config.context_length:,} tokens takes {format_bytes(needed)} in torch, "
            f"and this machine has {format_bytes(present)}; use the native decoder"
        )
