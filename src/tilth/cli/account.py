"""`tilth account`: what a model costs, before it is paid."""

import json as json_module
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter

from tilth.cli.options import Json
from tilth.cli.overrides import changes, overrides_of
from tilth.config.model import ModelConfig
from tilth.formatting import parse_bytes

if TYPE_CHECKING:
    ModelOverrides: TypeAlias = Any
else:
    ModelOverrides = overrides_of(ModelConfig)


def account(
    subject: Annotated[
        str,
        Parameter(
            name="shape",
            help="gpt2-small, -medium, -large or -xl (in our architecture), llama-2-7b, llama-3-8b "
            "and others, a recipe, a run directory, or a config file (also as --config).",
        ),
    ],
    /,
    *,
    batch_size: Annotated[int | None, Parameter(help="Sequences in one step.")] = None,
    num_microbatches: Annotated[
        int | None, Parameter(help="Parts that a batch is cut into, to save memory.")
    ] = None,
    steps: Annotated[int | None, Parameter(help="How many updates.")] = None,
    optimizer: Annotated[
        Literal["adamw", "muon", "sgd"] | None, Parameter(help="Whose state and update to count.")
    ] = None,
    dtype: Annotated[
        Literal["float32", "tf32", "bfloat16", "float16"] | None,
        Parameter(help="The type of products; weights stay float32."),
    ] = None,
    hardware: Annotated[
        str | None,
        Parameter(help="a100, h100, rtx4090, ...: how long it takes there; `this` is measured."),
    ] = None,
    mfu: Annotated[
        float | None, Parameter(help="The share of the peak that is reached; default 0.5.")
    ] = None,
    hours: Annotated[
        float | None, Parameter(help="What is the best size for so many hours on the hardware?")
    ] = None,
    price: Annotated[float | None, Parameter(help="Money for an hour on the hardware.")] = None,
    memory: Annotated[
        str | None, Parameter(help="How large a batch fits: 80GB, 24GiB; default the hardware's.")
    ] = None,
    recompute: Annotated[
        bool, Parameter(negative=(), help="Count the forward pass again on the way back.")
    ] = False,
    shares: Annotated[
        bool, Parameter(negative=(), help="Show where FLOPs go, by size and by context length.")
    ] = False,
    plot: Annotated[
        list[Path] | None,
        Parameter(
            negative=(),
            help="Write --shares as a page (.html) or a picture (.png); may come again.",
        ),
    ] = None,
    overwrite: Annotated[bool, Parameter(negative=(), help="Replace --plot if it exists.")] = False,
    model: Annotated[ModelOverrides | None, Parameter(name="*", group="Model")] = None,
    json: Json = False,
) -> None:
    """Show what a model costs: parameters, FLOPs, memory, time. Any number can be changed."""
    from tilth.accounting import account as account_for
    from tilth.accounting.pictures import across_contexts, across_sizes, save_picture
    from tilth.accounting.report import WIDTH, shares_table, show

    result = account_for(
        subject,
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
    if json:
        values = result.to_dict()
        if shares or plots:
            values["forward_flops"] = {"by_size": by_size, "by_context_length": by_context}
            values["wrote"] = [str(path) for path in plots]
        print(json_module.dumps(values))
        return

    from rich.console import Console

    # In a narrow terminal rich would cut numbers; a file or a pipe has no width of its own.
    console = Console(width=max(Console().width, WIDTH) if sys.stdout.isatty() else WIDTH)
    if shares or plots:
        console.print(shares_table("Forward pass, by size", "shape", by_size))
        title = f"{result.name}, by context length"
        console.print(shares_table(title, "tokens", by_context))
    else:
        show(result.to_dict(), console)
    for path in plots:
        print(f"Wrote {path}")
