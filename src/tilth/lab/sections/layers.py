"""Section 5, first part: every layer and every tool of training, compared with PyTorch."""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tilth.accounting import count_parameters
from tilth.config.model import ModelConfig
from tilth.data import get_batch
from tilth.lab.sections.section import Made, Setting, own_command
from tilth.model import (
    Embedding,
    Linear,
    MultiHeadSelfAttention,
    RMSNorm,
    RotaryPositionalEmbedding,
    SwiGLU,
    TransformerBlock,
    TransformerLM,
    cross_entropy,
    scaled_dot_product_attention,
    silu,
    softmax,
)
from tilth.optim import AdamW, clip_gradients, cosine_schedule
from tilth.report.lab_file import Lab, Table
from tilth.runs import load_checkpoint, save_checkpoint

ROWS, SEQ, WIDTH, HEADS, D_FF, VOCAB = 3, 12, 32, 4, 64, 100
STEPS = 10
TOLERANCE = 1e-4  # float32 sums in another order; a wrong formula differs by more than 0.01


@dataclass(frozen=True)
class _Check:
    """A problem of the handout, its reference, and the largest difference from it."""

    problem: str
    reference: str
    compare: Callable[[], tuple[Tensor, Tensor]]
    """Return our result and that of the reference."""


def _x(*shape: int) -> Tensor:
    return torch.randn(*(shape or (ROWS, SEQ, WIDTH)))


def _linear() -> tuple[Tensor, Tensor]:
    layer, x = Linear(WIDTH, D_FF), _x()
    return layer(x), functional.linear(x, layer.weight)


def _embedding() -> tuple[Tensor, Tensor]:
    layer, ids = Embedding(VOCAB, WIDTH), torch.randint(VOCAB, (ROWS, SEQ))
    return layer(ids), functional.embedding(ids, layer.weight)


def _rmsnorm() -> tuple[Tensor, Tensor]:
    layer, x = RMSNorm(WIDTH), _x()
    torch.nn.init.normal_(layer.weight)
    return layer(x), functional.rms_norm(x, (WIDTH,), layer.weight, layer.eps)


def _swiglu() -> tuple[Tensor, Tensor]:
    layer, x = SwiGLU(WIDTH, D_FF), _x()
    gate = functional.silu(functional.linear(x, layer.w1.weight))
    product = gate * functional.linear(x, layer.w3.weight)
    return layer(x), functional.linear(product, layer.w2.weight)


def _silu() -> tuple[Tensor, Tensor]:
    x = _x()
    return silu(x), functional.silu(x)


def _rope() -> tuple[Tensor, Tensor]:
    theta, x = 10_000.0, _x()
    frequencies = theta ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
    angles = torch.outer(torch.arange(SEQ, dtype=torch.float64), frequencies)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.double().reshape(ROWS, SEQ, -1, 2))
    rotated = torch.view_as_real(pairs * turns).flatten(-2)
    return RotaryPositionalEmbedding(theta, WIDTH, SEQ)(x), rotated.float()


def _softmax() -> tuple[Tensor, Tensor]:
    x = 1000 * _x()  # overflows without the maximum
    return softmax(x, -1), torch.softmax(x, -1)


def _causal() -> Tensor:
    return torch.ones(SEQ, SEQ, dtype=torch.bool).tril()


def _attention() -> tuple[Tensor, Tensor]:
    q, k, v = _x(), _x(), _x()
    ours = scaled_dot_product_attention(q, k, v, _causal())
    return ours, functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _multihead() -> tuple[Tensor, Tensor]:
    layer, x = MultiHeadSelfAttention(WIDTH, HEADS), _x()
    projections: list[Tensor] = [layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]
    peer = torch.nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat(projections))
        peer.out_proj.weight.copy_(layer.output_proj.weight)
    return layer(x), peer(x, x, x, attn_mask=~_causal(), need_weights=False)[0]


def _config() -> ModelConfig:
    return ModelConfig(VOCAB, SEQ, WIDTH, 2, HEADS, d_ff=D_FF)


def _block() -> tuple[Tensor, Tensor]:
    block, x = TransformerBlock(_config()), _x()

    def norm(y: Tensor, layer: Any) -> Tensor:  # noqa: ANN401, a union with Identity
        return functional.rms_norm(y, (WIDTH,), layer.weight, layer.eps)

    y = x + block.attn(norm(x, block.ln1))
    return block(x), y + block.ffn(norm(y, block.ln2))


def _model() -> tuple[Tensor, Tensor]:
    """Compare logits with those of a longer text: they depend on earlier tokens only."""
    model, ids = TransformerLM(_config()), torch.randint(VOCAB, (ROWS, SEQ))
    changed = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % VOCAB], 1)
    return model(ids)[:, :-1], model(changed)[:, :-1]


def _cross_entropy() -> tuple[Tensor, Tensor]:
    logits, targets = 100 * _x(ROWS, VOCAB), torch.randint(VOCAB, (ROWS,))
    return cross_entropy(logits, targets), functional.cross_entropy(logits, targets)


def _adamw() -> tuple[Tensor, Tensor]:
    start, gradients = _x(), [_x() for _ in range(STEPS)]
    ended = []
    kinds: tuple[Any, ...] = (AdamW, torch.optim.AdamW)
    for kind in kinds:
        weight = torch.nn.Parameter(start.clone())
        optimizer = kind([weight], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        for gradient in gradients:
            weight.grad = gradient.clone()
            optimizer.step()
        ended.append(weight.detach())
    return ended[0], ended[1]


def _schedule() -> tuple[Tensor, Tensor]:
    """Compare with the formula of the handout: 1e-2 to 1e-3, 7 steps of warm-up, cosine to 21."""

    def rate(t: int) -> float:
        if t < 7:
            return t / 7 * 1e-2
        return 1e-3 + 0.5 * (1 + math.cos((min(t, 21) - 7) / (21 - 7) * math.pi)) * 9e-3

    steps = range(25)
    ours = [cosine_schedule(step, 1e-2, 1e-3, 7, 21) for step in steps]
    return torch.tensor(ours), torch.tensor([rate(step) for step in steps])


def _clipping() -> tuple[Tensor, Tensor]:
    clipped = []
    gradients = [_x(), _x()]
    for clip in (clip_gradients, torch.nn.utils.clip_grad_norm_):
        weights = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient.clone()
        clip(weights, 1.0)
        clipped.append(torch.cat([weight.grad for weight in weights if weight.grad is not None]))
    return clipped[0], clipped[1]


def _loading() -> tuple[Tensor, Tensor]:
    """Compare the targets with the next tokens of the inputs."""
    x, y = get_batch(torch.arange(1000).numpy(), ROWS, SEQ)
    return y.float(), x.float() + 1


def _checkpointing() -> tuple[Tensor, Tensor]:
    model, file = TransformerLM(_config()), io.BytesIO()
    save_checkpoint(model, None, 7, file)
    file.seek(0)
    other = TransformerLM(_config())
    iteration = load_checkpoint(file, other)
    ids = torch.randint(VOCAB, (ROWS, SEQ))
    return model(ids) + 7, other(ids) + iteration


CHECKS = (
    _Check("linear", "torch.nn.functional.linear", _linear),
    _Check("embedding", "torch.nn.functional.embedding", _embedding),
    _Check("rmsnorm", "torch.nn.functional.rms_norm", _rmsnorm),
    _Check("positionwise_feedforward", "linear and silu of torch.nn.functional", _swiglu),
    _Check("positionwise_feedforward", "torch.nn.functional.silu", _silu),
    _Check("rope", "products of complex numbers in float64", _rope),
    _Check("softmax", "torch.softmax, inputs of 1,000", _softmax),
    _Check("scaled_dot_product_attention", "the same of torch.nn.functional", _attention),
    _Check("multihead_self_attention", "torch.nn.MultiheadAttention, without RoPE", _multihead),
    _Check("transformer_block", "its formula with torch's norm", _block),
    _Check("transformer_lm", "itself with another last token: causality", _model),
    _Check("cross_entropy", "torch.nn.functional.cross_entropy, logits of 100", _cross_entropy),
    _Check("adamw", f"torch.optim.AdamW, {STEPS} steps", _adamw),
    _Check("learning_rate_schedule", "the formula of the handout", _schedule),
    _Check("gradient_clipping", "torch.nn.utils.clip_grad_norm_", _clipping),
    _Check("data_loading", "targets: the next tokens of the inputs", _loading),
    _Check("checkpointing", "the logits and the step before saving", _checkpointing),
)


def differences() -> list[tuple[str, str, float]]:
    """Return problem, reference and largest difference of every comparison."""
    found = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for check in CHECKS:
            ours, expected = check.compare()
            if ours.shape != expected.shape:
                raise RuntimeError(f"{check.problem}: {ours.shape} is not {expected.shape}.")
            found.append((check.problem, check.reference, float((ours - expected).abs().max())))
    return found


def made(setting: Setting) -> Made:
    """Compare every layer and tool with its reference."""
    found = differences()
    with torch.random.fork_rng(devices=[]):
        model = TransformerLM(_config())
    worst = max(difference for _, _, difference in found)
    counted, allocated = (
        count_parameters(_config()).total,
        sum(p.numel() for p in model.parameters()),
    )
    verdict = "all agree" if worst <= TOLERANCE else "NOT all agree"
    answer = (
        f"{len(found)} comparisons with independent results: {verdict} within {TOLERANCE:g} (the "
        f"largest difference is {worst:.1e}). The model has {allocated:,} parameters, and the "
        f"accounting counts {counted:,}."
    )
    rows = tuple((problem, reference, f"{gap:.1e}") for problem, reference, gap in found)
    table = Table("Comparisons", ("problem", "reference", "largest difference"), rows)
    lab = Lab("layers", "", answer, own_command(setting, "accounting"), tables=(table,))
    return Made.of(lab, "layers", rows=ROWS, seq=SEQ, width=WIDTH)
