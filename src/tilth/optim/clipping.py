"""Gradient clipping by the global norm.

>>> weight, bias = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
>>> weight.grad, bias.grad = torch.tensor([2.0, 3.0]), torch.tensor([6.0])
>>> clip_gradients([weight, bias], max_norm=0.7)
tensor(7.)
>>> bias.grad
tensor([0.6000])
"""

import math
from collections.abc import Callable, Iterable
from functools import reduce

import torch
from torch import Tensor


@torch.no_grad()
def clip_gradients(
    parameters: Iterable[Tensor] | Tensor,
    max_norm: float,
    global_norm: Callable[[Tensor], Tensor] = torch.linalg.vector_norm,
) -> Tensor:
    """Clip the global L2 norm of the gradients to `max_norm`, in place.

    `global_norm` is a function from the norms of all gradients to the global norm; processes with
    parts of the gradients give one that adds up their squares.

    Gradients are scaled by max_norm / (norm + 1e-6) if the norm exceeds `max_norm`. A norm that is
    not finite leaves them unchanged, as any factor would spread inf or NaN to all of them: check
    the norm before a step. `max_norm=math.inf` only measures.

    Returns:
        The norm before clipping, a scalar of float32 or wider on the device of the gradients.
        Reading it synchronizes with the device, which is left to the caller.

    """
    if not max_norm > 0.0:
        raise ValueError(f"max_norm is {max_norm}; it must be positive (math.inf never clips).")
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    # The norm of the norms is the global norm. Half precision would lose digits or overflow.
    wide = reduce(torch.promote_types, (gradient.dtype for gradient in gradients), torch.float32)
    device = gradients[0].device
    norms = torch._foreach_norm(gradients, 2, dtype=wide)
    norm: Tensor = global_norm(torch.stack([each.to(device) for each in norms]))
    if device.type == "cpu" and not max_norm < norm < math.inf:
        return norm  # reading the norm is free here, and saves a pass over all gradients
    factor = _factor(norm, max_norm)
    for place in {gradient.device for gradient in gradients}:
        here = [gradient for gradient in gradients if gradient.device == place]
        torch._foreach_mul_(here, factor.to(place))
    return norm


def _factor(norm: Tensor, max_norm: float) -> Tensor:
    """Return the factor of the gradients: 1, or less if they are clipped. Does not synchronize."""
    exceeds = (norm > max_norm) & (norm < math.inf)
    return torch.where(exceeds, max_norm / (norm + 1e-6), 1.0)
