"""What a benchmark file declares: contenders, targets and the way they are run.

A benchmark is one file `bench/NAME.py`. Its docstring says the question, and it ends in one value:

    BENCHMARK = Benchmark(
        prepare=prepare,
        contenders=[
            Contender("tilth split", tilth_split, run, same_pieces, package="tilth"),
            Contender("regex findall", regex_findall, run, same_pieces, package="regex",
                      against="tilth split"),
        ],
        targets=[Target("regex findall", at_least=10.0)],
    )

Every run imports this file and the benchmark's in a new process, so both stay light: what a
contender needs is imported by its `setup`.
"""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

Measure = Literal["wall_seconds", "cpu_seconds", "peak_bytes"]


@dataclass(frozen=True)
class Contender:
    """One way to do the work; `setup` and `answer` are not timed, `run` is."""

    name: str
    setup: Callable[[Path, float], Any]
    """Workload and fraction of it to take -> what `run` is given. Imports belong here."""
    run: Callable[[Any], Any]
    answer: Callable[[Any], Any]
    """What `run` returned -> a small JSON value that equals that of every other right contender."""
    package: str = ""
    """The distribution whose version is reported."""
    against: str = ""
    """For a peer: the contender of ours that it is compared with."""
    sample: float = 1.0
    """The fraction of the workload that a slow peer is given; its time is scaled by it."""
    warmup: int = 0
    """Untimed runs before the timed one, in the same process and on the same `setup`."""
    incomparable: str = ""
    """The reason, where the answer may differ from ours; without one it must be equal."""


@dataclass(frozen=True)
class Target:
    """A ratio to reach: the peer's median (per unit of work) over ours."""

    peer: str
    at_least: float
    measure: Measure = "wall_seconds"
    workload: str = ""
    """Empty: judged on every workload."""


def megabytes(workload: Path) -> float:
    """Measure the work in a workload that is one file."""
    return workload.stat().st_size / 1e6


@dataclass(frozen=True)
class Benchmark:
    """A question, asked of every contender on every workload."""

    prepare: Callable[[Path], Mapping[str, Path]]
    """Cache folder -> workloads by name, each a file or a folder. Always the same ones."""
    contenders: Sequence[Contender]
    targets: Sequence[Target] = ()
    work: Callable[[Path], float] = megabytes
    """How many units of work a whole workload is."""
    unit: str = "MB"
    fresh: bool = False
    """Count everything from the start of the process: interpreter, imports, setup and run."""
    threads: int | None = None
    """Threads that OpenMP, BLAS and Rayon may use; None leaves the choice to them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 900.0
    file: Path = Path()
    question: str = ""

    def __post_init__(self) -> None:
        by_name = {contender.name: contender for contender in self.contenders}
        if len(by_name) != len(self.contenders):
            raise ValueError("two contenders have the same name; give each its own")
        for contender in self.contenders:
            if contender.against and contender.against not in by_name:
                raise ValueError(f"{contender.name} is against {contender.against}, which is none")
            if not 0.0 < contender.sample <= 1.0:
                raise ValueError(f"the sample of {contender.name} must be in (0, 1]")
            if not contender.against and contender.sample != 1.0:
                raise ValueError(f"{contender.name} is no peer, so it takes the whole workload")
            if self.fresh and contender.warmup:
                raise ValueError(f"{contender.name} has a warmup, but a fresh process has none")
        for target in self.targets:
            peer = by_name.get(target.peer)
            if peer is None or not peer.against:
                raise ValueError(f"a target names {target.peer}, which is no peer")
            if target.measure == "peak_bytes" and peer.sample != 1.0:
                raise ValueError(f"memory does not scale with the sample of {target.peer}")

    @property
    def name(self) -> str:
        """What `--only` calls it."""
        return self.file.stem


def load_benchmark(file: Path) -> Benchmark:
    """Import a benchmark file by its path, so that it need not stand on the import path."""
    specification = importlib.util.spec_from_file_location(f"benchmark_{file.stem}", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    benchmark = module.BENCHMARK
    assert isinstance(benchmark, Benchmark)
    return replace(benchmark, file=file, question=(module.__doc__ or "").strip())
