"""Muon: momentum whose every direction counts alike (Jordan et al. 2024).

What enters: matrices with gradients. What leaves: the matrices, moved by their momentum after its
singular values were brought near 1, so that rare directions learn as fast as frequent ones. That
makes sense for hidden matrices alone: embeddings, the output matrix and norms are updated by AdamW,
in groups of the same optimizer. `muon_update` is the definition; the fast form takes matrices of
one shape as a stack.

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

if TYPE_CHECKING:
    from jaxtyping import Float

# p(s) = a s + b s^3 + c s^5, five times over, brings every s from 0.002 to 1 into about [0.7, 1.2]:
# the slope a at 0 is as steep as it can be for that (Jordan et al. 2024).
A, B, C = 3.4445, -4.7750, 2.0315
ITERATIONS = 5

STACK_ELEMENTS = 1 << 24  # at most, in one stack: it needs some five times this in temporary memory


def orthogonalize(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """U S V^T -> about U V^T: by products alone, as p(X) = a X + b (X X^T) X + c (X X^T)^2 X."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonalize(matrix.mT).mT  # the smaller of the two Gram matrices
    # No singular value exceeds the Frobenius norm, so all begin in [0, 1].
    x: Tensor = matrix / matrix.norm().clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x


def muon_update(
    parameter: Tensor,
    gradient: Tensor,
    momentum_buffer: Tensor,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
) -> None:
    """Move one matrix and its momentum, in place."""
    momentum_buffer.mul_(momentum).add_(gradient, alpha=1.0 - momentum)
    ahead = momentum * momentum_buffer + (1.0 - momentum) * gradient  # Nesterov's
    update = orthogonalize(ahead.to(iteration_dtype(ahead))).to(parameter.dtype)
    parameter.mul_(1.0 - lr * weight_decay)
    parameter.sub_(lr * update_scale(parameter) * update)


def update_scale(matrix: Tensor) -> float:
    """0.2 sqrt(max(rows, columns)): an update as large as AdamW's (Liu et al. 2025).

    An orthogonal matrix has entries of root mean square 1 / sqrt(max(rows, columns)), the updates
    of AdamW 0.2 to 0.4. So one learning rate, and one weight decay, serves both kinds of groups and
    every shape, and carries over from a run with AdamW.
    """
    return 0.2 * math.sqrt(max(matrix.shape))


def iteration_dtype(matrix: Tensor) -> torch.dtype:
    """bfloat16 on GPUs, which is precise enough for values that end anywhere near 1.

    Without instructions for it, as on the CPU we measured, it takes eight times as long as float32.
    """
    wide = torch.promote_types(matrix.dtype, torch.float32)
    return torch.bfloat16 if matrix.device.type == "cuda" else wide


class Muon(AdamW):
    """Muon for groups of kind "muon", AdamW for those of kind "adamw"; `muon_groups` makes both.

    `fused=False` takes the definitions, one parameter at a time.
    """

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
        self.more_defaults = {"momentum": momentum, "kind": "muon"}  # type: ignore[misc]
        super().__init__(params, lr, betas, eps, weight_decay, fused=fused)

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The momentum of a group of Muon's, the moments of AdamW for the others."""
        return ("momentum_buffer",) if group["kind"] == "muon" else super().state_names(group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state of another Muon; of AdamW's it could not know which kind is meant."""
        if not all("kind" in group for group in state_dict["param_groups"]):
            raise ValueError("the state is of another optimizer: its groups have no kind.")
        super().load_state_dict(state_dict)

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise a ValueError for options that make no sense."""
        super().check_options(options)
        if options["kind"] not in {"muon", "adamw"}:
            raise ValueError(f"a group is of kind 'muon' or 'adamw', not {options['kind']!r}.")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, which is of kind "muon" unless it says otherwise."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for parameter in group["params"]:
            if group["kind"] == "muon" and parameter.ndim != 2:
                self.param_groups.pop()
                raise ValueError(
                    f"Muon orthogonalizes matrices, and a parameter has shape "
                    f"{tuple(parameter.shape)}; give it to a group of kind 'adamw', as "
                    "muon_groups(model) does."
                )

    def update_group(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Update a group by its kind."""
        if group["kind"] == "adamw":
            super().update_group(group, pairs)
            return
        options = {name: group[name] for name in ("lr", "momentum", "weight_decay")}
        stacks: dict[Any, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for parameter, gradient in pairs:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            if group["fused"] is False:
                muon_update(parameter, gradient, state["momentum_buffer"], **options)
            else:
                stacks[parameter.shape, parameter.device, parameter.dtype].append(
                    (parameter, gradient)
                )
        for alike in stacks.values():
            size = max(1, STACK_ELEMENTS // max(1, alike[0][0].numel()))
            for start in range(0, len(alike), size):
                self._stacked_update(alike[start : start + size], **options)

    def _stacked_update(
        self,
        pairs: list[tuple[Tensor, Tensor]],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
    ) -> None:
        """`muon_update` of matrices of one shape: on two cores in 0.9 of the time of a loop."""
        parameters = [parameter for parameter, _ in pairs]
        gradients = [gradient for _, gradient in pairs]
        buffers = [self.state[parameter]["momentum_buffer"] for parameter in parameters]
        torch._foreach_lerp_(buffers, gradients, 1.0 - momentum)
        ahead = torch.stack(torch._foreach_lerp(gradients, buffers, momentum))
        updates = _orthogonalize_stack(ahead.to(iteration_dtype(ahead))).to(ahead.dtype)
        torch._foreach_mul_(parameters, 1.0 - lr * weight_decay)
        torch._foreach_add_(parameters, updates.unbind(), alpha=-lr * update_scale(parameters[0]))


def _orthogonalize_stack(
    matrices: Float[Tensor, "stack rows columns"],
) -> Float[Tensor, "stack rows columns"]:
    """`orthogonalize` for each, with the sums inside the products."""
    if matrices.shape[1] > matrices.shape[2]:
        return _orthogonalize_stack(matrices.mT).mT
    x: Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x


def muon_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """The groups of `decay_groups`, with the matrices of the hidden layers in a group of Muon's."""
    return parameter_groups(model, weight_decay, "muon")
