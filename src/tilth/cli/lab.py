"""`tilth lab`: experiments that explain training."""

import json as json_module
import math
from typing import Annotated

from cyclopts import App, Parameter

app = App(name="lab", help="Experiments that explain training.")


@app.command
def sgd(
    *,
    lr: Annotated[
        list[float], Parameter(name="--lr", negative=(), help="A learning rate; may come again.")
    ] = [1.0, 10.0, 100.0, 1000.0],  # noqa: B006, cyclopts copies it
    steps: Annotated[int, Parameter(help="How many steps to take.")] = 10,
    seed: Annotated[int, Parameter(help="Which random matrix to begin from.")] = 0,
    json: Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")] = False,
) -> None:
    """SGD on mean(w**2), from w = 5 randn(10, 10): what a learning rate that is too large does."""
    from tilth.lab.sgd import curve, descend

    losses = {rate: descend(rate, steps, seed) for rate in lr}
    if json:
        # JSON has no infinity: a loss beyond float32 is null.
        rows = [
            {"lr": rate, "losses": [loss if math.isfinite(loss) else None for loss in line]}
            for rate, line in losses.items()
        ]
        print(json_module.dumps({"steps": steps, "seed": seed, "runs": rows}))
        return
    print("step" + "".join(f"{f'lr {rate:g}':>12}" for rate in losses))
    for step in range(steps + 1):
        print(f"{step:4}" + "".join(f"{line[step]:12.4g}" for line in losses.values()))
    print(f"\n{curve(losses)}", end="")
