"""The cost of a training run, measured on this machine with the real model before it starts.

A `Plan` resolves a `TrainingConfig`. A time budget becomes a number of steps, as a run that counted
seconds could not be repeated. In long runs, bfloat16 on a CPU and compilation are measured, and
used if they pay; compiling takes most of a minute.
"""

import bisect
import logging
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from tilth.accounting import count_parameters, training_flops
from tilth.accounting.memory import training_memory
from tilth.config.training import ResolvedConfig, ResolvedMachine, TrainingConfig
from tilth.data import Data
from tilth.errors import first_line
from tilth.formatting import format_duration
from tilth.model import TransformerLM
from tilth.training.machine import (
    cpu_has_bfloat16,
    machine_settings,
    measured_peak,
    resolve_device,
    resolve_dtype,
    synchronize,
)
from tilth.training.parallel import PROCESS_BYTES
from tilth.training.step import (
    accumulate_gradients,
    compiled,
    make_batches,
    make_loss,
    make_optimizer,
    make_scaler,
    update,
)

# Shorter runs do not try bfloat16: they end soon, with the same numbers on any processor.
BFLOAT16_FROM_SECONDS = 60.0
# Shorter runs are not compiled: it takes most of a minute.
COMPILED_FROM_SECONDS = 420.0
# A step in bfloat16 must take less than this share of the step in float32, beyond noise.
BFLOAT16_BELOW = 0.95
# Below this share of an uncompiled step in float32, a compiled step in bfloat16 is faster than a
# compiled one in float32, which takes 0.85 to 0.89 of it.
CLEARLY_FASTER = 0.75
TIMED_SECONDS = 3.0  # of steps that are timed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """A resolved config and its expected cost."""

    config: ResolvedConfig
    parameters: int
    flops: int  # of all matrix products of the run, forward and backward
    memory_bytes: int  # expected peak
    step_seconds: float  # measured
    peak_flops: float  # measured FLOP/s of a large matrix product
    seconds: float  # expected, with evaluations and samples
    utilisation: float  # FLOP/s of a step over peak_flops
    measured: str = ""  # how the precision was chosen, for the summary
    sizing: str = ""  # how the shape was chosen, if it was

    def summary(self) -> str:
        """Return one line each for model, size if chosen, length, cost, machine and time."""
        config, machine, model = self.config, self.config.machine, self.config.model
        compiling = "compiled" if machine.compile else "not compiled"
        size = f"size     {self.sizing}\n" if self.sizing else ""
        return (
            f"model    {self.parameters:,} parameters: {model.num_layers} layers of width "
            f"{model.d_model}, {model.num_heads} heads, vocabulary {model.vocab_size:,}\n"
            f"{size}"
            f"length   {config.tokens:,} tokens: {config.steps:,} steps of "
            f"{config.tokens_per_step:,} tokens\n"
            f"cost     {self.flops:.3g} FLOPs, {self.memory_bytes / 1e9:.2f} GB of memory\n"
            f"machine  {machine.device}, {machine.threads} threads, {machine.dtype}, "
            f"{compiling}; peak {self.peak_flops / 1e9:,.0f} GFLOP/s{self.measured}\n"
            f"time     {format_duration(self.seconds)} expected: {self.step_seconds:.3g} s a step, "
            f"{self.utilisation:.0%} of the peak"
        )


def measure_flops(config: TrainingConfig, data: Data) -> float:
    """Return the FLOP/s of uncompiled steps, in the faster precision of a config with a budget."""
    machine = _machine_of(config)
    with machine_settings(machine):
        machines, _ = _open_choices(config, machine, config.budget_seconds or math.inf)
        seconds = min(later for _, later in _time_steps(config, machines, data))
    return training_flops(config.model, config.batch_size) / seconds


def plan(config: TrainingConfig, data: Data, *, counts_measuring: bool = True) -> Plan:
    """Resolve a config for this machine and measure its cost, in seconds to minutes.

    The measurement is part of a time budget, except for a lab, which measures once for many runs.
    """
    began = time.perf_counter()
    machine = _machine_of(config)
    device = machine.device
    if config.steps is None and config.budget_seconds is None:
        raise ValueError("the config has neither steps nor budget_seconds; give one of them.")
    with machine_settings(machine):
        ((_, step_seconds),) = _time_steps(config, [replace(machine, compile=False)], data)
        measured = ""
        whole = config.budget_seconds if config.steps is None else config.steps * step_seconds
        assert whole is not None
        dtypes, may_compile = _open_choices(config, machine, whole)
        if len(dtypes) > 1 or may_compile:
            machine, step_seconds, measured = _choose_machine(config, dtypes, may_compile, data)
        peak = measured_peak(torch.device(device), machine.dtype)

    def resolve(steps: int) -> ResolvedConfig:
        return replace(config, steps=steps, machine=machine).resolve()

    def seconds_of(steps: int) -> float:
        return _expected_seconds(resolve(steps), step_seconds, len(data.valid))

    steps = config.steps
    if steps is None:
        assert config.budget_seconds is not None
        left = config.budget_seconds
        if counts_measuring:
            left -= time.perf_counter() - began
        steps = _steps_in(left, step_seconds, seconds_of)
    resolved = resolve(steps)
    flops = training_flops(config.model, config.batch_size)
    memory = training_memory(
        config.model,
        resolved.microbatch_size,
        config.optimizer.name,
        machine.dtype,
        num_microbatches=-(-config.batch_size // resolved.microbatch_size),
        device=torch.device(device).type,
    )
    return Plan(
        resolved,
        count_parameters(config.model).total,
        flops * resolved.steps,
        memory.peak_bytes + PROCESS_BYTES,
        step_seconds,
        peak,
        seconds_of(steps),
        flops / step_seconds / peak,
        measured,
    )


def _machine_of(config: TrainingConfig) -> ResolvedMachine:
    """Return the machine of a config, uncompiled and in the default precision where open."""
    device = resolve_device(config.machine.device)
    return ResolvedMachine(
        device=device,
        dtype=resolve_dtype(config.machine.dtype, device),
        compile=bool(config.machine.compile),
        threads=config.machine.threads or torch.get_num_threads(),
        deterministic=config.machine.deterministic,
        compile_mode=config.machine.compile_mode,
    )


def _time_steps(
    config: TrainingConfig, machines: list[ResolvedMachine], data: Data
) -> list[tuple[float, float]]:
    """Return the seconds of the first step and the median of the next, of a discarded model.

    One pair for each of `machines`, which differ in dtype and compile only; the first step of a
    compiled one includes the compilation. They take turns, as the speed of a machine may change.
    """
    device = machines[0].device
    with torch.random.fork_rng():
        model = TransformerLM(config.model).to(device)
    parts = []
    for machine in machines:
        loss_of = make_loss(model, machine)
        optimizer = make_optimizer(model, config.optimizer, machine.dtype)
        if machine.compile:
            loss_of = compiled(loss_of, device, machine.compile_mode)
        parts.append((loss_of, optimizer, make_scaler(machine)))
    batches = make_batches(config, data, device)
    seconds: list[list[float]] = [[] for _ in machines]
    for number in range(21):
        x, y = batches[number]
        for own, (loss_of, optimizer, scaler) in zip(seconds, parts, strict=True):
            then = time.perf_counter()
            rows = config.microbatch_size or config.batch_size
            loss = accumulate_gradients(loss_of, x, y, rows, scaler)
            update(optimizer, loss, 0.0, config.optimizer.max_grad_norm, scaler)
            synchronize(torch.device(device))
            own.append(time.perf_counter() - then)
        if sum(sum(own[1:]) for own in seconds) > TIMED_SECONDS:
            break
    return [(own[0], statistics.median(own[1:])) for own in seconds]


def check_compiler(machine: ResolvedMachine) -> None:
    """Raise ValueError unless a small function can be compiled on this machine."""
    number = time.time()  # a constant in the code, so no cache has it
    ones = torch.ones(2, device=machine.device)
    compiled(lambda x, y: (x * number + y).sum(), machine.device)(ones, ones)


def _open_choices(
    config: TrainingConfig, machine: ResolvedMachine, seconds: float
) -> tuple[list[ResolvedMachine], bool]:
    """Return the uncompiled machines that differ in precision, and whether to try to compile.

    `seconds` is the length of the run in float32. bfloat16 is tried on a CPU that has the
    instructions, if the config leaves the precision open. Exact sums have one answer on any number
    of ranks, and ranks measure nothing.
    """
    device = torch.device(machine.device).type
    machines = [replace(machine, compile=False)]
    if config.parallel.exact:
        return machines, machine.compile
    may_differ = seconds >= BFLOAT16_FROM_SECONDS and config.machine.dtype is None
    if may_differ and device == "cpu" and cpu_has_bfloat16():
        machines.append(replace(machines[0], dtype="bfloat16"))
    is_open = seconds >= COMPILED_FROM_SECONDS and config.machine.compile is None
    return machines, machine.compile or (is_open and device != "mps")


def _choose_machine(
    config: TrainingConfig, dtypes: list[ResolvedMachine], may_compile: bool, data: Data
) -> tuple[ResolvedMachine, float, str]:
    """Choose the precision, and whether to compile, for the shortest run.

    Each precision is timed as it would run: bfloat16 gains more from compilation, which fuses its
    conversions. Returns the machine, the seconds of a step on it, and the times in words.
    """
    plain, compiled_last = dtypes[0], replace(dtypes[-1], compile=True)
    timed = {}  # seconds of the first step, and of a later one
    if may_compile:
        try:
            timed = _timed(config, [*dtypes, compiled_last], data)
            # Compiling float32 too takes up to 40 s, and saves an eighth of a step.
            if len(dtypes) > 1 and timed[compiled_last][1] > CLEARLY_FASTER * timed[plain][1]:
                both = [replace(each, compile=True) for each in dtypes]
                timed = _timed(config, [*dtypes, *both], data)
        except (ValueError, RuntimeError, OSError, ImportError) as error:
            text = "the model cannot be compiled (%s); it trains uncompiled."
            log.warning(text, first_line(error))
    timed = timed or _timed(config, dtypes, data)
    whole = config.budget_seconds if config.steps is None else config.steps * timed[plain][1]
    assert whole is not None

    def cost(machine: ResolvedMachine) -> float:
        first, later = timed[machine]
        margin = 1.0 if machine.dtype == plain.dtype else BFLOAT16_BELOW
        # The time to compile is spent by now, but a resumed run may spend it again.
        return whole * later / timed[plain][1] / margin + (first if machine.compile else 0.0)

    must_compile = config.machine.compile and any(machine.compile for machine in timed)
    chosen = min((each for each in timed if each.compile or not must_compile), key=cost)
    for machine, (first, later) in timed.items():
        if machine.compile:
            log.warning(
                "compiling took %.0f s; a step in %s takes %.3g s instead of %.3g s%s",
                *(first, machine.dtype, later, timed[replace(machine, compile=False)][1]),
                "" if chosen.compile else ": compiling does not pay here",
            )
    words = [
        f"{later:.3g} s in {machine.dtype}{' compiled' if machine.compile else ''}"
        for machine, (_, later) in timed.items()
    ]
    return chosen, timed[chosen][1], f"; a step takes {', '.join(words)}" if dtypes[1:] else ""


def _timed(
    config: TrainingConfig, machines: list[ResolvedMachine], data: Data
) -> dict[ResolvedMachine, tuple[float, float]]:
    """Return the pairs of `_time_steps` by machine."""
    return dict(zip(machines, _time_steps(config, machines, data), strict=True))


def _steps_in(seconds: float, step_seconds: float, seconds_of: Callable[[int], float]) -> int:
    """Return how many steps fit into a budget; `seconds_of(steps)` includes evaluations."""
    most = max(1, int(seconds / step_seconds))
    # By default, short and long runs have the same number of evaluations.
    steps = bisect.bisect_right(range(1, most + 1), seconds, key=seconds_of)
    if steps < most / 2:
        log.warning(
            "%s of the budget goes to evaluations and samples; --watch.evaluation-tokens and "
            "--watch.sample-every change that.",
            "all" if steps < 1 else f"{1 - steps / most:.0%}",
        )
    return max(1, steps)


def _expected_seconds(config: ResolvedConfig, step_seconds: float, valid_tokens: int) -> float:
    """Return the time of steps, evaluations and samples; a forward pass is a third of a step."""
    watch, length = config.watch, config.model.context_length
    forward_per_token = step_seconds / 3 / config.tokens_per_step
    # Steps at either interval, counted once, and the last step.
    intervals = [every for every in (watch.evaluate_every, watch.save_every) if every]
    evaluations = 1 + sum(config.steps // every for every in intervals)
    if len(intervals) == 2:
        evaluations -= config.steps // math.lcm(*intervals)
    read_tokens = min(watch.evaluation_tokens or valid_tokens, valid_tokens)
    forward_tokens = float(evaluations * read_tokens)
    if watch.sample_every:
        within = min(watch.sample_tokens, length)
        read_by_sample = within**2 / 2 + (watch.sample_tokens - within) * length
        forward_tokens += (config.steps // watch.sample_every + 1) * read_by_sample
    return config.steps * step_seconds + forward_tokens * forward_per_token
