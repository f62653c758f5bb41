"""The layers of the Transformer, each as its paper defines it.

The definitions use `Parameter`, `Module`, `trunc_normal_` and tensor operations only. The tests
compare each with its counterpart in PyTorch. `fast` selects fused kernels instead.

>>> layer = SwiGLU(d_model=8, d_ff=64)
>>> layer(torch.ones(2, 5, 8)).shape
torch.Size([2, 5, 8])
>>> layer.w1.weight.shape  # (out_features, in_features)
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
Dtype = torch.dtype | None


def at_least_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32; keep float32 and float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """Return exp(x_i) / sum_j exp(x_j) along `dim`.

    A slice of -inf only, which has no finite weight, becomes zeros. Half precision is computed in
    float32.

    Shape:
        - x: (*), any shape.
        - Output: (*), the same shape and type.
    """
    if not x.is_floating_point():
        raise ValueError(f"softmax takes floating-point numbers, not {x.dtype}; convert x first.")
    if x.shape[dim] == 0:
        return x.clone()
    # Subtracting the largest x cancels in the quotient and prevents overflow. For the same reason
    # it needs no gradient.
    wide = at_least_float32(x)
    largest = wide.detach().amax(dim, keepdim=True)
    weights = (wide - largest.masked_fill(largest == -math.inf, 0.0)).exp()
    # The sum contains exp(0) = 1, except for a slice of -inf: the clamp turns its 0/0 into 0/1.
    return (weights / weights.sum(dim, keepdim=True).clamp(min=1.0)).to(x.dtype)


def silu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x * sigmoid(x), elementwise (Hendrycks and Gimpel 2016)."""
    return x * torch.sigmoid(x)


class Linear(Module):
    """Linear map y = x W^T, plus a bias if it has one.

    The weight is drawn from a normal distribution with variance 2 / (in_features + out_features),
    truncated at three standard deviations. The bias starts at 0.

    Args:
        in_features: Size of the last axis of the input.
        out_features: Size of the last axis of the output.
        device: Device of the weight.
        dtype: Data type of the weight.
        bias: Add a bias.

    Shape:
        - Input: (*, in_features).
        - Output: (*, out_features).
        - weight: (out_features, in_features).
        - bias: (out_features,), or None.

    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        device: Device = None,
        dtype: Dtype = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        # Between preserving the variance of activations and that of gradients (Glorot and Bengio
        # 2010).
        init_truncated(self.weight, variance=2 / (in_features + out_features))
        zeros = torch.zeros(out_features, device=device, dtype=dtype) if bias else None
        self.bias = None if zeros is None else Parameter(zeros)

    def forward(self, x: Float[Tensor, "... in_features"]) -> Float[Tensor, "... out_features"]:
        """Return x W^T, plus the bias."""
        return add_bias(x @ self.weight.T, self.bias)


def add_bias(y: Float[Tensor, "... d"], bias: Float[Tensor, " d"] | None) -> Float[Tensor, "... d"]:
    """Return y + bias in the type of y, which autocast makes narrower than the bias."""
    return y if bias is None else y + bias.to(y.dtype)


class Embedding(Module):
    """Lookup table of one vector per token id.

    The weight is drawn from a standard normal distribution, truncated at three standard deviations.

    Args:
        num_embeddings: Vocabulary size.
        embedding_dim: Size of each vector.
        device: Device of the weight.
        dtype: Data type of the weight.

    Shape:
        - Input: (*), int64 or int32.
        - Output: (*, embedding_dim).
        - weight: (num_embeddings, embedding_dim).

    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        rows = torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(rows)
        init_truncated(self.weight, variance=1.0)

    def forward(self, token_ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape embedding_dim"]:
        """Return the vectors of the ids.

        An id outside of the vocabulary raises ValueError on a CPU. A GPU reports it later, and
        compiled code reads -1 as the last row.
        """
        try:
            return look_up(self.weight, token_ids)
        except IndexError as error:
            raise ValueError(
                f"token ids {token_ids.min()} to {token_ids.max()} are not all within the "
                f"vocabulary of {len(self.weight)}; encode the text with the model's tokenizer."
            ) from error


def look_up(
    table: Float[Tensor, "rows d"], rows: Int[Tensor, "*shape"]
) -> Float[Tensor, "*shape d"]:
    """Return `table[rows]`, in a form whose gradient is deterministic and fast.

    CPU milliseconds forward and backward, two threads, a 10,000 x 512 table and 32 x 256 rows:
    `table[rows]` 23, its sums in another order each time (13 under deterministic algorithms),
    sorted segments 29, `index_select` 8, always in one order, and `torch.nn.functional.embedding`
    7.
    """
    if rows.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"token ids and positions are int64 or int32, not {rows.dtype}.")
    return table.index_select(0, rows.reshape(-1)).reshape(*rows.shape, table.shape[1])


class RMSNorm(Module):
    """Root mean square normalization (Zhang and Sennrich 2019).

        y = x / sqrt(mean(x^2) + eps) * weight

    over the last axis. Half precision is computed in float32.

    Args:
        d_model: Size of the last axis.
        eps: Added to the mean square.
        device: Device of the weight.
        dtype: Data type of the weight.

    Shape:
        - Input: (*, d_model).
        - Output: (*, d_model).
        - weight: (d_model,), initialized to 1.

    """

    def __init__(
        self, d_model: int, eps: float = NORM_EPSILON, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Normalize each token to a root mean square of 1, then scale it by the weight."""
        if x.shape[-1:] != self.weight.shape:  # it would be broadcast silently
            raise ValueError(f"the norm is {len(self.weight)} wide, and x is {tuple(x.shape)}.")
        wide = at_least_float32(x)
        inverse_rms = (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (wide * inverse_rms * self.weight).to(x.dtype)


class SwiGLU(Module):
    """Gated feed-forward layer y = W2 (silu(W1 x) * W3 x), elementwise product (Shazeer 2020).

    Args:
        d_model: Size of the last axis.
        d_ff: Size of the hidden layer.
        device: Device of the weights.
        dtype: Data type of the weights.

    Attributes:
        fast: Compute W1 x and W3 x in one product, and a fused silu. False is the definition.

    Shape:
        - Input: (*, d_model).
        - Output: (*, d_model).

    """

    fast = True

    def __init__(self, d_model: int, d_ff: int, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)
        self.w3 = Linear(d_model, d_ff, device, dtype)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Transform each token independently."""
        gate, value = project([self.w1, self.w3], x, together=self.fast)
        # The kernel keeps one tensor for its gradient instead of two: at 8,192 tokens and d_ff
        # 1,344, forward and backward take half the time. Compiled, both become the same code.
        gate = fused_silu(gate) if self.fast else silu(gate)
        output: Tensor = self.w2(gate * value)
        return output


class SiLUFeedForward(Module):
    """Feed-forward layer y = W2 silu(W1 x): SwiGLU without its gate, for comparison."""

    def __init__(self, d_model: int, d_ff: int, device: Device = None, dtype: Dtype = None) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Transform each token independently."""
        output: Tensor = self.w2(silu(self.w1(x)))
        return output


def project(
    layers: list[Linear], x: Float[Tensor, "... d_in"], *, together: bool
) -> list[Float[Tensor, "... d_out"]]:
    """Apply several linear layers to x; `together` concatenates their weights into one product."""
    if not together:
        return [layer(x) for layer in layers]
    weights: list[Tensor] = [layer.weight for layer in layers]
    # All layers have a bias, or none.
    biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
    joined = add_bias(x @ torch.cat(weights).T, torch.cat(biases) if biases else None)
    return list(torch.split(joined, [len(weight) for weight in weights], dim=-1))


@torch.no_grad()
def init_truncated(weight: Tensor, *, variance: float) -> None:
    """Fill with a normal distribution of this variance, truncated at three standard deviations."""
    sigma = math.sqrt(variance)
    trunc_normal_(weight, std=sigma, a=-3 * sigma, b=3 * sigma)
