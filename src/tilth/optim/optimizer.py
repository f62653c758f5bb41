"""The base class of SGD, AdamW and Muon: checked options, per-parameter state, `step(closure)`.

A subclass declares its state tensors in `state_names` and its update rule in `update_group`.

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
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

Loss = Tensor | float
Pairs = list[tuple[Tensor, Tensor]]  # parameters, each with its gradient

# Options in [0, limit).
LIMITS = {"lr": math.inf, "eps": math.inf, "weight_decay": math.inf, "momentum": 1.0}


class GroupOptimizer(Optimizer):
    """A `torch.optim.Optimizer` whose `step` checks every group, then updates every group.

    Attributes:
        unsupported: Options of the torch optimizer of the same name that are rejected when set.

    """

    unsupported: ClassVar[tuple[str, ...]] = ()

    def update_group(self, group: dict[str, Any], pairs: Pairs) -> None:
        """Update the parameters of a group in place, by their gradients and states."""
        raise NotImplementedError

    def state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """Return the names of the state tensors of a parameter; `step` is a scalar."""
        return ()

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options that are out of range or not supported."""
        for name in self.unsupported:
            if group.get(name):
                raise ValueError(f"{type(self).__name__} has no {name}; turn it off.")
        for name, limit in LIMITS.items():
            if not 0.0 <= group.get(name, 0.0) < limit:  # false for NaN
                raise ValueError(f"{name} is {group[name]}; it must be in [0, {limit:g}).")
        betas = group.get("betas", (0.0, 0.0))
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas are {betas}; give two numbers in [0, 1).")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a parameter group; options that it omits take the optimizer's defaults."""
        super().add_param_group(param_group)
        try:
            self.check_group(self.param_groups[-1])
        except ValueError:
            self.param_groups.pop()
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Load a state dict or a pickle after checking its options."""
        defaults = state.get("defaults") or self.defaults
        for group in state["param_groups"]:
            for name, value in defaults.items():
                group.setdefault(name, value)
            self.check_group(group)
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:  # type: ignore[override]
        """Update every parameter that has a gradient; return the loss of `closure`, if given.

        All gradients and states are checked before the first parameter changes.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [
            (group, [(p, p.grad) for p in group["params"] if p.grad is not None])
            for group in self.param_groups
        ]
        for group, pairs in work:
            for parameter, gradient in pairs:
                self._check_tensors(group, parameter, gradient)
        for group, pairs in work:
            for parameter, _ in pairs:
                state = self.state[parameter]
                for name in () if state else self.state_names(group):
                    like = torch.tensor(0.0, dtype=torch.float32) if name == "step" else parameter
                    state[name] = torch.zeros_like(like)
            self.update_group(group, pairs)
        return loss

    def _check_tensors(self, group: dict[str, Any], parameter: Tensor, gradient: Tensor) -> None:
        """Reject sparse, complex and misshapen tensors: a fused kernel would read past their end.

        A parameter without a state is before its first step.
        """
        if parameter.is_complex() or gradient.layout != torch.strided:
            raise ValueError(
                f"{type(self).__name__} takes dense gradients of real numbers, not "
                f"{gradient.layout} of {gradient.dtype}; convert the parameter."
            )
        shape = tuple(parameter.shape)
        if gradient.shape != shape:
            raise ValueError(
                f"a gradient has shape {tuple(gradient.shape)} and its parameter {shape}; "
                "recompute it."
            )
        state = self.state.get(parameter) or {}
        for name in self.state_names(group) if state else ():
            value = state.get(name)
            if not isinstance(value, Tensor):
                found = "no tensor"
            elif value.shape != shape if name != "step" else value.numel() != 1:
                found = f"shape {tuple(value.shape)}"
            else:
                continue
            raise ValueError(
                f"the optimizer's {name} has {found} for a parameter of shape {shape}; "
                "load the state of an optimizer of the same parameters."
            )
