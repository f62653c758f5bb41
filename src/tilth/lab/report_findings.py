"""Runs to an answer: which differ in the seed alone, which is best, and whether that is chance.

What enters: runs, or a lab with its runs. What leaves: an `Entry` for each, in groups of those that
differ in the seed alone, and sentences computed from their validation losses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from tilth.files import StrPath
from tilth.lab.experiment import is_chance
from tilth.lab.folder import Lab, trial_folder
from tilth.lab.report_curves import Curves, last_value, read_curves
from tilth.recipes.config import TrainingConfig, differences
from tilth.runs.run import CONFIG, Run, open_run

ASKS = "How do these runs compare?"
MAX_NAMED = 3  # values in the name of a group; more are hard to read


@dataclass(frozen=True)
class Entry:
    """A run in a report; a trial of a lab that has not begun has none yet."""

    label: str
    group: str
    state: str
    run: Run | None = None
    curves: Curves | None = None
    x: float | None = None
    """Its place on the axis of its lab."""

    @property
    def bits_per_byte(self) -> float | None:
        """Of the last evaluation."""
        return None if self.curves is None else last_value(self.curves.valid_bits)

    @property
    def valid_loss(self) -> float | None:
        """Of the last evaluation."""
        return None if self.curves is None else last_value(self.curves.valid_loss)

    @property
    def is_comparable(self) -> bool:
        """Whether its last evaluation says how good it is."""
        return self.bits_per_byte is not None and self.state not in ("diverged", "pruned", "failed")


def entries_of_lab(folder: StrPath, lab: Lab) -> list[Entry]:
    """The trials of a lab, with the runs that there are."""
    entries = []
    for trial in lab.trials:
        path = trial_folder(folder, trial)
        run = open_run(path) if (path / CONFIG).exists() else None
        curves = None if run is None else read_curves(run)
        entries.append(Entry(trial.label, trial.group, trial.state, run, curves, trial.x))
    return entries


def entries_of_runs(paths: Sequence[Path]) -> tuple[list[Entry], str]:
    """Runs that nobody has labelled, and the one number that varies between them, if it is one."""
    runs = [open_run(path) for path in paths]
    labels = labels_of(paths)
    # The data by its fingerprint too: a folder may be filled again, with another text.
    keys = [(replace(run.config, seed=0), run.manifest["data_fingerprint"]) for run in runs]
    members: dict[Any, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    varying = [name for name in varying_values([run.config for run in runs]) if name != "seed"]
    names: dict[Any, str] = {}
    for key, indices in members.items():
        first = indices[0]
        name = labels[first]
        if len(indices) > 1:
            name += f" and {len(indices) - 1} more"
            if 0 < len(varying) <= MAX_NAMED:
                said = _said(varying, runs[first].config)
                name = said if said not in names.values() else name
        names[key] = name
    places = _places(varying, runs)
    entries = [
        Entry(label, names[key], state_of(run, curves), run, curves, x)
        for run, label, key, x in zip(runs, labels, keys, places, strict=True)
        for curves in [read_curves(run)]
    ]
    return entries, varying[0] if places[0] is not None else ""


def _places(varying: list[str], runs: list[Run]) -> list[float | None]:
    """The values of the runs on an axis, where a single number varies and has three or more."""
    if len(varying) == 1:
        values = [flat_values(run.config).get(varying[0]) for run in runs]
        if all(type(value) in (int, float) for value in values) and len(set(values)) >= 3:
            return values
    return [None] * len(runs)


def state_of(run: Run, curves: Curves) -> str:
    """How a run stands."""
    if run.is_running:
        return "running"
    if curves.ends_badly:
        return "diverged"
    return "finished" if run.is_finished else "stopped"


def labels_of(paths: Sequence[Path]) -> list[str]:
    """The ends of paths, as short as they can be and still differ."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts), default=0)):
        labels = ["/".join(each[-length:]) for each in parts]
        if len(set(labels)) == len(labels):
            return labels
    return [str(path) for path in paths]


# --- configs --------------------------------------------------------------------------------------


def varying_values(configs: Sequence[TrainingConfig]) -> list[str]:
    """The dotted names of what configs differ in, without what only follows from the rest.

    A hundredth of the learning rate, say, is what `min_lr` becomes by itself.
    """
    names = {name for other in configs[1:] for name in differences(configs[0], other)}
    decided = {name for config in configs for name in _decided(config)}
    return sorted(names & decided)


def _decided(config: TrainingConfig) -> set[str]:
    """The names of values that would be others, or unknown, had nobody decided them."""
    unset: Any = None
    every = ("evaluate_every", "save_every", "norms_every", "sample_every")
    bare = replace(
        config,
        microbatch_size=unset,
        optimizer=replace(config.optimizer, min_lr=unset, warmup_steps=unset, decay_steps=unset),
        watch=replace(config.watch, **dict.fromkeys(every, unset)),
    )
    derivable = differences(config, bare).keys()
    return set(flat_values(config)) - (derivable - differences(config, bare.resolved()).keys())


def flat_values(config: TrainingConfig) -> dict[str, Any]:
    """The values of a config by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    return flat


def _said(names: Iterable[str], config: TrainingConfig) -> str:
    values = flat_values(config)
    return ", ".join(f"{name.split('.')[-1]} {shown_value(name, values[name])}" for name in names)


def shown_value(name: str, value: object) -> str:
    """A value of a config as people write it."""
    if name == "data":  # the rest of its path says more about a machine than about the run
        return Path(str(value)).name
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- the answer -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Result:
    """The bits per byte of a group."""

    name: str
    values: list[float]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def spread(self) -> float:
        return max(self.values) - min(self.values)

    def __str__(self) -> str:
        number = len(self.values)
        return self.name if number == 1 else f"{self.name} (mean of {number} seeds)"


def groups_of(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by their group, in the order in which they come."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    return groups


def answer_of(entries: Sequence[Entry]) -> str:
    """Which run is best on validation, by how much, and whether that is more than chance."""
    comparable = groups_of(entry for entry in entries if entry.is_comparable)
    results = sorted(
        (
            _Result(name, [bits for entry in group if (bits := entry.bits_per_byte) is not None])
            for name, group in comparable.items()
        ),
        key=lambda result: result.mean,
    )
    if not results:
        return "No run has a validation loss yet."
    best = results[0]
    if len(results) == 1:
        if len(best.values) == 1:
            return f"{best.name} reaches {best.mean:.4f} bits per byte on validation."
        return (
            f"{best.name} differ in the seed alone, and reach {min(best.values):.4f} to "
            f"{max(best.values):.4f} bits per byte on validation, {best.mean:.4f} on average."
        )
    second = results[1]
    gap = second.mean - best.mean
    said = (
        f"Best is {best}: {best.mean:.4f} bits per byte on validation, {gap:.4f} "
        f"({gap / second.mean:.1%}) less than {second}."
    )
    spreads = [result.spread for result in (best, second) if len(result.values) > 1]
    if not spreads:
        return f"{said} Each has one seed, so how much of that is chance is not known."
    if not is_chance(best, second):
        return f"{said} That is more than the spread over seeds, {max(spreads):.4f}."
    return (
        f"{said} That is no more than the spread over seeds, {max(spreads):.4f}: it may be chance."
    )


def notes_of(entries: Sequence[Entry]) -> list[str]:
    """What to know before believing a comparison, a sentence each."""
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
    if len({run.manifest["data_fingerprint"] for run in runs}) > 1:
        notes.append(
            "The runs have different data, so their losses differ by the text as well as by the "
            "model."
        )
    if len({run.config.watch.evaluation_tokens for run in runs}) > 1:
        notes.append("The runs were validated on different amounts of text.")
    tokens = [int(e.curves.valid_bits.tokens[-1]) for e in comparable if e.curves is not None]
    if len(set(tokens)) > 1:
        notes.append(
            f"The last evaluations came after {min(tokens):,} to {max(tokens):,} tokens of "
            "training, not after equally many."
        )
    return notes
