"""What it costs never to have the full logits: the loss in chunks, beside the usual way.

Two threads, float32: value and gradients at the reference shape, 32 x 256 tokens, width 512,
vocabulary 10,000. "Recomputed" makes each chunk's logits again in the backward pass.
Targets: at least 0.9 times as fast as the full logits, in at most half the memory. (The memory is
that of the whole process, of which torch itself takes some 250 MB.)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import write_once

TOKENS, WIDTH, VOCABULARY, CHUNK = 32 * 256, 512, 10_000, 512
Task = tuple[Callable[[Any, Any, Any], Any], Any, Any, Any]


def prepare(folder: Path) -> dict[str, Path]:
    """Write down how many tokens the work is; the numbers are drawn by each process."""
    return {"reference shape": write_once(folder / "tokens.txt", lambda: str(TOKENS))}


def drawn(loss: Callable[[Any, Any, Any], Any], sample: float) -> Task:
    """Draw hidden states, the output matrix and targets."""
    import torch

    torch.manual_seed(0)
    hidden = torch.randn(round(TOKENS * sample), WIDTH, requires_grad=True)
    weight = torch.normal(0.0, 0.02, (VOCABULARY, WIDTH), requires_grad=True)
    return loss, hidden, weight, torch.randint(VOCABULARY, (len(hidden),))


def chunks(file: Path, sample: float) -> Task:
    """Set up ours."""
    from tilth.model import chunked_cross_entropy

    return drawn(chunked_cross_entropy, sample)


def full_logits(file: Path, sample: float) -> Task:
    """Set up the usual way."""
    from torch.nn import functional

    return drawn(lambda h, w, targets: functional.cross_entropy(h @ w.T, targets), sample)


def recomputed(file: Path, sample: float) -> Task:
    """Set up checkpointing of each chunk."""
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
    """Do what is timed; the value and the sizes of both gradients leave."""
    loss, hidden, weight, targets = task
    hidden.grad = weight.grad = None
    value = loss(hidden, weight, targets)
    value.backward()
    return [value.item(), hidden.grad.norm().item(), weight.grad.norm().item()]


def rounded(numbers: list[float]) -> list[str]:
    """Keep the digits that survive another order of operations."""
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
