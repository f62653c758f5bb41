"""Draw the figures of docs/model.md, each computed by the layer that it shows.

.venv/bin/python scripts/draw_model.py
"""

import math
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

import tilth
from tilth.config.model import Norm
from tilth.model.layers import silu

OUT = Path(__file__).parents[1] / "docs" / "pictures"
BLUE, ORANGE, GREY = "#1f6fb2", "#d9822b", "#8a94a0"
FIGURES: list[Callable[[], None]] = []


def figure(draw: Callable[[], None]) -> Callable[[], None]:
    """Add a function whose name is that of its file."""
    FIGURES.append(draw)
    return draw


def panels(*titles: str) -> list[Axes]:
    """Return a row of axes with these titles."""
    _, axes = plt.subplots(1, len(titles), figsize=(3.6 * len(titles), 2.7), layout="constrained")
    row = list(axes) if len(titles) > 1 else [axes]
    for axis, title in zip(row, titles, strict=True):
        axis.set_title(title)
    return row


def grid(axis: Axes, values: torch.Tensor, x: str, y: str, **options: float) -> None:
    """Draw a matrix as colours."""
    image = axis.imshow(values.detach().numpy(), aspect="auto", cmap="Blues")
    image.set_clim(**options)
    axis.set(xlabel=x, ylabel=y)
    plt.colorbar(image, ax=axis)


@figure
def model_linear() -> None:
    """The initial weights of one layer."""
    (axis,) = panels("initial weights of Linear(256, 768)")
    linear = tilth.Linear(256, 768)
    std = math.sqrt(2 / (256 + 768))
    axis.hist(linear.weight.detach().flatten().numpy(), 80, density=True, color=BLUE, alpha=0.5)
    points = torch.linspace(-4 * std, 4 * std, 300)
    density = (-0.5 * (points / std) ** 2).exp() / (std * math.sqrt(2 * math.pi))
    axis.plot(points, density, color=ORANGE, label="normal, variance 2 / (in + out)")
    for side in (-3, 3):
        axis.axvline(side * std, color=GREY, linestyle=":")
    axis.set(xlabel="weight; dotted: 3 standard deviations", yticks=[])
    axis.legend(loc="upper center", fontsize=7)
    axis.set_ylim(top=1.25 * float(density.max()))


@figure
def model_embedding() -> None:
    """Rows of the matrix that ids choose."""
    left, right = panels("embedding matrix E", "E[ids], ids = 7, 2, 7, 11")
    embedding = tilth.Embedding(16, 12)
    ids = torch.tensor([7, 2, 7, 11])
    limits = {"vmin": -3, "vmax": 3}
    grid(left, embedding.weight, "dimension", "token id", **limits)
    for token_id in set(ids.tolist()):
        left.axhline(token_id, color=ORANGE, linewidth=1)
    grid(right, embedding(ids), "dimension", "position", **limits)
    right.set_yticks(range(4), ["7", "2", "7", "11"])


@figure
def model_rmsnorm() -> None:
    """Inputs of several scales, and what the norm makes of them."""
    left, right = panels("inputs, one direction", "after RMSNorm")
    norm = tilth.RMSNorm(8)
    x = torch.randn(8)
    for scale, colour in ((0.25, GREY), (1.0, BLUE), (4.0, ORANGE)):
        left.plot(scale * x, "o-", color=colour, label=f"scale {scale:g}")
        width = {0.25: 6, 1.0: 3, 4.0: 1}[scale]  # the lines coincide
        right.plot(norm(scale * x).detach(), "o-", color=colour, linewidth=width)
    left.legend(fontsize=7)
    for axis in (left, right):
        axis.set(xlabel="dimension")


@figure
def model_swiglu() -> None:
    """The activation, and the product of gate and value."""
    left, right = panels("silu(z) = z σ(z)", "silu(w1·x) × (w3·x)")
    z = torch.linspace(-6, 6, 200)
    left.plot(z, silu(z), color=BLUE, label="silu")
    left.plot(z, z.relu(), color=GREY, linestyle=":", label="ReLU")
    left.set(xlabel="z")
    left.legend(fontsize=7)
    values = silu(z)[None, :] * z[:, None]
    image = right.imshow(values, origin="lower", extent=(-6, 6, -6, 6), cmap="RdBu", aspect="auto")
    right.set(xlabel="w1·x, the gate", ylabel="w3·x, the value")
    plt.colorbar(image, ax=right)


@figure
def model_softmax() -> None:
    """Why scores are scaled: products of wide heads saturate the softmax."""
    left, right = panels("largest softmax weight, 32 keys", "softmax and its maximum")
    widths = [4, 8, 16, 32, 64, 128, 256]
    for scaled, colour, label in ((False, ORANGE, "q·k"), (True, BLUE, "q·k / √d_k")):
        largest = []
        for width in widths:
            scores = torch.einsum(
                "nd,nkd->nk", torch.randn(500, width), torch.randn(500, 32, width)
            )
            scores = scores / math.sqrt(width) if scaled else scores
            largest.append(float(tilth.softmax(scores, -1).amax(-1).mean()))
        left.plot(widths, largest, "o-", color=colour, label=label)
    left.set_xscale("log", base=2)
    left.set(xlabel="width of a head", ylim=(0, 1))
    left.legend(fontsize=7)
    shifts = torch.linspace(0, 120, 100)
    scores = torch.stack([shifts, shifts + 1])
    right.plot(shifts, tilth.softmax(scores, 0)[1], color=BLUE, label="minus the maximum")
    naive = scores.exp() / scores.exp().sum(0)
    right.plot(shifts, naive[1], color=ORANGE, linestyle="--", label="without: NaN from 88")
    right.set(xlabel="o, of softmax(o, o + 1)", ylabel="second value", ylim=(0.7, 0.76))
    right.legend(fontsize=7)


@figure
def model_rope() -> None:
    """The rotations, and a product that depends on the distance only."""
    left, right = panels("cosine of the angle", "q·k, rotated to positions i and j")
    positions, width = 64, 32
    rope = tilth.RotaryPositionalEmbedding(theta=10_000.0, d_k=width, max_seq_len=positions)
    one = torch.zeros(positions, width)
    one[:, ::2] = 1.0
    grid(left, rope(one, torch.arange(positions))[:, ::2], "pair k", "position i")
    q, k = torch.ones(1, width), torch.ones(1, width)
    for first, colour, line in ((0, BLUE, "-"), (20, ORANGE, "--")):
        distances = range(32)
        rotated = rope(q, torch.tensor([first]))
        products = [float((rope(k, torch.tensor([first + n])) * rotated).sum()) for n in distances]
        right.plot(distances, products, line, color=colour, label=f"i = {first}")
    right.set(xlabel="distance j - i")
    right.legend(fontsize=7)


@figure
def model_attention() -> None:
    """The mask, the weights, and the row sums."""
    left, right = panels("mask: True where a query may attend", "weights: each row sums to 1")
    length, width = 12, 16
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    q, k = torch.randn(length, width), torch.randn(length, width)
    # Values that are the unit matrix give the weights.
    weights = tilth.scaled_dot_product_attention(q, k, torch.eye(length), causal)
    grid(left, causal.float(), "key j", "query i")
    grid(right, weights, "key j", "query i", vmin=0, vmax=1)


@figure
def model_heads() -> None:
    """A projection of 4 positions, split into 2 heads of width 3, rightly and wrongly."""
    left, middle, right = panels("(seq, d)", "head 0: view, transpose", "head 0: view alone")
    labels = torch.arange(4)[:, None].expand(4, 6).float()  # each value is its position
    limits = {"vmin": 0, "vmax": 4}
    grid(left, labels, "dimension", "position", **limits)
    left.axvline(2.5, color=ORANGE)
    grid(
        middle, labels.reshape(4, 2, 3).transpose(0, 1)[0], "dimension of the head", "row", **limits
    )
    grid(right, labels.reshape(2, 4, 3)[0], "dimension of the head", "row", **limits)
    for axis in (left, middle, right):
        axis.set_yticks(range(4))


def root_mean_square(x: torch.Tensor) -> float:
    """Return it over all values."""
    return float(x.detach().pow(2).mean().sqrt())


@figure
def model_block() -> None:
    """Why the place of the norm matters: the residual stream of new models by depth."""
    (axis,) = panels("root mean square of the residual stream")
    ids = torch.randint(1000, (4, 64))
    places: dict[Norm, str] = {"pre": BLUE, "post": GREY, "none": ORANGE}
    for norm, colour in places.items():
        config = tilth.ModelConfig(
            1000, context_length=64, d_model=128, num_layers=6, num_heads=4, norm=norm
        )
        torch.manual_seed(0)
        model = tilth.TransformerLM(config)
        x = model.token_embeddings(ids)
        norms = [root_mean_square(x)]
        for layer in model.layers:
            x = layer(x)
            norms.append(root_mean_square(x))
        axis.plot(range(len(norms)), norms, "o-", color=colour, label=f'norm = "{norm}"')
    axis.set(xlabel="after layer (0: embedding)", yscale="log")
    axis.legend(fontsize=7)


def main() -> None:
    """Draw all figures."""
    mpl.use("svg")
    mpl.rcParams.update(
        {"svg.hashsalt": "tilth", "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9}
    )
    for draw in FIGURES:
        torch.manual_seed(0)
        draw()
        path = OUT / f"{draw.__name__}.svg"
        plt.savefig(path, metadata={"Date": None, "Creator": None})
        plt.close()
        print(path.relative_to(OUT.parents[1]))


if __name__ == "__main__":
    main()
