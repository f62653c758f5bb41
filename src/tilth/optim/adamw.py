"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019).

`adamw_update` is the definition; the fused kernel does the same in one pass over memory. State
dicts are interchangeable with those of `torch.optim.AdamW`.

>>> weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
>>> optimizer = AdamW([weight], lr=0.1, weight_decay=0.0)
>>> weight.grad = torch.tensor([1e-3, 1e3])
>>> optimizer.step()
>>> weight.data  # both by lr, whatever the gradient
tensor([0.9000, 0.9000])
"""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim.optimizer import ParamsT

from tilth.optim.groups import group_names
from tilth.optim.optimizer import GroupOptimizer, Pairs

FUSED_DEVICES = {"cpu", "cuda", "mps"}


def adamw_update(
    parameter: Tensor,
    gradient: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    step: float,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> None:
    """Update one parameter and its two moments in place; `step` counts from 1."""
    beta1, beta2 = betas
    parameter.mul_(1.0 - lr * weight_decay)  # decoupled: the decay does not enter the moments
    exp_avg.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    # Bias correction: both moments start at 0, which still has the weight beta**step.
    mean = exp_avg / (1.0 - beta1**step)
    root_mean_square = exp_avg_sq.sqrt() / math.sqrt(1.0 - beta2**step)
    parameter.sub_(lr * mean / (root_mean_square + eps))


class AdamW(GroupOptimizer):
    """AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    At step t = 1, 2, 3, ..., for a gradient g, with m = v = 0 at the start:

        param <- (1 - lr * weight_decay) * param
        m <- beta1 * m + (1 - beta1) * g
        v <- beta2 * v + (1 - beta2) * g^2
        param <- param - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

    Args:
        params: Parameters or parameter groups; `decay_groups` makes groups of a model.
        lr: Learning rate.
        betas: Decay rates of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Decoupled weight decay.
        fused: None uses the fused kernel where there is one, True requires it, False never uses it.

    """

    unsupported = ("amsgrad", "maximize")
    applied: Tensor | None = None  # of `step_if`

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        fused: bool | None = None,
    ) -> None:
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**options, "fused": fused})

    def step_if(self, applied: Tensor) -> None:
        """Take a step if `applied`, a bool scalar on the device of the parameters, is true.

        The fused kernels read it on the device: a GPU is not synchronized. Otherwise parameters and
        state keep their values, also if gradients are not finite.
        """
        self.applied = applied
        try:
            self.step()
        finally:
            self.applied = None

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the step count and the two moments."""
        return ("step", "exp_avg", "exp_avg_sq")

    def update_group(self, group: dict[str, Any], pairs: Pairs) -> None:
        """Update the parameters of a group, those with a fused kernel together."""
        options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
        fused: dict[Any, list[tuple[Tensor, ...]]] = defaultdict(list)
        for parameter, gradient in pairs:
            state = self.state[parameter]
            tensors = parameter, gradient, state["exp_avg"], state["exp_avg_sq"]
            if _takes_fused(tensors, group["fused"]):
                # The kernel reads the step count on its device; a plain step keeps it on the CPU.
                state["step"] = state["step"].to(parameter.device, torch.float32)
                fused[parameter.device, parameter.dtype].append((*tensors, state["step"]))
            elif self.applied is None or self.applied:
                state["step"] += 1.0
                adamw_update(*tensors, state["step"].item(), **options)
        beta1, beta2 = options.pop("betas")
        options |= {"beta1": beta1, "beta2": beta2, "amsgrad": False, "maximize": False}
        for alike in fused.values():
            parameters, gradients, means, squares, steps = map(list, zip(*alike, strict=True))
            torch._foreach_add_(steps, 1.0)
            skipped = None if self.applied is None else (~self.applied).float()
            torch._fused_adamw_(
                *(parameters, gradients, means, squares, [], steps), **options, found_inf=skipped
            )
            if skipped is not None:
                torch._foreach_sub_(steps, [skipped] * len(steps))


def decay_groups(
    model: Module, weight_decay: float, embedding_lr_factor: float = 1.0
) -> list[dict[str, Any]]:
    """Return the parameter groups of a model for AdamW.

    Matrices have weight decay; norm gains and the token embedding have none. With an
    `embedding_lr_factor` other than 1, the token embedding is a group with this `lr_factor`, by
    which the caller multiplies its learning rate.
    """
    return parameter_groups(model, weight_decay, "adamw", embedding_lr_factor)


def parameter_groups(
    model: Module, weight_decay: float, optimizer: str, embedding_lr_factor: float = 1.0
) -> list[dict[str, Any]]:
    """Return the parameter groups of a model for an optimizer; those of Muon have a `kind`."""
    parameters = dict(model.named_parameters())
    ndims = {name: p.ndim for name, p in parameters.items()}
    groups = group_names(ndims, optimizer, own_embedding=embedding_lr_factor != 1.0)
    return [
        {
            "params": [(name, parameters[name]) for name in group.names],
            "weight_decay": weight_decay if group.decays else 0.0,
            **({"kind": group.kind} if optimizer == "muon" else {}),
            **({"lr_factor": embedding_lr_factor} if group.is_embedding else {}),
        }
        for group in groups
    ]


def _takes_fused(tensors: tuple[Tensor, ...], fused: bool | None) -> bool:
    """Return whether the fused kernel can update these: a parameter, its gradient, its moments."""
    parameter = tensors[0]
    # The kernel ignores strides: it would silently pair a transposed parameter with the wrong
    # elements of a contiguous gradient. `step` has checked the shapes.
    possible = parameter.device.type in FUSED_DEVICES and all(
        tensor.dtype == parameter.dtype and tensor.stride() == parameter.stride()
        for tensor in tensors
    )
    if fused and not possible:
        raise ValueError(
            f"there is no fused AdamW for {parameter.dtype} on {parameter.device}, or its gradient "
            "is of another type or layout; use fused=None."
        )
    return possible and fused is not False
