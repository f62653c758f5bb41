"""Causal multi-head attention with rotary position embeddings.

`scaled_dot_product_attention` is the definition. Training uses a fused kernel, which the tests
compare with it.

>>> rope = RotaryPositionalEmbedding(theta=10_000.0, d_k=8, max_seq_len=64)
>>> attention = MultiHeadSelfAttention(d_model=32, num_heads=4, rope=rope)
>>> x = torch.ones(2, 10, 32)
>>> attention(x).shape
torch.Size([2, 10, 32])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor
from torch.nn import Identity, Module
from torch.nn.functional import scaled_dot_product_attention as fused_attention

from tilth.accounting.hardware import host_memory_bytes
from tilth.config.model import NORM_EPSILON
from tilth.formatting import format_bytes
from tilth.model import layers
from tilth.model.blocked_attention import blocked_causal_attention, prefers_blocks
from tilth.model.layers import Device, Dtype, Linear, RMSNorm, look_up, project

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Bool, Float, Int

    from tilth.config.model import RopeScaling
    from tilth.model.cache import LayerCache


def scaled_dot_product_attention(
    q: Float[Tensor, "*batch queries d_k"],
    k: Float[Tensor, "*batch keys d_k"],
    v: Float[Tensor, "*batch keys d_v"],
    mask: Bool[Tensor, "*#batch queries keys"] | None = None,
) -> Float[Tensor, "*batch queries d_v"]:
    """Return softmax(q k^T / sqrt(d_k)) v (Vaswani et al. 2017).

    Shape:
        - q: (*, queries, d_k).
        - k: (*, keys, d_k).
        - v: (*, keys, d_v).
        - mask: bool, broadcastable to (*, queries, keys); True where a query may attend to a key.
          A query that may attend to no key returns zeros, and its gradients are zeros.
        - Output: (*, queries, d_v).
    """
    # A sum of d_k products of unit variance has variance d_k: the scale keeps the softmax from
    # saturating. It is applied before the product, whose result could overflow in float16.
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (..., queries, keys)
    if mask is not None:
        if mask.dtype != torch.bool:  # an additive mask means the opposite
            raise ValueError(f"mask must be bool, True where a query attends, not {mask.dtype}.")
        scores = scores.masked_fill(~mask, -math.inf)
    return layers.softmax(scores, dim=-1) @ v


class RotaryPositionalEmbedding(Module):
    """Rotary position embedding (Su et al. 2021), over interleaved pairs.

    At position p, the pair (x[2k], x[2k+1]) is rotated by the angle p * theta^(-2k / d_k). The
    dot product of a rotated query and a rotated key depends on their distance only.

    Args:
        theta: Base of the frequencies.
        d_k: Size of the last axis, even.
        max_seq_len: Number of positions, from 0 to max_seq_len - 1.
        device: Device of the tables.
        dtype: Data type of the tables; at least float32 is used.
        scaling: Scaling of the frequencies, as in Llama 3. Default: none.

    Shape:
        - x: (*, seq, d_k).
        - token_positions: (seq,), (1, seq) or (batch, seq); shared by the axes of x between batch
          and seq, such as the heads. Default: 0, 1, 2, ...
        - Output: (*, seq, d_k).

    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: Device = None,
        dtype: Dtype = None,
        *,
        scaling: RopeScaling | None = None,
    ) -> None:
        super().__init__()
        if d_k < 2 or d_k % 2:
            raise ValueError(f"d_k is {d_k}; it must be even and positive.")
        if not theta > 0 or max_seq_len < 1:
            raise ValueError(f"theta {theta} and max_seq_len {max_seq_len} must be positive.")
        self.theta, self.d_k, self.max_seq_len, self.scaling = theta, d_k, max_seq_len, scaling
        self._fill_tables(device or torch.get_default_device(), dtype or torch.get_default_dtype())

    def _fill_tables(self, device: torch.device | str, dtype: torch.dtype) -> None:
        """Compute cos and sin in float64, and store them in at least float32.

        In float32 the angle would be wrong by 1e-3 at position 20,000; in bfloat16 positions above
        256 would coincide. The tables are not part of the state dict.
        """
        # On the CPU, as not every device has float64; on meta there is nothing to compute.
        where = "meta" if torch.device(device).type == "meta" else "cpu"
        needed, present = 16 * self.max_seq_len * self.d_k, host_memory_bytes()
        if where == "cpu" and needed > present:
            raise MemoryError(
                f"the rotation tables of {self.max_seq_len:,} positions take {format_bytes(needed)}"
                f", and this machine has {format_bytes(present)}; use fewer positions."
            )
        exponents = torch.arange(0, self.d_k, 2, dtype=torch.float64, device="cpu") / self.d_k
        frequencies = self.theta**-exponents
        if self.scaling is not None:
            frequencies.apply_(self.scaling.scaled)
        positions = torch.arange(self.max_seq_len, dtype=torch.float64, device=where)
        angles = torch.outer(positions, frequencies.to(where))  # (max_seq_len, d_k / 2)
        dtype = torch.promote_types(dtype, torch.float32)
        for name, table in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, table.to(dtype).to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Every conversion of a module calls this: `to(bfloat16)` would round the tables, and
        # `to_empty`, after the meta device, would leave them uninitialized.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._fill_tables(self.cos.device, self.cos.dtype)
        return self

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_k"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> Float[Tensor, "*batch seq d_k"]:
        """Rotate x by its positions."""
        if x.shape[-1] != self.d_k:
            raise ValueError(f"x has width {x.shape[-1]}, and d_k of the rotation is {self.d_k}.")
        if self.cos.is_meta and not x.is_meta:  # weights were assigned to a meta model
            self._fill_tables(x.device, self.cos.dtype)
        cos, sin = self._at(token_positions, x)  # both (..., seq, d_k / 2)
        even, odd = torch.unflatten(layers.at_least_float32(x), -1, (-1, 2)).unbind(-1)
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return rotated.flatten(-2).to(x.dtype)

    def _at(self, positions: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows of cos and sin at positions, broadcastable to x."""
        *expected, seq, _ = x.shape
        if positions is None:
            if seq > self.max_seq_len:
                raise ValueError(
                    f"the sequence has {seq} tokens, and max_seq_len is {self.max_seq_len}; "
                    "shorten it, or increase max_seq_len (the context_length of a model)."
                )
            return self.cos[:seq], self.sin[:seq]
        batch, sizes = positions.shape[:-1], zip(positions.shape[:-1], expected, strict=False)
        fits = positions.shape[-1:] == (seq,) and len(batch) <= len(expected)
        if not fits or any(size not in (1, own) for size, own in sizes):
            raise ValueError(
                f"positions of shape {tuple(positions.shape)} do not fit x of shape "
                f"{tuple(x.shape)}; they are (seq,), (1, seq) or (batch, seq)."
            )
        try:
            cos, sin = look_up(self.cos, positions), look_up(self.sin, positions)
        except IndexError as error:
            raise ValueError(
                f"positions {positions.min()} to {positions.max()} are not all within 0 to "
                f"{self.max_seq_len - 1}; increase max_seq_len (context_length)."
            ) from error
        heads = (1,) * (len(expected) - len(batch)) if batch else ()
        shape = (*batch, *heads, seq, self.d_k // 2)
        return cos.reshape(shape), sin.reshape(shape)


class MultiHeadSelfAttention(Module):
    """Causal multi-head self-attention.

    Args:
        d_model: Width of the residual stream.
        num_heads: Number of query heads.
        rope: Rotary position embedding of queries and keys; None for no position embedding.
        num_kv_heads: Number of key/value heads, each shared by num_heads / num_kv_heads query heads
            (grouped-query attention, Ainslie et al. 2023), which divides the size of the key/value
            cache by as much. Default: num_heads.
        device: Device of the weights.
        dtype: Data type of the weights.
        qk_norm: Apply RMSNorm to each query and key, which bounds the scores (Henry et al. 2020).
        d_head: Width of a head. Default: d_model / num_heads.
        qkv_bias: Add a bias to queries, keys and values.
        norm_eps: Epsilon of the norms of queries and keys.

    Attributes:
        fast: Compute queries, keys and values in one product, and attention in a fused kernel.
            False is the definition.

    Shape:
        - x: (*, seq, d_model).
        - token_positions: see `RotaryPositionalEmbedding`.
        - Output: (*, seq, d_model).

    """

    fast = True

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        rope: RotaryPositionalEmbedding | None = None,
        num_kv_heads: int | None = None,
        device: Device = None,
        dtype: Dtype = None,
        *,
        qk_norm: bool = False,
        d_head: int | None = None,
        qkv_bias: bool = False,
        norm_eps: float = NORM_EPSILON,
    ) -> None:
        super().__init__()
        if num_kv_heads is None:
            num_kv_heads = num_heads
        uneven = d_head is None and num_heads > 0 and d_model % num_heads
        if min(num_heads, num_kv_heads) < 1 or uneven or num_heads % num_kv_heads:
            raise ValueError(
                f"d_model {d_model} must be a multiple of num_heads {num_heads}, "
                f"and that of num_kv_heads {num_kv_heads}."
            )
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.d_head = d_model // num_heads if d_head is None else d_head
        if rope is not None and rope.d_k != self.d_head:
            raise ValueError(
                f"d_k of the rotation is {rope.d_k}, and heads have width {self.d_head}; "
                "use d_k = d_model / num_heads."
            )
        d_query, d_kv = num_heads * self.d_head, num_kv_heads * self.d_head
        self.q_proj = Linear(d_model, d_query, device, dtype, bias=qkv_bias)
        self.k_proj = Linear(d_model, d_kv, device, dtype, bias=qkv_bias)
        self.v_proj = Linear(d_model, d_kv, device, dtype, bias=qkv_bias)
        self.output_proj = Linear(d_query, d_model, device, dtype)
        self.rope = rope
        norm = RMSNorm if qk_norm else Identity  # which ignores its arguments
        self.q_norm = norm(self.d_head, eps=norm_eps, device=device, dtype=dtype)
        self.k_norm = norm(self.d_head, eps=norm_eps, device=device, dtype=dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_model"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """Attend from each token to itself and the tokens before it, including those in `cache`."""
        q, k, v = (
            torch.unflatten(y, -1, (-1, self.d_head)).transpose(-3, -2)  # (..., heads, seq, d_head)
            for y in project([self.q_proj, self.k_proj, self.v_proj], x, together=self.fast)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        if self.rope is not None:
            q, k = self.rope(q, token_positions), self.rope(k, token_positions)
        group = self.num_heads // self.num_kv_heads
        # The flash kernel of a GPU reads a key/value head once for its whole group, but takes half
        # precision only. On a CPU it saves nothing, and sums gradients in another order.
        shares_heads = self.fast and q.device.type != "cpu" and q.dtype.itemsize == 2
        if cache is None and group > 1 and not shares_heads:
            # Query heads 0 to group-1 share key/value head 0, etc.
            k, v = k.repeat_interleave(group, dim=-3), v.repeat_interleave(group, dim=-3)
        if cache is not None:
            k, v = cache.update(k, v)
            mixed = fused_attention(q, k, v, attn_mask=cache.visible, enable_gqa=group > 1)
        elif self.fast and prefers_blocks(q):
            mixed = blocked_causal_attention(q, k, v)
        elif self.fast:
            shared = k.shape[-3] < q.shape[-3]
            mixed = fused_attention(q, k, v, is_causal=True, enable_gqa=shared)
        else:
            seq = x.shape[-2]
            causal = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
            mixed = scaled_dot_product_attention(q, k, v, causal)
        output: Tensor = self.output_proj(mixed.transpose(-3, -2).flatten(-2))
        return output
