"""Learning rate schedules: pure functions of the step, so there is no state to save or resume.

Steps count from 0. Every `_steps` argument is the absolute step at which a phase ends.

>>> [cosine_schedule(step, 1.0, 0.1, warmup_steps=2, cosine_steps=6) for step in (0, 1, 2, 4, 6, 9)]
[0.0, 0.5, 1.0, 0.55, 0.1, 0.1]
"""

import math


def cosine_schedule(
    step: int, max_lr: float, min_lr: float, warmup_steps: int, cosine_steps: int
) -> float:
    """Return the learning rate of a linear warm-up followed by cosine annealing.

    From 0 to `max_lr` at `warmup_steps`, along half a cosine to `min_lr` at `cosine_steps`, then
    constant.
    """
    phases = {"warmup_steps": warmup_steps, "cosine_steps": cosine_steps}
    phase, progress = _progress(step, max_lr, min_lr, phases)
    if phase == "warmup_steps":
        return progress * max_lr
    if phase == "cosine_steps":
        return min_lr + 0.5 * (1.0 + math.cos(math.pi * progress)) * (max_lr - min_lr)
    return min_lr


def warmup_stable_decay_schedule(
    step: int, max_lr: float, min_lr: float, warmup_steps: int, stable_steps: int, decay_steps: int
) -> float:
    """Return the learning rate of a warm-up, a constant phase and a linear decay (Hu et al. 2024).

    From 0 to `max_lr` at `warmup_steps`, constant until `stable_steps`, linear to `min_lr` at
    `decay_steps`, then constant. Unlike a cosine, the length of a run may be chosen late: any
    checkpoint of the stable phase can be continued or decayed.
    """
    phases = {
        "warmup_steps": warmup_steps,
        "stable_steps": stable_steps,
        "decay_steps": decay_steps,
    }
    phase, progress = _progress(step, max_lr, min_lr, phases)
    if phase == "warmup_steps":
        return progress * max_lr
    if phase == "stable_steps":
        return max_lr
    return max_lr + progress * (min_lr - max_lr) if phase == "decay_steps" else min_lr


def constant_schedule(step: int, max_lr: float, warmup_steps: int = 0) -> float:
    """Return the learning rate of a linear warm-up followed by a constant."""
    phase, progress = _progress(step, max_lr, 0.0, {"warmup_steps": warmup_steps})
    return progress * max_lr if phase else max_lr


def _progress(
    step: int, max_lr: float, min_lr: float, phases: dict[str, int]
) -> tuple[str | None, float]:
    """Return the phase of a step and the fraction of it that is complete; None after the last."""
    if not 0.0 <= min_lr <= max_lr < math.inf:
        raise ValueError(f"min_lr is {min_lr} and max_lr {max_lr}; use 0 <= min_lr <= max_lr.")
    for name, steps in {"step": step, **phases}.items():
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
            raise ValueError(f"{name} is {steps!r}; give a whole number of steps, 0 or more.")
    found: tuple[str | None, float] = None, 0.0
    start = 0
    for name, end in phases.items():
        if end < start:
            raise ValueError(f"{name} is {end}, before {start}; phases must end in order.")
        if start <= step < end:
            found = name, (step - start) / (end - start)
        start = end
    return found
