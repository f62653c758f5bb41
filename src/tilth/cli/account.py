"""`tilth account`: the parameters, FLOPs, memory and hours of a model, before training."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from tilth.cli.options import Json
from tilth.cli.output import print_json
from tilth.cli.overrides import changes, overrides_of
from tilth.config.model import ModelConfig
from tilth.formatting import parse_bytes, parse_duration


@Parameter(name="*")
class ModelOverrides(overrides_of(ModelConfig)):  # type: ignore[misc]
    """The fields of a model config, as options."""


@Parameter(name="*")
@dataclass(frozen=True)
class Settings:
    """The settings of `tilth.account`; None is its default.

    Args:
        batch_size: Sequences per step.
        num_microbatches: Microbatches per step (gradient accumulation).
        steps: Number of optimizer steps.
        optimizer: Optimizer whose state and update are counted.
        dtype: Autocast dtype; weights stay float32.
        recompute: Count activation recomputation: a second forward pass in the backward pass.
        hardware: Hardware to estimate hours for: a100, h100, rtx4090, ...; `this` is measured.
        mfu: Model FLOPs utilization; default 0.5.
        hours: Hours on the hardware, to compute the compute-optimal model size for.
        price_per_hour: Price of an hour on the hardware.
    """

    batch_size: int | None = None
    num_microbatches: int | None = None
    steps: int | None = None
    optimizer: Literal["adamw", "muon", "sgd"] | None = None
    dtype: Literal["float32", "tf32", "bfloat16", "float16"] | None = None
    recompute: bool = False
    hardware: str | None = None
    mfu: float | None = None
    hours: float | None = None
    price_per_hour: Annotated[float | None, Parameter(name="--price")] = None


@Parameter(name="*")
@dataclass(frozen=True)
class RanksOptions:
    """Training on several ranks, each with the named hardware; None is the default of the function.

    Args:
        ranks: Number of ranks: one for each device.
        strategy: ddp: each rank has the whole model; fsdp: a shard of it. auto: ddp if that fits.
        shards: Ranks that share one copy of the model under fsdp; default as few as fit.
        network: Bytes that a rank sends per second; default 25GB.
        storage: Bytes of a checkpoint that a rank writes per second; default 2GB.
        mtbf: Mean time between failures of the whole job (4h), to predict goodput.
        restart: Time from a failure to the next step; default 5m.
        checkpoint_every: Time between two checkpoints, beside the best one.
        seed: Random seed of the simulated failures.
    """

    ranks: int | None = None
    strategy: Literal["auto", "ddp", "fsdp"] | None = None
    shards: int | None = None
    network: str | None = None
    storage: str | None = None
    mtbf: str | None = None
    restart: str | None = None
    checkpoint_every: str | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        """Return the given options as `account_ranks` takes them, without the ranks."""
        times = {
            "mtbf": "mtbf_seconds",
            "restart": "restart_seconds",
            "checkpoint_every": "interval_seconds",
        }
        sizes = {"network": "network_bytes_per_second", "storage": "storage_bytes_per_second"}
        values: dict[str, Any] = {}
        for name, value in vars(self).items():
            if value is None or name == "ranks":
                continue
            if name in times:
                values[times[name]] = parse_duration(value)
            elif name in sizes:
                values[sizes[name]] = parse_bytes(value)
            else:
                values[name] = value
        if self.ranks is None and values:
            name = next(name for name, value in vars(self).items() if value is not None)
            raise ValueError(
                f"--{name.replace('_', '-')} is an option of several ranks; add --ranks."
            )
        return values


DEFAULT = Settings()
ONE = RanksOptions()


def account(
    shape: str,
    /,
    *,
    settings: Settings = DEFAULT,
    parallel: Annotated[RanksOptions, Parameter(group=Group("Ranks", sort_key=2))] = ONE,
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
        memory: Memory to compute the largest batch for: 80GB, 24GiB; default that of the hardware.
        shares: Show the shares of FLOPs, by model size and by context length.
        plot: Write --shares as a page (.html) or picture (.png); once for each file.
        overwrite: Replace existing plots.

    Examples:
        tilth account gpt2-xl
        tilth account tinystories --batch-size 64 --hardware h100 --price 3
        tilth account gpt2-small --shares --plot shares.html
        tilth account gpt2-xl --batch-size 512 --hardware h100 --ranks 64 --mtbf 4h
    """
    from rich.console import Console

    from tilth.accounting import account as account_for
    from tilth.accounting.pictures import across_contexts, across_sizes, save_pictures
    from tilth.accounting.ranks import account_ranks
    from tilth.accounting.report import WIDTH, ranks_tables, shares_table, show

    memory_bytes = None if memory is None else parse_bytes(memory)
    given = parallel.given()
    result = account_for(shape, memory_bytes=memory_bytes, **vars(settings), **changes(model))
    by_size = across_sizes(result.name, result.config)
    by_context = across_contexts(result.config)
    panels = {"Forward pass, by size": by_size, f"{result.name}, by context length": by_context}
    save_pictures(plot, panels, overwrite=overwrite)
    values = result.to_dict()
    if parallel.ranks is not None:
        values["parallel"] = account_ranks(result, parallel.ranks, **given).to_dict()
    if shares or plot:
        values["forward_flops"] = {"by_size": by_size, "by_context_length": by_context}
        values["wrote"] = [str(path) for path in plot]
    if json:
        print_json(values)
        return
    # rich would truncate numbers in a narrow terminal; files and pipes have no width.
    console = Console(width=max(Console().width, WIDTH) if sys.stdout.isatty() else WIDTH)
    if shares or plot:
        for (title, rows), first_column in zip(panels.items(), ("shape", "tokens"), strict=True):
            console.print(shares_table(title, first_column, rows))
    else:
        show(values, console)
        if parallel.ranks is not None:
            for table in ranks_tables(values["parallel"]):
                console.print(table, highlight=False, markup=False)
    for path in plot:
        print(f"Wrote {path}")
