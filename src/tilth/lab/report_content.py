"""What a report says, before it is a page or Markdown.

What enters: paths of runs and labs. What leaves: a `Report`: a section for each lab, and one for
all runs that are in none, with its entries, its sentences and its tables.
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from tilth.accounting import account
from tilth.accounting.report import big, duration, size
from tilth.files import FileError
from tilth.lab.folder import LAB, Cell, Chart, Table, load_lab
from tilth.lab.report_findings import (
    ASKS,
    Entry,
    answer_of,
    entries_of_lab,
    entries_of_runs,
    flat_values,
    groups_of,
    labels_of,
    notes_of,
    shown_value,
    varying_values,
)
from tilth.recipes.config import TrainingConfig
from tilth.runs.run import CONFIG, Run

# Both readable on white and on black, and distinct to those who see no red (after Okabe and Ito).
COLOURS = ("#1f83c6", "#e08a00", "#0f9d74", "#c96aa0", "#d1581b", "#7a7f87")
# From low to high, for groups that have a place on an axis.
SCALE = ((76, 111, 224), (31, 158, 137), (190, 140, 20), (217, 83, 79))


@dataclass(frozen=True)
class Sample:
    """A text that a run wrote, and what made it so."""

    label: str
    group: str
    colour: str
    made_by: str
    text: str
    earlier: tuple[tuple[int, str], ...]
    """The samples before it: the step and the text."""


@dataclass(frozen=True)
class Section:
    """A question and all that answers it."""

    asks: str
    answer: str
    notes: tuple[str, ...]
    axis: str
    entries: tuple[Entry, ...]
    charts: tuple[Chart, ...]
    """The lab's own."""
    tables: tuple[Table, ...]
    """The lab's own."""
    commands: tuple[str, ...]

    @property
    def runs(self) -> list[Run]:
        """The runs that there are."""
        return [entry.run for entry in self.entries if entry.run is not None]

    @property
    def begun(self) -> list[Entry]:
        """The entries that have a step to draw."""
        return [e for e in self.entries if e.curves is not None and len(e.curves.train_loss.steps)]

    @property
    def colours(self) -> dict[str, str]:
        """The colour of each group: its own, or its place on the axis."""
        groups = groups_of(self.entries)
        places = {name: group[0].x for name, group in groups.items()}
        ordered = sorted({x for x in places.values() if x is not None})
        if None in places.values() or len(ordered) < 3:
            return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(groups)}
        return {
            name: _on_scale(ordered.index(x) / (len(ordered) - 1))
            for name, x in places.items()
            if x is not None
        }


@dataclass(frozen=True)
class Report:
    """A title and its sections."""

    title: str
    sections: tuple[Section, ...]


def read_report(paths: Sequence[Path], title: str | None = None) -> Report:
    """Read all runs and labs; a folder that has runs in it stands for these."""
    labs, runs = [], []
    for path in dict.fromkeys(paths):
        if (path / LAB).is_file():
            labs.append(path)
        else:
            runs += _runs_in(path)
    sections = _told_apart([_section_of_lab(path) for path in labs], labs)
    if runs:
        sections.append(_section_of_runs(list(dict.fromkeys(runs))))
    if not sections:
        raise ValueError("There is nothing to report on; name runs or labs.")
    if title is None:
        title = sections[0].asks if len(sections) == 1 else "A report of tilth"
    return Report(title, tuple(sections))


def _told_apart(sections: list[Section], labs: list[Path]) -> list[Section]:
    """Sections whose headings differ: labs that ask the same are told apart by their folders."""
    asked = Counter(section.asks for section in sections)
    return [
        replace(section, asks=f"{section.asks} ({label})") if asked[section.asks] > 1 else section
        for section, label in zip(sections, labels_of(labs), strict=True)
    ]


def _runs_in(path: Path) -> list[Path]:
    if (path / CONFIG).is_file():
        return [path]
    inside = sorted(config.parent for config in path.glob(f"[!.]*/{CONFIG}"))
    if not inside:
        problem = f"is neither a run nor a lab (it has no {CONFIG} and no {LAB})"
        raise FileError(path, problem, "name a folder that `tilth train` or `tilth lab` made")
    return inside


def _section_of_lab(path: Path) -> Section:
    lab = load_lab(path)
    entries = entries_of_lab(path, lab)
    answer = lab.answer
    if not answer and not lab.trials:
        answer = "There is no answer yet."
    elif not answer:
        ended = sum(trial.state not in ("planned", "running") for trial in lab.trials)
        answer = f"{ended} of {len(lab.trials)} runs have ended. So far: {answer_of(entries)}"
    return Section(
        asks=lab.asks,
        answer=answer,
        notes=(*lab.notes, *notes_of(entries)),
        axis=lab.axis,
        entries=tuple(entries),
        # A lab that goes on may have tables and charts with nothing in them yet.
        charts=tuple(c for c in lab.charts if any(line.points for line in c.lines)),
        tables=tuple(table for table in lab.tables if table.rows),
        commands=(shlex.join(lab.command),) if lab.command else (),
    )


def _section_of_runs(paths: list[Path]) -> Section:
    entries, axis = entries_of_runs(paths)
    return Section(
        asks=ASKS if len(entries) > 1 else "How did this run go?",
        answer=answer_of(entries),
        notes=tuple(notes_of(entries)),
        axis=axis,
        entries=tuple(entries),
        charts=(),
        tables=(),
        commands=tuple(
            shlex.join(["tilth", "train", "--config", str(path / CONFIG), "--out", f"{path}-again"])
            for path in paths
        ),
    )


def _on_scale(share: float) -> str:
    place = share * (len(SCALE) - 1)
    low = min(int(place), len(SCALE) - 2)
    pairs = zip(SCALE[low], SCALE[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs)


# --- tables ---------------------------------------------------------------------------------------


RUN_COLUMNS = (
    *("run", "state", "steps", "tokens", "time", "tokens/s"),
    *("train loss", "valid loss", "lowest", "bits/byte"),
)


def runs_table(section: Section) -> Table:
    """How each run ended, and the values of its config that another has not."""
    names = varying_values([run.config for run in section.runs]) if section.runs else []
    rows = tuple(_run_row(entry, names) for entry in section.entries)
    return Table("Runs", (*RUN_COLUMNS, *names), rows)


def _run_row(entry: Entry, names: list[str]) -> tuple[Cell, ...]:
    if entry.run is None or entry.curves is None:
        return (entry.label, entry.state, *[None] * (len(RUN_COLUMNS) - 2 + len(names)))
    train, valid = entry.curves.train_loss, entry.curves.valid_loss
    steps, tokens, seconds = (
        float(each[-1]) if len(each) else 0.0 for each in (train.steps, train.tokens, train.seconds)
    )
    # The mean of the last twentieth: the loss of a single batch is mostly chance.
    tail = train.values[-max(1, len(train.values) // 20) :]
    tail, evaluated = tail[np.isfinite(tail)], valid.values[np.isfinite(valid.values)]
    values = flat_values(entry.run.config)
    return (
        entry.label,
        entry.state,
        f"{steps:,.0f} of {entry.run.config.steps:,}",
        f"{tokens:,.0f}",
        duration(seconds),
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
    users: dict[Any, list[Entry]] = {}
    for entry in section.entries:
        if entry.run is not None:
            users.setdefault(_costing(entry.run.config), []).append(entry)
    rows = []
    for entries in users.values():
        run = entries[0].run
        assert run is not None
        found, model = account(run.config), run.config.model
        rows.append(
            (
                _named([entry.label for entry in entries], section),
                f"{model.num_layers} × {model.d_model}, heads {model.num_heads}, "
                f"d_ff {model.d_ff:,}, vocabulary {model.vocab_size:,}, "
                f"context {model.context_length:,}",
                f"{found.parameters.total:,}",
                f"{found.parameters.without_embedding_and_head:,}",
                big(found.flops_per_token),
                big(found.run_flops or 0),
                size(found.memory.peak_bytes),
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


def _costing(config: TrainingConfig) -> tuple[Any, ...]:
    """What the costs of a run depend on."""
    batch = (config.batch_size, config.microbatch_size, config.steps)
    return (config.model, *batch, config.optimizer.name, config.machine.dtype)


def versions_table(section: Section) -> Table:
    """What the numbers depend on besides the config."""
    rows: dict[tuple[Cell, ...], list[str]] = {}
    columns = ("tilth", "python", "torch", "numpy", "machine", "device", "threads", "data")
    for entry in section.entries:
        if entry.run is None:
            continue
        versions, machine = entry.run.manifest.get("versions", {}), entry.run.config.machine
        row = tuple(versions.get(name) for name in columns[:5])
        data = f"{entry.run.manifest['data_fingerprint'][:12]} (SHA-256)"
        rows.setdefault((*row, machine.device, machine.threads, data), []).append(entry.label)
    table = tuple((_named(labels, section), *row) for row, labels in rows.items())
    return Table("Versions", ("runs", *columns), table)


def config_text(run: Run) -> str:
    """The whole config, as TOML; of the data only the name, as other machines have other paths."""
    short = replace(run.config, data=shown_value("data", run.config.data))
    return tomli_w.dumps(short.to_dict())


# --- samples --------------------------------------------------------------------------------------


def samples_of(section: Section) -> list[Sample]:
    """The last text of each run that has written any."""
    samples = []
    for entry in section.entries:
        records = [] if entry.run is None else entry.run.samples()
        if entry.run is None or not records:
            continue
        *earlier, last = records
        model = account(entry.run.config.model)
        made_by = [f"step {last['step']:,}", f"{model.parameters.total:,} parameters"]
        for name, said in (
            ("temperature", "temperature"),
            ("top_p", "top_p"),
            ("max_tokens", "max tokens"),
        ):
            if last.get(name) is not None:
                made_by.append(f"{said} {last[name]}")
        if entry.bits_per_byte is not None:
            made_by.append(f"{entry.bits_per_byte:.3f} bits/byte at the end")
        samples.append(
            Sample(
                entry.label,
                entry.group,
                section.colours[entry.group],
                ", ".join(made_by),
                str(last.get("text", "")),
                tuple((record["step"], str(record.get("text", ""))) for record in earlier),
            )
        )
    return samples


def visible(value: Cell) -> str:
    """A text without anything that a page or a terminal would obey, or could not encode.

    What is not printable, line ends apart, is shown as Python escapes it.
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii")
        for c in value
    )


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
                else visible(cell)
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
