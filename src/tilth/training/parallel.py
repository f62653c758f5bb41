"""How ranks divide a training: the choice between DDP and FSDP, by the memory of a rank."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

import torch

from tilth.accounting import count_parameters, training_memory
from tilth.accounting.hardware import host_memory_bytes
from tilth.accounting.memory import TrainingMemory
from tilth.accounting.parallel import (
    gradient_traffic,
    sharded_memory,
    sharded_traffic,
    with_buckets,
)
from tilth.config.training import ResolvedConfig
from tilth.formatting import format_bytes
from tilth.runs.state import Writers
from tilth.training.distributed import Ranks

PROCESS_BYTES = 300_000_000  # Python, torch and its threads
# On a CPU, from the import to a step: code of kernels (22 MB), the process group and its threads.
STEP_BYTES = 40_000_000


@dataclass(frozen=True)
class Division:
    """What each rank has, and what that costs."""

    kind: Literal["one process", "exact", "ddp", "fsdp"] = "one process"
    num_shards: int = 1
    """Ranks that share one copy of the model."""
    memory_bytes: int = 0
    """Expected peak of a rank, beyond Python with torch."""
    traffic_bytes: int = 0
    """What a rank sends in a step, at most."""
    available_bytes: int = 0
    """The memory of a rank."""
    has_whole_checkpoints: bool = True
    """Whether rank 0 can hold all weights and moments; if not, each rank writes a part of them."""

    def summary(self, config: ResolvedConfig, ranks: Ranks) -> str:
        """Return one line on the memory of each rank and on what it sends in a step."""
        names = {"exact": "exact sums in order", "ddp": "DDP"}
        how = names.get(self.kind, f"FSDP with {self.num_shards} shards")
        fits = "" if self.memory_bytes <= self.available_bytes else ", which has only "
        fits += format_bytes(self.available_bytes) if fits else ""
        rows = ranks.rows_of(config)
        most = "" if rows * ranks.size == config.batch_size else "up to "
        kept = "" if self.has_whole_checkpoints else "; checkpoints in parts, no samples, no norms"
        return (
            f"ranks    {ranks.size}, {how}: each has {most}{rows} of "
            f"{config.batch_size} sequences and {format_bytes(self.memory_bytes)} of memory{fits},"
            f" and sends {format_bytes(self.traffic_bytes)} a step{kept}"
        )

    def writers(self, ranks: Ranks) -> Writers:
        """Return the processes that write checkpoints; all ranks must call it."""
        in_parts = not self.has_whole_checkpoints
        own = ranks.with_own_group() if in_parts else ranks  # writing has a thread
        return Writers(ranks.rank, ranks.size, own.gathered, in_parts)


ONE_PROCESS = Division()


def divide(config: ResolvedConfig, ranks: Ranks) -> Division:
    """Choose how ranks divide a training; all of them must call it, and get the same answer.

    Raises ValueError if the config asks for what they cannot do.
    """
    ranks.rows_of(config)
    asked = config.parallel
    if ranks.size == 1:
        alone = _exact(config, ranks, 0) if asked.exact else _ddp(config, ranks, 0)
        return alone if asked.exact else replace(alone, kind="one process")
    if asked.shards is not None and ranks.size % asked.shards:
        raise ValueError(
            f"parallel.shards is {asked.shards}, and {ranks.size} ranks cannot be divided into "
            f"groups of {asked.shards}; choose a divisor."
        )
    available = min(ranks.gathered(_memory_of_a_rank(config)))
    if asked.exact:
        return _exact(config, ranks, available)
    whole = _ddp(config, ranks, available)
    fits = whole.memory_bytes <= available
    if asked.strategy == "ddp" or (asked.strategy == "auto" and fits and asked.shards is None):
        return whole
    if config.machine.dtype == "float16":
        raise ValueError("fsdp has no scaler of float16 gradients; use bfloat16 or float32.")
    sizes = [size for size in range(2, ranks.size + 1) if ranks.size % size == 0]
    if asked.shards is not None:
        sizes = [asked.shards]
    found = [_fsdp(config, ranks, available, size) for size in sizes]
    return next((each for each in found if each.memory_bytes <= available), found[-1])


def _memory_of_a_rank(config: ResolvedConfig) -> int:
    """Return the bytes that this rank has, beyond Python with torch."""
    if config.parallel.memory_gb is not None:
        return int(config.parallel.memory_gb * 1e9)
    device = torch.device(config.machine.device)
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return host_memory_bytes() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")) - PROCESS_BYTES


def _parts(config: ResolvedConfig, ranks: Ranks) -> tuple[int, int]:
    """Return the rows of a microbatch of a rank, and how many it has."""
    rows = ranks.rows_of(config)
    size = min(config.microbatch_size, rows)
    return size, -(-rows // size)


def _whole_memory(config: ResolvedConfig, ranks: Ranks) -> TrainingMemory:
    size, number = _parts(config, ranks)
    return training_memory(
        config.model,
        size,
        config.optimizer.name,
        config.machine.dtype,
        num_microbatches=number,
        device=torch.device(config.machine.device).type,
    )


def _peak_bytes(config: ResolvedConfig, memory: TrainingMemory, *, kept: bool) -> int:
    """Return the peak of a rank; its gradients live to the end in buckets if they are `kept`."""
    on_cpu = torch.device(config.machine.device).type == "cpu"
    peak = with_buckets(memory).peak_bytes if kept else memory.peak_bytes
    # malloc keeps freed memory (`keep_freed_memory`), except under fsdp, and the matrices that Muon
    # stacks do not fit into the gaps of activations.
    gaps = memory.optimizer_step_bytes if on_cpu and kept else 0
    return peak + gaps + (STEP_BYTES if on_cpu else 0)


def _exact(config: ResolvedConfig, ranks: Ranks, available: int) -> Division:
    # Gradients of all microbatches and their sum; the first rank adds up as it computes.
    number = _parts(config, ranks)[1]
    buffers = number + 1 if ranks.size > 1 else min(number, 2)
    memory = _whole_memory(config, ranks)
    memory = replace(memory, gradients_bytes=buffers * memory.gradients_bytes)
    peak = _peak_bytes(config, memory, kept=True)
    traffic = gradient_traffic(config.model, ranks.size, exact=True)
    return Division("exact", 1, peak, traffic, available)


def _ddp(config: ResolvedConfig, ranks: Ranks, available: int) -> Division:
    memory = _whole_memory(config, ranks)
    if ranks.size > 1 and memory.accumulates:  # DDP accumulates beside its buckets
        memory = replace(memory, gradients_bytes=2 * memory.gradients_bytes)
    peak = _peak_bytes(config, memory, kept=True)
    return Division("ddp", 1, peak, gradient_traffic(config.model, ranks.size), available)


def _fsdp(config: ResolvedConfig, ranks: Ranks, available: int, num_shards: int) -> Division:
    size, number = _parts(config, ranks)
    optimizer, dtype = config.optimizer.name, config.machine.dtype
    memory = sharded_memory(
        config.model,
        num_shards,
        size,
        optimizer,
        dtype,
        num_microbatches=number,
        device=torch.device(config.machine.device).type,
    )
    traffic = sharded_traffic(
        config.model, ranks.size, num_shards, optimizer, dtype, num_microbatches=number
    )
    # Rank 0 gathers weights and moments beside its own.
    whole = memory.always_bytes + 12 * count_parameters(config.model).total
    peak = _peak_bytes(config, memory, kept=False)
    return Division("fsdp", num_shards, peak, traffic, available, whole <= available)
