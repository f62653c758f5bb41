"""The declaration of a benchmark: contenders, targets and options.

A benchmark is one file `bench/NAME.py`. Its docstring is the question; its last value is:

    BENCHMARK = Benchmark(
        prepare=prepare,
        contenders=[
            Contender("tilth split", tilth_split, run, same_pieces, package="tilth"),
            Contender("regex findall", regex_findall, run, same_pieces, package="regex",
                      against="tilth split"),
        ],
        targets=[Target("regex findall", at_least=10.0)],
    )

Every run imports this file and the benchmark in a new process, so both stay light: heavy imports
belong in `setup`.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

Measure = Literal["wall_seconds", "cpu_seconds", "peak_bytes"]
Memory = Literal["peak_bytes", "growth_bytes"]


@dataclass(frozen=True)
class Contender:
    """One implementation of the work. Only `run` is timed, not `setup` and `answer`."""

    name: str
    setup: Callable[[Path, float], Any]
    """(Workload, fraction of it) -> the argument of `run`. Imports belong here."""
    run: Callable[[Any], Any]
    answer: Callable[[Any], Any]
    """Result of `run` -> a small JSON value, equal for all correct contenders."""
    package: str = ""
    """Distribution whose version is reported."""
    against: str = ""
    """For a peer: the contender of tilth that it is compared with."""
    sample: float = 1.0
    """Fraction of the workload for a slow peer; its time is scaled accordingly."""
    warmup: int = 0
    """Untimed runs before the timed run, in the same process, with the same `setup`."""
    incomparable: str = ""
    """Reason why the answer may differ from ours; empty: it must be equal."""
    note: str = ""
    """Shown in its row, such as the type of its input."""
    workloads: tuple[str, ...] = ()
    """Names of the workloads that it runs on; empty: all."""
    result_bytes: Callable[[Any], int] | None = None
    """Result of `run` -> its size. Then `growth_bytes` is measured: the peak memory of `run`
    beyond the memory before it and the result. Linux only."""
    waits: Callable[[Any], Sequence[float]] | None = None
    """Result of `run` -> seconds of single events in it, such as the first token of each request.
    The row has their median and 99th percentile over all runs."""


@dataclass(frozen=True)
class Target:
    """A minimum for the ratio of the peer's median (per unit of work) to ours."""

    peer: str | tuple[str, ...]
    """Several peers: the best of those that give our answer."""
    at_least: float
    measure: Measure = "wall_seconds"
    workload: str = ""
    """Empty: applies to every workload."""
    otherwise: tuple[str, float] | None = None
    """A contender and its least ratio, which meet the target too."""


@dataclass(frozen=True)
class Limit:
    """A maximum for the memory of one contender, in bytes."""

    contender: str
    at_most: float
    measure: Memory = "peak_bytes"
    workload: str = ""


@dataclass(frozen=True)
class Skipped:
    """A workload that cannot be prepared on this machine; not an error."""

    reason: str


Workload = Path | Skipped


def peers_of(target: Target) -> tuple[str, ...]:
    """Return the names of the peers of a target."""
    return (target.peer,) if isinstance(target.peer, str) else target.peer


def names_of(target: Target | Limit) -> tuple[str, ...]:
    """Return the names of the contenders that a target needs in a workload."""
    if isinstance(target, Limit):
        return (target.contender,)
    return peers_of(target) + (() if target.otherwise is None else target.otherwise[:1])


def megabytes(workload: Path) -> float:
    """Return the size of a workload that is one file."""
    return workload.stat().st_size / 1e6


@dataclass(frozen=True)
class Benchmark:
    """A question, answered by running every contender on every workload."""

    prepare: Callable[[Path], Mapping[str, Path] | Mapping[str, Workload]]
    """Cache folder -> workloads by name, each a file, a folder or `Skipped`. Deterministic."""
    contenders: Sequence[Contender]
    targets: Sequence[Target | Limit] = ()
    work: Callable[[Path], float] = megabytes
    """Units of work in a whole workload."""
    unit: str = "MB"
    fresh: bool = False
    """Measure from the start of the process: interpreter, imports, setup and run."""
    threads: int | None = None
    """Threads for OpenMP, BLAS and Rayon; None: their default."""
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 900.0
    file: Path = Path()
    question: str = ""

    def __post_init__(self) -> None:
        by_name = {contender.name: contender for contender in self.contenders}
        if len(by_name) != len(self.contenders):
            raise ValueError("two contenders have the same name; rename one")
        for contender in self.contenders:
            if contender.against and contender.against not in by_name:
                raise ValueError(
                    f"{contender.name} is against {contender.against}, which does not exist"
                )
            if not 0.0 < contender.sample <= 1.0:
                raise ValueError(f"the sample of {contender.name} must be in (0, 1]")
            if not contender.against and contender.sample != 1.0:
                raise ValueError(
                    f"{contender.name} is not a peer, so its sample must be the whole workload"
                )
            if self.fresh and contender.warmup:
                raise ValueError(f"{contender.name} has a warmup, but a fresh process excludes it")
        for target in self.targets:
            if isinstance(target, Limit):
                limited = by_name.get(target.contender)
                if limited is None:
                    raise ValueError(f"the limit of {target.contender} has no contender")
                if target.measure == "growth_bytes" and limited.result_bytes is None:
                    raise ValueError(f"{target.contender} needs result_bytes for its limit")
                continue
            against = set()
            for name in peers_of(target):
                peer = by_name.get(name)
                if peer is None or not peer.against:
                    raise ValueError(f"the target {name} is not a peer")
                if target.measure == "peak_bytes" and peer.sample != 1.0:
                    raise ValueError(f"memory does not scale with the sample of {name}")
                against.add(peer.against)
            if len(against) != 1:
                raise ValueError(f"a target needs peers of one contender, not of {len(against)}")

    @property
    def name(self) -> str:
        """The name for `--only`."""
        return self.file.stem


def load_benchmark(file: Path) -> Benchmark:
    """Import a benchmark file by its path."""
    specification = importlib.util.spec_from_file_location(f"benchmark_{file.stem}", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    benchmark = module.BENCHMARK
    assert isinstance(benchmark, Benchmark)
    return replace(benchmark, file=file, question=(module.__doc__ or "").strip())
