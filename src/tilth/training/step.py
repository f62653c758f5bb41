"""One update of a model: gradients of a batch, accumulated over microbatches, and a step.

The gradient does not depend on the microbatch size: each microbatch is weighted by its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tilth.config.training import (
    CompileMode,
    Dtype,
    OptimizerConfig,
    ResolvedConfig,
    ResolvedMachine,
    TrainingConfig,
)
from tilth.data import Batches, Data
from tilth.errors import first_line
from tilth.model import TransformerLM, chunked_cross_entropy
from tilth.optim import AdamW, Muon, clip_gradients, decay_groups, muon_groups, schedule
from tilth.optim.muon import FIXED, OPTIMAL, Coefficients
from tilth.training.machine import DTYPES

COEFFICIENTS: dict[str, Coefficients] = {"fixed": FIXED, "optimal": OPTIMAL}
FIRST_MOMENTUM = 0.85  # of a warm-up

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    LossOf = Callable[[Int[Tensor, "rows context"], Int[Tensor, "rows context"]], Float[Tensor, ""]]


def make_batches(
    config: TrainingConfig,
    data: Data,
    device: torch.device | str,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """Return the batches of a run, on its device; of them, the rows of one rank."""
    return Batches(
        data.train,
        config.batch_size,
        config.model.context_length,
        config.seed,
        config.order,
        rank=rank,
        world_size=world_size,
        unit=config.rows_together,
        device=device,
        vocab_size=config.model.vocab_size,
    )


def make_optimizer(
    model: TransformerLM,
    config: OptimizerConfig,
    dtype: Dtype = "float32",
    own: Callable[[str, Tensor], Tensor] = lambda _name, parameter: parameter,
) -> AdamW:
    """Return the optimizer of a config; only matrices but the embedding have weight decay.

    The state is float32 for every autocast dtype. With bfloat16, Muon's iteration is in bfloat16.
    `own` returns what is updated of a parameter, by default all of it.
    """
    make_groups = muon_groups if config.name == "muon" else decay_groups
    groups = make_groups(model, config.weight_decay, config.embedding_lr_factor)
    for group in groups:
        group["params"] = [(name, own(name, parameter)) for name, parameter in group["params"]]
    if config.name == "muon":
        muon = Muon(groups, config.lr, config.betas, config.eps, momentum=config.momentum)
        muon.coefficients = COEFFICIENTS[config.muon_coefficients]
        if dtype == "bfloat16":
            muon.iteration_dtype = torch.bfloat16
        return muon
    return AdamW(groups, config.lr, config.betas, config.eps)


def learning_rate(step: int, config: ResolvedConfig) -> float:
    """Return the learning rate of a step. Steps count from 1; the last one has `min_lr`."""
    optimizer = config.optimizer
    step, last = step - optimizer.begin_step, config.steps - optimizer.begin_step
    lr, min_lr, warmup = optimizer.lr, optimizer.min_lr, optimizer.warmup_steps
    if optimizer.schedule == "cosine":
        return schedule.cosine_schedule(step, lr, min_lr, warmup, last)
    if optimizer.schedule == "constant":
        return schedule.constant_schedule(step, lr, warmup)
    stable = last - optimizer.decay_steps
    return schedule.warmup_stable_decay_schedule(step, lr, min_lr, warmup, stable, last)


def set_momentum(optimizer: AdamW, step: int, config: OptimizerConfig) -> None:
    """Set Muon's momentum for a step: linear from 0.85 in step 1, if it warms up.

    Early gradients change fast, and a long memory keeps those that are no longer true.
    """
    share = min(1.0, (step - 1) / config.momentum_warmup_steps)
    first = min(FIRST_MOMENTUM, config.momentum)
    for group in optimizer.param_groups:
        group["momentum"] = first + share * (config.momentum - first)


def make_loss(model: TransformerLM, machine: ResolvedMachine) -> LossOf:
    """Return the function from a microbatch to its mean loss, under autocast."""
    autocast = autocast_of(machine)

    def loss_of(x: Tensor, y: Tensor) -> Tensor:
        with autocast():
            return chunked_cross_entropy(model.hidden(x), model.head_weight, y)

    return loss_of


def compiled(loss_of: LossOf, device: str, mode: CompileMode = "default") -> LossOf:
    """Compile a loss function; a failing compiler raises ValueError. Inductor lacks mps."""
    is_mps = torch.device(device).type == "mps"
    made: LossOf = torch.compile(
        loss_of,
        fullgraph=True,
        dynamic=False,
        backend="aot_eager" if is_mps else "inductor",
        mode=None if is_mps or mode == "default" else mode,
    )

    def checked(x: Tensor, y: Tensor) -> Tensor:
        try:
            return made(x, y)
        except RuntimeError as error:
            if not type(error).__module__.startswith("torch._"):
                raise
            reason = first_line(error)
            raise ValueError(
                f"the model cannot be compiled here ({reason}); install a C++ compiler, or start a "
                "run with machine.compile = false."
            ) from error

    return checked


def autocast_of(machine: ResolvedMachine) -> Callable[[], AbstractContextManager[object]]:
    """Return the autocast context of a machine; a no-op in float32."""
    dtype, device = machine.dtype, torch.device(machine.device).type
    if dtype == "float32":
        return nullcontext
    return lambda: torch.autocast(device, DTYPES[dtype])


def make_scaler(machine: ResolvedMachine) -> torch.amp.GradScaler:
    """Return the gradient scaler; it is disabled unless the type is float16."""
    device = torch.device(machine.device).type
    return torch.amp.GradScaler(device, enabled=machine.dtype == "float16")


def accumulate_gradients(
    loss_of: LossOf,
    x: Int[Tensor, "rows context"],
    y: Int[Tensor, "rows context"],
    microbatch_size: int,
    scaler: torch.amp.GradScaler,
    synced: Callable[[bool], AbstractContextManager[object]] = nullcontext,
    mean_over: float | None = None,
    padded_rows: int = 0,
) -> Float[Tensor, ""]:
    """Add the gradients of the mean loss of a batch to the parameters; return the loss.

    The other arguments are for several processes: `synced(is_last)` is the context of each
    microbatch, `mean_over` the number of rows of the mean, by default those of `x`. With
    `padded_rows`, as many rows are computed, of which those beyond `x` count 0 times.
    """
    total = torch.zeros((), device=x.device)
    num_rows = max(len(x), padded_rows)
    for first in range(0, num_rows, microbatch_size):
        rows = slice(first, first + microbatch_size)
        weight = len(x[rows]) / (mean_over or len(x))
        if first >= len(x):
            rows = slice(1)
        with synced(first + microbatch_size >= num_rows):
            loss = loss_of(x[rows], y[rows])
            if weight != 1:
                loss = loss * weight
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        total = total + loss.detach()
    return total


def update(
    optimizer: AdamW,
    loss: Tensor,
    lr: float,
    max_grad_norm: float,
    scaler: torch.amp.GradScaler,
    global_norm: Callable[[Tensor], Tensor] = torch.linalg.vector_norm,
) -> Float[Tensor, ""]:
    """Clip the gradients, step, and clear them; return the global gradient norm before clipping.

    `global_norm` is that of `clip_gradients`.

    The step is skipped if the loss or the norm is not finite. A GPU decides that itself: nothing
    here waits for it, unless the type is float16, whose scaler does. Read loss and norm afterwards.
    """
    scaler.unscale_(optimizer)
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = clip_gradients(parameters, max_grad_norm, global_norm)
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
    is_finite = loss.isfinite() & norm.isfinite()
    if loss.device.type != "cpu" and not scaler.is_enabled():
        optimizer.step_if(is_finite)
    elif is_finite:
        scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return norm
