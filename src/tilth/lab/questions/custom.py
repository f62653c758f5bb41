"""A user's own question: a TOML file that names a base and a grid, or a list, of changes.

asks = "Does a wider model want a smaller learning rate?"
recipe = "tiny"
seeds = 2

[base]                           # changes for all
optimizer.weight_decay = 0.0

[grid]                           # every combination
model.d_model = [32, 64]
optimizer.lr = [1e-2, 3e-2]

[[trials]]                       # besides, one by one
label = "no warm-up"
optimizer.warmup_steps = 0
"""

import itertools
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.files import StrPath, read_toml, refuse_invalid
from tilth.formatting import join_words
from tilth.lab.question import SEEDS, Findings, Question
from tilth.lab.trials import (
    PlannedTrial,
    Results,
    best_of,
    difference_text,
    group_table,
    setting_label,
)
from tilth.schema import Length, check, flat, read, short_repr

MOST_TRIALS = 10_000  # of a file; a grid of ten lists could name any number


@dataclass(frozen=True)
class CustomFile:
    """The content of a question's file; `name` is the name of the file without its suffix."""

    name: str
    asks: str = "How do these settings compare?"
    recipe: str = "small"
    seeds: Annotated[int, SEEDS] = 1
    base: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Length(at_least=1)]] = field(default_factory=dict)
    trials: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check(self)
        for trial in self.trials:
            if not isinstance(trial.get("label"), str):
                shown = short_repr(trial)
                raise ValueError(f"a trial has no label ({shown}); give it one.")
        if self.varies("seed"):
            raise ValueError("it varies the seed; write seeds = 3 instead.")
        if not self.grid and not self.trials:
            raise ValueError("it has neither a grid nor trials; give values to compare.")
        number = math.prod(map(len, self.grid.values())) + len(self.trials)
        if number > MOST_TRIALS:
            raise ValueError(f"it has {number:,} trials; give at most {MOST_TRIALS:,}.")

    def varies(self, name: str) -> bool:
        """Return whether some trials set this field."""
        return any(name in changes for changes in (self.grid, *self.trials))


def read_custom(path: StrPath) -> CustomFile:
    """Read a file, and check it as far as that needs no data."""
    values = read_toml(path)
    with refuse_invalid(path, "is not a question", "correct it"):
        if "name" in values:
            raise ValueError("'name' is not a key of a question; name the file.")
        # TOML makes nested tables of dotted names
        for name in values.keys() & {"base", "grid"}:
            values[name] = _flat(values[name])
        if isinstance(trials := values.get("trials"), list):
            values["trials"] = [_flat(trial) for trial in trials]
        return read(CustomFile, {"name": Path(path).stem, **values}, "a question")


def _flat(table: Any) -> Any:  # noqa: ANN401, checked later
    return flat(table) if isinstance(table, dict) else table


class Custom(Question):
    """The question of a TOML file."""

    def __init__(self, own: CustomFile, base: TrainingConfig, seeds: int | None = None) -> None:
        super().__init__(base, own.seeds if seeds is None else seeds)
        self.name, self.asks = own.name, own.asks
        grid = itertools.product(*own.grid.values()) if own.grid else ()
        labelled = []
        for chosen in grid:
            changes = dict(zip(own.grid, chosen, strict=True))
            labelled.append((", ".join(itertools.starmap(setting_label, changes.items())), changes))
        for trial in own.trials:
            changes = dict(trial)
            labelled.append((changes.pop("label"), changes))
        self.changes: dict[str, dict[str, Any]] = {}
        for label, changes in labelled:
            if label in self.changes:
                raise ValueError(f"two trials have the label {label!r}; give each another.")
            self.changes[label] = changes
        values = [value for values in own.grid.values() for value in values]
        if len(own.grid) == 1 and not own.trials and all(type(v) in (int, float) for v in values):
            self.axis = next(iter(own.grid))  # a single numeric field is an axis
        self.trials({})  # so that an impossible value is an error before any training

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return a trial for each change and seed."""
        trials: list[PlannedTrial] = []
        for label, changes in self.changes.items():
            name = re.sub(r"[^\w.+-]+", "-", label).strip("-.") or "trial"
            config = changed(self.base, changes)
            trials += self.over_seeds(name, label, config, changes.get(self.axis))
        return trials

    def conclude(self, results: Results) -> Findings:
        """Rank all trials, the best first."""
        groups = self.groups(results)
        best = best_of(groups)
        if best is None:
            return Findings("No trial finished training.")
        ranked = sorted(groups, key=lambda g: (not g.is_whole, g.mean if g.is_whole else 0.0))
        gap = (
            "difference from best",
            lambda each: None if each is best else difference_text(each, best),
        )
        table = group_table("Trials, best first", ranked, "trial", "bits per byte", gap)
        answer = (
            f"The best trial is {best.label}, with {best.mean:.4f} bits per byte on validation."
        )
        if len(ranked) > 1 and ranked[1].is_whole:
            gap_of_second = difference_text(ranked[1], best)
            answer += f" The second best is {ranked[1].label}: {gap_of_second}."
        if lost := [each.label for each in groups if not each.is_whole]:
            answer += f" Not finished: {join_words(lost)}."
        return Findings(answer, (table,))
