"""Measure the memory and the time of training in several processes, against the prediction.

    .venv/bin/python scripts/measure_ranks.py memory
    .venv/bin/python scripts/measure_ranks.py speed [ROUNDS]
    .venv/bin/python scripts/measure_ranks.py exact [ROUNDS]

`memory` prints the table of docs/distributed.md: the largest rank's peak resident size minus that
after the imports, and the prediction of `accounting`. `speed` compares two processes of one thread
with one process of two threads, at the shape of the benchmark training_step (22.7 million
parameters, 32 x 256). `exact` compares exact sums with DDP. Trainings that are compared take turns;
times are the median of all steps but the first of each training. Another program on the machine
disturbs them.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import tilth
from tilth.config.training import (
    MachineConfig,
    OptimizerConfig,
    OptimizerName,
    ParallelConfig,
    TrainingConfig,
    WatchConfig,
)
from tilth.training import loop
from tilth.training.distributed import open_ranks


def status_bytes(name: str) -> int:
    """Return a size from the status of this process: VmRSS or VmHWM (its peak)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = [each for each in lines if each.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


IMPORTED = status_bytes("VmRSS")
DIVISIONS = {
    "ddp": ParallelConfig(strategy="ddp"),
    "exact": ParallelConfig(exact=True),
    "fsdp": ParallelConfig(strategy="fsdp"),
}
VOCAB_SIZE = 10_000
SMALL, LARGE = (512, 4, 16), (768, 6, 12)  # width, layers, heads: 22.7 and 57.9 million parameters
ROUNDS = 5  # of trainings that take turns


@dataclass(frozen=True)
class Cell:
    """A training to measure."""

    ranks: int
    division: str = "ddp"
    optimizer: OptimizerName = "adamw"
    num_microbatches: int = 1
    """Of each rank."""
    threads: int = 1
    """Of each rank."""
    shape: tuple[int, int, int] = LARGE
    batch_size: int = 8
    context_length: int = 64
    steps: int = 3


CELLS = [Cell(n, division) for division in ("ddp", "exact") for n in (1, 2, 4)]
CELLS += [Cell(n, "fsdp") for n in (2, 4)]
for each in ("ddp", "fsdp"):
    CELLS += [Cell(2, each, num_microbatches=2), Cell(2, each, "muon")]


@dataclass(frozen=True)
class Measured:
    """What a training needed."""

    predicted_bytes: int
    measured_bytes: int
    step_seconds: list[float]


def make_data(folder: Path) -> Path:
    """Write a data folder of random words, which have enough pairs for the vocabulary."""
    draw = random.Random(0)  # noqa: S311, not for secrets
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(50_000)]
    text = folder / "text.txt"
    text.write_text("<|endoftext|>".join(" ".join(words[i : i + 99]) for i in range(0, 50_000, 99)))
    tokenizer = tilth.train_tokenizer(
        [text], vocab_size=VOCAB_SIZE, special_tokens=["<|endoftext|>"]
    )
    return tilth.tokenize([text], tokenizer, folder / "data").folder


def config_of(cell: Cell, data: Path) -> TrainingConfig:
    """Return a config without evaluations and samples."""
    width, layers, heads = cell.shape
    return TrainingConfig(
        str(data),
        tilth.ModelConfig(VOCAB_SIZE, cell.context_length, width, layers, num_heads=heads),
        steps=cell.steps + 1,  # the last step saves
        batch_size=cell.batch_size,
        microbatch_size=cell.batch_size // (cell.ranks * cell.num_microbatches),
        optimizer=OptimizerConfig(cell.optimizer),
        machine=MachineConfig("cpu", "float32", compile=False, threads=cell.threads),
        watch=WatchConfig(evaluate_every=0, save_every=0, sample_every=0, norms_every=0),
        parallel=DIVISIONS[cell.division],
    )


def train(cell: Cell, data: Path) -> None:
    """Train as one of the ranks of torchrun; rank 0 prints a `Measured` as JSON."""
    with tempfile.TemporaryDirectory() as own:
        [folder, *_] = open_ranks().gathered(own)  # of rank 0, which ends last
        prepared = loop.prepare(config_of(cell, data), Path(folder) / "run")
        steps = prepared.train()
        seconds = [record.step_seconds or 0.0 for record in islice(steps, cell.steps)]
        found = open_ranks().gathered(status_bytes("VmHWM") - IMPORTED)
        steps.close()
        open_ranks().wait()
    if open_ranks().is_first:
        measured = Measured(prepared.division.memory_bytes, max(found), seconds[1:])
        sys.stdout.write(json.dumps(asdict(measured)))


def measure(cell: Cell, data: Path) -> Measured:
    """Start the ranks of a training and return what rank 0 prints."""
    words = ["torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    words += ["--nproc-per-node", str(cell.ranks)]
    words += [__file__, "rank", json.dumps(asdict(cell)), str(data)]
    own = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": str(cell.threads)}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr)
    return Measured(**json.loads(done.stdout))


def compare_memory(data: Path) -> None:
    """Print predicted and measured memory as a table."""
    print("| strategy | ranks | optimizer | microbatches | predicted | measured | |")
    print("|---|---|---|---|---|---|---|")
    for cell in CELLS:
        found = measure(cell, data)
        megabytes = [f"{n / 1e6:,.0f} MB" for n in (found.predicted_bytes, found.measured_bytes)]
        error = found.predicted_bytes / found.measured_bytes - 1
        words = [cell.division, cell.ranks, cell.optimizer, cell.num_microbatches, *megabytes]
        print("|", *(f"{word} |" for word in words), f"{error:+.1%} |", flush=True)


def compare_times(data: Path, cells: dict[str, Cell], rounds: int) -> None:
    """Print the times of trainings that take turns, and the ratios to the first."""
    seconds: dict[str, list[float]] = {name: [] for name in cells}
    for _ in range(rounds):
        for name, cell in cells.items():
            seconds[name] += measure(cell, data).step_seconds
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    base = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"{name}: {median:.3f} s a step, fastest {min(seconds[name]):.3f} s, ", end="")
        print(f"speed {base / median:.3f} of the first")


def main() -> None:
    """Measure what the command line names, or be a rank of that."""
    if sys.argv[1] == "rank":
        values = json.loads(sys.argv[2])
        return train(Cell(**{**values, "shape": tuple(values["shape"])}), Path(sys.argv[3]))
    two = Cell(2, shape=SMALL, batch_size=32, context_length=256, steps=6)
    parts = replace(two, num_microbatches=2)
    one = replace(parts, ranks=1, num_microbatches=4)
    comparisons = {
        "speed": {
            "one process of two threads": replace(two, ranks=1, threads=2),
            "two processes of one thread": two,
        },
        "exact": {
            "two processes, DDP": parts,
            "two processes, exact": replace(parts, division="exact"),
            "one process": one,
            "one process, exact": replace(one, division="exact"),
        },
    }
    with tempfile.TemporaryDirectory() as name:
        data = make_data(Path(name))
        if sys.argv[1:] == ["memory"]:
            return compare_memory(data)
        rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
        return compare_times(data, comparisons[sys.argv[1]], rounds)


if __name__ == "__main__":
    main()
