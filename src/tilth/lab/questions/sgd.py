"""The smallest experiment on the learning rate: SGD on mean(w**2).

The minimum is at w = 0, and a step of SGD multiplies every entry of the 10 x 10 matrix w by
1 - lr / (50 sqrt(t + 1)). Too small a rate hardly moves, a larger one reaches 0 sooner, and one far
beyond 100 overshoots by more than it gains.

>>> losses = descend(lr=10.0)
>>> len(losses), losses[10] < losses[0] / 5
(11, True)
>>> print(curve({10.0: [25.0, 5.0, 1.0], 1000.0: [25.0, 9000.0, 2e6]}, height=5), end="")
 2.5e+04 |   b b
     791 |
      25 | * a
   0.791 |     a
   0.025 |
         +------
           0 1 2   step
a: lr 10   b: lr 1000   *: several
"""

import math
import string

import torch

from tilth.optim import SGD
from tilth.report.lab_file import Cell, Chart, Lab, Line, Table
from tilth.schema import Range, check_float, check_int

RATES = (1.0, 10.0, 100.0, 1000.0)
MAX_STEPS = 1_000_000
Losses = dict[float, list[float]]  # by learning rate


def descend(lr: float, steps: int = 10, seed: int = 0) -> list[float]:
    """Minimise mean(w**2) from w = 5 randn(10, 10) and return steps + 1 losses."""
    check_int("steps", steps, Range(at_least=1, at_most=MAX_STEPS))
    check_float("lr", lr, Range(at_most=1e30))
    check_int("seed", seed, Range(at_least=0, at_most=2**63 - 1))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.nn.Parameter(5.0 * torch.randn(10, 10, generator=generator))
    optimizer = SGD([weight], lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (weight**2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    return [*losses, (weight**2).mean().item()]


def as_text(losses: Losses) -> str:
    """Return a table of the losses of each learning rate, with the curve below it."""
    lines = ["step" + "".join(f"{f'lr {lr:g}':>12}" for lr in losses)]
    for step, row in enumerate(zip(*losses.values(), strict=True)):
        lines.append(f"{step:4}" + "".join(f"{loss:12.4g}" for loss in row))
    return "\n".join([*lines, "", curve(losses)])


def curve(losses: Losses, height: int = 13) -> str:
    """Draw the losses of each learning rate over the steps, on a logarithmic scale.

    It covers three powers of ten above and below the first loss. Values beyond stay at the edge: a
    divergent rate would squeeze all others into one line.
    """
    first = math.log10(next(iter(losses.values()))[0])
    row_decades = 6.0 / (height - 1)
    width = max(map(len, losses.values()))
    rows = [[" "] * width for _ in range(height)]
    marks = dict(zip(string.ascii_letters, losses, strict=False))
    for mark, lr in marks.items():
        for step, loss in enumerate(losses[lr]):
            decades = math.log10(loss) - first if loss > 0.0 else -3.0
            # A divergence ends in NaN, which is inf - inf.
            inside = 3.0 if math.isnan(loss) else min(max(decades, -3.0), 3.0)
            row = rows[round((inside + 3.0) / row_decades)]
            row[step] = mark if row[step] == " " else "*"
    lines = [
        f"{10 ** (first - 3.0 + number * row_decades):8.3g} | {' '.join(row)}".rstrip()
        for number, row in reversed(list(enumerate(rows)))
    ]
    names = "   ".join(f"{mark}: lr {lr:g}" for mark, lr in marks.items())
    axis = f"           {' '.join(str(step % 10) for step in range(width))}   step"
    return "\n".join([*lines, f"         +{'--' * width}", axis, f"{names}   *: several\n"])


def as_lab(losses: Losses) -> Lab:
    """Return the losses as a question with its answer, for a report."""
    if not losses:
        raise ValueError("there is no learning rate to compare; give one or more.")
    names = {lr: f"lr {lr:g}" for lr in losses}
    steps = len(next(iter(losses.values()))) - 1
    falling = {lr: line[-1] for lr, line in losses.items() if line[-1] < line[0]}  # NaN is not
    answer = f"No learning rate reduces the loss in {steps} steps."
    if falling:
        best = min(falling, key=lambda lr: (falling[lr], -lr))
        answer = f"After {steps} steps, the loss is lowest at {names[best]}: {falling[best]:.3g}."
    if growing := [names[lr] for lr in losses if lr not in falling]:
        answer += f" The loss grows at {', '.join(growing)}."
    lines = tuple(
        Line(names[lr], tuple((step, y) for step, y in enumerate(line) if 0 < y < math.inf))
        for lr, line in losses.items()
    )
    text = "On a falling straight line, every step reduces the loss by the same factor."
    chart = Chart("Loss over steps", "step", "mean(w**2)", lines, y_scale="log", text=text)
    rows: list[tuple[Cell, ...]] = [
        (step, *(f"{line[step]:.4g}" for line in losses.values())) for step in range(steps + 1)
    ]
    note = (
        "A step multiplies every entry of w by 1 - lr / (50 sqrt(t + 1)). The loss falls while "
        "this factor is between -1 and 1."
    )
    return Lab(
        "sgd",
        "What happens if the learning rate is too small or too large?",
        answer,
        charts=(chart,),
        tables=(Table("Losses", ("step", *names.values()), tuple(rows)),),
        notes=(note,),
    )
