"""Measure the memory and the time of a training in several processes, against the prediction.

    torchrun --standalone --nproc-per-node 2 scripts/measure_ranks.py fsdp

The memory of a rank is its peak resident size over three steps, minus the resident size after the
import of torch. Rank 0 prints the largest of the ranks, and the median time of a step.
"""

import json
import resource
import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path

import torch

import tilth
from tilth.config.training import (
    MachineConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainingConfig,
    WatchConfig,
)
from tilth.training import loop
from tilth.training.distributed import open_ranks

DIVISIONS = {
    "ddp": ParallelConfig(strategy="ddp"),
    "exact": ParallelConfig(exact=True),
    "fsdp": ParallelConfig(strategy="fsdp"),
}
STEPS = 3


def resident_bytes() -> int:
    """Return the resident size of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def make_data(folder: Path) -> None:
    """Write a small data folder."""
    text = folder / "text.txt"
    documents = (f"{number} sheep and one more " * 40 for number in range(99))
    text.write_text("<|endoftext|>".join(documents))
    tokenizer = tilth.train_tokenizer([text], vocab_size=300, special_tokens=["<|endoftext|>"])
    tilth.tokenize([text], tokenizer, folder / "data")


def config_of(data: Path, division: str, optimizer: str, microbatches: int) -> TrainingConfig:
    """Return a config of 57 million parameters without evaluations and samples."""
    vocab_size = tilth.open_data(data).vocab_size
    return TrainingConfig(
        str(data),
        tilth.ModelConfig(vocab_size, 128, d_model=768, num_layers=8, num_heads=12),
        steps=STEPS + 1,
        batch_size=8,
        microbatch_size=8 // (open_ranks().size * microbatches),
        optimizer=OptimizerConfig("muon" if optimizer == "muon" else "adamw"),
        machine=MachineConfig("cpu", "float32", compile=False, threads=1),
        watch=WatchConfig(evaluate_every=0, save_every=0, sample_every=0, norms_every=0),
        parallel=DIVISIONS[division],
    )


def main() -> None:
    """Train three steps, and print predicted and measured bytes as JSON."""
    division, optimizer, microbatches = (*sys.argv[1:], *("ddp", "adamw", "1")[len(sys.argv) - 1 :])
    ranks = open_ranks()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        [folder] = {*ranks.gathered(name)[:1]}
        data = Path(folder) / "data"
        if ranks.is_first:
            make_data(Path(folder))
        ranks.wait()
        prepared = loop.prepare(
            config_of(data, division, optimizer, int(microbatches)), Path(folder) / "run"
        )
        before = resident_bytes()
        steps = prepared.train()
        seconds = [record.step_seconds for record in islice(steps, STEPS)]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        found = ranks.gathered([peak - before, seconds])
        if ranks.is_first:
            sys.stdout.write(
                json.dumps(
                    {
                        "predicted_bytes": prepared.division.memory_bytes,
                        "measured_bytes": max(bytes_ for bytes_, _ in found),
                        "traffic_bytes": prepared.division.traffic_bytes,
                        "step_seconds": statistics.median(found[0][1]),
                    }
                )
            )
        steps.close()
        ranks.wait()


if __name__ == "__main__":
    main()
