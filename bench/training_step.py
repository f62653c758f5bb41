"""How fast a whole step of training is, beside Hugging Face's Llama and a nanoGPT-style model.

Forward, loss, backward, clipping to 1.0 and AdamW, float32, two threads, deterministic algorithms;
the shape of the `tinystories` recipe (22.7 million parameters, 111.7 MFLOP a token), 8,192 tokens a
run. Hugging Face's begins with the same weights, and the answer is the loss after the last step.
The nanoGPT-style model has GPT-2's blocks in their natural shape: the same width, layers, heads and
context, d_ff four times the width (0.6% more FLOPs than ours), and its output matrix tied. Peers
train with torch's own fused AdamW, and without what the deterministic mode does to find mistakes
(it fills fresh memory: 10% of Hugging Face's time). Ours calls `keep_freed_memory`, theirs have
malloc as it comes. The last row does the FLOPs of a run in large products alone: its ratio is the
utilisation.
Targets: compiled at least 1.1 times as fast as either peer, eager at least as fast as Hugging
Face; at batch 32 at most three quarters of Hugging Face's 3.6 GB.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import write_once

VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS = 10_000, 256, 512, 4, 16
SEQUENCES = 32  # of a run, in steps of some
BETAS, LEARNING_RATE, MAX_NORM = (0.9, 0.95), 1e-3, 1.0
Step = Callable[[], Any]
Run = tuple[Step, int]


def prepare(folder: Path) -> dict[str, Path]:
    """Name the batches; a file holds the number of sequences in one."""
    return {
        f"batch {size} x {CONTEXT_LENGTH}": write_once(
            folder / f"batch_{size}.json", partial(json.dumps, size)
        )
        for size in (4, 32)
    }


def batch_of(file: Path) -> tuple[Any, Any, int]:
    """Draw inputs and targets, the same for every step; also say how many steps a run has."""
    import torch

    size = json.loads(file.read_text())
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, VOCAB_SIZE, (size, CONTEXT_LENGTH + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), SEQUENCES // size


def make_model() -> Any:  # noqa: ANN401, torch is imported by its user alone
    """Make our model, the same for every contender."""
    import torch

    from tilth.config import ModelConfig
    from tilth.model import TransformerLM

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.manual_seed(0)
    return TransformerLM(ModelConfig(VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS))


def tilth(file: Path, sample: float, *, compiling: bool, fast: bool = True) -> Run:
    """Set up ours: what `tilth train` does in a step."""
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
    """Return a step as torch's own parts make it."""
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
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    model = make_model()
    config = model.config
    llama = LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(  # type: ignore[call-arg]
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            max_position_embeddings=config.context_length,
            rms_norm_eps=1e-5,
            attn_implementation="sdpa",
            use_cache=False,
        )
    )
    # Theirs turns (k, k + d/2) where ours turns (2k, 2k+1): the even rows of a head come first.
    order = torch.cat([torch.arange(0, config.d_head, 2), torch.arange(1, config.d_head, 2)])
    parameters = dict(llama.named_parameters())

    def copy(name: str, weight: Any) -> None:  # noqa: ANN401
        parameters[name].data.copy_(weight)

    copy("model.embed_tokens.weight", model.token_embeddings.weight)
    copy("lm_head.weight", model.lm_head.weight)
    for i, layer in enumerate(model.layers):  # the norms begin with ones on both sides
        for name in ("q_proj", "k_proj"):
            heads = getattr(layer.attn, name).weight.unflatten(0, (-1, config.d_head))
            copy(f"model.layers.{i}.self_attn.{name}.weight", heads[:, order].flatten(0, 1))
        copy(f"model.layers.{i}.self_attn.v_proj.weight", layer.attn.v_proj.weight)
        copy(f"model.layers.{i}.self_attn.o_proj.weight", layer.attn.output_proj.weight)
        for name, ours in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")):
            copy(f"model.layers.{i}.mlp.{name}.weight", getattr(layer.ffn, ours).weight)

    def loss_of(x: Any, y: Any) -> Any:  # noqa: ANN401
        # It shifts labels by itself; ours are shifted, and there is a next token for the last.
        logits = llama(input_ids=x).logits
        return llama.loss_function(logits, None, VOCAB_SIZE, shift_labels=y)

    return theirs(llama, loss_of, file)


def nanogpt_style(file: Path, sample: float) -> Run:
    """Set up GPT-2's blocks as nanoGPT has them: no biases, fused attention, the whole compiled."""
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

    make_model()  # for its settings

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1 = nn.LayerNorm(D_MODEL, bias=False)
            self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
            self.output = nn.Linear(D_MODEL, D_MODEL, bias=False)
            self.norm2 = nn.LayerNorm(D_MODEL, bias=False)
            self.up = nn.Linear(D_MODEL, 4 * D_MODEL, bias=False)
            self.down = nn.Linear(4 * D_MODEL, D_MODEL, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (
                each.unflatten(-1, (NUM_HEADS, -1)).transpose(1, 2)
                for each in self.qkv(self.norm1(x)).split(D_MODEL, dim=-1)
            )
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.output(mixed.transpose(1, 2).flatten(2))
            added: Tensor = self.down(functional.gelu(self.up(self.norm2(x))))
            return x + added

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCAB_SIZE, D_MODEL)
            self.positions = nn.Embedding(CONTEXT_LENGTH, D_MODEL)
            self.blocks = nn.ModuleList(Block() for _ in range(NUM_LAYERS))
            self.norm = nn.LayerNorm(D_MODEL, bias=False)
            for parameter in self.parameters():
                if parameter.ndim == 2:
                    nn.init.normal_(parameter, 0.0, 0.02)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            stream = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
            for block in self.blocks:
                stream = block(stream)
            logits = self.norm(stream) @ self.tokens.weight.T
            return functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    model = Model()
    return theirs(model, torch.compile(model), file)


def products(file: Path, sample: float) -> Run:
    """Set up as many FLOPs as a run of ours has, in products of large square matrices."""
    import torch

    from tilth.accounting.flops import training_flops
    from tilth.config import ModelConfig

    config = ModelConfig(VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS)
    size = 2048
    left, right, out = torch.ones(3, size, size)
    times = round(training_flops(config) * SEQUENCES / (2 * size**3))
    return lambda: torch.mm(left, right, out=out), times


def run(task: Run) -> object:
    """Do what is timed."""
    step, steps = task
    outcome = None
    for _ in range(steps):
        outcome = step()
    return outcome


def rounded(loss: float) -> str:
    """Keep the digits that survive some steps in another order of operations."""
    return f"{loss:.2g}"


OURS, EAGER = "tilth compiled", "tilth eager"

BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(SEQUENCES * CONTEXT_LENGTH),
    unit="tokens",
    contenders=[
        Contender(OURS, partial(tilth, compiling=True), run, rounded, "tilth", warmup=1),
        Contender(EAGER, partial(tilth, compiling=False), run, rounded, "tilth", warmup=1),
        Contender(
            "definition",
            partial(tilth, compiling=False, fast=False),
            run,
            rounded,
            "tilth",
            EAGER,
            warmup=1,
        ),
        Contender("Hugging Face", hugging_face, run, rounded, "transformers", OURS, warmup=1),
        Contender(
            "Hugging Face, eager too", hugging_face, run, rounded, "transformers", EAGER, warmup=1
        ),
        Contender(
            "nanoGPT-style compiled",
            nanogpt_style,
            run,
            rounded,
            "torch",
            OURS,
            warmup=1,
            incomparable="another model",
        ),
        Contender(
            "its FLOPs in large products",
            products,
            run,
            lambda out: None,
            "torch",
            OURS,
            warmup=1,
            incomparable="it learns nothing",
        ),
    ],
    targets=[
        Target("Hugging Face", at_least=1.1),
        Target("nanoGPT-style compiled", at_least=1.1),
        Target("Hugging Face, eager too", at_least=1.0),
        Target("Hugging Face", at_least=4 / 3, measure="peak_bytes", workload="batch 32 x 256"),
    ],
)
