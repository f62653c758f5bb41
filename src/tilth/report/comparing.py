"""Comparison of runs: groups of seeds, the best group, and whether its lead exceeds seed noise."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, TypeVar

from tilth.config.overrides import changed
from tilth.config.training import ResolvedConfig, differences
from tilth.report.curves import NO_CURVES, Curves, last_value
from tilth.runs.metrics import SampleRecord
from tilth.runs.run import Run
from tilth.schema import flat

MAX_NAMED = 3  # values in the name of a group
T = TypeVar("T")


@dataclass(frozen=True)
class ReportedRun:
    """A run in a report; `run` is None for a trial that has not started or cannot be read."""

    label: str
    group: str
    state: str
    run: Run | None = None
    curves: Curves = NO_CURVES
    x: float | None = None
    """Value on the axis of the lab."""
    samples: tuple[SampleRecord, ...] = ()

    @property
    def bits_per_byte(self) -> float | None:
        """Validation bits per byte of the last evaluation."""
        return last_value(self.curves.valid_bits)

    @property
    def is_comparable(self) -> bool:
        """Whether it has an evaluation and did not end early."""
        return self.bits_per_byte is not None and self.state not in ("diverged", "pruned", "failed")


def labels_of(paths: Sequence[Path]) -> list[str]:
    """Return the shortest distinct suffixes of paths."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts), default=0)):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def group_names(runs: Sequence[Run], labels: Sequence[str], varying: list[str]) -> list[str]:
    """Return the group of each run: equal for runs that differ only in the seed."""
    # With the fingerprint: the same data directory may have been written again from another text.
    keys = [(replace(run.config, seed=0), run.manifest.data_fingerprint) for run in runs]
    names: dict[Any, str] = {}
    for key, number in Counter(keys).items():
        first = keys.index(key)
        names[key] = labels[first] if number == 1 else f"{labels[first]} and {number - 1} more"
        if number > 1 and 0 < len(varying) <= MAX_NAMED:
            values = flat(runs[first].config.to_dict())
            shown = (f"{n.split('.')[-1]} {format_value(n, values[n])}" for n in varying)
            if (name := ", ".join(shown)) not in names.values():
                names[key] = name
    return [names[key] for key in keys]


def axis_values(runs: Sequence[Run], varying: list[str]) -> list[float | None]:
    """Return the x values of runs that vary in a single number with three or more values."""
    if len(varying) == 1:
        values = [flat(run.config.to_dict()).get(varying[0]) for run in runs]
        if all(type(value) in (int, float) for value in values) and len(set(values)) >= 3:
            return values
    return [None] * len(runs)


def varying_values(configs: Sequence[ResolvedConfig]) -> list[str]:
    """Return the dotted names of config values that differ, without derived ones.

    `min_lr`, for example, is a hundredth of the learning rate by default.
    """
    names = {name for other in configs[1:] for name in differences(configs[0], other)}
    decided = {name for config in configs for name in _decided(config)}
    return sorted(names & decided)


def _decided(config: ResolvedConfig) -> set[str]:
    """Return the names of values that differ from the ones that would be derived."""
    tables = {
        "optimizer": ("min_lr", "warmup_steps", "decay_steps"),
        "watch": ("evaluate_every", "save_every", "norms_every", "sample_every"),
    }
    names = [f"{table}.{name}" for table, inner in tables.items() for name in inner]
    bare = changed(config.opened(), dict.fromkeys(["microbatch_size", *names]))
    derivable = differences(config, bare).keys()
    return set(flat(config.to_dict())) - (derivable - differences(config, bare.filled()).keys())


def format_value(name: str, value: object) -> str:
    """Format a config value."""
    if name == "data":  # only its name: the path depends on the machine
        return Path(str(value)).name
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- the answer -----------------------------------------------------------------------------------


class SeedStatistics(Protocol):
    """Statistics of bits per byte over seeds."""

    @property
    def bits(self) -> list[float]:
        """Bits per byte, by seed."""

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return fmean(self.bits)

    @property
    def spread(self) -> float:
        """Maximum minus minimum over seeds."""
        return max(self.bits) - min(self.bits)


def is_within_seed_spread(one: SeedStatistics, other: SeedStatistics) -> bool:
    """Return whether two means differ by no more than the larger spread over seeds."""
    return abs(one.mean - other.mean) <= max(one.spread, other.spread)


class _RunGroup(SeedStatistics):
    """The comparable runs of a group."""

    def __init__(self, name: str, runs: Sequence[ReportedRun]) -> None:
        self.name, self.runs = name, runs

    @property
    def bits(self) -> list[float]:
        return [bits for run in self.runs if (bits := run.bits_per_byte) is not None]

    def __str__(self) -> str:
        number = len(self.bits)
        return self.name if number == 1 else f"{self.name} (mean of {number} seeds)"


def grouped(items: Iterable[T], key: str = "group") -> dict[Any, list[T]]:
    """Return the items by an attribute, in order."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(getattr(item, key), []).append(item)
    return groups


def answer_of(entries: Sequence[ReportedRun]) -> str:
    """Say which group is best on validation, by how much, and whether that exceeds seed noise."""
    comparable = grouped(entry for entry in entries if entry.is_comparable)
    groups = [_RunGroup(name, group) for name, group in comparable.items()]
    if not groups:
        return "No run has a validation loss yet."
    best, *others = sorted(groups, key=lambda group: group.mean)
    if not others:
        if len(best.bits) == 1:
            return f"{best.name} reaches {best.mean:.4f} bits per byte on validation."
        return (
            f"{best.name} differ only in the seed and reach {min(best.bits):.4f} to "
            f"{max(best.bits):.4f} bits per byte on validation (mean {best.mean:.4f})."
        )
    second = others[0]
    gap = second.mean - best.mean
    lead = (
        f"{best} is best, with {best.mean:.4f} bits per byte on validation: {gap:.4f} "
        f"({gap / (second.mean or 1.0):.1%}) less than {second}."
    )
    spreads = [group.spread for group in (best, second) if len(group.bits) > 1]
    if not spreads:
        return f"{lead} Each has one seed, so the noise between seeds is unknown."
    spread = f"the spread over seeds ({max(spreads):.4f})"
    if is_within_seed_spread(best, second):
        return f"{lead} That is within {spread} and may be noise."
    return f"{lead} That exceeds {spread}."


def notes_of(entries: Sequence[ReportedRun]) -> list[str]:
    """Return the caveats of a comparison, a sentence each."""
    notes = []
    for state, label in (
        ("diverged", "Diverged, not compared"),
        ("pruned", "Pruned because other trials were better, not compared"),
        ("failed", "Failed, not compared"),
        ("running", "Still running"),
        ("stopped", "Stopped before the last step"),
        ("planned", "Not started"),
    ):
        if names := [entry.label for entry in entries if entry.state == state]:
            notes.append(f"{label}: {', '.join(names)}.")
    comparable = [entry for entry in entries if entry.is_comparable]
    runs = [entry.run for entry in comparable if entry.run is not None]
    if len({run.manifest.data_fingerprint for run in runs}) > 1:
        notes.append(
            "The runs used different data, so their losses depend on the text as well as on the "
            "model."
        )
    if len({run.config.watch.evaluation_tokens for run in runs}) > 1:
        notes.append("The runs were evaluated on different numbers of tokens.")
    tokens = [int(entry.curves.valid_bits.tokens[-1]) for entry in comparable]
    if len(set(tokens)) > 1:
        notes.append(
            f"The last evaluations came after different numbers of training tokens: "
            f"{min(tokens):,} to {max(tokens):,}."
        )
    return notes
