"""Runs to an answer: which differ only in the seed, which is best, and whether that is chance."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from tilth.config.overrides import changed
from tilth.config.training import ResolvedConfig, differences
from tilth.report.curves import NO_CURVES, Curves, last_value
from tilth.runs.metrics import SampleRecord
from tilth.runs.run import Run
from tilth.schema import flat

MAX_NAMED = 3  # values in the name of a group; more are hard to read


@dataclass(frozen=True)
class ReportedRun:
    """A run in a report; a trial that has not begun, or cannot be read, has no `run`."""

    label: str
    group: str
    state: str
    run: Run | None = None
    curves: Curves = NO_CURVES
    x: float | None = None
    """Its place on the axis of its lab."""
    samples: tuple[SampleRecord, ...] = ()

    @property
    def bits_per_byte(self) -> float | None:
        """Of the last evaluation."""
        return last_value(self.curves.valid_bits)

    @property
    def valid_loss(self) -> float | None:
        """Of the last evaluation."""
        return last_value(self.curves.valid_loss)

    @property
    def is_comparable(self) -> bool:
        """Whether its last evaluation says how good it is."""
        return self.bits_per_byte is not None and self.state not in ("diverged", "pruned", "failed")


def labels_of(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of paths that still differ."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts), default=0)):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


def group_names(runs: Sequence[Run], labels: Sequence[str], varying: list[str]) -> list[str]:
    """The group of each run: runs that differ only in the seed have the same."""
    # The data by its fingerprint too: a folder may be filled again, with another text.
    keys = [(replace(run.config, seed=0), run.manifest.data_fingerprint) for run in runs]
    names: dict[Any, str] = {}
    for key, number in Counter(keys).items():
        first = keys.index(key)
        names[key] = labels[first] if number == 1 else f"{labels[first]} and {number - 1} more"
        if number > 1 and 0 < len(varying) <= MAX_NAMED:
            values = flat(runs[first].config.to_dict())
            shown = (f"{n.split('.')[-1]} {shown_value(n, values[n])}" for n in varying)
            if (name := ", ".join(shown)) not in names.values():
                names[key] = name
    return [names[key] for key in keys]


def axis_places(runs: Sequence[Run], varying: list[str]) -> list[float | None]:
    """The values of the runs on an axis, where a single number varies and has three or more."""
    if len(varying) == 1:
        values = [flat(run.config.to_dict()).get(varying[0]) for run in runs]
        if all(type(value) in (int, float) for value in values) and len(set(values)) >= 3:
            return values
    return [None] * len(runs)


def varying_values(configs: Sequence[ResolvedConfig]) -> list[str]:
    """The dotted names of values that differ, without derived ones.

    `min_lr`, for example, is a hundredth of the learning rate by default.
    """
    names = {name for other in configs[1:] for name in differences(configs[0], other)}
    decided = {name for config in configs for name in _decided(config)}
    return sorted(names & decided)


def _decided(config: ResolvedConfig) -> set[str]:
    """The names of values that are not the ones that would be derived."""
    tables = {
        "optimizer": ("min_lr", "warmup_steps", "decay_steps"),
        "watch": ("evaluate_every", "save_every", "norms_every", "sample_every"),
    }
    names = [f"{table}.{name}" for table, inner in tables.items() for name in inner]
    bare = changed(config.opened(), dict.fromkeys(["microbatch_size", *names]))
    derivable = differences(config, bare).keys()
    return set(flat(config.to_dict())) - (derivable - differences(config, bare.filled()).keys())


def shown_value(name: str, value: object) -> str:
    """A value of a config as people write it."""
    if name == "data":  # the rest of its path says more about a machine than about the run
        return Path(str(value)).name
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- the answer -----------------------------------------------------------------------------------


class OverSeeds(Protocol):
    """Bits per byte of trials that differ only in the seed: their mean and spread."""

    @property
    def bits(self) -> list[float]:
        """Bits per byte, by seed."""

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return fmean(self.bits)

    @property
    def spread(self) -> float:
        """The difference between the best and the worst seed."""
        return max(self.bits) - min(self.bits)


def is_chance(one: OverSeeds, other: OverSeeds) -> bool:
    """Whether two means differ by no more than the seeds of either do."""
    return abs(one.mean - other.mean) <= max(one.spread, other.spread)


class _RunGroup(OverSeeds):
    """The runs of a group that can be compared."""

    def __init__(self, name: str, runs: Sequence[ReportedRun]) -> None:
        self.name, self.runs = name, runs

    @property
    def bits(self) -> list[float]:
        return [bits for run in self.runs if (bits := run.bits_per_byte) is not None]

    def __str__(self) -> str:
        number = len(self.bits)
        return self.name if number == 1 else f"{self.name} (mean of {number} seeds)"


def groups_of(entries: Iterable[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Entries by their group, in the order in which they come."""
    groups: dict[str, list[ReportedRun]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    return groups


def answer_of(entries: Sequence[ReportedRun]) -> str:
    """Which run is best on validation, by how much, and whether that is more than chance."""
    comparable = groups_of(entry for entry in entries if entry.is_comparable)
    groups = [_RunGroup(name, group) for name, group in comparable.items()]
    if not groups:
        return "No run has a validation loss yet."
    best, *others = sorted(groups, key=lambda group: group.mean)
    if not others:
        if len(best.bits) == 1:
            return f"{best.name} reaches {best.mean:.4f} bits per byte on validation."
        return (
            f"{best.name} differ in the seed alone, and reach {min(best.bits):.4f} to "
            f"{max(best.bits):.4f} bits per byte on validation, {best.mean:.4f} on average."
        )
    second = others[0]
    gap = second.mean - best.mean
    said = (
        f"Best is {best}: {best.mean:.4f} bits per byte on validation, {gap:.4f} "
        f"({gap / (second.mean or 1.0):.1%}) less than {second}."
    )
    spreads = [group.spread for group in (best, second) if len(group.bits) > 1]
    if not spreads:
        return f"{said} Each has one seed, so how much of that is chance is not known."
    spread = f"the spread over seeds, {max(spreads):.4f}"
    if is_chance(best, second):
        return f"{said} That is no more than {spread}: it may be chance."
    return f"{said} That is more than {spread}."


def notes_of(entries: Sequence[ReportedRun]) -> list[str]:
    """Caveats of a comparison, a sentence each."""
    notes = []
    for state, said in (
        ("diverged", "Diverged, and so not compared"),
        ("pruned", "Stopped early, as others were better by then, and so not compared"),
        ("failed", "Failed, and so not compared"),
        ("running", "Still running"),
        ("stopped", "Stopped before the last step"),
        ("planned", "Not begun"),
    ):
        if names := [entry.label for entry in entries if entry.state == state]:
            notes.append(f"{said}: {', '.join(names)}.")
    comparable = [entry for entry in entries if entry.is_comparable]
    runs = [entry.run for entry in comparable if entry.run is not None]
    if len({run.manifest.data_fingerprint for run in runs}) > 1:
        notes.append(
            "The runs have different data, so their losses differ by the text as well as by the "
            "model."
        )
    if len({run.config.watch.evaluation_tokens for run in runs}) > 1:
        notes.append("The runs were validated on different amounts of text.")
    tokens = [int(entry.curves.valid_bits.tokens[-1]) for entry in comparable]
    if len(set(tokens)) > 1:
        notes.append(
            f"The last evaluations came after {min(tokens):,} to {max(tokens):,} tokens of "
            "training, not after equally many."
        )
    return notes
