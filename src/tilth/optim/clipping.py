"""Gradient clipping: all gradients together are never longer than a limit.

What enters: parameters with gradients. What leaves: the same gradients, scaled down in place if
their common length exceeded the limit, and that length as it was before.

>>> weight, bias = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
>>> weight.grad, bias.grad = torch.tensor([2.0, 3.0]), torch.tensor([6.0])
>>> clip_gradients([weight, bias], max_norm=0.7)
tensor(7.)
>>> bias.grad
tensor([0.6000])
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

EPSILON = 1e-6  # keeps the quotient finite


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor] | Tensor, max_norm: float) -> Tensor:
    """Scale all gradients by max_norm / (norm + 1e-6) if their l2 norm exceeds `max_norm`.

    Return the norm, of float32 at least, as a tensor where the gradients are: to read it is to wait
    for the device, so that is left to the caller. A norm that is not finite leaves the gradients as
    they are, since any factor would spread inf or NaN to all of them: look at it before a step.
    `max_norm=math.inf` only measures.
    """
    if not max_norm > 0.0:
        raise ValueError(f"max_norm is {max_norm}; it must be positive (math.inf never clips).")
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    # The norm of all norms is the norm of all. Half precision would lose digits, or overflow.
    wide = torch.float32
    for gradient in gradients:
        wide = torch.promote_types(wide, gradient.dtype)
    device = gradients[0].device
    norms = torch._foreach_norm(gradients, 2, dtype=wide)
    norm: Tensor = torch.linalg.vector_norm(torch.stack([each.to(device) for each in norms]))
    if device.type == "cpu" and not max_norm < norm < math.inf:
        return norm  # where looking costs nothing, it saves a pass over all gradients
    factor = _factor(norm, max_norm)
    for place in {gradient.device for gradient in gradients}:
        here = [gradient for gradient in gradients if gradient.device == place]
        torch._foreach_mul_(here, factor.to(place))
    return norm


def _factor(norm: Tensor, max_norm: float) -> Tensor:
    """What to multiply by: 1, which changes no bit, or less. Nothing waits for the norm."""
    exceeds = (norm > max_norm) & (norm < math.inf)
    return torch.where(exceeds, max_norm / (norm + EPSILON), 1.0)
