"""Causal attention in blocks of queries, for compiled models in bfloat16 on a CPU.

Attention forward and backward of 4 x 16 heads of width 32 and 256 tokens, milliseconds of CPU time
(one thread of an AMD EPYC with AVX-512 BF16): this form compiled 12.5, uncompiled 48, torch's fused
kernel 31.9 in bfloat16 and 24.2 in float32. The fused kernel gains nothing from the instructions,
though a product of all heads takes 0.6 instead of 3.8; and it computes all keys for every query.

>>> q, k, v = torch.randn(3, 2, 4, 10, 8, dtype=torch.bfloat16)
>>> blocked_causal_attention(q, k, v).shape
torch.Size([2, 4, 10, 8])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tilth.model.layers import at_least_float32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float
    from torch.autograd.function import FunctionCtx

BLOCK_TOKENS = 128
"""Queries per block. Blocks of 64 compute less, but took 14.4 ms instead of 12.5."""
MAX_TOKENS = 1024
"""Length of the longest sequence; the compiled code grows with the number of blocks."""


def prefers_blocks(q: Float[Tensor, "*batch seq d_k"]) -> bool:
    """Return whether the blocked form is used: compiled, in bfloat16, on a CPU."""
    is_narrow = q.dtype == torch.bfloat16 and q.device.type == "cpu"
    return torch.compiler.is_compiling() and is_narrow and q.shape[-2] <= MAX_TOKENS


def blocked_causal_attention(
    q: Float[Tensor, "*batch seq d_k"],
    k: Float[Tensor, "*batch seq d_k"],
    v: Float[Tensor, "*batch seq d_v"],
) -> Float[Tensor, "*batch seq d_v"]:
    """Return softmax(q k^T / sqrt(d_k)) v, where each query attends to keys up to its own position.

    Products are in the type of q, k and v; softmax and sums over blocks are in float32 or wider.
    The backward pass computes the weights again, so memory is proportional to the length. It can be
    differentiated once.

    Shape:
        - q, k: (*, seq, d_k).
        - v: (*, seq, d_v).
        - Output: (*, seq, d_v).
    """
    flat = (each.reshape(-1, *each.shape[-2:]).contiguous() for each in (q, k, v))
    mixed: Tensor = _BlockedAttention.apply(*flat)  # type: ignore[no-untyped-call]
    return mixed.reshape(*q.shape[:-1], v.shape[-1])


class _BlockedAttention(torch.autograd.Function):
    """Attention of (heads, seq, d). The backward pass uses the log-sum-exp of scores (Dao 2023)."""

    @staticmethod
    def forward(ctx: FunctionCtx, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        outputs, log_sums = [], []
        for block, scores in _masked_scores(q, k):
            largest = scores.amax(-1, keepdim=True)
            weights = (scores - largest).exp()
            total = weights.sum(-1, keepdim=True)
            outputs.append((weights / total).to(v.dtype) @ v[:, : block.stop])
            log_sums.append(largest + total.log())
        output, log_sum = torch.cat(outputs, 1), torch.cat(log_sums, 1)
        ctx.save_for_backward(q, k, v, output, log_sum)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("blocked_causal_attention has no second derivative.")
        q, k, v, output, log_sum = ctx.saved_tensors
        scale, wide = 1.0 / math.sqrt(q.shape[-1]), log_sum.dtype
        # The mean gradient of a query's weights, sum_j weight_j grad_weight_j, without its keys.
        mean = (at_least_float32(grad_output) * at_least_float32(output)).sum(-1, keepdim=True)
        grad_q = []
        grad_k, grad_v = (torch.zeros_like(each, dtype=wide) for each in (k, v))
        for block, scores in _masked_scores(q, k):
            before = slice(block.stop)
            weights = (scores - log_sum[:, block]).exp()
            own = grad_output[:, block]
            grad_weights = own @ v[:, before].mT
            grad_scores = (weights * (grad_weights.to(wide) - mean[:, block]) * scale).to(q.dtype)
            grad_v[:, before] += weights.to(v.dtype).mT @ own
            grad_q.append(grad_scores @ k[:, before])
            grad_k[:, before] += grad_scores.mT @ q[:, block]
        return torch.cat(grad_q, 1), grad_k.to(k.dtype), grad_v.to(v.dtype)


def _masked_scores(q: Tensor, k: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield each block of queries with its scaled scores of the keys up to its end."""
    seq, scale = q.shape[1], 1.0 / math.sqrt(q.shape[-1])
    positions = torch.arange(seq, device=q.device)
    for start in range(0, seq, BLOCK_TOKENS):
        stop = min(start + BLOCK_TOKENS, seq)
        scores = at_least_float32(q[:, start:stop] @ k[:, :stop].mT) * scale
        later = positions[:stop] > positions[start:stop, None]
        yield slice(start, stop), scores.masked_fill(later, -math.inf)
