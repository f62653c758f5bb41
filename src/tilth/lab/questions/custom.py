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
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.files import FileError, StrPath, read_toml
from tilth.formatting import join_words
from tilth.lab.question import MAX_SEEDS, Findings, Question
from tilth.lab.trials import Column, PlannedTrial, Results, against, best_of, group_table
from tilth.schema import Length, Range, check, flat, read, short_repr

MOST_TRIALS = 10_000  # of a file; a grid of ten lists could name any number


@dataclass(frozen=True)
class CustomFile:
    """The content of the file of a question."""

    name: str
    """That of the file, without its ending."""
    asks: str = "How do these settings compare?"
    recipe: str = "small"
    seeds: Annotated[int, Range(at_least=1, at_most=MAX_SEEDS)] = 1
    base: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Annotated[list[Any], Length(at_least=1)]] = field(default_factory=dict)
    trials: tuple[dict[str, Any], ...] = ()

    def __post_init__(self) -> None:
        check(self)
        for trial in self.trials:
            if not isinstance(trial.get("label"), str):
                raise ValueError(f"there is a trial without a label ({short_repr(trial)}); give it one.")
        if "seed" in self.grid or any("seed" in trial for trial in self.trials):
            raise ValueError("it varies the seed; say seeds = 3.")
        if not self.grid and not self.trials:
            raise ValueError("there is neither a grid nor trials; say what to compare.")
        number = math.prod(map(len, self.grid.values())) + len(self.trials)
        if number > MOST_TRIALS:
            raise ValueError(f"it has {number:,} trials; give at most {MOST_TRIALS:,}.")

    @property
    def varies_steps(self) -> bool:
        """Whether it says itself how long some trials are."""
        return any("steps" in changes for changes in (self.grid, *self.trials))


def read_custom(path: StrPath) -> CustomFile:
    """Read a file, and check what can be checked without data."""
    values = read_toml(path)
    try:
        if "name" in values:
            raise ValueError("'name' is not a key of a question; name the file.")
        # model.d_model = … makes a table of its own in TOML
        for name in values.keys() & {"base", "grid"}:
            values[name] = flat(values[name]) if isinstance(values[name], dict) else values[name]
        if isinstance(trials := values.get("trials"), list):
            values["trials"] = [flat(t) if isinstance(t, dict) else t for t in trials]
        return read(CustomFile, {"name": Path(path).stem, **values}, "a question")
    except ValueError as error:
        problem = f"is no question ({str(error).rstrip('.')})"
        raise FileError(path, problem, "mend it") from None


class Custom(Question):
    """The question of such a file."""

    def __init__(self, own: CustomFile, base: TrainingConfig, seeds: int | None = None) -> None:
        super().__init__(base, own.seeds if seeds is None else seeds)
        self.name, self.asks = own.name, own.asks
        grid = own.grid
        self.changes: dict[str, dict[str, Any]] = {}
        for chosen in itertools.product(*grid.values()) if grid else ():
            changes = dict(zip(grid, chosen, strict=True))
            self.changes[_label(changes)] = changes
        for trial in own.trials:
            changes = dict(trial)
            label = changes.pop("label")
            if label in self.changes:
                raise ValueError(f"the label {label!r} is there twice; give each trial its own.")
            self.changes[label] = changes
        self.places: dict[str, float] = {}
        if len(grid) == 1 and not own.trials:  # one number that varies makes an axis
            (name, values) = next(iter(grid.items()))
            if all(type(value) in (int, float) for value in values):
                self.axis = name
                self.places = {_label({name: value}): value for value in values}
        self.trials({})  # so that an impossible value is said before anything is trained

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Each change, over seeds."""
        trials: list[PlannedTrial] = []
        for label, changes in self.changes.items():
            config = changed(self.base, changes)
            trials += self.over_seeds(_folder_name(label), label, config, self.places.get(label))
        return trials

    def conclude(self, results: Results) -> Findings:
        """All of them, the best first."""
        groups = self.groups(results)
        best = best_of(groups)
        if best is None:
            return Findings("No trial could be trained to the end.")
        ranked = sorted(groups, key=lambda r: (not r.is_whole, r.mean if r.is_whole else 0.0))
        own: dict[str, Column] = {
            "against the best": lambda each: None if each is best else against(each, best)
        }
        names = ("bits per byte", *own)
        table = group_table("Trials, the best first", ranked, "trial", names, own)
        answer = f"Best is {best.label}, with {best.mean:.4f} bits per byte on validation."
        if len(ranked) > 1 and ranked[1].is_whole:
            answer = f"{answer[:-1]}; next is {ranked[1].label}: {against(ranked[1], best)}."
        if lost := [each.label for each in groups if not each.is_whole]:
            answer += f" Not finished: {join_words(lost)}."
        return Findings(answer, (table,))


def _label(changes: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.split('.')[-1]} {value:g}"
        if isinstance(value, float)
        else f"{name.split('.')[-1]} {value}"
        for name, value in changes.items()
    )


def _folder_name(label: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", label).strip("-.") or "trial"
