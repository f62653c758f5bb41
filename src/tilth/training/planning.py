"""What a training will cost, before it is paid: measured on this machine, on the real model.

What enters: a `TrainingConfig` with gaps. What leaves: a `Plan`, whose config has none. A budget of
time has become a number of steps, once and for all: a run that counted seconds could not be
repeated. Whether to compile is measured too: it pays in long runs, and costs most of a minute.
"""

import bisect
import logging
import math
import statistics
import time
from dataclasses import dataclass, replace

import torch

from tilth.accounting import count_parameters, training_flops
from tilth.accounting.memory import training_memory
from tilth.config.training import ResolvedConfig, ResolvedMachine, TrainingConfig
from tilth.data import Batches, Data
from tilth.formatting import format_duration
from tilth.model import TransformerLM
from tilth.training.machine import (
    machine_settings,
    measured_peak,
    resolve_device,
    resolve_dtype,
    synchronize,
)
from tilth.training.step import (
    accumulate_gradients,
    compiled,
    make_loss,
    make_optimizer,
    make_scaler,
    update,
)

COMPILED_FROM_SECONDS = 420.0
"""Shorter runs do not try to compile: it takes most of a minute, and saves an eighth of a step."""

TIMED_SECONDS = 3.0  # of steps, when they have been timed enough

PROCESS_BYTES = 300_000_000  # Python, torch and its threads

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """A run that could begin now."""

    config: ResolvedConfig
    """Without gaps."""
    parameters: int
    flops: int
    """Of all matrix products of the run, forward and backward."""
    memory_bytes: int
    """Expected at most."""
    step_seconds: float
    """Measured."""
    peak_flops: float
    """FLOP/s that a large product reaches here."""
    seconds: float
    """Expected, evaluations and samples included."""
    utilisation: float
    """3 x the forward products of a step, over what the peak would do in its time."""

    def summary(self) -> str:
        """Model, length, cost, machine and time, a line each."""
        config, machine = self.config, self.config.machine
        model = config.model
        length = f"{config.steps:,} steps of {config.tokens_per_step:,} tokens"
        compiling = "compiled" if machine.compile else "not compiled"
        return "\n".join(
            [
                f"model    {self.parameters:,} parameters: {model.num_layers} layers of width "
                f"{model.d_model}, {model.num_heads} heads, vocabulary {model.vocab_size:,}",
                f"length   {config.tokens:,} tokens: {length}",
                f"cost     {self.flops:.3g} FLOPs, {self.memory_bytes / 1e9:.2f} GB of memory",
                f"machine  {machine.device}, {machine.threads} threads, {machine.dtype}, "
                f"{compiling}; peak {self.peak_flops / 1e9:,.0f} GFLOP/s",
                f"time     {format_duration(self.seconds)} expected: "
                f"{self.step_seconds:.3g} s a step, {self.utilisation:.0%} of the peak",
            ]
        )


def plan(config: TrainingConfig, data: Data) -> Plan:
    """Fill in what depends on the machine, and measure how long it will take."""
    began = time.perf_counter()
    device = resolve_device(config.machine.device)
    machine = ResolvedMachine(
        device=device,
        dtype=resolve_dtype(config.machine.dtype, device),
        compile=bool(config.machine.compile),
        threads=config.machine.threads or torch.get_num_threads(),
    )
    if config.steps is None and config.budget_seconds is None:
        raise ValueError("how long to train is not said; give steps, or a budget of time.")
    with machine_settings(machine):
        peak = measured_peak(torch.device(device), machine.dtype)
        ((_, step_seconds),) = _time_steps(config, machine, data, use_compiler=False)
        compiles = machine.compile
        if compiles or (
            config.machine.compile is None and _may_compile(config, device, step_seconds)
        ):
            compiles, step_seconds = _try_compiler(config, machine, data, step_seconds)
        machine = replace(machine, compile=compiles)
    if config.steps is None:
        assert config.budget_seconds is not None
        left = config.budget_seconds - (time.perf_counter() - began)
        steps = _steps_in(left, config, machine, step_seconds, len(data.valid))
        config = replace(config, steps=steps)
    resolved = replace(config, machine=machine).resolve()
    flops = training_flops(config.model, config.batch_size)
    memory = training_memory(
        config.model,
        resolved.microbatch_size,
        config.optimizer.name,
        machine.dtype,
        num_microbatches=-(-config.batch_size // resolved.microbatch_size),
    )
    return Plan(
        resolved,
        count_parameters(config.model).total,
        flops * resolved.steps,
        memory.peak_bytes + PROCESS_BYTES,
        step_seconds,
        peak,
        resolved.steps * step_seconds + _watching_seconds(resolved, step_seconds, len(data.valid)),
        flops / step_seconds / peak,
    )


def _time_steps(
    config: TrainingConfig, machine: ResolvedMachine, data: Data, *, use_compiler: bool
) -> list[tuple[float, float]]:
    """Seconds of the first step of a model that is thrown away, which compiles, and of others.

    Uncompiled, and compiled if so; in turns, as the speed of a machine may change.
    """
    with torch.random.fork_rng():
        model = TransformerLM(config.model).to(machine.device)
    losses = [make_loss(model, machine)]
    if use_compiler:
        losses.append(compiled(make_loss(model, machine), machine.device))
    optimizer, scaler = make_optimizer(model, config.optimizer), make_scaler(machine)
    batches = Batches(
        data.train,
        config.batch_size,
        config.model.context_length,
        config.seed,
        config.order,
        device=machine.device,
    )
    seconds: list[list[float]] = [[] for _ in losses]
    for number in range(21):
        x, y = batches[number]
        for own, loss_of in zip(seconds, losses, strict=True):
            then = time.perf_counter()
            rows = config.microbatch_size or config.batch_size
            loss = accumulate_gradients(loss_of, x, y, rows, scaler).item()
            update(optimizer, loss, 0.0, config.optimizer.max_grad_norm, scaler)
            synchronize(torch.device(machine.device))
            own.append(time.perf_counter() - then)
        if sum(sum(own[1:]) for own in seconds) > TIMED_SECONDS:
            break
    return [(own[0], statistics.median(own[1:])) for own in seconds]


def _whole_seconds(config: TrainingConfig, step_seconds: float) -> float:
    whole = config.budget_seconds if config.steps is None else config.steps * step_seconds
    assert whole is not None
    return whole


def _may_compile(config: TrainingConfig, device: str, step_seconds: float) -> bool:
    """Whether to try it at all."""
    is_long = _whole_seconds(config, step_seconds) >= COMPILED_FROM_SECONDS
    return is_long and torch.device(device).type != "mps"


def check_compiler(machine: ResolvedMachine) -> None:
    """Refuse to begin what could not be compiled here."""
    number = time.time()  # part of the code, so that no cache has it
    ones = torch.ones(2, device=machine.device)
    compiled(lambda x, y: (x * number + y).sum(), machine.device)(ones, ones)


def _try_compiler(
    config: TrainingConfig, machine: ResolvedMachine, data: Data, step_seconds: float
) -> tuple[bool, float]:
    """Whether to compile, as is asked for or as the run is shorter with it; seconds of a step."""
    try:
        timed = _time_steps(config, machine, data, use_compiler=True)
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        log.warning("the model cannot be compiled (%s); it trains uncompiled.", reason)
        return False, step_seconds
    (_, step_seconds), (compiling, compiled_seconds) = timed
    whole = _whole_seconds(config, step_seconds)
    # Spent by now; but who resumes the run may have to spend it again.
    pays = compiling + whole * compiled_seconds / step_seconds < whole
    log.warning(
        "compiling took %.0f s; a step takes %.3g s instead of %.3g s%s",
        compiling,
        compiled_seconds,
        step_seconds,
        "" if pays or machine.compile else ": it does not pay here",
    )
    if pays or machine.compile:
        return True, compiled_seconds
    return False, step_seconds


def _steps_in(
    seconds: float,
    config: TrainingConfig,
    machine: ResolvedMachine,
    step_seconds: float,
    valid_tokens: int,
) -> int:
    """How many steps fit into a budget, with what happens between them."""

    def seconds_of(steps: int) -> float:
        resolved = replace(config, steps=steps, machine=machine).resolve()
        between = _watching_seconds(resolved, step_seconds, valid_tokens)
        return steps * step_seconds + between

    most = max(1, int(seconds / step_seconds))
    # By default there are as many evaluations in a short run as in a long one.
    steps = bisect.bisect_right(range(1, most + 1), seconds, key=seconds_of)
    if steps < most / 2:
        log.warning(
            "%s of the budget goes to evaluations and samples; --watch.evaluation-tokens and "
            "--watch.sample-every change that.",
            "all" if steps < 1 else f"{1 - steps / most:.0%}",
        )
    return max(1, steps)


def _watching_seconds(config: ResolvedConfig, step_seconds: float, valid_tokens: int) -> float:
    """What evaluations and samples take, by their tokens: a forward pass is a third of a step."""
    watch, length = config.watch, config.model.context_length
    forward_per_token = step_seconds / 3 / config.tokens_per_step
    # At an interval of either, at both only once, and after the last step.
    intervals = [every for every in (watch.evaluate_every, watch.save_every) if every]
    evaluations = 1 + sum(config.steps // every for every in intervals)
    if len(intervals) == 2:
        evaluations -= config.steps // math.lcm(*intervals)
    read_tokens = min(watch.evaluation_tokens or valid_tokens, valid_tokens)
    seconds = evaluations * read_tokens * forward_per_token
    if watch.sample_every:
        read = (
            min(watch.sample_tokens, length) ** 2 / 2
            + max(0, watch.sample_tokens - length) * length
        )
        seconds += (config.steps // watch.sample_every + 1) * read * forward_per_token
    return seconds
