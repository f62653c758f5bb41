"""One run of one contender, in a separate process started by `harness.py`.

    python -m bench.worker bench/splitting.py "regex findall" WORKLOAD SAMPLE STARTED RESULT.json

STARTED is the parent's `perf_counter()`, which all processes of a machine share.
"""

import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from bench.declaration import load_benchmark


def cpu_seconds() -> float:
    """Return the user and system time of this process, its threads and waited-for children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def peak_bytes() -> int:
    """Return the peak resident memory of this process or of its largest child."""
    unit = 1 if sys.platform == "darwin" else 1024
    largest_child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    try:
        status = Path("/proc/self/status").read_text()
    except FileNotFoundError:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    else:
        # On Linux ru_maxrss survives fork and exec: a small child of a 300 MB parent reported
        # 299 MB; VmHWM, which exec resets, was 13 MB. Children of this process inherit at most its
        # own peak, so the maximum of both is right.
        own = int(status.split("VmHWM:")[1].split()[0]) * 1024
    return max(own, largest_child)


def reset_peak() -> int | None:
    """Lower the peak resident memory to the current one, and return it; None if unsupported."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return peak_bytes()


def main() -> None:
    """Run the contender named on the command line, and write the measurements."""
    file, name, workload, sample, parent_started, result_file = sys.argv[1:]
    benchmark = load_benchmark(Path(file))
    contender = next(each for each in benchmark.contenders if each.name == name)

    state = contender.setup(Path(workload), float(sample))
    for _ in range(contender.warmup):
        contender.run(state)
    if benchmark.fresh:
        peak_before, cpu_before, started = 0, 0.0, float(parent_started)
    else:
        gc.collect()  # garbage of the setup
        peak_before, cpu_before, started = peak_bytes(), cpu_seconds(), time.perf_counter()
    resident = reset_peak() if contender.result_bytes else None
    outcome = contender.run(state)
    wall = time.perf_counter() - started
    # Measured before the answer: a checksum costs time and memory too.
    cpu, peak = cpu_seconds() - cpu_before, peak_bytes()
    measured: dict[str, Any] = {
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "peak_bytes": max(peak, peak_before),
        "peak_bytes_before_run": peak_before,
    }
    if contender.result_bytes:
        beyond = None if resident is None else peak - resident - contender.result_bytes(outcome)
        measured["growth_bytes"] = beyond
    if contender.waits:
        measured["waits"] = list(contender.waits(outcome))
    Path(result_file).write_text(json.dumps(measured | {"answer": contender.answer(outcome)}))


if __name__ == "__main__":
    main()
