"""The tables and samples of a section, and how cells are written."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tomli_w

from tilth.accounting import account
from tilth.config.training import ResolvedConfig, differences
from tilth.formatting import format_bytes, format_duration, printable, scientific
from tilth.report.comparing import ReportedRun, shown_value, varying_values
from tilth.report.lab_file import Cell, Table
from tilth.report.reading import Section
from tilth.runs.run import Run
from tilth.schema import flat

RUN_COLUMNS = (
    *("run", "state", "steps", "tokens", "time", "tokens/s"),
    *("train loss", "valid loss", "lowest", "bits/byte"),
)


def runs_table(section: Section) -> Table:
    """How each run ended, and the values of its config that another has not."""
    names = varying_values([run.config for run in section.runs]) if section.runs else []
    rows = tuple(_run_row(entry, names) for entry in section.entries)
    return Table("Runs", (*RUN_COLUMNS, *names), rows)


def _run_row(entry: ReportedRun, names: list[str]) -> tuple[Cell, ...]:
    if entry.run is None or entry.curves is None:
        return (entry.label, entry.state, *[None] * (len(RUN_COLUMNS) - 2 + len(names)))
    train, valid = entry.curves.train_loss, entry.curves.valid_loss
    steps, tokens, seconds = (
        float(each[-1]) if len(each) else 0.0 for each in (train.steps, train.tokens, train.seconds)
    )
    # The mean of the last twentieth: the loss of a single batch is mostly chance.
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
        _decimals(entry.valid_loss),
        _decimals(float(evaluated.min()) if len(evaluated) else None),
        _decimals(entry.bits_per_byte),
        *(shown_value(name, values[name]) if name in values else None for name in names),
    )


def _decimals(number: float | None) -> str | None:
    if number is None:
        return None
    return f"{number:.4f}" if number < 1e4 else f"{number:.3e}"  # far above: a divergence


def accounting_table(section: Section) -> Table:
    """What each model costs that is another than those before it."""
    users: dict[Any, tuple[ResolvedConfig, list[str]]] = {}
    for entry in section.entries:
        if entry.run is not None:
            config = entry.run.config
            batch = (config.batch_size, config.microbatch_size, config.steps)
            costing = (config.model, *batch, config.optimizer.name, config.machine.dtype)
            users.setdefault(costing, (config, []))[1].append(entry.label)
    rows = []
    for config, labels in users.values():
        found, model = account(config), config.model
        rows.append(
            (
                _named(labels, section),
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
        *("runs", "layers × width", "parameters", "without embedding and head"),
        *("FLOPs a token", "FLOPs of the run", "memory at its peak"),
    )
    return Table("What it costs", columns, tuple(rows))


def _named(labels: list[str], section: Section) -> str:
    is_all = len(labels) == len(section.runs) > 1
    return "all" if is_all else "; ".join(labels)


def versions_table(section: Section) -> Table:
    """What the numbers depend on besides the config."""
    rows: dict[tuple[Cell, ...], list[str]] = {}
    columns = ("tilth", "python", "torch", "numpy", "machine", "device", "threads", "data")
    for entry in section.entries:
        if entry.run is None:
            continue
        versions, machine = entry.run.manifest.versions, entry.run.config.machine
        row = tuple(versions.get(name) for name in columns[:5])
        data = f"{entry.run.manifest.data_fingerprint[:12]} (SHA-256)"
        rows.setdefault((*row, machine.device, machine.threads, data), []).append(entry.label)
    table = tuple((_named(labels, section), *row) for row, labels in rows.items())
    return Table("Versions", ("runs", *columns), table)


def config_text(run: Run) -> str:
    """The whole config, as TOML; of the data only the name, as other machines have other paths."""
    short = replace(run.config, data=shown_value("data", run.config.data))
    return tomli_w.dumps(short.to_dict())


def changes_text(first: Run, run: Run) -> str:
    """What a run has instead of the values of another."""
    changed = differences(first.config, run.config)
    values = (f"{name} = {shown_value(name, new)}" for name, (_, new) in changed.items())
    return ", ".join(values) or "the same"


# --- samples --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A text that a run generated, and the settings behind it."""

    label: str
    group: str
    colour: str
    made_by: str
    text: str
    earlier: tuple[tuple[int, str], ...]
    """The samples before it: the step and the text."""


def samples_of(section: Section) -> list[Sample]:
    """The last text of each run that has written any."""
    samples = []
    for entry in section.entries:
        if entry.run is None or not entry.samples:
            continue
        *earlier, last = entry.samples
        model = account(entry.run.config.model)
        made_by = [f"step {last.step:,}", f"{model.parameters.total:,} parameters"]
        names = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max tokens"}
        given = {said: getattr(last, name) for name, said in names.items()}
        made_by += [f"{said} {value}" for said, value in given.items() if value is not None]
        if entry.bits_per_byte is not None:
            made_by.append(f"{entry.bits_per_byte:.3f} bits/byte at the end")
        samples.append(
            Sample(
                entry.label,
                entry.group,
                section.colours[entry.group],
                ", ".join(made_by),
                last.text,
                tuple((record.step, record.text) for record in earlier),
            )
        )
    return samples


def cell_text(value: Cell) -> str:
    """A cell as text; control characters, line ends apart, are escaped."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return printable(value, keep="\n")


# --- cells ----------------------------------------------------------------------------------------


NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?%?( of [\d,]+| [a-zA-Z]{1,7})?|–")


def shown_columns(table: Table) -> list[list[str]]:
    """The cells of each column as texts; numbers that were measured with equally many decimals."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    shown = []
    for column in columns:
        decimals = _decimals_of([cell for cell in column if isinstance(cell, float)])
        shown.append(
            [
                f"{cell:,.{decimals}f}"
                if isinstance(cell, float) and decimals is not None
                else cell_text(cell)
                for cell in column
            ]
        )
    return shown


def is_numeric(column: Sequence[str]) -> bool:
    """Whether the cells of a column are numbers, with or without a unit: they go to the right."""
    return all(NUMBER.fullmatch(cell) for cell in column)


def _decimals_of(numbers: list[float]) -> int | None:
    """The decimals that suit a column: four digits of the largest; None if it is best without."""
    largest = max(map(abs, numbers), default=0.0)
    # Whole numbers, and those of one or two digits (a learning rate), were chosen, not measured.
    is_chosen = all(n.is_integer() or n == float(f"{n:.2g}") for n in numbers)
    if is_chosen or largest >= 1e9:
        return None
    # A loss has one more, as in the table of runs: the spread of seeds is often in the fourth.
    decimals = 4 if 1 <= largest < 10 else max(0, 3 - math.floor(math.log10(largest)))
    smallest = min(abs(number) for number in numbers if number)
    return decimals if smallest >= 10.0 ** (1 - decimals) else None
