"""Training on many ranks: memory, traffic, time and checkpoints, before the first of them starts.

>>> from tilth.accounting import account
>>> model = account("llama-2-7b", batch_size=1024, hardware="h100", dtype="bfloat16", mfu=0.4)
>>> cost = account_ranks(model, 512, mtbf_seconds=4 * 3600)
>>> cost.strategy, cost.shards, cost.fits
('fsdp', 64, True)

`docs/scaling.md` names every assumption.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from tilth.accounting import activations
from tilth.accounting.accounts import Account
from tilth.accounting.activations import WIDE, total_bytes
from tilth.accounting.failures import Failures, Simulation
from tilth.accounting.hardware import AMOUNT
from tilth.accounting.memory import optimizer_state_bytes, training_memory
from tilth.accounting.parallel import (
    gradient_traffic,
    rank_peak_bytes,
    sharded_memory,
    sharded_traffic,
    whole_memory,
)
from tilth.config.model import ModelConfig
from tilth.schema import Range, check_choice, check_float, check_int

Strategy = Literal["ddp", "fsdp"]
MAX_RANKS = 1_000_000
NETWORK_BYTES = 25e9  # per second and rank: 200 Gbit/s
STORAGE_BYTES = 2e9  # per second and rank that writes
SHARED_STORAGE_BYTES = 100e9  # per second, of all ranks together
RESTART_SECONDS = 300.0
BACKWARD_SHARE = 2 / 3  # of the computing time: traffic is hidden behind it
UNKNOWN_STEPS_SECONDS = 30 * 86400.0  # of work, where the number of steps is unknown
INTERVALS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the best


@dataclass(frozen=True)
class Goodput:
    """The goodput of an interval between checkpoints, by the formula and simulated."""

    interval_seconds: float
    expected: float
    simulation: Simulation


@dataclass(frozen=True)
class RanksCost:
    """The cost of a training on several ranks; memory and traffic are those of each rank."""

    ranks: int
    strategy: Strategy
    shards: int
    rows: int
    """Sequences of a rank in a step, at most."""
    num_microbatches: int
    memory_bytes: int
    fits: bool | None
    traffic_bytes: int
    """Sent by a rank in a step."""
    compute_seconds: float
    traffic_seconds: float
    step_seconds: float
    tokens_per_second: float
    run_seconds: float | None
    """Of all steps, without failures and checkpoints."""
    checkpoint_bytes: int
    save_seconds: float
    restart_seconds: float
    mtbf_seconds: float | None = None
    young_seconds: float | None = None
    daly_seconds: float | None = None
    best_seconds: float | None = None
    goodputs: tuple[Goodput, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def account_ranks(
    model: Account,
    ranks: int,
    *,
    strategy: str = "auto",
    shards: int | None = None,
    network_bytes_per_second: float = NETWORK_BYTES,
    storage_bytes_per_second: float = STORAGE_BYTES,
    restart_seconds: float = RESTART_SECONDS,
    mtbf_seconds: float | None = None,
    interval_seconds: float | None = None,
    runs: int = 200,
    seed: int = 0,
) -> RanksCost:
    """Account for a training on `ranks` devices of the account's hardware.

    `auto` is ddp if a rank can hold the model, else fsdp; `shards` is by default the fewest ranks
    that can hold one copy. With a mean time between failures of the whole job, the goodput is that
    of the best interval between checkpoints, of shorter and of longer ones, and of a given one.
    """
    check_int("ranks", ranks, Range(at_least=1, at_most=MAX_RANKS))
    check_choice("strategy", strategy, ("auto", "ddp", "fsdp"))
    check_float("network", network_bytes_per_second, AMOUNT)
    check_float("storage", storage_bytes_per_second, AMOUNT)
    if model.hardware is None or model.cost is None:
        raise ValueError("ranks need hardware; name that of a rank, such as h100.")
    if model.batch_size < ranks:
        problem = f"batch_size {model.batch_size:,} cannot be divided among {ranks:,} ranks"
        raise ValueError(f"{problem}; make it {ranks:,} or more.")
    rows = -(-model.batch_size // ranks)
    limit = model.memory_limit_bytes
    most = 1 if strategy == "ddp" else shards or ranks
    microbatch = min(rows, model.microbatch_size)
    while microbatch > 1 and limit and rank_memory(model, ranks, most, rows, microbatch) > limit:
        microbatch = -(-microbatch // 2)
    chosen, number = _divided(
        ranks, strategy, shards, limit, lambda n: rank_memory(model, ranks, n, rows, microbatch)
    )
    memory = rank_memory(model, ranks, number, rows, microbatch)
    num_microbatches = -(-rows // microbatch)
    traffic = gradient_traffic(model.config, ranks)
    if chosen == "fsdp":
        traffic = sharded_traffic(
            model.config,
            ranks,
            number,
            model.optimizer,
            model.dtype,
            num_microbatches=num_microbatches,
        )
    compute = model.cost.seconds / (model.steps or 1) * rows / model.batch_size
    sending = traffic / network_bytes_per_second
    step = compute + max(0.0, sending - BACKWARD_SHARE * compute)
    size = checkpoint_bytes(model.config, model.optimizer)
    writers = ranks if chosen == "fsdp" else 1
    save = size / min(writers * storage_bytes_per_second, SHARED_STORAGE_BYTES)
    work = model.steps * step if model.steps else None
    failing: dict[str, Any] = {}
    if mtbf_seconds is not None:
        failures = Failures(mtbf_seconds, save, restart_seconds)
        intervals = [share * failures.best_seconds for share in INTERVALS]
        if interval_seconds is not None:
            intervals = sorted([*intervals, interval_seconds])
        failing = {
            "mtbf_seconds": mtbf_seconds,
            "young_seconds": failures.young_seconds,
            "daly_seconds": failures.daly_seconds,
            "best_seconds": failures.best_seconds,
            "goodputs": tuple(
                Goodput(
                    each,
                    failures.goodput(each),
                    failures.simulate(work or UNKNOWN_STEPS_SECONDS, each, runs=runs, seed=seed),
                )
                for each in intervals
            ),
        }
    elif interval_seconds is not None:
        raise ValueError("the interval between checkpoints needs an mtbf.")
    return RanksCost(
        ranks=ranks,
        strategy=chosen,
        shards=number,
        rows=rows,
        num_microbatches=num_microbatches,
        memory_bytes=memory,
        fits=None if limit is None else memory <= limit,
        traffic_bytes=traffic,
        compute_seconds=compute,
        traffic_seconds=sending,
        step_seconds=step,
        tokens_per_second=model.batch_size * model.config.context_length / step,
        run_seconds=work,
        checkpoint_bytes=size,
        save_seconds=save,
        restart_seconds=restart_seconds,
        **failing,
    )


def rank_memory(model: Account, ranks: int, shards: int, rows: int, microbatch: int) -> int:
    """Return the peak memory of a rank: the whole model with one shard, else by FSDP.

    With recomputation, a layer keeps only its input, and one layer at a time its activations.
    """
    config, number = model.config, -(-rows // microbatch)
    of_step = (microbatch, model.optimizer, model.dtype)
    if shards == 1:
        memory = whole_memory(config, ranks, *of_step, num_microbatches=number)
    else:
        memory = sharded_memory(config, shards, *of_step, num_microbatches=number)
    if model.recompute:
        stream = WIDE * microbatch * config.context_length * config.d_model
        saved = total_bytes(activations.fast_path(config, model.dtype)).bytes(microbatch)
        gathered = memory.activations_bytes - saved
        kept = config.num_layers * stream + saved // config.num_layers + gathered
        memory = replace(memory, activations_bytes=min(memory.activations_bytes, kept))
    device = "cpu" if model.hardware is not None and model.hardware.name == "this" else "cuda"
    return rank_peak_bytes(memory, device, is_sharded=shards > 1)


def checkpoint_bytes(config: ModelConfig, optimizer: str = "adamw") -> int:
    """Return the size of a checkpoint: float32 parameters and the state of the optimizer."""
    return training_memory(config, 1, optimizer).parameters_bytes + optimizer_state_bytes(
        config, optimizer
    )


def _divided(
    ranks: int,
    strategy: str,
    shards: int | None,
    limit: float | None,
    memory_of: Callable[[int], int],
) -> tuple[Strategy, int]:
    """Return the strategy and the number of shards of a copy."""
    if shards is not None:
        check_int("shards", shards)
        if strategy == "ddp":
            raise ValueError("shards divide the model, and with ddp each rank has all of it.")
        if ranks % shards:
            raise ValueError(f"{shards:,} shards do not divide {ranks:,} ranks; give a divisor.")
        return "fsdp", shards
    if strategy == "ddp" or ranks == 1:
        return "ddp", 1
    divisors = [number for number in range(1, ranks + 1) if ranks % number == 0]
    fitting = [n for n in divisors if limit is None or memory_of(n) <= limit]
    if strategy == "auto" and 1 in fitting:
        return "ddp", 1
    return "fsdp", next((number for number in fitting if number > 1), ranks)
