"""AdamW: steps of a size that does not depend on the gradient's (Loshchilov and Hutter 2019).

What enters: parameters with gradients. What leaves: the parameters, moved by the running mean of
their gradient over the running root mean square of it. `adamw_update` is the definition; the fused
kernel does the same in one pass over memory, and a test holds them equal. State dicts are those of
`torch.optim.AdamW`, both ways.

>>> weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
>>> optimizer = AdamW([weight], lr=0.1, weight_decay=0.0)
>>> weight.grad = torch.tensor([1e-3, 1e3])
>>> optimizer.step()
>>> weight.data  # both by lr, whatever the gradient
tensor([0.9000, 0.9000])
"""

import math
from collections import defaultdict
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim.optimizer import ParamsT

from tilth.optim.groups import group_names
from tilth.optim.optimizer import GroupOptimizer

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
    """Move one parameter and its two moments, in place, where `step` counts from 1."""
    beta1, beta2 = betas
    parameter.mul_(1.0 - lr * weight_decay)  # on the old weight, and past the moments: the W
    exp_avg.mul_(beta1).add_(gradient, alpha=1.0 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
    # Both moments began at 0; dividing by how much of them is not that zero takes it out again.
    mean = exp_avg / (1.0 - beta1**step)
    root_mean_square = exp_avg_sq.sqrt() / math.sqrt(1.0 - beta2**step)
    parameter.sub_(lr * mean / (root_mean_square + eps))


class AdamW(GroupOptimizer):
    """The update of `torch.optim.AdamW`, without its rarer options.

    `fused=None` takes the fused kernel where there is one and `adamw_update` elsewhere, True
    insists on it, False is the definition alone.
    """

    unsupported = ("amsgrad", "maximize")
    more_defaults: ClassVar[dict[str, Any]] = {}
    """Options that a subclass adds."""

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
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "fused": fused, **self.more_defaults})

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The count of steps and the two moments."""
        return ("step", "exp_avg", "exp_avg_sq")

    def update_group(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Update all parameters of a group, those with a fused kernel together."""
        options = {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")}
        fused: dict[tuple[torch.device, torch.dtype], list[tuple[Tensor, Tensor]]]
        fused = defaultdict(list)
        for parameter, gradient in pairs:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.tensor(0.0, dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
            tensors = parameter, gradient, state["exp_avg"], state["exp_avg_sq"]
            if _takes_fused(tensors, group["fused"]):
                fused[parameter.device, parameter.dtype].append((parameter, gradient))
                continue
            state["step"] += 1.0
            adamw_update(*tensors, state["step"].item(), **options)
        for alike in fused.values():
            self._fused_update(alike, **options)

    def _fused_update(
        self,
        pairs: list[tuple[Tensor, Tensor]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        states = [self.state[parameter] for parameter, _ in pairs]
        for (parameter, _), state in zip(pairs, states, strict=True):
            # The kernel reads the count where it works, while a plain step keeps it on the CPU.
            state["step"] = state["step"].to(parameter.device, torch.float32)
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1.0)
        torch._fused_adamw_(
            [parameter for parameter, _ in pairs],
            [gradient for _, gradient in pairs],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            weight_decay=weight_decay,
            eps=eps,
            amsgrad=False,
            maximize=False,
        )


def decay_groups(model: Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups of a model's parameters: matrices, which decay, and the rest, which does not."""
    return parameter_groups(model, weight_decay, "adamw")


def parameter_groups(model: Module, weight_decay: float, optimizer: str) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer; those of Muon say their kind."""
    parameters = dict(model.named_parameters())
    return [
        {
            "params": [(name, parameters[name]) for name in group.names],
            "weight_decay": weight_decay if group.decays else 0.0,
            **({"kind": group.kind} if optimizer == "muon" else {}),
        }
        for group in group_names({name: p.ndim for name, p in parameters.items()}, optimizer)
    ]


def _takes_fused(tensors: tuple[Tensor, ...], fused: bool | None) -> bool:
    """Whether the kernel is to update a parameter, given with its gradient and its moments."""
    if fused is False:
        return False
    parameter = tensors[0]
    # The kernel walks through memory, whatever the strides: of a transposed parameter and a plain
    # gradient it would pair other elements, without a word. `step` has checked the shapes.
    possible = parameter.device.type in FUSED_DEVICES and all(
        tensor.dtype == parameter.dtype and tensor.stride() == parameter.stride()
        for tensor in tensors
    )
    if fused and not possible:
        raise ValueError(
            f"there is no fused AdamW for {parameter.dtype} on {parameter.device}, or its gradient "
            "is of another type or layout; leave fused at None."
        )
    return possible
