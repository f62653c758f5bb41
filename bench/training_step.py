"""Speed of a whole training step, compared with Hugging Face's Llama and nanoGPT.

Forward, loss, backward, clipping to 1.0 and AdamW, two threads, deterministic algorithms; the
shapes of the recipes `tinystories` (22.7 million parameters, 111.7 MFLOP per token) and `small`
(width 96), 8,192 tokens per run, in float32 and, on a processor with bfloat16 instructions, in
bfloat16: peers then run under torch's autocast as well. Llama starts with the same weights, and the
answer is the loss after the last step. The nanoGPT-style model has GPT-2's blocks: the same width,
layers, heads and context length, d_ff four times the width (0.6% more FLOPs than ours), tied
embeddings. Peers use torch's fused AdamW, and the deterministic mode without its filling of fresh
memory (10% of Hugging Face's time). tilth calls `keep_freed_memory`; the peers use malloc's
defaults. "tilth compiled, float32" is the same step in float32: on a workload in float32 its ratio
is the noise of the measurement. The last row computes the FLOPs of a run as large matrix products:
its ratio is the utilisation.
Targets in float32: compiled at least 1.08 times as fast as the better peer (1.3 times nanoGPT at
the shape of `small`), 0.92 of the products; at batch 32 at most 2.2 GB. In bfloat16 at batch 32: at
least 1.75 times our float32 and 1.2 times the better peer.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Limit, Skipped, Target, Workload
from bench.workloads import write_once

VOCAB_SIZE, CONTEXT_LENGTH = 10_000, 256
SHAPES = {"22.7M": (512, 4, 16), "small": (96, 4, 3)}  # width, layers, heads
BATCHES = [("22.7M", 4), ("22.7M", 32), ("small", 4)]
SEQUENCES = 32  # per run
BETAS, LEARNING_RATE, MAX_NORM = (0.9, 0.95), 1e-3, 1.0
Step = Callable[[], Any]
Run = tuple[Step, int]


def prepare(folder: Path) -> dict[str, Workload]:
    """Store the shape, the sequences per batch and the precision, one file each."""
    from tilth.training.machine import cpu_has_bfloat16

    missing = Skipped("not measurable: the processor has no bfloat16 instructions")
    workloads: dict[str, Workload] = {}
    for dtype in ("float32", "bfloat16"):
        for shape, size in BATCHES:
            values = {"shape": SHAPES[shape], "size": size, "dtype": dtype}
            file = folder / f"{shape}_{size}_{dtype}.json"
            measurable = dtype == "float32" or cpu_has_bfloat16()
            workloads[workload_name(shape, size, dtype)] = (
                write_once(file, partial(json.dumps, values)) if measurable else missing
            )
    return workloads


def workload_name(shape: str, size: int, dtype: str) -> str:
    """Return the name of a workload."""
    return f"{shape}, batch {size} x {CONTEXT_LENGTH}, {dtype}"


def batch_of(file: Path) -> tuple[Any, Any, int]:
    """Return inputs, targets (the same for every step) and the number of steps."""
    import torch

    size = json.loads(file.read_text())["size"]
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCAB_SIZE, (size, CONTEXT_LENGTH + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), SEQUENCES // size


def config_of(file: Path) -> Any:  # noqa: ANN401, imported late
    """Return the shape of a workload."""
    from tilth.config import ModelConfig

    return ModelConfig(VOCAB_SIZE, CONTEXT_LENGTH, *json.loads(file.read_text())["shape"])


def dtype_of(file: Path) -> Any:  # noqa: ANN401, a literal
    """Return the precision of a workload."""
    return json.loads(file.read_text())["dtype"]


def make_model(file: Path) -> Any:  # noqa: ANN401, torch is imported late
    """Create tilth's model, the same for every contender."""
    import torch

    from tilth.model import TransformerLM

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(0)
    return TransformerLM(config_of(file))


def tilth(
    file: Path, sample: float, *, compiling: bool, fast: bool = True, wide: bool = False
) -> Run:
    """Set up the training step of `tilth train`; `wide` is float32 on every workload."""
    import torch

    from tilth.config.training import Dtype, ResolvedMachine
    from tilth.optim import AdamW
    from tilth.training.allocator import keep_freed_memory
    from tilth.training.step import accumulate_gradients, compiled, make_loss, update

    keep_freed_memory()
    model = make_model(file).use_fast_path(fast)
    dtype: Dtype = "float32" if wide else dtype_of(file)
    machine = ResolvedMachine(device="cpu", dtype=dtype, compile=compiling, threads=2)
    loss_of = make_loss(model, machine)
    if compiling:
        loss_of = compiled(loss_of, "cpu")
    optimizer = AdamW(model.parameters(), LEARNING_RATE, BETAS, weight_decay=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    x, y, steps = batch_of(file)

    def step() -> float:
        loss = accumulate_gradients(loss_of, x, y, len(x), scaler)
        update(optimizer, loss, LEARNING_RATE, MAX_NORM, scaler)
        return loss.item()

    return step, steps


def theirs(model: Any, loss_of: Callable[[Any, Any], Any], file: Path) -> Run:  # noqa: ANN401
    """Return a training step made of torch's optimizer, clipping and autocast."""
    import torch

    is_narrow = dtype_of(file) == "bfloat16"

    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, LEARNING_RATE, BETAS, weight_decay=0.1, fused=True)
    x, y, steps = batch_of(file)

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=is_narrow):
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

    model = make_model(file)
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

    model = NanoGPT(replace(make_model(file).config, tie_embeddings=True), bias=False)
    return theirs(model, torch.compile(model.loss), file)


def products(file: Path, sample: float) -> Run:
    """Set up the FLOPs of a run as products of large square matrices."""
    import torch

    from tilth.accounting.flops import training_flops

    size = 2048
    left, right, out = torch.ones(3, size, size, dtype=getattr(torch, dtype_of(file)))
    times = round(training_flops(config_of(file)) * SEQUENCES / (2 * size**3))
    return lambda: torch.mm(left, right, out=out), max(1, times)


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


OURS, EAGER, WIDE = "tilth compiled", "tilth eager", "tilth compiled, float32"
LLAMA, NANOGPT, PRODUCTS = "Hugging Face", "nanoGPT-style compiled", "its FLOPs in large products"
REFERENCE = [workload_name("22.7M", size, "float32") for size in (4, 32)]
NARROW = workload_name("22.7M", 32, "bfloat16")

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
            (WIDE, partial(tilth, compiling=True, wide=True), "tilth", OURS, ""),
            ("definition", partial(tilth, compiling=False, fast=False), "tilth", EAGER, ""),
            (LLAMA, hugging_face, "transformers", OURS, ""),
            ("Hugging Face, eager too", hugging_face, "transformers", EAGER, ""),
            (NANOGPT, nanogpt_style, "torch", OURS, "a different model"),
            (PRODUCTS, products, "torch", OURS, "no training"),
        )
    ],
    targets=[
        *(Target((LLAMA, NANOGPT), at_least=1.08, workload=each) for each in REFERENCE),
        *(Target(PRODUCTS, at_least=0.92, workload=each) for each in REFERENCE),
        Target("Hugging Face, eager too", at_least=1.0),
        Limit(OURS, at_most=2.2e9, workload=REFERENCE[-1]),
        Target(NANOGPT, at_least=1.3, workload=workload_name("small", 4, "float32")),
        Target(WIDE, at_least=1.75, workload=NARROW),
        Target((LLAMA, NANOGPT), at_least=1.2, workload=NARROW),
    ],
)
