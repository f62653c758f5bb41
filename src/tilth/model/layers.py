"""The layers of the Transformer, each in the form in which its paper writes it.

What enters: tensors whose last axis is the width of a token. What leaves: the same, transformed.
The definitions use Parameter, Module, `init.trunc_normal_` and tensor operations alone; the tests
compare each with PyTorch's own. Where `fast` is set, quicker kernels stand in for them.

>>> layer = SwiGLU(d_model=8, d_ff=64)
>>> layer(torch.ones(2, 5, 8)).shape
torch.Size([2, 5, 8])
>>> layer.w1.weight.shape  # (out, in)
torch.Size([64, 8])
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import silu as fused_silu
from torch.nn.init import trunc_normal_

from tilth.config.model import NORM_EPSILON

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Device = torch.device | str | None


def at_least_float32(x: Tensor) -> Tensor:
    """Widen half precision to float32; float32 and float64 stay what they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """exp(x) / sum(exp(x)) along `dim`; where every x is -inf there is no weight at all: zeros."""
    if not x.is_floating_point():
        raise ValueError(
            f"softmax takes floating-point numbers, not {x.dtype}; convert them first."
        )
    # A common offset cancels in the quotient, so the largest exponent may be 0: nothing overflows.
    # For the same reason no gradient needs to pass through it.
    wide = at_least_float32(x)
    if x.shape[dim] == 0:
        return x.clone()
    largest = wide.detach().amax(dim, keepdim=True)
    weights = (wide - largest.masked_fill(largest == -math.inf, 0.0)).exp()
    # The sum contains exp(0) = 1, but for a row of -inf: the clamp turns its 0/0 into 0/1.
    return (weights / weights.sum(dim, keepdim=True).clamp(min=1.0)).to(x.dtype)


def silu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The smooth ReLU x * sigmoid(x) (Hendrycks and Gimpel 2016)."""
    return x * torch.sigmoid(x)


class Linear(Module):
    """y = W x, without a bias."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        # Halfway between keeping the variance of the activations and that of the gradients (Glorot
        # and Bengio 2010).
        init_truncated(self.weight, variance=2 / (in_features + out_features))

    def forward(self, x: Float[Tensor, "... in_features"]) -> Float[Tensor, "... out_features"]:
        """Apply the matrix to the last axis."""
        return x @ self.weight.T


class Embedding(Module):
    """One row of numbers for each token id."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        rows = torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(rows)
        init_truncated(self.weight, variance=1.0)

    def forward(self, token_ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape embedding_dim"]:
        """Look the ids up; one that has no row is a ValueError, if a CPU does it uncompiled.

        A GPU reports it late, and compiled code takes -1 for the last row.
        """
        try:
            return look_up(self.weight, token_ids)
        except IndexError as error:
            raise ValueError(
                f"token ids {token_ids.min()} to {token_ids.max()} are not all within the "
                f"vocabulary of {len(self.weight)}; encode the text with the model's own tokenizer."
            ) from error


def look_up(
    table: Float[Tensor, "rows d"], rows: Int[Tensor, "*shape"]
) -> Float[Tensor, "*shape d"]:
    """`table[rows]`, in the form whose gradient is both deterministic and quick.

    CPU milliseconds forward and backward, two threads, a 10,000 x 512 table and 32 x 256 rows:
    `table[rows]` 23, its sums in another order each time (13 under deterministic algorithms),
    sorted segments 29, `index_select` 8, always in one order, and torch's own embedding 7.
    """
    if rows.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"token ids and positions are int64 or int32, not {rows.dtype}.")
    return table.index_select(0, rows.reshape(-1)).reshape(*rows.shape, table.shape[1])


class RMSNorm(Module):
    """x / rms(x) * weight: a layer norm without the mean (Zhang and Sennrich 2019)."""

    def __init__(
        self,
        d_model: int,
        eps: float = NORM_EPSILON,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Scale each token to a root mean square of 1, then by the learned weight."""
        if x.shape[-1:] != self.weight.shape:  # else it would be broadcast without a word
            raise ValueError(
                f"the norm is {len(self.weight)} wide, and x has the shape {tuple(x.shape)}."
            )
        wide = at_least_float32(x)
        inverse_rms = (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (wide * inverse_rms * self.weight).to(x.dtype)


class SwiGLU(Module):
    """w2(silu(w1 x) * w3 x): one product decides how much of the other passes (Shazeer 2020)."""

    fast = True
    """One product for w1 and w3, and a fused silu; False is the definition, matrix by matrix."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)
        self.w3 = Linear(d_model, d_ff, device, dtype)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Transform each token on its own."""
        gate, value = project([self.w1, self.w3], x, together=self.fast)
        # The kernel keeps one tensor for its gradient instead of two: at 8,192 tokens, d_ff 1,344,
        # forward and backward take half the time. Compiled, both become the same code.
        gate = fused_silu(gate) if self.fast else silu(gate)
        output: Tensor = self.w2(gate * value)
        return output


class SiLUFeedForward(Module):
    """w2(silu(w1 x)): SwiGLU without its gate, for comparison."""

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Transform each token on its own."""
        output: Tensor = self.w2(silu(self.w1(x)))
        return output


def project(
    layers: list[Linear], x: Float[Tensor, "... d_in"], *, together: bool
) -> list[Float[Tensor, "... d_out"]]:
    """Apply several matrices to the same x; together: the rows of all of them as one matrix."""
    if not together:
        return [layer(x) for layer in layers]
    weights: list[Tensor] = [layer.weight for layer in layers]
    return list(torch.split(x @ torch.cat(weights).T, [len(weight) for weight in weights], dim=-1))


@torch.no_grad()
def init_truncated(weight: Tensor, *, variance: float) -> None:
    """Fill with a normal distribution of this variance, drawn again beyond three sigma."""
    sigma = math.sqrt(variance)
    trunc_normal_(weight, std=sigma, a=-3 * sigma, b=3 * sigma)
