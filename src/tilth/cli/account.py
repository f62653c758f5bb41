"""`tilth account`: the cost of a model, before it is trained."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from tilth.cli.options import Json
from tilth.cli.output import print_json
from tilth.cli.overrides import changes, overrides_of
from tilth.config.model import ModelConfig
from tilth.formatting import parse_bytes


@Parameter(name="*")
class ModelOverrides(overrides_of(ModelConfig)):  # type: ignore[misc]
    """The fields of a model, as flags."""


def account(
    shape: str,
    /,
    *,
    batch_size: int | None = None,
    num_microbatches: int | None = None,
    steps: int | None = None,
    optimizer: Literal["adamw", "muon", "sgd"] | None = None,
    dtype: Literal["float32", "tf32", "bfloat16", "float16"] | None = None,
    hardware: str | None = None,
    mfu: float | None = None,
    hours: float | None = None,
    price: float | None = None,
    memory: str | None = None,
    recompute: bool = False,
    shares: bool = False,
    plot: list[Path] | None = None,
    overwrite: bool = False,
    model: Annotated[ModelOverrides | None, Parameter(group="Model")] = None,
    json: Json = False,
) -> None:
    """Show what a model costs: parameters, FLOPs, memory, time. Any number can be changed.

    Args:
        shape: A model (gpt2-xl, llama-3-8b, ...), a recipe, a run directory or a config file.
        batch_size: Sequences in one step.
        num_microbatches: Parts that a batch is cut into, to save memory.
        steps: How many updates.
        optimizer: Whose state and update to count.
        dtype: The type of products; weights stay float32.
        hardware: a100, h100, rtx4090, ...: how long it takes there; `this` is measured.
        mfu: The share of the peak that is reached; default 0.5.
        hours: What is the best size for so many hours on the hardware?
        price: Money for an hour on the hardware.
        memory: How large a batch fits: 80GB, 24GiB; default the hardware's.
        recompute: Count the forward pass again on the way back.
        shares: Show where FLOPs go, by size and by context length.
        plot: Write --shares as a page (.html) or a picture (.png); may come again.
        overwrite: Replace --plot if it exists.
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
    plots = plot or []
    for path in plots:
        save_picture(path, result.name, result.config, overwrite=overwrite)
    by_size = across_sizes(result.name, result.config)
    by_context = across_contexts(result.config)
    values = result.to_dict()
    if shares or plots:
        values["forward_flops"] = {"by_size": by_size, "by_context_length": by_context}
        values["wrote"] = [str(path) for path in plots]
    if json:
        print_json(values)
        return
    # In a narrow terminal rich would cut numbers; a file or a pipe has no width of its own.
    console = Console(width=max(Console().width, WIDTH) if sys.stdout.isatty() else WIDTH)
    if shares or plots:
        console.print(shares_table("Forward pass, by size", "shape", by_size))
        console.print(shares_table(f"{result.name}, by context length", "tokens", by_context))
    else:
        show(values, console)
    for path in plots:
        print(f"Wrote {path}")
