"""`tilth account`: the parameters, FLOPs, memory and hours of a model, before training."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from tilth.cli.options import Json
from tilth.cli.output import print_json
from tilth.cli.overrides import changes, overrides_of
from tilth.config.model import ModelConfig
from tilth.formatting import parse_bytes


@Parameter(name="*")
class ModelOverrides(overrides_of(ModelConfig)):  # type: ignore[misc]
    """The fields of a model config, as options."""


def account(
    shape: str,
    /,
    *,
    batch_size: int | None = None,
    num_microbatches: int | None = None,
    steps: int | None = None,
    optimizer: Literal["adamw", "muon", "sgd"] | None = None,
    dtype: Literal["float32", "tf32", "bfloat16", "float16"] | None = None,
    recompute: bool = False,
    hardware: str | None = None,
    mfu: float | None = None,
    hours: float | None = None,
    price: float | None = None,
    memory: str | None = None,
    shares: bool = False,
    plot: list[Path] = [],  # noqa: B006, cyclopts copies it
    overwrite: bool = False,
    model: Annotated[ModelOverrides | None, Parameter(group=Group("Model", sort_key=1))] = None,
    json: Json = False,
) -> None:
    """Count the parameters, FLOPs, memory and hours of a model. Every number can be changed.

    Args:
        shape: Model (gpt2-xl, llama-3-8b, ...), recipe, run directory or config file.
        batch_size: Sequences per step.
        num_microbatches: Microbatches per step (gradient accumulation).
        steps: Number of optimizer steps.
        optimizer: Optimizer whose state and update are counted.
        dtype: Autocast dtype; weights stay float32.
        recompute: Count activation recomputation: a second forward pass in the backward pass.
        hardware: Hardware to estimate hours for: a100, h100, rtx4090, ...; `this` is measured.
        mfu: Model FLOPs utilization; default 0.5.
        hours: Hours on the hardware, to compute the compute-optimal model size for.
        price: Price of an hour on the hardware.
        memory: Memory to compute the largest batch for: 80GB, 24GiB; default that of the hardware.
        shares: Show the shares of FLOPs, by model size and by context length.
        plot: Write --shares as a page (.html) or picture (.png); once for each file.
        overwrite: Replace existing plots.

    Examples:
        tilth account gpt2-xl
        tilth account tinystories --batch-size 64 --hardware h100 --price 3
        tilth account gpt2-small --shares --plot shares.html
    """
    from rich.console import Console

    from tilth.accounting import account as account_for
    from tilth.accounting.pictures import across_contexts, across_sizes, save_picture
    from tilth.accounting.report import WIDTH, shares_table, show

    result = account_for(
        shape,
        batch_size=batch_size,
        num_microbatches=num_microbatches,
        steps=steps,
        optimizer=optimizer,
        dtype=dtype,
        hardware=hardware,
        mfu=mfu,
        hours=hours,
        price_per_hour=price,
        memory_bytes=None if memory is None else parse_bytes(memory),
        recompute=recompute,
        **changes(model),
    )
    for path in plot:
        save_picture(path, result.name, result.config, overwrite=overwrite)
    by_size = across_sizes(result.name, result.config)
    by_context = across_contexts(result.config)
    values = result.to_dict()
    if shares or plot:
        values["forward_flops"] = {"by_size": by_size, "by_context_length": by_context}
        values["wrote"] = [str(path) for path in plot]
    if json:
        print_json(values)
        return
    # rich would truncate numbers in a narrow terminal; files and pipes have no width.
    console = Console(width=max(Console().width, WIDTH) if sys.stdout.isatty() else WIDTH)
    if shares or plot:
        console.print(shares_table("Forward pass, by size", "shape", by_size))
        console.print(shares_table(f"{result.name}, by context length", "tokens", by_context))
    else:
        show(values, console)
    for path in plot:
        print(f"Wrote {path}")
