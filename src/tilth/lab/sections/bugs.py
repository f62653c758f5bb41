"""Section 5, last part: the bugs that the write-ups remember, each made again and measured."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tilth.lab.sections.section import Made, Setting, own_command
from tilth.model import MultiHeadSelfAttention, RotaryPositionalEmbedding
from tilth.optim import clip_gradients
from tilth.report.lab_file import Lab, Table
from tilth.tokenizer import Tokenizer

SEQ, WIDTH, HEADS, THETA = 12, 32, 4, 10_000.0
END = "<|endoftext|>"
SPECIALS = (END, END + END)


@dataclass(frozen=True)
class Bug:
    """A bug, what it changes, and its value without and with the bug."""

    author: str
    problem: str
    bug: str
    quantity: str
    measure: Callable[[], tuple[float, float]]


def _tokenizer() -> Tokenizer:
    """Return a tokenizer of bytes with overlapping special tokens."""
    return Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=SPECIALS)


def _overlapping() -> tuple[float, float]:
    unsorted = re.compile("|".join(map(re.escape, SPECIALS)))  # the first alternative wins
    return len(_tokenizer().encode(END + END)), len(unsorted.findall(END + END))


def _ordinary() -> tuple[float, float]:
    tokenizer = _tokenizer()
    return len(tokenizer.encode(END)), len(tokenizer.encode_ordinary(END))


def _positions() -> tuple[float, float]:
    """Measure how far the last output moves when the tokens before it are reversed."""
    x = torch.randn(1, SEQ, WIDTH)
    order = [*reversed(range(SEQ - 1)), SEQ - 1]
    rope = RotaryPositionalEmbedding(THETA, WIDTH // HEADS, SEQ)
    moved = []
    for each in (rope, None):
        attention = MultiHeadSelfAttention(WIDTH, HEADS, rope=each)
        change = attention(x)[:, -1] - attention(x[:, order])[:, -1]
        moved.append(float(change.abs().max()))
    return moved[0], moved[1]


def _clipping() -> tuple[float, float]:
    """Compare the ratio of two gradients, 100 before clipping."""
    gradients = [100 * torch.ones(1), torch.ones(1)]
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in gradients]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    clip_gradients(weights, 1.0)
    large, small = (float(w.grad) for w in weights if w.grad is not None)
    each = [float(gradient / gradient.norm().clamp(min=1.0)) for gradient in gradients]
    return large / small, each[0] / each[1]


def _rope() -> tuple[float, float]:
    """Measure the distance from products of complex numbers, k from 0 and from 1."""

    def rotated(first: int) -> Tensor:
        k = torch.arange(first, first + WIDTH // 2, dtype=torch.float64)
        angles = torch.outer(torch.arange(SEQ, dtype=torch.float64), THETA ** (-2 * k / WIDTH))
        pairs = torch.view_as_complex(x.double().reshape(SEQ, -1, 2))
        turned = pairs * torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(turned).flatten(-2).float()

    x = torch.randn(SEQ, WIDTH)
    ours = RotaryPositionalEmbedding(THETA, WIDTH, SEQ)(x)
    near, far = (float((ours - rotated(first)).abs().max()) for first in (0, 1))
    return near, far


BUGS = (
    Bug(
        "C",
        "tokenizer",
        "special tokens are searched in the order given, not the longest first",
        f"tokens of {END + END}, a special token like {END}",
        _overlapping,
    ),
    Bug(
        "D",
        "tokenizer",
        "the text is split into pieces before special tokens are taken out",
        f"tokens of {END}, without merges",
        _ordinary,
    ),
    Bug(
        "D",
        "transformer_block",
        "token positions do not reach the attention inside the block",
        "change of the last output when the tokens before it are reversed",
        _positions,
    ),
    Bug(
        "D",
        "gradient_clipping",
        "each gradient is clipped by its own norm, not by the global one",
        "ratio of two gradients, 100 before clipping",
        _clipping,
    ),
    Bug(
        "E",
        "rope",
        "k runs from 1 to d/2, not from 0 to d/2 - 1",
        "largest distance from the rotation of tilth",
        _rope,
    ),
)


def measured() -> list[tuple[Bug, float, float]]:
    """Return every bug with the value without it and with it."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return [(bug, *bug.measure()) for bug in BUGS]


def made(setting: Setting) -> Made:
    """Make each bug again."""
    found = measured()
    rows = tuple(
        (bug.author, bug.problem, bug.bug, bug.quantity, f"{right:.3g}", f"{wrong:.3g}")
        for bug, right, wrong in found
    )
    columns = ("write-up", "problem", "bug", "measured", "without the bug", "with it")
    answer = (
        f"{sum(right != wrong for _, right, wrong in found)} of {len(found)} bugs change a result "
        "without an error: only a comparison of numbers shows them."
    )
    table = Table("Bugs that the write-ups remember", columns, rows)
    lab = Lab("bugs", "", answer, own_command(setting, "accounting"), tables=(table,))
    return Made.of(lab, "bugs", seq=SEQ, width=WIDTH)
