"""The learning rate as a pure function of the step: nothing to save, nothing to resume.

What enters: a step, counted from 0, and the shape of the curve. What leaves: the learning rate of
that step. Every `_steps` is a point on the same axis: the absolute step at which a phase ends.

>>> [cosine_schedule(step, 1.0, 0.1, warmup_steps=2, cosine_steps=6) for step in (0, 1, 2, 4, 6, 9)]
[0.0, 0.5, 1.0, 0.55, 0.1, 0.1]
"""

import math


def cosine_schedule(
    step: int, max_lr: float, min_lr: float, warmup_steps: int, cosine_steps: int
) -> float:
    """Warm up in a line, then half a cosine to `min_lr` at `cosine_steps`, which then stays."""
    _check(step, max_lr, min_lr, warmup_steps=warmup_steps, cosine_steps=cosine_steps)
    if step < warmup_steps:
        return step / warmup_steps * max_lr
    if step < cosine_steps:
        progress = (step - warmup_steps) / (cosine_steps - warmup_steps)
        return min_lr + 0.5 * (1.0 + math.cos(math.pi * progress)) * (max_lr - min_lr)
    return min_lr


def warmup_stable_decay_schedule(
    step: int, max_lr: float, min_lr: float, warmup_steps: int, stable_steps: int, decay_steps: int
) -> float:
    """Warm up, stay at `max_lr` until `stable_steps`, fall in a line to `min_lr` at `decay_steps`.

    Unlike a cosine, a run need not know its end when it begins: any checkpoint of the stable phase
    can be continued, or brought to an end (Hu et al. 2024).
    """
    phases = {"stable_steps": stable_steps, "decay_steps": decay_steps}
    _check(step, max_lr, min_lr, warmup_steps=warmup_steps, **phases)
    if step < warmup_steps:
        return step / warmup_steps * max_lr
    if step < stable_steps:
        return max_lr
    if step < decay_steps:
        progress = (step - stable_steps) / (decay_steps - stable_steps)
        return max_lr + progress * (min_lr - max_lr)
    return min_lr


def constant_schedule(step: int, max_lr: float, warmup_steps: int = 0) -> float:
    """Warm up, then stay."""
    _check(step, max_lr, 0.0, warmup_steps=warmup_steps)
    return step / warmup_steps * max_lr if step < warmup_steps else max_lr


def _check(step: int, max_lr: float, min_lr: float, **phases: int) -> None:
    if not 0.0 <= min_lr <= max_lr < math.inf:
        raise ValueError(
            f"min_lr is {min_lr} and max_lr {max_lr}; they need 0 <= min_lr <= max_lr."
        )
    before, earlier = "0", 0
    for name, steps in {"step": step, **phases}.items():
        if not isinstance(steps, int) or isinstance(steps, bool):
            raise ValueError(f"{name} is {steps!r}; give a whole number of steps.")
    if step < 0:
        raise ValueError(f"step is {step}; steps are counted from 0.")
    for name, steps in phases.items():
        if steps < earlier:
            raise ValueError(
                f"{name} is {steps}, which is less than {before}; phases end one after the other, "
                "each at an absolute step."
            )
        before, earlier = f"{name} = {steps}", steps
