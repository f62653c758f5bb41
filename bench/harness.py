"""Run the contenders of a benchmark, interleaved, each run in a new process, and summarise them.

`measure` returns a report for a `Benchmark`: dicts and lists for JSON, with every run, the medians,
and the ratios that `report.py` prints.

    report = measure(load_benchmark(Path("bench/splitting.py")), runs=None, tell=print)
"""

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import vocabularies, workloads
from bench.declaration import Benchmark, Contender, Limit, Skipped, Target, names_of, peers_of
from bench.report import seconds
from tilth.accounting.hardware import processor_name

PROJECT = Path(__file__).resolve().parent.parent
USUAL_RUNS = 5
SLOW_RUNS, SLOW_SECONDS = 3, 60.0
MEASURES = ("wall_seconds", "cpu_seconds", "peak_bytes")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
Run = dict[str, Any]
Tell = Callable[[str], None]


class RunFailed(Exception):
    """A run gave no result; the message is shown in its row."""


@dataclass
class Entry:
    """A contender on one workload: its runs, or the reason for its failure."""

    contender: Contender
    version: str
    runs: list[Run] = field(default_factory=list)
    failure: str = ""

    def median(self, measure: str) -> float:
        """Return the median over the runs."""
        values: list[float] = [run[measure] for run in self.runs]
        return statistics.median(values)


def run_once(benchmark: Benchmark, contender: Contender, workload: Path, sample: float) -> Run:
    """Run one worker; end all its processes."""
    environment = dict(os.environ, PYTHONHASHSEED="0") | dict(benchmark.environment)
    if benchmark.threads is not None:
        environment |= dict.fromkeys(THREAD_VARIABLES, str(benchmark.threads))
    with tempfile.TemporaryDirectory(prefix="tilth-bench-") as scratch:
        result, errors = Path(scratch, "result.json"), Path(scratch, "stderr")
        arguments = [benchmark.file.resolve(), contender.name, workload.resolve(), sample]
        command = [sys.executable, "-m", "bench.worker", *map(str, arguments)]
        with errors.open("wb") as stream:
            process = subprocess.Popen(
                [*command, repr(time.perf_counter()), str(result)],
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,  # a process group, ended with its children
            )
        end = ""
        try:
            process.wait(benchmark.timeout_seconds)
        except subprocess.TimeoutExpired:
            end = f"no result after {benchmark.timeout_seconds:g} seconds"
        finally:  # also on Ctrl-C
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not end and process.returncode < 0:
            end = f"ended by {signal.Signals(-process.returncode).name}"
        elif not end and process.returncode > 0:
            end = f"exit code {process.returncode}"
        elif not end and not result.exists():
            end = "ended without a result"
        if end:
            said = errors.read_text(errors="replace").strip().splitlines()
            raise RunFailed(f"{end}: {said[-1].strip()}" if said else end)
        run: Run = json.loads(result.read_text())
        return run


def enter(contender: Contender) -> Entry:
    """Look up the version of the package; a missing package is a failure."""
    if not contender.package:
        return Entry(contender, "")
    try:
        return Entry(contender, importlib.metadata.version(contender.package))
    except importlib.metadata.PackageNotFoundError:
        return Entry(contender, "", failure=f"the package {contender.package} is not installed")


def race(
    benchmark: Benchmark, name: str, workload: Path, runs: int | None, tell: Tell
) -> list[Entry]:
    """Run the contenders of a workload once per round; each round starts with the next contender.

    So a drift of the machine (heat, other load) affects all contenders equally.
    """
    entries = [
        enter(contender)
        for contender in benchmark.contenders
        if not contender.workloads or name in contender.workloads
    ]
    rounds, number = runs or USUAL_RUNS, 0
    while number < rounds:
        first = number % len(entries)
        for entry in entries[first:] + entries[:first]:
            if entry.failure:
                continue
            contender = entry.contender
            try:
                run = run_once(benchmark, contender, workload, contender.sample)
            except RunFailed as failure:
                entry.failure = str(failure)
                tell(f"round {number + 1} of {rounds}, {contender.name}: {failure}")
                continue
            position = sum(len(each.runs) for each in entries) + 1
            entry.runs.append({"round": number + 1, "position": position} | run)
            tell(
                f"round {number + 1} of {rounds}, {contender.name}: {seconds(run['wall_seconds'])}"
            )
        number += 1
        slowest = max((run["wall_seconds"] for each in entries for run in each.runs), default=0.0)
        if runs is None and slowest > SLOW_SECONDS:
            rounds = SLOW_RUNS
    return entries


def compare_answers(benchmark: Benchmark, workload: Path, entries: list[Entry]) -> None:
    """Mark contenders as failed whose answer differs from ours or between runs."""
    by_name = {entry.contender.name: entry for entry in entries}
    on_samples: dict[tuple[str, float], Any] = {}
    # Ours first: a peer is compared only with a consistent contender of ours.
    for entry in sorted(entries, key=lambda entry: bool(entry.contender.against)):
        contender = entry.contender
        if entry.failure or contender.incomparable:
            continue
        answer = entry.runs[0]["answer"]
        if other := [run["answer"] for run in entry.runs if run["answer"] != answer]:
            entry.failure = f"answers differ between runs: {answer}, {other[0]}"
        elif contender.against and not (ours := by_name[contender.against]).failure:
            expected = ours.runs[0]["answer"]
            if contender.sample != 1.0:  # run ours on the same sample, untimed
                sample = (contender.against, contender.sample)
                try:
                    if sample not in on_samples:
                        run = run_once(benchmark, ours.contender, workload, contender.sample)
                        on_samples[sample] = run["answer"]
                except RunFailed as failure:
                    entry.failure = f"{contender.against} on the same sample: {failure}"
                    continue
                expected = on_samples[sample]
            if answer != expected:
                entry.failure = (
                    f"answers differ: {contender.against} {expected}, {contender.name} {answer}"
                )


def ratio(entries: list[Entry], entry: Entry, measure: str) -> float | None:
    """Return the peer's median divided by ours, per unit of work: above 1, ours is better."""
    ours = next((each for each in entries if each.contender.name == entry.contender.against), None)
    if ours is None or entry.failure or ours.failure:
        return None
    if measure == "peak_bytes":
        whole = entry.contender.sample == 1.0  # memory does not scale with the sample
        return entry.median(measure) / ours.median(measure) if whole else None
    # A run shorter than the resolution of CPU time measures zero.
    if not (own := ours.median(measure)):
        return None
    return entry.median(measure) / entry.contender.sample / own


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of the values do not exceed."""
    return sorted(values)[max(1, math.ceil(len(values) * percent / 100)) - 1]


def summarise(entry: Entry, entries: list[Entry], work: float) -> dict[str, Any]:
    """Return the runs of a contender and, without a failure, its medians and ratios."""
    contender = entry.contender
    summary: dict[str, Any] = {
        "name": contender.name,
        "package": contender.package,
        "version": entry.version,
        "against": contender.against,
        "sample": contender.sample,
        "warmup": contender.warmup,
        "incomparable": contender.incomparable,
        "note": contender.note,
        "failure": entry.failure,
        "runs": entry.runs,
    }
    if not entry.failure:
        wall = [run["wall_seconds"] for run in entry.runs]
        summary["medians"] = {measure: entry.median(measure) for measure in MEASURES}
        summary["spread_seconds"] = [min(wall), max(wall)]
        summary["work_per_second"] = work * contender.sample / statistics.median(wall)
        summary["ratios"] = {measure: ratio(entries, entry, measure) for measure in MEASURES}
        if entry.runs[0].get("growth_bytes") is not None:
            summary["medians"]["growth_bytes"] = entry.median("growth_bytes")
        if waits := [each for run in entry.runs for each in run.get("waits", ())]:
            summary["waits"] = {
                "number": len(waits),
                "p50_seconds": percentile(waits, 50),
                "p99_seconds": percentile(waits, 99),
            }
    return summary


def judge(target: Target | Limit, entries: list[Entry]) -> dict[str, Any]:
    """Compare a target with the measured ratio or memory; without one, `met` is None."""
    by_name = {entry.contender.name: entry for entry in entries}
    if isinstance(target, Limit):
        entry = by_name[target.contender]
        known = not entry.failure and entry.runs[0].get(target.measure) is not None
        found = entry.median(target.measure) if known else None
        return {
            "contender": target.contender,
            "measure": target.measure,
            "at_most": target.at_most,
            "bytes": found,
            "met": None if found is None else found <= target.at_most,
        }
    peers = peers_of(target)
    ratios = {name: ratio(entries, by_name[name], target.measure) for name in peers}
    # A peer that failed, or whose answer differs, has no ratio.
    reached = {name: value for name, value in ratios.items() if value is not None}
    best = min(reached, key=lambda name: reached[name]) if reached else None
    met = None if best is None else reached[best] >= target.at_least
    otherwise: dict[str, Any] = {}
    if target.otherwise is not None:
        name, least = target.otherwise
        found = ratio(entries, by_name[name], target.measure)
        otherwise = {"otherwise": {"peer": name, "at_least": least, "ratio": found}}
        if found is not None:
            met = bool(met) or found >= least
    return {
        "peers": list(peers),
        "best": best,
        "ours": by_name[peers[0]].contender.against,
        "measure": target.measure,
        "at_least": target.at_least,
        "ratio": None if best is None else reached[best],
        "met": met,
        **otherwise,
    }


def machine() -> dict[str, Any]:
    """Describe the machine."""
    return {
        "cpu": processor_name(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def cache_folder(file: Path) -> Path:
    """Return the folder for `prepare`, which changes with the code that fills it."""
    makers = (workloads.__file__, vocabularies.__file__)
    code = file.read_bytes() + b"".join(Path(each).read_bytes() for each in makers)
    folder = file.parent / "cache" / f"{file.stem}-{hashlib.sha256(code).hexdigest()[:12]}"
    for outdated in set(folder.parent.glob(f"{file.stem}-*")) - {folder}:
        shutil.rmtree(outdated)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def measure(benchmark: Benchmark, runs: int | None, tell: Tell) -> dict[str, Any]:
    """Run all workloads. A failed contender is part of the report, not an error."""
    command = ["python", "-m", "bench", "--only", benchmark.name]
    report: dict[str, Any] = {
        "benchmark": benchmark.name,
        "question": benchmark.question,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join(command + ([] if runs is None else ["--runs", str(runs)])),
        "machine": machine(),
        "threads": benchmark.threads,
        "environment": dict(benchmark.environment),
        "fresh_process": benchmark.fresh,
        "unit": benchmark.unit,
        "workloads": [],
    }
    tell("preparing the workloads")
    for name, workload in benchmark.prepare(cache_folder(benchmark.file)).items():
        if isinstance(workload, Skipped):
            tell(f"workload {name} skipped: {workload.reason}")
            skipped = {"name": name, "skipped": workload.reason, "contenders": [], "targets": []}
            report["workloads"].append(skipped)
            continue
        tell(f"workload {name}")
        entries = race(benchmark, name, workload, runs, tell)
        compare_answers(benchmark, workload, entries)
        present = {entry.contender.name for entry in entries}
        work = benchmark.work(workload)
        content = hashlib.sha256(workload.read_bytes()).hexdigest() if workload.is_file() else None
        report["workloads"].append(
            {
                "name": name,
                "file": workload.name,
                "sha256": content,
                "work": work,
                "contenders": [summarise(entry, entries, work) for entry in entries],
                "targets": [
                    judge(target, entries)
                    for target in benchmark.targets
                    if target.workload in ("", name) and present.issuperset(names_of(target))
                ],
            }
        )
    return report
