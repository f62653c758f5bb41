"""One update of a model: a batch to gradients, microbatch by microbatch, and gradients to weights.

What enters: a model, its config, a batch. What leaves: the loss and the gradient's norm; the model
has moved, unless one of the two was not finite. The gradient of a batch is the same however it is
cut, the last part being smaller or not: each part counts by its share of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilth.model import chunked_cross_entropy
from tilth.optim import (
    AdamW,
    Muon,
    clip_gradients,
    constant_schedule,
    cosine_schedule,
    decay_groups,
    muon_groups,
    warmup_stable_decay_schedule,
)
from tilth.training.machine import DTYPES

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jaxtyping import Float, Int

    from tilth.config.training import OptimizerConfig, ResolvedConfig, ResolvedMachine
    from tilth.model import TransformerLM

    LossOf = Callable[[Int[Tensor, "rows context"], Int[Tensor, "rows context"]], Float[Tensor, ""]]


def make_optimizer(model: TransformerLM, config: OptimizerConfig) -> AdamW:
    """Make the optimizer that a config names; matrices decay, the rest does not."""
    if config.name == "muon":
        groups = muon_groups(model, config.weight_decay)
        return Muon(groups, config.lr, config.betas, config.eps, momentum=config.momentum)
    groups = decay_groups(model, config.weight_decay)
    return AdamW(groups, config.lr, config.betas, config.eps)


def learning_rate(step: int, config: ResolvedConfig) -> float:
    """The learning rate of a step, counted from 1: the first is above 0, the last is min_lr."""
    optimizer = config.optimizer
    step, last = step - optimizer.begin_step, config.steps - optimizer.begin_step
    lr, min_lr, warmup = optimizer.lr, optimizer.min_lr, optimizer.warmup_steps
    if optimizer.schedule == "cosine":
        return cosine_schedule(step, lr, min_lr, warmup, last)
    if optimizer.schedule == "constant":
        return constant_schedule(step, lr, warmup)
    return warmup_stable_decay_schedule(
        step, lr, min_lr, warmup, last - optimizer.decay_steps, last
    )


def make_loss(model: TransformerLM, machine: ResolvedMachine) -> LossOf:
    """Return the function that is differentiated: a microbatch to its mean loss."""
    autocast = autocast_of(machine)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with autocast():
            return chunked_cross_entropy(model.hidden(x), model.head_weight, y)

    return loss_of


def compiled(loss_of: LossOf, device: str) -> LossOf:
    """Let torch make one program of it; on mps its code generator is not ready."""
    backend = "aot_eager" if torch.device(device).type == "mps" else "inductor"
    made: LossOf = torch.compile(loss_of, fullgraph=True, dynamic=False, backend=backend)

    def checked(x: Tensor, y: Tensor) -> Tensor:
        try:
            return made(x, y)
        except RuntimeError as error:
            if not type(error).__module__.startswith("torch._"):
                raise
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"the model cannot be compiled here ({reason}); install a C++ compiler, or begin a "
                "run with machine.compile = false."
            ) from error

    return checked


def autocast_of(machine: ResolvedMachine) -> Callable[[], AbstractContextManager[object]]:
    """Return what products stand in: float32 in nothing, other types in torch's autocast."""
    dtype, device = machine.dtype, torch.device(machine.device).type
    if dtype == "float32":
        return nullcontext
    return lambda: torch.autocast(device, DTYPES[dtype])


def make_scaler(machine: ResolvedMachine) -> torch.amp.GradScaler:
    """Return what keeps small gradients of float16 from vanishing; for other types, nothing."""
    device = torch.device(machine.device).type
    return torch.amp.GradScaler(device, enabled=machine.dtype == "float16")


def accumulate_gradients(
    loss_of: LossOf,
    x: Int[Tensor, "rows context"],
    y: Int[Tensor, "rows context"],
    microbatch_size: int,
    scaler: torch.amp.GradScaler,
) -> Float[Tensor, ""]:
    """Add the gradient of a batch's mean loss to the parameters, and return that loss."""
    total = torch.zeros((), device=x.device)
    for first in range(0, len(x), microbatch_size):
        rows = slice(first, first + microbatch_size)
        loss = loss_of(x[rows], y[rows])
        if microbatch_size < len(x):
            loss = loss * (len(x[rows]) / len(x))
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach()
    return total


def update(
    optimizer: AdamW,
    loss: float,
    lr: float,
    max_grad_norm: float,
    scaler: torch.amp.GradScaler,
) -> float:
    """Clip and step, unless loss or gradient is not finite; return the norm before clipping."""
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = clip_gradients(parameters, max_grad_norm).item()
    for group in optimizer.param_groups:
        group["lr"] = lr
    if math.isfinite(loss) and math.isfinite(norm):
        scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return norm
