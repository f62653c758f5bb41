"""Stochastic gradient descent, without momentum.

>>> import torch
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

from torch.optim.optimizer import ParamsT

from tilth.optim.optimizer import GroupOptimizer, Pairs


class SGD(GroupOptimizer):
    """Stochastic gradient descent with a learning rate that decays by the inverse square root.

    At step t = 0, 1, 2, ... of a parameter:

        param <- param - lr / sqrt(t + 1) * grad

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate.
        inverse_sqrt_decay: False keeps `lr` constant: plain SGD, the form to use with a schedule.

    """

    unsupported = ("momentum", "dampening", "weight_decay", "nesterov", "maximize")

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, *, inverse_sqrt_decay: bool = True
    ) -> None:
        super().__init__(params, {"lr": lr, "inverse_sqrt_decay": inverse_sqrt_decay})

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the step count."""
        return ("step",)

    def update_group(self, group: dict[str, Any], pairs: Pairs) -> None:
        """Subtract the scaled gradients."""
        for parameter, gradient in pairs:
            step = self.state[parameter]["step"]
            decay = math.sqrt(step.item() + 1.0) if group["inverse_sqrt_decay"] else 1.0
            parameter.add_(gradient, alpha=-group["lr"] / decay)
            step += 1.0
