"""How fast the model is, forward and backward, beside Hugging Face's Llama with the same weights.

The shape of the `tinystories` recipe (22.7 million parameters), float32, two threads, deterministic
algorithms; the answer is the loss. Target: eager at least as fast as Hugging Face eager, compiled
at least 1.1 times; what the definition costs, matrix by matrix, is shown beside them.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import write_once

VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS = 10_000, 256, 512, 4, 16
Step = Callable[[], Any]


def prepare(folder: Path) -> dict[str, Path]:
    """Name the batches; a file holds the number of sequences."""
    return {
        f"batch {size} x {CONTEXT_LENGTH}": write_once(
            folder / f"batch_{size}.json", partial(json.dumps, size)
        )
        for size in (4, 32)
    }


def tokens(file: Path) -> float:
    """Measure the work in tokens."""
    return float(json.loads(file.read_text()) * CONTEXT_LENGTH)


def make_model() -> Any:  # noqa: ANN401, torch is imported by its user alone
    """Make our model, the same for every contender."""
    import torch

    from tilth.model import ModelConfig, TransformerLM

    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    return TransformerLM(ModelConfig(VOCAB_SIZE, CONTEXT_LENGTH, D_MODEL, NUM_LAYERS, NUM_HEADS))


def step_of(logits_of: Callable[[Any], Any], file: Path) -> Step:
    """Return what is timed: one loss and all its gradients."""
    import torch

    generator = torch.Generator().manual_seed(1)
    shape = (json.loads(file.read_text()), CONTEXT_LENGTH + 1)
    ids = torch.randint(0, VOCAB_SIZE, shape, generator=generator)

    def step() -> object:
        logits = logits_of(ids[:, :-1]).flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return step


def definition(file: Path, sample: float) -> Step:
    """Set up the definitions."""
    return step_of(make_model().use_fast_path(False), file)


def fast(file: Path, sample: float) -> Step:
    """Set up the fast path."""
    return step_of(make_model(), file)


def compiled(file: Path, sample: float) -> Step:
    """Set up the fast path, compiled; compiling is not timed."""
    import torch

    return step_of(torch.compile(make_model(), fullgraph=True), file)


def hugging_face(file: Path, sample: float) -> Step:
    """Set up Hugging Face's Llama with our weights."""
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
    theirs = dict(llama.named_parameters())

    def copy(name: str, weight: Any) -> None:  # noqa: ANN401
        theirs[name].data.copy_(weight)

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
    return step_of(lambda ids: llama(input_ids=ids).logits, file)


def run(step: Step) -> object:
    """Do what is timed."""
    return step()


def rounded(loss: Any) -> float:  # noqa: ANN401
    """Round to what float32 promises."""
    return round(float(loss), 4)


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=tokens,
    unit="tokens",
    contenders=[
        Contender("tilth compiled", compiled, run, rounded, package="tilth", warmup=2),
        Contender("tilth eager", fast, run, rounded, package="tilth", warmup=1),
        Contender("definition", definition, run, rounded, against="tilth eager", warmup=1),
        Contender(
            "Hugging Face",
            hugging_face,
            run,
            rounded,
            package="transformers",
            against="tilth compiled",
            warmup=1,
        ),
        Contender(
            "Hugging Face, eager too",
            hugging_face,
            run,
            rounded,
            package="transformers",
            against="tilth eager",
            warmup=1,
        ),
    ],
    targets=[
        Target("Hugging Face", at_least=1.1),
        Target("Hugging Face, eager too", at_least=1.0),
    ],
)
