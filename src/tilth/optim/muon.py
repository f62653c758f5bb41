"""Muon: momentum with orthogonalized updates (Jordan et al. 2024).

The singular values of the momentum are brought near 1, so rare directions learn as fast as frequent
ones. That suits the matrices of hidden layers only: embeddings, the output matrix and norm gains
are updated by AdamW, in other groups of the same optimizer. `muon_update` is the definition; the
fast form updates all matrices of one shape as a stack.

>>> weight = torch.nn.Parameter(torch.zeros(2, 3))
>>> optimizer = Muon([weight], lr=0.1)
>>> weight.grad = torch.tensor([[1e3, 0.0, 0.0], [0.0, 1e2, 0.0]])
>>> optimizer.step()
>>> (weight.data.abs() > 0).int()  # both directions, though one gradient is ten times the other
tensor([[1, 0, 0],
        [0, 1, 0]], dtype=torch.int32)
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim.optimizer import ParamsT

from tilth.optim.adamw import AdamW, parameter_groups
from tilth.optim.optimizer import GroupOptimizer, Pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float

    from tilth.optim.sharding import Shard

Coefficients = tuple[tuple[float, float, float], ...]
"""a, b and c of p(s) = a s + b s^3 + c s^5, for each iteration."""

# Applied five times, p maps every s in [0.002, 1] to about [0.7, 1.2]. Its slope a at 0 is as steep
# as that allows (Jordan et al. 2024).
FIXED: Coefficients = ((3.4445, -4.7750, 2.0315),) * 5
# The best polynomials one after another (Amsel et al. 2025) map [0.002, 1] to [0.68, 1.32] in four
# iterations. From `scripts/derive_muon.py`, for s / 1.01 in all but the last: rounding in bfloat16
# must not lead out of an interval, where the next polynomial is steep.
OPTIMAL: Coefficients = (
    (8.3434, -24.2028, 17.5950),
    (4.0709, -2.9692, 0.5470),
    (3.6778, -2.6964, 0.5166),
    (2.7820, -2.0749, 0.4635),
)

STACK_ELEMENTS = 1 << 24  # limit of a stack, which takes five times this as temporary memory


def orthogonalize(
    matrix: Float[Tensor, "rows columns"], coefficients: Coefficients = FIXED
) -> Float[Tensor, "rows columns"]:
    """Return approximately U V^T for a matrix U S V^T, by Newton-Schulz iterations.

    One iteration is p(X) = a X + b (X X^T) X + c (X X^T)^2 X, which needs matrix products only.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalize(matrix.mT, coefficients).mT  # the smaller of the two Gram matrices
    # No singular value exceeds the Frobenius norm, so all start in [0, 1].
    x: Tensor = matrix / matrix.norm().clamp(min=1e-7)
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def muon_update(
    parameter: Tensor,
    gradient: Tensor,
    momentum_buffer: Tensor,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    dtype: torch.dtype | None = None,
    coefficients: Coefficients = FIXED,
) -> None:
    """Update one matrix and its momentum in place; `dtype` is that of the iteration."""
    momentum_buffer.mul_(momentum).add_(gradient, alpha=1.0 - momentum)
    ahead = momentum * momentum_buffer + (1.0 - momentum) * gradient  # Nesterov momentum
    narrow = ahead.to(dtype or iteration_dtype(ahead))
    update = orthogonalize(narrow, coefficients).to(parameter.dtype)
    parameter.mul_(1.0 - lr * weight_decay)
    parameter.sub_(lr * update_scale(parameter) * update)


def update_scale(matrix: Tensor) -> float:
    """Return 0.2 sqrt(max(rows, columns)): updates as large as AdamW's (Liu et al. 2025).

    The entries of an orthogonal matrix have a root mean square of 1 / sqrt(max(rows, columns)), the
    updates of AdamW one of 0.2 to 0.4. So one learning rate and one weight decay suit both kinds of
    groups and every shape, and carry over from a run with AdamW.
    """
    return 0.2 * math.sqrt(max(matrix.shape))


def iteration_dtype(matrix: Tensor) -> torch.dtype:
    """Return the default type of the iteration: bfloat16 on GPUs, at least float32 elsewhere.

    bfloat16 is precise enough for values that need to end near 1 only. On a CPU without bfloat16
    instructions it took eight times as long as float32; with AVX-512 BF16, 0.43 of the time for
    16 matrices of 512 x 512 and 0.65 for 16 of 96 x 96 (two threads).
    """
    wide = torch.promote_types(matrix.dtype, torch.float32)
    return torch.bfloat16 if matrix.device.type == "cuda" else wide


class Muon(AdamW):
    """Muon for parameter groups of kind "muon", AdamW for groups of kind "adamw".

    For a gradient g of a matrix of shape (rows, columns), with m = 0 at the start:

        m <- momentum * m + (1 - momentum) * g
        u <- orthogonalize(momentum * m + (1 - momentum) * g)
        param <- (1 - lr * weight_decay) * param - lr * 0.2 * sqrt(max(rows, columns)) * u

    Args:
        params: Matrices or parameter groups; `muon_groups` makes groups of a model.
        lr: Learning rate; one that suits AdamW suits Muon.
        betas: Decay rates of the moments, for groups of kind "adamw".
        eps: Added to the denominator, for groups of kind "adamw".
        weight_decay: Decoupled weight decay.
        momentum: Decay rate of the running mean of the gradient.
        fused: False updates one parameter at a time, by the definitions.

    Attributes:
        iteration_dtype: Data type of the iteration; None: see the function of this name.
        coefficients: Coefficients of the iterations.
        shards: Of parameters that are rows of a matrix, which other processes have the rest of. All
            of them orthogonalize the whole matrix. None of the three is part of the state dict.

    """

    iteration_dtype: torch.dtype | None = None
    coefficients: Coefficients = FIXED
    shards: Mapping[Any, Shard] = {}

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        momentum: float = 0.95,
        fused: bool | None = None,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        options |= {"fused": fused, "momentum": momentum, "kind": "muon"}
        GroupOptimizer.__init__(self, params, options)

    def __getstate__(self) -> dict[str, Any]:
        """Return the values of a pickle or a copy."""
        own = {name: getattr(self, name) for name in ("iteration_dtype", "coefficients")}
        return {**super().__getstate__(), **own}

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the momentum buffer, or the state of AdamW."""
        return ("momentum_buffer",) if group["kind"] == "muon" else super().state_names(group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another Muon; a state dict of AdamW has no kinds."""
        if not all("kind" in group for group in state_dict["param_groups"]):
            raise ValueError("the state is of another optimizer (no kinds); load one of Muon.")
        super().load_state_dict(state_dict)

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options out of range, and for parameters that are not matrices."""
        super().check_group(group)
        if group["kind"] not in {"muon", "adamw"}:
            raise ValueError(f"a group is of kind 'muon' or 'adamw', not {group['kind']!r}.")
        for parameter in group["params"]:
            if group["kind"] == "muon" and parameter.ndim != 2:
                raise ValueError(
                    f"Muon takes matrices, and a parameter has shape {tuple(parameter.shape)}; "
                    "give it to a group of kind 'adamw', as muon_groups(model) does."
                )

    def update_group(self, group: dict[str, Any], pairs: Pairs) -> None:
        """Update a group by its kind."""
        if group["kind"] == "adamw":
            super().update_group(group, pairs)
            return
        stacks: dict[Any, list[tuple[Tensor, ...]]] = defaultdict(list)
        for parameter, gradient in pairs:
            tensors = parameter, gradient, self.state[parameter]["momentum_buffer"]
            shard = self.shards.get(parameter)
            if group["fused"] is False and shard is None:
                if self.applied is not None and not self.applied:
                    continue
                options = {name: group[name] for name in ("lr", "momentum", "weight_decay")}
                muon_update(
                    *tensors,
                    **options,
                    dtype=self.iteration_dtype,
                    coefficients=self.coefficients,
                )
            else:
                # Of the whole matrix: all processes make the same stacks.
                shape = tuple(parameter.shape) if shard is None else shard.shape
                stacks[shape, parameter.device, parameter.dtype].append(tensors)
        for (shape, *_), alike in stacks.items():
            size = max(1, STACK_ELEMENTS // max(1, math.prod(shape)))
            for start in range(0, len(alike), size):
                self._stacked_update(group, alike[start : start + size])

    def _stacked_update(self, group: dict[str, Any], alike: list[tuple[Tensor, ...]]) -> None:
        """`muon_update` of matrices of one shape: on two cores in 0.9 of the time of a loop."""
        parameters, gradients, buffers = (list(each) for each in zip(*alike, strict=True))
        lr, momentum, applied = group["lr"], group["momentum"], self.applied
        if applied is not None:  # a step that is not applied: no change of the momentum, and lr = 0
            pairs = zip(gradients, buffers, strict=True)
            gradients = [torch.where(applied, gradient, buffer) for gradient, buffer in pairs]
        torch._foreach_lerp_(buffers, gradients, 1.0 - momentum)
        ahead = torch.stack(torch._foreach_lerp(gradients, buffers, momentum))
        narrow = ahead.to(self.iteration_dtype or iteration_dtype(ahead))
        shard = self.shards.get(parameters[0])
        whole = narrow if shard is None else shard.gathered(narrow)
        decay, scale = 1.0 - lr * group["weight_decay"], -lr * update_scale(whole[0])
        updates = _orthogonalize_stack(whole, self.coefficients)
        updates = (updates if shard is None else shard.of(updates)).to(ahead.dtype)
        if applied is None:
            torch._foreach_mul_(parameters, decay)
            torch._foreach_add_(parameters, updates.unbind(), alpha=scale)
        else:
            torch._foreach_mul_(parameters, torch.where(applied, decay, 1.0))
            torch._foreach_add_(parameters, (updates * torch.where(applied, scale, 0.0)).unbind())


def _orthogonalize_stack(matrices: Tensor, coefficients: Coefficients) -> Tensor:
    """`orthogonalize` of each matrix in (stack, rows, columns), with fused sums and products."""
    if matrices.shape[1] > matrices.shape[2]:
        return _orthogonalize_stack(matrices.mT, coefficients).mT
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def muon_groups(
    model: Module, weight_decay: float, embedding_lr_factor: float = 1.0
) -> list[dict[str, Any]]:
    """Return the parameter groups of a model for Muon.

    The matrices of hidden layers form a group of kind "muon"; the other groups are of kind "adamw",
    with weight decay and `embedding_lr_factor` as in `decay_groups`.
    """
    return parameter_groups(model, weight_decay, "muon", embedding_lr_factor)
