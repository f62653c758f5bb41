"""The device, the precision and deterministic settings of torch.

The same machine with the same number of threads repeats every bit.
"""

import functools
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch

from tilth.config.threads import checked_threads
from tilth.config.training import Dtype, ResolvedMachine
from tilth.model.device import check_device
from tilth.training.allocator import keep_freed_memory

DTYPES: dict[Dtype, torch.dtype] = {name: getattr(torch, name) for name in get_args(Dtype)}


def resolve_device(name: str | None) -> str:
    """Return the name of an available device, by default the fastest kind; else ValueError."""
    if name is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    check_device(name)
    return name


def resolve_dtype(dtype: Dtype | None, device: str) -> Dtype:
    """Return the autocast type for a device, if it is supported there; else ValueError.

    None is float32 on a CPU; a long run times bfloat16 beside it (see `planning`).
    """
    kind = torch.device(device).type
    if dtype is None:
        return "bfloat16" if kind == "cuda" and torch.cuda.is_bf16_supported() else "float32"
    if kind == "cpu" and dtype == "float16":
        raise ValueError("float16 is not supported on a CPU; use float32.")
    if kind == "cpu" and dtype == "bfloat16" and not cpu_has_bfloat16():
        raise ValueError(
            "this CPU has no instructions for bfloat16: it would take 29 times as long as float32; "
            "use float32."
        )
    if kind == "mps" and dtype != "float32":
        raise ValueError(f"{dtype} is not tested on mps; use float32.")
    return dtype


def cpu_has_bfloat16() -> bool:
    """Return whether the CPU has AVX-512 BF16, AMX or ARM BF16 instructions."""
    # Private functions: torch has no public ones for this.
    if torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported():
        return True
    # On x86 this is true for AVX-512 without BF16 too, where oneDNN converts to float32.
    has_onednn = hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    is_arm = platform.machine().lower() in {"aarch64", "arm64"}
    return is_arm and has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@contextmanager
def machine_settings(machine: ResolvedMachine) -> Iterator[torch.device]:
    """Set threads, deterministic algorithms and precision of torch, and restore them."""
    # Faster kernels may sum in another order each time: torch's attention and `index_add_` on CUDA.
    # cuBLAS reads this when it starts; without it, torch refuses its non-deterministic products.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    memory: Any = torch.utils.deterministic
    fill = memory.fill_uninitialized_memory
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_num_threads(checked_threads(machine.threads, "machine.threads"))
        torch.use_deterministic_algorithms(machine.deterministic)
        # It would fill new memory with NaN, to expose reads of it: the layers have none.
        memory.fill_uninitialized_memory = False
        device = torch.device(machine.device)
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32, where a product is in float32
        if device.type == "cpu":
            keep_freed_memory()  # until the process ends
        yield device
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        memory.fill_uninitialized_memory = fill
        torch.set_float32_matmul_precision(precision)


def synchronize(device: torch.device) -> None:
    """Wait for all kernels of a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def measured_peak(device: torch.device, dtype: Dtype) -> float:
    """Return the FLOP/s of a large matrix product, measured once for each number of threads."""
    return _measure_peak(device, dtype, torch.get_num_threads())


@functools.cache
def _measure_peak(device: torch.device, dtype: Dtype, _threads: int) -> float:
    """Time products for 0.3 s and take the fastest, as other programs may slow some down."""
    size = 1024 if device.type == "cpu" else 4096
    left, right = torch.ones(2, size, size, dtype=DTYPES[dtype], device=device)
    best, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < 0.3:
        synchronize(device)
        then = time.perf_counter()
        left @ right
        synchronize(device)
        best = min(best, time.perf_counter() - then)
    return float(2 * size**3 / best)
