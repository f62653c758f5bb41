"""Speed of a whole training step, compared with Hugging Face's Llama and nanoGPT.

Forward, loss, backward, clipping to 1.0 and AdamW, float32, two threads, deterministic algorithms;
the shape of the `tinystories` recipe (22.7 million parameters, 111.7 MFLOP per token), 8,192 tokens
per run. Llama starts with the same weights, and the answer is the loss after the last step. The
nanoGPT-style model has GPT-2's blocks: the same width, layers, heads and context length, d_ff four
times the width (0.6% more FLOPs than ours), tied embeddings. Peers use torch's fused AdamW, and the
deterministic mode without its filling of fresh memory (10% of Hugging Face's time). tilth calls
`keep_freed_memory`; the peers use malloc's defaults. The last row computes the FLOPs of a run as
large matrix products: its ratio is the utilisation.
Targets: compiled at least 1.1 times as fast as either peer, eager at least as fast as Hugging Face;
at batch 32 at most three quarters of Hugging Face's 3.6 GB.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import write_once

VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS = 10_000, 256, 512, 4, 16
SEQUENCES = 32  # per run
BETAS, LEARNING_RATE, MAX_NORM = (0.9, 0.95), 1e-3, 1.0
Step = Callable[[], Any]
Run = tuple[Step, int]


def prepare(folder: Path) -> dict[str, Path]:
    """Store the number of sequences per batch, one file each."""
    return {
        f"batch {size} x {CONTEXT_LENGTH}": write_once(
            folder / f"batch_{size}.json", partial(json.dumps, size)
        )
        for size in (4, 32)
    }


def batch_of(file: Path) -> tuple[Any, Any, int]:
    """Return inputs, targets (the same for every step) and the number of steps."""
    import torch

    size = json.loads(file.read_text())
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCAB_SIZE, (size, CONTEXT_LENGTH + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), SEQUENCES // size


def make_model() -> Any:  # noqa: ANN401, torch is imported late
    """Create tilth's model, the same for every contender."""
    import torch

    from tilth.config import ModelConfig
    from tilth.model import TransformerLM

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(0)
    return TransformerLM(ModelConfig(VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS))


def tilth(file: Path, sample: float, *, compiling: bool, fast: bool = True) -> Run:
    """Set up the training step of `tilth train`."""
    import torch

    from tilth.config.training import ResolvedMachine
    from tilth.optim import AdamW
    from tilth.training.allocator import keep_freed_memory
    from tilth.training.step import accumulate_gradients, compiled, make_loss, update

    keep_freed_memory()
    model = make_model().use_fast_path(fast)
    machine = ResolvedMachine(device="cpu", dtype="float32", compile=compiling, threads=2)
    loss_of = make_loss(model, machine)
    if compiling:
        loss_of = compiled(loss_of, "cpu")
    optimizer = AdamW(model.parameters(), LEARNING_RATE, BETAS, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    x, y, steps = batch_of(file)

    def step() -> float:
        loss = accumulate_gradients(loss_of, x, y, len(x), scaler).item()
        update(optimizer, loss, LEARNING_RATE, MAX_NORM, scaler)
        return loss

    return step, steps


def theirs(model: Any, loss_of: Callable[[Any, Any], Any], file: Path) -> Run:  # noqa: ANN401
    """Return a training step made of torch's optimizer and clipping."""
    import torch

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATE, BETAS, weight_decay=0.1, fused=True)
    x, y, steps = batch_of(file)

    def step() -> float:
        loss = loss_of(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step, steps


def hugging_face(file: Path, sample: float) -> Run:
    """Set up Hugging Face's Llama with our weights and its own loss."""
    from bench.models import make_llama

    model = make_model()
    llama = make_llama(model.config, model.state_dict(), use_cache=False)

    def loss_of(x: Any, y: Any) -> Any:  # noqa: ANN401
        # Its loss shifts the labels by default; ours are shifted already.
        logits = llama(input_ids=x).logits
        return llama.loss_function(logits, None, VOCAB_SIZE, shift_labels=y)

    return theirs(llama, loss_of, file)


def nanogpt_style(file: Path, sample: float) -> Run:
    """Set up GPT-2 as nanoGPT trains it: no biases, fused attention, compiled."""
    import torch

    from bench.models import NanoGPT

    model = NanoGPT(replace(make_model().config, tie_embeddings=True), bias=False)
    return theirs(model, torch.compile(model.loss), file)


def products(file: Path, sample: float) -> Run:
    """Set up the FLOPs of a run as products of large square matrices."""
    import torch

    from tilth.accounting.flops import training_flops
    from tilth.config import ModelConfig

    config = ModelConfig(VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS)
    size = 2048
    left, right, out = torch.ones(3, size, size)
    times = round(training_flops(config) * SEQUENCES / (2 * size**3))
    return lambda: torch.mm(left, right, out=out), times


def run(task: Run) -> object:
    """Take the steps, and return the last loss."""
    step, steps = task
    outcome = None
    for _ in range(steps):
        outcome = step()
    return outcome


def rounded(loss: object) -> str | None:
    """Round to two digits: the order of operations differs. Products have no loss."""
    return f"{loss:.2g}" if isinstance(loss, float) else None


OURS, EAGER = "tilth compiled", "tilth eager"

BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(SEQUENCES * CONTEXT_LENGTH),
    unit="tokens",
    contenders=[
        Contender(name, setup, run, rounded, package, against, 1.0, 1, incomparable)
        for name, setup, package, against, incomparable in (
            (OURS, partial(tilth, compiling=True), "tilth", "", ""),
            (EAGER, partial(tilth, compiling=False), "tilth", "", ""),
            ("definition", partial(tilth, compiling=False, fast=False), "tilth", EAGER, ""),
            ("Hugging Face", hugging_face, "transformers", OURS, ""),
            ("Hugging Face, eager too", hugging_face, "transformers", EAGER, ""),
            ("nanoGPT-style compiled", nanogpt_style, "torch", OURS, "a different model"),
            ("its FLOPs in large products", products, "torch", OURS, "no training"),
        )
    ],
    targets=[
        Target("Hugging Face", at_least=1.1),
        Target("nanoGPT-style compiled", at_least=1.1),
        Target("Hugging Face, eager too", at_least=1.0),
        Target("Hugging Face", at_least=4 / 3, measure="peak_bytes", workload="batch 32 x 256"),
    ],
)
