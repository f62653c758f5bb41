"""How ranks divide a training: the choice between DDP and FSDP, by the memory of a rank."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

import torch

from tilth.accounting import count_parameters, training_memory
from tilth.accounting.hardware import host_memory_bytes
from tilth.accounting.parallel import (
    gradient_traffic,
    rank_peak_bytes,
    sharded_memory,
    sharded_traffic,
    whole_memory,
)
from tilth.config.training import ResolvedConfig
from tilth.formatting import format_bytes
from tilth.runs.state import Writers
from tilth.training.distributed import Ranks

PROCESS_BYTES = 300_000_000  # Python, torch and its threads


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


def _device(config: ResolvedConfig) -> str:
    return torch.device(config.machine.device).type


def _exact(config: ResolvedConfig, ranks: Ranks, available: int) -> Division:
    # Gradients of all microbatches and their sum; the first rank adds up as it computes.
    size, number = _parts(config, ranks)
    buffers = number + 1 if ranks.size > 1 else min(number, 2)
    optimizer, dtype, device = config.optimizer.name, config.machine.dtype, _device(config)
    memory = training_memory(config.model, size, optimizer, dtype, device=device)
    gradients = buffers * memory.gradients_bytes
    memory = replace(memory, gradients_bytes=gradients, accumulates=True)
    traffic = gradient_traffic(config.model, ranks.size, exact=True)
    return Division("exact", 1, rank_peak_bytes(memory, device), traffic, available)


def _ddp(config: ResolvedConfig, ranks: Ranks, available: int) -> Division:
    size, number = _parts(config, ranks)
    device = _device(config)
    memory = whole_memory(
        config.model,
        ranks.size,
        size,
        config.optimizer.name,
        config.machine.dtype,
        num_microbatches=number,
        device=device,
    )
    traffic = gradient_traffic(config.model, ranks.size)
    return Division("ddp", 1, rank_peak_bytes(memory, device), traffic, available)


def _fsdp(config: ResolvedConfig, ranks: Ranks, available: int, num_shards: int) -> Division:
    size, number = _parts(config, ranks)
    optimizer, dtype, device = config.optimizer.name, config.machine.dtype, _device(config)
    memory = sharded_memory(
        config.model,
        num_shards,
        size,
        optimizer,
        dtype,
        num_microbatches=number,
        device=device,
    )
    traffic = sharded_traffic(
        config.model, ranks.size, num_shards, optimizer, dtype, num_microbatches=number
    )
    # Rank 0 gathers weights and moments beside its own.
    whole = memory.always_bytes + 12 * count_parameters(config.model).total
    peak = rank_peak_bytes(memory, device, is_sharded=True)
    return Division("fsdp", num_shards, peak, traffic, available, whole <= available)
