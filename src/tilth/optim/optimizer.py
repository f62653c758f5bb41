"""What SGD, AdamW and Muon share: checked options, `step(closure)`, and who is updated.

What enters: parameters or groups of them, each with options of its own. What leaves: the base class
of an optimizer, which says in `update_group` how parameters move along their gradients.

>>> class SignDescent(GroupOptimizer):
...     def update_group(self, group, pairs):
...         for parameter, gradient in pairs:
...             parameter.sub_(gradient.sign(), alpha=group["lr"])
>>> weight = torch.nn.Parameter(torch.tensor([3.0]))
>>> weight.grad = torch.tensor([70.0])
>>> SignDescent([weight], {"lr": 0.5}).step()
>>> weight.data
tensor([2.5000])
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

Loss = Tensor | float


class GroupOptimizer(Optimizer):
    """torch's `Optimizer` (parameter groups, state dicts), with the loop of `step` filled in."""

    unsupported: ClassVar[tuple[str, ...]] = ()
    """Options of torch's optimizer of the same name that a state dict may bring, and we lack."""

    def update_group(self, group: dict[str, Any], pairs: list[tuple[Tensor, Tensor]]) -> None:
        """Move the parameters of a group that have gradients, each given with its gradient."""
        raise NotImplementedError

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The state of each parameter: `step` is one number, the others have its shape."""
        return ()

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise a ValueError for options that make no sense."""
        for name in self.unsupported:
            if options.get(name):
                raise ValueError(
                    f"{type(self).__name__} has no {name}, which is {options[name]}; turn it off."
                )
        # `not low <= value` refuses NaN too.
        for name, low, high in (
            ("lr", 0.0, math.inf),
            ("eps", 0.0, math.inf),
            ("weight_decay", 0.0, math.inf),
            ("momentum", 0.0, 1.0),
        ):
            value = options.get(name, low)
            if not low <= value < high:
                raise ValueError(f"{name} is {value}; it must be in [{low:g}, {high:g}).")
        betas = options.get("betas", (0.0, 0.0))
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas are {betas}; there are two, both in [0, 1).")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; an option that it does not say is the optimizer's own."""
        self.check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state dict or a pickle, once its options are checked."""
        defaults = state.get("defaults") or self.defaults
        for group in state["param_groups"]:
            for name, value in defaults.items():
                group.setdefault(name, value)
            self.check_options(group)
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:  # type: ignore[override]
        """Update every parameter that has a gradient; return what `closure` returned, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [
            (group, [(p, p.grad) for p in group["params"] if p.grad is not None])
            for group in self.param_groups
        ]
        for group, pairs in work:  # all of them, before the first is moved
            names = self.state_names(group)
            for parameter, gradient in pairs:
                if parameter.is_complex() or gradient.layout != torch.strided:
                    raise ValueError(
                        f"{type(self).__name__} takes dense gradients of real numbers, not "
                        f"{gradient.layout} of {gradient.dtype}; convert the parameter, or train "
                        "it with another optimizer."
                    )
                check_tensors(self.state.get(parameter) or {}, names, parameter, gradient)
        for group, pairs in work:
            self.update_group(group, pairs)
        return loss


def check_tensors(
    state: Mapping[str, Any], names: tuple[str, ...], parameter: Tensor, gradient: Tensor
) -> None:
    """Refuse a gradient or a state of another shape: fused kernels read as far as the parameter."""
    if gradient.shape != parameter.shape:
        raise ValueError(
            f"a gradient has shape {tuple(gradient.shape)} and its parameter "
            f"{tuple(parameter.shape)}; compute it again."
        )
    for name in names if state else ():  # the first step makes it
        value = state.get(name)
        is_fitting = isinstance(value, Tensor) and (
            value.numel() == 1 if name == "step" else value.shape == parameter.shape
        )
        if not is_fitting:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else "no tensor"
            raise ValueError(
                f"the optimizer's {name} has {found} for a parameter of shape "
                f"{tuple(parameter.shape)}; load the state of an optimizer of the same parameters."
            )
