"""Keys and values that are kept, in torch: for GPUs, for batches, and as a second opinion.

What enters: a `TransformerLM`, and for each sequence of a batch some more ids. What leaves: the
logits behind them, equal to those of the model without a cache. Memory is allocated once.

>>> import tilth
>>> model = tilth.TransformerLM(
...     tilth.ModelConfig(100, context_length=16, d_model=32, num_layers=2, num_heads=4)
... )
>>> cached = CachedModel(model, batch_size=2)
>>> cached.extend([[5, 17, 99], [3]]).shape  # sequences may have different lengths
torch.Size([2, 3, 100])
>>> cached.extend([[8], [4]]).shape, cached.lengths
(torch.Size([2, 1, 100]), [4, 2])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as fused_attention

from tilth.model.config import ModelConfig
from tilth.model.transformer import TransformerBlock, TransformerLM

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Float32, Int


class CachedModel:
    """A model that remembers what each sequence of a batch has read."""

    def __init__(self, model: TransformerLM, batch_size: int) -> None:
        # The same weights without the fast path, which joins matrices anew for every product: for
        # one token that costs more than the product.
        self.model = TransformerLM(model.config, device="meta").use_fast_path(False)
        self.model.load_state_dict(model.state_dict(), assign=True)
        self.lengths = [0] * batch_size
        """How many ids each sequence has read."""
        weight, config = model.token_embeddings.weight, model.config
        shape = (batch_size, config.num_kv_heads, config.context_length, config.d_head)
        self._keys = [
            torch.zeros(shape, device=weight.device, dtype=weight.dtype) for _ in model.layers
        ]
        self._values = [torch.zeros_like(keys) for keys in self._keys]

    def truncate(self, row: int, length: int) -> None:
        """Forget all that a sequence has read but its first `length` ids."""
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"cannot keep {length} ids of {self.lengths[row]}")
        self.lengths[row] = length

    @torch.no_grad()
    def extend(
        self, ids: Sequence[Sequence[int]], *, every: bool = True
    ) -> Float[Tensor, "batch seq vocab_size"]:
        """Read ids behind those read so far, as many as each sequence is given, or none.

        Returns the logits behind every id, rows filled up at their end; or behind the last alone.
        """
        counts = [len(row) for row in ids]
        assert len(counts) == len(self.lengths)
        assert max(counts) > 0
        context_length = self.model.config.context_length
        for count, length in zip(counts, self.lengths, strict=True):
            if length + count > context_length:
                raise ValueError(
                    f"the context length is {context_length}, and {length} tokens and {count} more "
                    "do not fit"
                )
        device = self._keys[0].device
        filled = [[*row, *[0] * (max(counts) - len(row))] for row in ids]
        x: Tensor = self.model.token_embeddings(torch.tensor(filled, device=device))
        starts = torch.tensor(self.lengths, device=device)[:, None]
        # What fills a row up may stand anywhere: it is neither kept nor returned.
        steps = torch.arange(max(counts), device=device)
        positions = (starts + steps).clamp(max=context_length - 1)  # (batch, seq)
        kept = steps < torch.tensor(counts, device=device)[:, None]
        longest = max(map(sum, zip(counts, self.lengths, strict=True)))
        visible = torch.arange(longest, device=device) <= positions[:, None, :, None]
        for i, layer in enumerate(self.model.layers):
            assert isinstance(layer, TransformerBlock)
            x = self._block(layer, i, x, positions, kept, visible)
        if self.model.ln_final is not None:
            x = self.model.ln_final(x)
        if not every:
            last = torch.tensor([max(0, count - 1) for count in counts], device=device)
            x = x[torch.arange(len(counts), device=device), last][:, None]
        self.lengths = [a + b for a, b in zip(counts, self.lengths, strict=True)]
        return x @ self.model.head_weight.T

    def _block(
        self,
        layer: TransformerBlock,
        index: int,
        x: Float[Tensor, "batch seq d_model"],
        positions: Int[Tensor, "batch seq"],
        kept: Bool[Tensor, "batch seq"],
        visible: Bool[Tensor, "batch 1 seq keys"],
    ) -> Float[Tensor, "batch seq d_model"]:
        """What `TransformerBlock.forward` does, with attention that reads from the cache."""

        def attend(x: Tensor) -> Tensor:
            q, k, v = layer.attn.queries_keys_values(x, positions)
            rows, columns = kept.nonzero(as_tuple=True)
            places = positions[rows, columns]
            keys, values = self._keys[index], self._values[index]
            keys[rows, :, places] = k.transpose(1, 2)[rows, columns]  # (kept, kv_heads, d_head)
            values[rows, :, places] = v.transpose(1, 2)[rows, columns]
            longest = visible.shape[-1]
            mixed = fused_attention(
                q,
                keys[:, :, :longest],
                values[:, :, :longest],
                attn_mask=visible,
                enable_gqa=layer.attn.num_kv_heads < layer.attn.num_heads,
            )
            output: Tensor = layer.attn.output_proj(mixed.transpose(1, 2).flatten(-2))
            return output

        if layer.norm == "pre":
            x = x + attend(layer.ln1(x))
            x = x + layer.ffn(layer.ln2(x))
        elif layer.norm == "post":
            x = layer.ln1(x + attend(x))
            x = layer.ln2(x + layer.ffn(x))
        else:
            x = x + attend(x)
            x = x + layer.ffn(x)
        return x


class TorchDecoder:
    """One sequence of a `CachedModel`, as the native decoder is called."""

    def __init__(self, model: TransformerLM) -> None:
        self._cached = CachedModel(model, batch_size=1)

    @property
    def length(self) -> int:
        """How many ids it has read."""
        return self._cached.lengths[0]

    def extend(
        self, ids: Sequence[int], every: bool = False
    ) -> Float32[np.ndarray, "ids vocab_size"]:
        """Read ids; return the logits behind the last, or behind every one."""
        logits: np.ndarray = self._cached.extend([ids], every=every)[0].float().cpu().numpy()
        return logits

    def truncate(self, length: int) -> None:
        """Forget all ids but the first `length`."""
        self._cached.truncate(0, length)


def check_device(device: str) -> None:
    """Refuse a device that torch does not have here."""
    try:
        if torch.empty(0, device=device).is_meta:
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"torch cannot use the device {device!r} ({reason}); try cpu.") from error


def torch_model(
    config: ModelConfig, weights: Mapping[str, np.ndarray], device: str
) -> TransformerLM:
    """A model of these weights on a device."""
    model = TransformerLM(config, device="meta")
    try:
        state = {name: torch.tensor(weight, device=device) for name, weight in weights.items()}
        model.load_state_dict(state, assign=True)
    except RuntimeError as error:  # names and shapes that do not fit, over many lines
        raise ValueError(" ".join(str(error).split())) from error
    return model
