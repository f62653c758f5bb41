"""Accuracy of the peak memory and the step time that `tilth account` predicts.

    python -m bench.accounting [--rounds N] [--threads N] [--json FILE]

Three model sizes, each in a new process that measures the machine (as `--hardware this` does), then
takes some steps with clipping and AdamW, uncompiled. Memory is the peak resident memory of these
steps, less the memory of Python and torch after a step of a tiny model. It is measured twice: with
glibc returning large blocks at once (MALLOC_MMAP_THRESHOLD_), which is what the model needs, and
with glibc's default, which keeps some of them. Time is CPU time divided by the number of threads,
the best step of a process: on an idle machine it equals wall-clock time, and load changes it less.
Medians of the rounds are shown. Targets: memory within 15%, time within 25%.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.harness import THREAD_VARIABLES
from bench.report import print_table, seconds
from bench.worker import peak_bytes
from tilth.accounting import cost_of_steps, count_parameters, measure_machine, training_memory
from tilth.config.model import ModelConfig
from tilth.files import write_text_atomically

# vocab_size, context_length, d_model, num_layers, num_heads; then sequences in a batch
SIZES = [
    (ModelConfig(2_000, 64, 128, 2, 4), 32),
    (ModelConfig(4_000, 256, 256, 6, 8), 8),
    (ModelConfig(10_000, 256, 512, 4, 16), 16),
]
STEPS = 2
MEMORY_TARGET, TIME_TARGET = 0.15, 0.25


def resident_bytes() -> int:
    """Return the resident memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_clock(threads: int) -> float:
    """Return the CPU time of this process divided by the number of threads."""
    return time.process_time() / threads


def measure_one(number: int, threads: int) -> dict[str, float]:
    """Predict and measure one model size, in this process."""
    import torch

    clock = partial(cpu_clock, threads)
    machine = measure_machine(clock)
    torch.set_num_threads(threads)
    take_steps(ModelConfig(10, 8, 16, 1, 2), 1, clock)  # initializes torch
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_bytes()
    config, batch_size = SIZES[number]
    step_seconds = take_steps(config, batch_size, clock)
    return {
        "predicted_bytes": training_memory(config, batch_size).peak_bytes,
        "measured_bytes": peak_bytes() - before,
        "predicted_seconds": cost_of_steps(config, batch_size, 1, machine).seconds,
        "measured_seconds": step_seconds,
        "gflops_per_second": machine.peak("float32") / 1e9,
    }


def take_steps(config: ModelConfig, batch_size: int, clock: Callable[[], float]) -> float:
    """Train for some steps; return the time of the fastest one, in seconds."""
    import torch

    from tilth.model import TransformerLM, chunked_cross_entropy
    from tilth.optim import AdamW, clip_gradients, decay_groups

    model = TransformerLM(config)
    optimizer = AdamW(decay_groups(model, weight_decay=0.1))
    taken = []
    for _ in range(STEPS + 1):
        shape = (2, batch_size, config.context_length)
        x, y = torch.randint(config.vocab_size, shape).unbind()
        began = clock()
        optimizer.zero_grad(set_to_none=True)
        loss = chunked_cross_entropy(model.hidden(x), model.head_weight, y)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_gradients(model.parameters(), 1.0)
        optimizer.step()
        taken.append(clock() - began)
    return min(taken[1:])  # the first step also creates the optimizer state


def in_a_new_process(number: int, threads: int, **variables: str) -> dict[str, float]:
    """Run `measure_one` in a new process."""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads)) | variables
    command = [sys.executable, "-m", "bench.accounting", "--one", str(number)]
    command += ["--threads", str(threads)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def off(run: dict[str, float], predicted: str, measured: str) -> float:
    """Return the relative error of the prediction."""
    return run[predicted] / run[measured] - 1


def judged(value: float, target: float) -> str:
    """Format a relative error, and whether it meets the target."""
    return f"{value:+.1%} {'met' if abs(value) <= target else 'MISSED'}"


def main() -> None:
    """Measure all sizes, interleaved, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.accounting", description="see bench/")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure_one(options.one, options.threads)))
        return
    runs: list[list[dict[str, float]]] = [[] for _ in SIZES]
    for number in [*range(len(SIZES))] * options.rounds:
        exact = in_a_new_process(number, options.threads, MALLOC_MMAP_THRESHOLD_="65536")
        usual = in_a_new_process(number, options.threads)
        runs[number].append(usual | {"needed_bytes": exact["measured_bytes"]})
    rows, results = [], []
    for (config, batch_size), of_size in zip(SIZES, runs, strict=True):
        median: dict[str, float] = {
            name: statistics.median(run[name] for run in of_size) for name in of_size[0]
        }
        size = f"{count_parameters(config).total / 1e6:.1f}M, {batch_size} x "
        rows.append(
            [
                f"{size}{config.context_length}",
                f"{median['predicted_bytes'] / 1e6:,.0f} MB",
                *(
                    f"{median[name] / 1e6:,.0f} MB: "
                    + judged(off(median, "predicted_bytes", name), MEMORY_TARGET)
                    for name in ("needed_bytes", "measured_bytes")
                ),
                seconds(median["predicted_seconds"]),
                f"{seconds(median['measured_seconds'])}: "
                + judged(off(median, "predicted_seconds", "measured_seconds"), TIME_TARGET),
            ]
        )
        model: dict[str, Any] = {"model": config.to_dict(), "batch_size": batch_size}
        results.append({**model, "runs": of_size})
    print(f"{options.threads} threads, medians of {options.rounds} processes each")
    header = ["parameters, batch", "predicted memory", "needed", "glibc's default"]
    print_table([*header, "predicted step", "measured"], rows)
    if options.json is not None:
        write_text_atomically(options.json, json.dumps(results, indent=1) + "\n", overwrite=True)


if __name__ == "__main__":
    main()
