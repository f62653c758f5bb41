"""Attention: what each token reads from those before it.

What enters: tokens of shape (..., seq, d_model), and their positions. What leaves: for each token a
mixture of the values of the tokens up to it. `scaled_dot_product_attention` is the definition; the
fused kernel that training uses is held equal to it by the tests.

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
from torch.nn import Module
from torch.nn.functional import scaled_dot_product_attention as fused_attention

from tilth.accounting.hardware import host_memory_bytes
from tilth.formatting import format_bytes
from tilth.model.layers import Device, Linear, RMSNorm, at_least_float32, look_up, project, softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Bool, Float, Int

    from tilth.model.cache import LayerCache


def scaled_dot_product_attention(
    q: Float[Tensor, "*batch queries d_k"],
    k: Float[Tensor, "*batch keys d_k"],
    v: Float[Tensor, "*batch keys d_v"],
    mask: Bool[Tensor, "*#batch queries keys"] | None = None,
) -> Float[Tensor, "*batch queries d_v"]:
    """softmax(q k^T / sqrt(d_k)) v (Vaswani et al. 2017); a query looks where the mask is True.

    A query that may look nowhere reads zeros, and its gradients are zeros.
    """
    # The sum of d_k products of unit variance has variance d_k: the root keeps the softmax soft.
    # Before the product, where float16 has room for it.
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)  # (..., queries, keys)
    if mask is not None:
        if mask.dtype != torch.bool:  # an additive mask would be read upside down
            raise ValueError(
                f"the mask must be bool, True where a query may look, not {mask.dtype}."
            )
        scores = scores.masked_fill(~mask, -math.inf)
    return softmax(scores, dim=-1) @ v


class RotaryPositionalEmbedding(Module):
    """Turns each pair (2k, 2k+1) of a query or key by position * theta^(-2k/d_k) (Su et al. 2021).

    The product of a query and a key turned so depends on the distance between them, and not on
    where they are.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if d_k < 2 or d_k % 2:
            raise ValueError(f"d_k {d_k} does not divide into pairs; rotations need an even width.")
        if not theta > 0 or max_seq_len < 1:
            raise ValueError(f"theta {theta} and max_seq_len {max_seq_len} must be positive.")
        self.theta, self.d_k, self.max_seq_len = theta, d_k, max_seq_len
        self._fill_tables(device or torch.get_default_device(), dtype or torch.get_default_dtype())

    def _fill_tables(self, device: torch.device | str, dtype: torch.dtype) -> None:
        """Compute cos and sin in float64, and hold them in float32 at least.

        In float32 the angle itself would be wrong by 1e-3 at position 20,000; in bfloat16 positions
        above 256 would coincide. The tables follow from three numbers, so no file holds them.
        """
        # On the CPU, as not every device has float64; on meta there is nothing to compute.
        where = "meta" if torch.device(device).type == "meta" else "cpu"
        needed, present = 16 * self.max_seq_len * self.d_k, host_memory_bytes()
        if where == "cpu" and needed > present:
            raise MemoryError(
                f"the rotation tables of {self.max_seq_len:,} positions take "
                f"{format_bytes(needed)}, and this machine has {format_bytes(present)}"
            )
        exponents = torch.arange(0, self.d_k, 2, dtype=torch.float64, device=where) / self.d_k
        positions = torch.arange(self.max_seq_len, dtype=torch.float64, device=where)
        angles = torch.outer(positions, self.theta**-exponents)  # (max_seq_len, d_k / 2)
        dtype = torch.promote_types(dtype, torch.float32)
        for name, table in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, table.to(dtype).to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # What moves or converts a model comes through here: `to(bfloat16)` would round the tables,
        # and `to_empty`, after the meta device, would leave them unset.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._fill_tables(self.cos.device, self.cos.dtype)
        return self

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_k"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> Float[Tensor, "*batch seq d_k"]:
        """Turn x, whose tokens stand at `token_positions`; by default at 0, 1, 2, ...

        Positions are (seq,), (1, seq) or (batch, seq); axes of x between batch and seq, such as the
        heads, share them.
        """
        if x.shape[-1] != self.d_k:
            raise ValueError(f"x is {x.shape[-1]} wide, and the rotation is for {self.d_k}.")
        if self.cos.is_meta and not x.is_meta:  # of weights that were assigned to a meta model
            self._fill_tables(x.device, self.cos.dtype)
        cos, sin = self._at(token_positions, x)  # both (..., seq, d_k / 2)
        even, odd = torch.unflatten(at_least_float32(x), -1, (-1, 2)).unbind(-1)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return turned.flatten(-2).to(x.dtype)

    def _at(self, positions: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
        seq = x.shape[-2]
        if positions is None:
            if seq > self.max_seq_len:
                raise ValueError(
                    f"the sequence has {seq} tokens, and rotations reach {self.max_seq_len}; "
                    "cut it, or make max_seq_len (the model's context_length) larger."
                )
            return self.cos[:seq], self.sin[:seq]
        batch, expected = positions.shape[:-1], x.shape[:-2]
        if (
            positions.ndim == 0
            or positions.shape[-1] != seq
            or len(batch) > len(expected)
            or any(size not in (1, own) for size, own in zip(batch, expected, strict=False))
        ):
            raise ValueError(
                f"positions of shape {tuple(positions.shape)} do not fit x of shape "
                f"{tuple(x.shape)}; they are (seq,), (1, seq) or (batch, seq)."
            )
        try:
            cos, sin = look_up(self.cos, positions), look_up(self.sin, positions)
        except IndexError as error:
            raise ValueError(
                f"positions {positions.min()} to {positions.max()} are not all within 0 to "
                f"{self.max_seq_len - 1}; make max_seq_len (the model's context_length) larger."
            ) from error
        heads = (1,) * (len(expected) - len(batch)) if batch else ()
        shape = (*batch, *heads, seq, self.d_k // 2)
        return cos.reshape(shape), sin.reshape(shape)


class MultiHeadSelfAttention(Module):
    """Causal attention in several heads, each on its own part of the width.

    With fewer key/value heads than query heads, groups of query heads read the same keys and values
    (Ainslie et al. 2023), which shrinks the cache of generation by as much. With `qk_norm` each
    query and key is normalised, so that no score can grow without limit (Henry et al. 2020).
    """

    fast = True
    """One product for q, k and v and a fused kernel; False is the definition, step by step."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        rope: RotaryPositionalEmbedding | None = None,
        num_kv_heads: int | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        qk_norm: bool = False,
    ) -> None:
        super().__init__()
        if num_kv_heads is None:
            num_kv_heads = num_heads
        if min(num_heads, num_kv_heads) < 1 or d_model % num_heads or num_heads % num_kv_heads:
            raise ValueError(
                f"d_model {d_model} must be a multiple of num_heads {num_heads}, "
                f"and that of num_kv_heads {num_kv_heads}."
            )
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.d_head = d_model // num_heads
        if rope is not None and rope.d_k != self.d_head:
            raise ValueError(
                f"the rotation is for heads of width {rope.d_k}, and these are {self.d_head} wide; "
                "make it with d_k = d_model / num_heads."
            )
        self.q_proj = Linear(d_model, d_model, device, dtype)
        self.k_proj = Linear(d_model, self.num_kv_heads * self.d_head, device, dtype)
        self.v_proj = Linear(d_model, self.num_kv_heads * self.d_head, device, dtype)
        self.output_proj = Linear(d_model, d_model, device, dtype)
        self.rope = rope
        self.q_norm = RMSNorm(self.d_head, device=device, dtype=dtype) if qk_norm else None
        self.k_norm = RMSNorm(self.d_head, device=device, dtype=dtype) if qk_norm else None

    def forward(
        self,
        x: Float[Tensor, "*batch seq d_model"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*batch seq d_model"]:
        """Let each token read from itself and those before it, those in the cache included."""
        q, k, v = self.queries_keys_values(x, token_positions)
        group = self.num_heads // self.num_kv_heads
        if cache is None and group > 1:  # query heads 0 to group-1 read key/value head 0, and so on
            k, v = k.repeat_interleave(group, dim=-3), v.repeat_interleave(group, dim=-3)
        if cache is not None:
            k, v = cache.update(k, v)
            mixed = fused_attention(q, k, v, attn_mask=cache.visible, enable_gqa=group > 1)
        elif self.fast:
            mixed = fused_attention(q, k, v, is_causal=True)
        else:
            seq = x.shape[-2]
            causal = torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
            mixed = scaled_dot_product_attention(q, k, v, causal)
        output: Tensor = self.output_proj(mixed.transpose(-3, -2).flatten(-2))
        return output

    def queries_keys_values(
        self,
        x: Float[Tensor, "*batch seq d_model"],
        token_positions: Int[Tensor, "*#batch seq"] | None = None,
    ) -> tuple[
        Float[Tensor, "*batch num_heads seq d_head"],
        Float[Tensor, "*batch num_kv_heads seq d_head"],
        Float[Tensor, "*batch num_kv_heads seq d_head"],
    ]:
        """Project x into heads; queries and keys are normalised and turned, ready for a cache."""
        layers = [self.q_proj, self.k_proj, self.v_proj]
        q, k, v = (
            torch.unflatten(y, -1, (-1, self.d_head)).transpose(-3, -2)  # (..., heads, seq, d_head)
            for y in project(layers, x, together=self.fast)
        )
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rope is not None:
            q, k = self.rope(q, token_positions), self.rope(k, token_positions)
        return q, k, v
