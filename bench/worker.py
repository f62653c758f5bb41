"""One run of one contender, in a process of its own: `harness.py` starts it and reads its result.

    python -m bench.worker bench/splitting.py "regex findall" WORKLOAD SAMPLE STARTED RESULT.json

STARTED is the parent's `perf_counter()`, which counts alike in every process of a machine.
"""

import gc
import json
import resource
import sys
import time
from pathlib import Path

from bench.declaration import load_benchmark


def cpu_seconds() -> float:
    """Sum user and system time of this process, its threads and the children it waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def peak_bytes() -> int:
    """Return the most memory ever resident in this process, or in the largest child of it."""
    unit = 1 if sys.platform == "darwin" else 1024
    largest_child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    else:
        # On Linux ru_maxrss survives fork and exec: a small child of a 300 MB parent reported
        # 299 MB where VmHWM, which exec resets, said 13. A child of ours inherits at most what
        # we hold ourselves, so the maximum of the two is right.
        own = int(status.split("VmHWM:")[1].split()[0]) * 1024
    return max(own, largest_child)


def main() -> None:
    """Run what the command line names and write what was measured."""
    file, name, workload, sample, parent_started, result_file = sys.argv[1:]
    benchmark = load_benchmark(Path(file))
    contender = next(each for each in benchmark.contenders if each.name == name)

    state = contender.setup(Path(workload), float(sample))
    for _ in range(contender.warmup):
        contender.run(state)
    if benchmark.fresh:
        peak_before, cpu_before, started = 0, 0.0, float(parent_started)
    else:
        gc.collect()  # the garbage of the setup is not the run's to collect
        peak_before, cpu_before, started = peak_bytes(), cpu_seconds(), time.perf_counter()
    outcome = contender.run(state)
    wall = time.perf_counter() - started
    # Read before the answer is summed up: a checksum costs time and memory too.
    measured = {
        "wall_seconds": wall,
        "cpu_seconds": cpu_seconds() - cpu_before,
        "peak_bytes": peak_bytes(),
        "peak_bytes_before_run": peak_before,
    }
    Path(result_file).write_text(json.dumps(measured | {"answer": contender.answer(outcome)}))


if __name__ == "__main__":
    main()
