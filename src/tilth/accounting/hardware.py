"""Time, energy and price of a training run on known hardware or on this machine.

Peaks are those of dense matrix products, by dtype, from the data sheets. The share of the peak that
a run reaches, counted in the products of the model, is its model FLOPs utilization (MFU; Chowdhery
et al. 2022).

>>> cost = cost_of(run_flops=400_000 * 1024 * 3 * 4_513_336_524_800, hardware=HARDWARE["a100"])
>>> round(cost.seconds / 86400)  # days, at half of 19.5 TFLOP/s
6584
"""

import os
import platform
import time
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilth.accounting.activations import fast_path, total_bytes
from tilth.accounting.flops import optimizer_operations, training_flops
from tilth.accounting.parameters import count_parameters
from tilth.config.model import ModelConfig
from tilth.config.threads import most_threads, usable_cores
from tilth.schema import Range, check_choice, check_float

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
MEMORY_INFO = Path("/proc/meminfo")
DEFAULT_MFU = 0.5
AMOUNT = Range(above=0.0, at_most=1e18)
"""Limits of hours, prices and bytes, so that their products stay finite."""

# Fitted to training steps of models of 1 to 23 million parameters on two cores. The products of the
# model reach this share of the peak of large square products. For each byte that autograd saves,
# the other operations read or write this many bytes.
SHARE_OF_PEAK = 0.85
TRAFFIC_PER_SAVED_BYTE = 32
TRAFFIC_PER_PARAMETER_BYTE = 8  # AdamW reads four numbers and writes three; clipping reads one

PRODUCT_SIZE = 1536  # rows and columns: large enough for the peak, 0.05 s
COPY_BYTES = 64 << 20  # larger than any cache
TRIALS = 12


@dataclass(frozen=True)
class Hardware:
    """A device with its peak throughput, from a data sheet or measured."""

    name: str
    what: str
    flops_per_second: dict[str, float]
    """Peak of dense matrix products, by supported dtype."""
    memory_bytes: float
    watts: float | None
    """Maximum power draw; None if unknown."""
    source: str
    bytes_per_second: float | None = None
    """Memory bandwidth, read plus written; None if not measured."""

    def peak(self, dtype: str) -> float:
        """Return the peak FLOP/s of a dtype; raise ValueError if the device does not support it."""
        if dtype not in self.flops_per_second:
            known = ", ".join(self.flops_per_second)
            raise ValueError(f"{self.name} has no peak for {dtype}; it has {known}.")
        return self.flops_per_second[dtype]


# Name, description, GB, watts, source, TFLOP/s in float32, tf32, and both 16-bit types (old devices
# have neither tf32 nor bfloat16). Without sparsity, which doubles the numbers of the data sheets.
_DEVICES = """
t4     |NVIDIA T4              |16 |70 |NVIDIA T4 data sheet          |8.1  |     |65
v100   |NVIDIA V100 SXM2 32 GB |32 |300|NVIDIA V100 data sheet        |15.7 |     |125
rtx3090|NVIDIA GeForce RTX 3090|24 |350|NVIDIA Ampere GA102 whitepaper|35.6 |35.6 |71
a100   |NVIDIA A100 SXM 80 GB  |80 |400|NVIDIA A100 data sheet        |19.5 |156  |312
rtx4090|NVIDIA GeForce RTX 4090|24 |450|NVIDIA Ada GPU whitepaper     |82.6 |82.6 |165.2
l4     |NVIDIA L4              |24 |72 |NVIDIA L4 data sheet          |30.3 |60   |121
l40s   |NVIDIA L40S            |48 |350|NVIDIA L40S data sheet        |91.6 |183  |362
h100   |NVIDIA H100 SXM        |80 |700|NVIDIA H100 data sheet        |67   |494.7|989.4
h200   |NVIDIA H200 SXM        |141|700|NVIDIA H200 data sheet        |67   |494.7|989.4
mi300x |AMD Instinct MI300X    |192|750|AMD Instinct MI300X data sheet|163.4|653.7|1307.4
"""


def _device(row: str) -> Hardware:
    name, what, gigabytes, watts, source, float32, tf32, half = map(str.strip, row.split("|"))
    teraflops = {"float32": float32, "tf32": tf32, "bfloat16": tf32 and half, "float16": half}
    peaks = {dtype: float(peak) * 1e12 for dtype, peak in teraflops.items() if peak}
    return Hardware(name, what, peaks, int(gigabytes) * 1e9, int(watts), source)


HARDWARE = {device.name: device for device in map(_device, _DEVICES.strip().splitlines())}
"""Known devices, by name."""


@dataclass(frozen=True)
class Cost:
    """Time, energy and price of a run."""

    seconds: float
    mfu: float
    """Model FLOPs utilization, assumed or estimated."""
    energy_kwh: float | None
    """At the maximum power draw; None if that is unknown."""
    money: float | None
    """At a price per hour; None without one."""


def find_hardware(name: str) -> Hardware:
    """Return a device by name; `this` measures this machine, in about a second."""
    check_choice("hardware", name, ["this", *HARDWARE])
    return measure_machine() if name == "this" else HARDWARE[name]


def cost_of(
    run_flops: float,
    hardware: Hardware,
    dtype: str = "float32",
    mfu: float | None = None,
    price_per_hour: float | None = None,
) -> Cost:
    """Return the cost of `run_flops` operations at an MFU of `mfu`; default 0.5."""
    mfu = DEFAULT_MFU if mfu is None else mfu
    check_float("mfu", mfu, Range(at_least=1e-9, at_most=1.0))
    return _cost(run_flops / (hardware.peak(dtype) * mfu), mfu, hardware, price_per_hour)


def cost_of_steps(
    config: ModelConfig,
    batch_size: int,
    steps: int,
    hardware: Hardware,
    optimizer: str = "adamw",
    price_per_hour: float | None = None,
    *,
    recompute: bool = False,
) -> Cost:
    """Estimate the cost of steps on a measured machine, from its FLOP/s and memory bandwidth.

    Small models spend much of their time in norms, rotations and sums, which are bound by memory
    bandwidth. No single MFU fits all sizes.
    """
    assert hardware.bytes_per_second is not None
    peak = hardware.peak("float32")
    products = batch_size * training_flops(config, recompute=recompute)
    iterations = optimizer_operations(config, optimizer).get("iteration, products", 0)
    saved_bytes = total_bytes(fast_path(config)).per_sequence_bytes * batch_size
    traffic_bytes = TRAFFIC_PER_SAVED_BYTE * saved_bytes
    traffic_bytes += TRAFFIC_PER_PARAMETER_BYTE * 4 * count_parameters(config).total
    step_seconds = (products + iterations) / (SHARE_OF_PEAK * peak)
    step_seconds += traffic_bytes / hardware.bytes_per_second
    mfu = products / (peak * step_seconds)
    return _cost(steps * step_seconds, mfu, hardware, price_per_hour)


def _cost(seconds: float, mfu: float, hardware: Hardware, price_per_hour: float | None) -> Cost:
    if price_per_hour is not None:
        check_float("price", price_per_hour, AMOUNT)
    hours = seconds / 3600
    return Cost(
        seconds,
        mfu,
        energy_kwh=None if hardware.watts is None else hardware.watts / 1000 * hours,
        money=None if price_per_hour is None else price_per_hour * hours,
    )


def measure_machine(clock: Callable[[], float] = time.perf_counter) -> Hardware:
    """Measure this machine with NumPy, on as many threads as NumPy uses; about a second.

    The best of several trials: other processes make a trial slower, never faster.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    wanted = int(asked) if asked.isdecimal() else 0
    threads = min(wanted or usable_cores(), most_threads())
    left = np.ones((PRODUCT_SIZE, PRODUCT_SIZE), dtype=np.float32)
    result = np.empty_like(left)
    product_seconds = _best_seconds(lambda: np.matmul(left, left, out=result), clock)
    # One part per thread; NumPy releases the GIL while it copies.
    source = np.ones(COPY_BYTES, dtype=np.uint8)
    parts = [np.array_split(each, threads) for each in (np.empty_like(source), source)]
    with ThreadPoolExecutor(threads) as pool:
        copy_seconds = _best_seconds(lambda: list(pool.map(np.copyto, *parts)), clock)
    return Hardware(
        "this",
        f"this machine, {threads} threads",
        {"float32": 2 * PRODUCT_SIZE**3 / product_seconds},
        memory_bytes=float(host_memory_bytes()),
        watts=None,
        source=f"measured: numpy products of {PRODUCT_SIZE} x {PRODUCT_SIZE}, and copies",
        bytes_per_second=2 * COPY_BYTES / copy_seconds,
    )


def _best_seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    return min(timeit.repeat(work, timer=clock, repeat=TRIALS, number=1))


def processor_name() -> str:
    """Return the name of the processor, or its architecture where the system does not say."""
    with suppress(OSError):  # only on Linux
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def host_memory_bytes() -> int:
    """Return the physical memory of this machine, or the limit of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no limit, or "max"
        return min(total, int(CONTAINER_LIMIT.read_bytes()))
    return total


def free_memory_bytes() -> int:
    """Return the memory that is free on this machine, and below the limit of its container.

    Caches of files count as free.
    """
    free = host_memory_bytes()
    with suppress(OSError, ValueError, KeyError):  # not Linux
        free = 1024 * _numbers(MEMORY_INFO)["MemAvailable:"]
    with suppress(OSError, ValueError, KeyError):  # no limit, or "max"
        limit = int(CONTAINER_LIMIT.read_bytes())
        used = int(CONTAINER_LIMIT.with_name("memory.current").read_bytes())
        kinds = _numbers(CONTAINER_LIMIT.with_name("memory.stat"))
        free = min(free, limit - used + kinds["inactive_file"] + kinds["active_file"])
    return max(0, free)


def _numbers(path: Path) -> dict[str, int]:
    """Read the lines of a file of the kernel: a name, a number, perhaps a unit."""
    lines = (line.split() for line in path.read_text("ascii").splitlines())
    return {name: int(number) for name, number, *_ in lines}
