"""Tables of a section, sample captions, and the formatting of cells."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tomli_w

from tilth.accounting import account, count_parameters
from tilth.config.training import ResolvedConfig, differences
from tilth.formatting import format_bytes, format_duration, printable, scientific
from tilth.report.comparing import ReportedRun, format_value, varying_values
from tilth.report.curves import last_value
from tilth.report.lab_file import Cell, Table
from tilth.report.reading import Section
from tilth.runs.run import Run
from tilth.schema import flat

RUN_COLUMNS = (
    *("run", "state", "steps", "tokens", "time", "tokens/s"),
    *("train loss", "valid loss", "best valid loss", "bits/byte"),
)


def runs_table(section: Section) -> Table:
    """Return the final losses of each run, and the config values that differ between runs."""
    names = varying_values([run.config for run in section.runs]) if section.runs else []
    rows = tuple(_run_row(entry, names) for entry in section.entries)
    return Table("Runs", (*RUN_COLUMNS, *names), rows)


def _run_row(entry: ReportedRun, names: list[str]) -> tuple[Cell, ...]:
    if entry.run is None:
        return (entry.label, entry.state, *[None] * (len(RUN_COLUMNS) - 2 + len(names)))
    train, valid = entry.curves.train_loss, entry.curves.valid_loss
    steps, tokens, seconds = (
        float(each[-1]) if len(each) else 0.0 for each in (train.steps, train.tokens, train.seconds)
    )
    # The mean of the last 5% of steps: the loss of a single batch is noisy.
    tail = train.values[-max(1, len(train.values) // 20) :]
    tail, evaluated = tail[np.isfinite(tail)], valid.values[np.isfinite(valid.values)]
    values = flat(entry.run.config.to_dict())
    return (
        entry.label,
        entry.state,
        f"{steps:,.0f} of {entry.run.config.steps:,}",
        f"{tokens:,.0f}",
        format_duration(seconds),
        f"{tokens / seconds:,.0f}" if seconds else None,
        _decimals(float(tail.mean()) if len(tail) else None),
        _decimals(last_value(valid)),
        _decimals(float(evaluated.min()) if len(evaluated) else None),
        _decimals(entry.bits_per_byte),
        *(format_value(name, values[name]) if name in values else None for name in names),
    )


def _decimals(number: float | None) -> str | None:
    if number is None:
        return None
    return f"{number:.4f}" if number < 1e4 else f"{number:.3e}"  # diverged


def accounting_table(section: Section) -> Table:
    """Return the cost of each distinct model and batch."""

    def costs(config: ResolvedConfig) -> tuple[Any, ...]:
        batch = (config.batch_size, config.microbatch_size, config.steps)
        return (config.model, *batch, config.optimizer.name, config.machine.dtype)

    rows = []
    for names, run in _distinct(section, lambda run: costs(run.config)):
        found, model = account(run.config), run.config.model
        rows.append(
            (
                names,
                f"{model.num_layers} × {model.d_model}, heads {model.num_heads}, "
                f"d_ff {model.d_ff:,}, vocabulary {model.vocab_size:,}, "
                f"context {model.context_length:,}",
                f"{found.parameters.total:,}",
                f"{found.parameters.without_embedding_and_head:,}",
                scientific(found.flops_per_token),
                scientific(found.run_flops or 0),
                format_bytes(found.memory.peak_bytes),
            )
        )
    columns = (
        *("runs", "shape (layers × width)", "parameters", "without embedding and head"),
        *("FLOPs per token", "FLOPs per run", "peak memory"),
    )
    return Table("Compute and memory", columns, tuple(rows))


def versions_table(section: Section) -> Table:
    """Return the versions, the device and the data that the numbers depend on."""
    columns = ("tilth", "python", "torch", "numpy", "machine", "device", "threads", "data")

    def row(run: Run) -> tuple[Cell, ...]:
        versions = (run.manifest.versions.get(name) for name in columns[:5])
        data = f"{run.manifest.data_fingerprint[:12]} (SHA-256)"
        return (*versions, run.config.machine.device, run.config.machine.threads, data)

    rows = tuple((names, *row(run)) for names, run in _distinct(section, row))
    return Table("Versions", ("runs", *columns), rows)


def _distinct(section: Section, key: Callable[[Run], Any]) -> list[tuple[str, Run]]:
    """Return the first run of each key, with the labels of all runs that share it."""
    found: dict[Any, tuple[Run, list[str]]] = {}
    for entry in section.entries:
        if entry.run is not None:
            found.setdefault(key(entry.run), (entry.run, []))[1].append(entry.label)
    is_all = len(found) == 1 and len(section.runs) > 1
    return [("all" if is_all else "; ".join(labels), run) for run, labels in found.values()]


def config_text(run: Run) -> str:
    """Return the config as TOML, with the name of the data directory instead of its path."""
    short = replace(run.config, data=format_value("data", run.config.data))
    return tomli_w.dumps(short.to_dict())


def changes_text(first: Run, run: Run) -> str:
    """Return the config values of a run that differ from those of the first."""
    changed = differences(first.config, run.config)
    values = (f"{name} = {format_value(name, new)}" for name, (_, new) in changed.items())
    return ", ".join(values) or "no differences"


def sample_settings(entry: ReportedRun) -> str:
    """Return the step, the model and the sampling options of a run's last sample."""
    assert entry.run is not None
    last, parameters = entry.samples[-1], count_parameters(entry.run.config.model)
    settings = [f"step {last.step:,}", f"{parameters.total:,} parameters"]
    for name in ("temperature", "top_p", "max_tokens"):
        if (value := getattr(last, name)) is not None:
            settings.append(f"{name.replace('max_', 'max ')} {value}")
    if entry.bits_per_byte is not None:
        settings.append(f"final {entry.bits_per_byte:.3f} bits/byte")
    return ", ".join(settings)


# --- cells ----------------------------------------------------------------------------------------


def cell_text(value: Cell, decimals: int | None = None) -> str:
    """Format a cell as text; control characters except line ends are escaped."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if decimals is not None:
            return f"{value:,.{decimals}f}"
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return printable(value, keep="\n")


NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?%?( of [\d,]+| [a-zA-Z]{1,7})?|–")


def format_columns(table: Table) -> list[list[str]]:
    """Format the cells of each column; measured numbers get the same number of decimals."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    decimals = [_decimals_of([c for c in column if isinstance(c, float)]) for column in columns]
    pairs = zip(columns, decimals, strict=True)
    return [[cell_text(cell, places) for cell in column] for column, places in pairs]


def is_numeric(column: Sequence[str]) -> bool:
    """Return whether all cells are numbers, with or without a unit; these are right-aligned."""
    return all(NUMBER.fullmatch(cell) for cell in column)


def _decimals_of(numbers: list[float]) -> int | None:
    """Decimals that give the largest number four significant digits; None for general format."""
    largest = max(map(abs, numbers), default=0.0)
    # Integers and numbers of one or two digits (a learning rate) were chosen, not measured.
    is_chosen = all(n.is_integer() or n == float(f"{n:.2g}") for n in numbers)
    if is_chosen or largest >= 1e9:
        return None
    # A loss gets a fourth decimal, as in the table of runs: seeds often differ only there.
    decimals = 4 if 1 <= largest < 10 else max(0, 3 - math.floor(math.log10(largest)))
    smallest = min(abs(number) for number in numbers if number)
    return decimals if smallest >= 10.0 ** (1 - decimals) else None
