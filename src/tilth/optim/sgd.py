"""Stochastic gradient descent: a step against the gradient, and nothing else.

What enters: parameters with gradients. What leaves: the parameters, moved.

>>> weight = torch.nn.Parameter(torch.tensor([3.0]))
>>> optimizer = SGD([weight], lr=0.5)
>>> for _ in range(2):
...     weight.grad = torch.tensor([1.0])
...     optimizer.step()
>>> weight.data  # 3 - 0.5 / sqrt(1) - 0.5 / sqrt(2)
tensor([2.1464])
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from tilth.optim.optimizer import GroupOptimizer


class SGD(GroupOptimizer):
    """theta <- theta - lr / sqrt(t + 1) * gradient, where t counts the steps from 0.

    That decay is the classic one for convex problems. `inverse_sqrt_decay=False` is plain SGD, with
    the same rate at every step: the form to use with a schedule.
    """

    unsupported = ("momentum", "dampening", "weight_decay", "nesterov", "maximize")

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, *, inverse_sqrt_decay: bool = True
    ) -> None:
        super().__init__(params, {"lr": lr, "inverse_sqrt_decay": inverse_sqrt_decay})

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The count of steps."""
        return ("step",)

    def update_group(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Take one step against each gradient."""
        for parameter, gradient in pairs:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.tensor(0.0, dtype=torch.float32)
            lr = group["lr"]
            if group["inverse_sqrt_decay"]:
                lr /= math.sqrt(state["step"].item() + 1.0)
            parameter.add_(gradient, alpha=-lr)
            state["step"] += 1.0
