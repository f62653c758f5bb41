"""Time of an optimizer step at 22.7M parameters, compared with torch's optimizers.

Two threads; the parameters of the `tinystories` model with constant random gradients. The answers
are the updated values. torch's Muon is left out: it uses bfloat16 on every device, which takes 76 s
per step on a CPU without bfloat16 instructions.
Target: AdamW takes at most 1.1 times the time of torch's fused AdamW.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.declaration import Benchmark, Contender, Target
from bench.workloads import write_once

if TYPE_CHECKING:
    from torch.nn import Parameter
    from torch.optim import Optimizer

STEPS = 5
Task = tuple["Optimizer", int]
Setup = Callable[[Path, float], Task]
OPTIONS: dict[str, Any] = {"lr": 1e-3, "weight_decay": 0.1}


def prepare(folder: Path) -> dict[str, Path]:
    """Store the number of steps; each process draws the parameters."""
    file = write_once(folder / "steps.txt", lambda: str(STEPS))
    return {"vocabulary 10,000, width 512, 4 layers": file}


def tinystories_parameters() -> "tuple[list[Parameter], list[Parameter]]":
    """Draw the hidden matrices, and the other parameters, each with a gradient."""
    import torch
    from torch.nn import Parameter

    torch.manual_seed(0)
    square, wide = (512, 512), (1344, 512)
    hidden = [square, square, square, square, wide, wide[::-1], wide] * 4
    rest = [(10_000, 512), *[(512,)] * 9, (10_000, 512)]
    parameters = []
    for shapes in (hidden, rest):
        parameters.append([Parameter(torch.randn(shape)) for shape in shapes])
        for parameter in parameters[-1]:
            parameter.grad = torch.randn_like(parameter)
    return parameters[0], parameters[1]


def adamw(make: Callable[..., Any]) -> Setup:
    """Set up an AdamW; `make` receives the parameters and options."""

    def setup(file: Path, sample: float) -> Task:
        hidden, rest = tinystories_parameters()
        return make([*hidden, *rest], **OPTIONS), round(STEPS * sample)

    return setup


def tilth_adamw(parameters: Any, **options: Any) -> Any:  # noqa: ANN401
    """Create tilth's AdamW."""
    from tilth.optim import AdamW

    return AdamW(parameters, **options)


def torch_adamw(parameters: Any, **options: Any) -> Any:  # noqa: ANN401
    """Create torch's AdamW."""
    from torch.optim import AdamW

    return AdamW(parameters, **options)


def tilth_muon(fused: bool | None) -> Setup:
    """Set up tilth's Muon, with AdamW for the other parameters."""

    def setup(file: Path, sample: float) -> Task:
        from tilth.optim import Muon

        hidden, rest = tinystories_parameters()
        groups: list[dict[str, Any]] = [{"params": hidden}, {"params": rest, "kind": "adamw"}]
        return Muon(groups, **OPTIONS, fused=fused), round(STEPS * sample)

    return setup


def run(task: Task) -> "Optimizer":
    """Take the steps."""
    optimizer, steps = task
    for _ in range(steps):
        optimizer.step()
    return optimizer


def mean_sizes(optimizer: "Optimizer") -> list[float]:
    """Return the mean absolute values of some parameters, rounded to five digits."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [round(float(p.detach().double().abs().mean()), 5) for p in parameters[:5]]


def peer(name: str, setup: Setup, package: str, against: str, warmup: int = 0) -> Contender:
    """Declare a contender that is compared with another."""
    return Contender(name, setup, run, mean_sizes, package, against, warmup=warmup)


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=lambda file: float(file.read_text()),
    unit="steps",
    contenders=[
        Contender("tilth AdamW", adamw(tilth_adamw), run, mean_sizes, "tilth", warmup=1),
        *(
            peer(name, adamw(partial(make, **{option: value})), package, "tilth AdamW", warmup=1)
            for name, make, option, value, package in (
                ("torch AdamW, fused", torch_adamw, "fused", True, "torch"),
                ("torch AdamW, foreach", torch_adamw, "foreach", True, "torch"),
                ("tilth AdamW, the definition", tilth_adamw, "fused", False, "tilth"),
            )
        ),
        Contender("tilth Muon", tilth_muon(None), run, mean_sizes, "tilth"),
        peer("tilth Muon, the definition", tilth_muon(False), "tilth", "tilth Muon"),
    ],
    targets=[Target("torch AdamW, fused", at_least=1 / 1.1)],
)
