"""Speed and memory of the chunked loss, compared with full logits.

Two threads, float32: loss and gradients of 32 x 256 tokens, width 512, vocabulary size 10,000.
"Recomputed" computes the logits of each chunk again in the backward pass.
Targets: at least 0.9 times as fast as full logits, in at most half the memory. (Memory is that of
the whole process; torch itself takes about 250 MB.)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import write_once

TOKENS, WIDTH, VOCABULARY, CHUNK = 32 * 256, 512, 10_000, 512
Task = tuple[Callable[[Any, Any, Any], Any], Any, Any, Any]


def prepare(folder: Path) -> dict[str, Path]:
    """Store the number of tokens; each process draws the tensors."""
    return {"reference shape": write_once(folder / "tokens.txt", lambda: str(TOKENS))}


def drawn(loss: Callable[[Any, Any, Any], Any], sample: float) -> Task:
    """Draw hidden states, output matrix and targets."""
    import torch

    torch.manual_seed(0)
    hidden = torch.randn(round(TOKENS * sample), WIDTH, requires_grad=True)
    weight = torch.normal(0.0, 0.02, (VOCABULARY, WIDTH), requires_grad=True)
    return loss, hidden, weight, torch.randint(VOCABULARY, (len(hidden),))


def chunks(file: Path, sample: float) -> Task:
    """Set up tilth's chunked loss."""
    from tilth.model import chunked_cross_entropy

    return drawn(chunked_cross_entropy, sample)


def full_logits(file: Path, sample: float) -> Task:
    """Set up the loss over full logits."""
    from torch.nn import functional

    return drawn(lambda h, w, targets: functional.cross_entropy(h @ w.T, targets), sample)


def recomputed(file: Path, sample: float) -> Task:
    """Set up activation checkpointing of each chunk."""
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    def one(h: Any, w: Any, targets: Any) -> Any:  # noqa: ANN401
        return functional.cross_entropy(h @ w.T, targets, reduction="sum")

    def loss(h: Any, w: Any, targets: Any) -> Any:  # noqa: ANN401
        parts = zip(h.split(CHUNK), targets.split(CHUNK), strict=True)
        sums = [checkpoint(one, part, w, ids, use_reentrant=False) for part, ids in parts]
        return sum(sums) / len(targets)

    return drawn(loss, sample)


def run(task: Task) -> list[float]:
    """Return the loss and the norms of both gradients."""
    loss, hidden, weight, targets = task
    hidden.grad = weight.grad = None
    value = loss(hidden, weight, targets)
    value.backward()
    return [value.item(), hidden.grad.norm().item(), weight.grad.norm().item()]


def rounded(numbers: list[float]) -> list[str]:
    """Round to three digits: the order of operations differs."""
    return [f"{number:.3g}" for number in numbers]


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(file.read_text()),
    unit="tokens",
    contenders=[
        Contender("tilth, chunks of 512", chunks, run, rounded, "tilth", warmup=1),
        Contender(
            "full logits", full_logits, run, rounded, "torch", "tilth, chunks of 512", warmup=1
        ),
        Contender(
            "recomputed", recomputed, run, rounded, "torch", "tilth, chunks of 512", warmup=1
        ),
    ],
    targets=[
        Target("full logits", at_least=0.9),
        Target("full logits", at_least=2.0, measure="peak_bytes"),
    ],
)
