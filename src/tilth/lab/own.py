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

What enters: that file. What leaves: a question like the built-in ones.
"""

import itertools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tilth.files import FileError, StrPath, read_bytes
from tilth.lab.experiment import (
    Findings,
    Outcomes,
    Question,
    Setup,
    against,
    best_of,
    listed,
    results_of,
)
from tilth.lab.folder import Table
from tilth.recipes.changing import changed
from tilth.recipes.config import TrainingConfig, flattened


@dataclass(frozen=True)
class OwnQuestion:
    """The content of such a file."""

    name: str
    """That of the file, without its ending."""
    asks: str = "How do these settings compare?"
    recipe: str = "small"
    seeds: int = 1
    base: Mapping[str, Any] = field(default_factory=dict)
    grid: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[Mapping[str, Any], ...] = ()

    @property
    def varies_steps(self) -> bool:
        """Whether it says itself how long some trials are."""
        return any("steps" in changes for changes in (self.grid, *self.trials))


def read_own(path: StrPath) -> OwnQuestion:
    """Read a file, and check what can be checked without data."""
    path = Path(path)
    try:
        values = tomllib.loads(read_bytes(path).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(path, f"is not TOML ({error})", "mend it") from error
    kinds = {"asks": str, "recipe": str, "seeds": int, "base": dict, "grid": dict, "trials": list}
    for name, value in values.items():
        if name not in kinds:
            known = ", ".join(each.name for each in fields(OwnQuestion) if each.name != "name")
            raise FileError(path, f"has an unknown key {name}", f"there are {known}")
        if not isinstance(value, kinds[name]) or isinstance(value, bool):
            raise FileError(path, f"has {value!r} for {name}", f"give a {kinds[name].__name__}")
    for name in ("base", "grid"):  # model.d_model = … makes a table of its own in TOML
        values[name] = flattened(values.get(name, {}))
    for name, choices in values["grid"].items():
        if not isinstance(choices, list) or not choices:
            raise FileError(path, f"has {choices!r} for {name} in its grid", "give a list")
    for trial in values.get("trials", []):
        if not isinstance(trial, dict) or not isinstance(trial.get("label"), str):
            raise FileError(path, f"has a trial without a label ({trial!r})", "give it one")
    if "seed" in values["grid"] or any("seed" in trial for trial in values.get("trials", [])):
        raise FileError(path, "varies the seed", "say seeds = 3")
    if not values["grid"] and not values.get("trials"):
        raise FileError(path, "has neither a grid nor trials", "say what to compare")
    values["trials"] = tuple(flattened(trial) for trial in values.get("trials", ()))
    return OwnQuestion(path.stem, **values)


class Own(Question):
    """The question of such a file."""

    def __init__(self, own: OwnQuestion, base: TrainingConfig, seeds: int | None = None) -> None:
        super().__init__(base, own.seeds if seeds is None else seeds)
        self.name, self.asks = own.name, own.asks
        grid = own.grid
        self.changes: dict[str, dict[str, Any]] = {}
        for values in itertools.product(*grid.values()) if grid else ():
            changes = dict(zip(grid, values, strict=True))
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
        self.setups({})  # so that an impossible value is said before anything is trained

    def setups(self, outcomes: Outcomes) -> list[Setup]:
        """Each change, over seeds."""
        setups: list[Setup] = []
        for label, changes in self.changes.items():
            config = changed(self.base, changes)
            setups += self.over_seeds(_folder_name(label), label, config, self.places.get(label))
        return setups

    def conclude(self, outcomes: Outcomes) -> Findings:
        """All of them, the best first."""
        results = [*results_of(self.setups(outcomes), outcomes).values()]
        best = best_of(results)
        if best is None:
            return Findings("No trial could be trained to the end.")
        ranked = sorted(results, key=lambda r: (not r.is_whole, r.mean if r.is_whole else 0.0))
        rows = tuple(
            (each.label, each.standing, None if each is best else against(each, best))
            for each in ranked
        )
        table = Table(
            "Trials, the best first", ("trial", "bits per byte", "against the best"), rows
        )
        answer = f"Best is {best.label}, with {best.mean:.4f} bits per byte on validation."
        if len(ranked) > 1 and ranked[1].is_whole:
            answer = f"{answer[:-1]}; next is {ranked[1].label}: {against(ranked[1], best)}."
        if lost := [each.label for each in results if not each.is_whole]:
            answer += f" Not finished: {listed(lost)}."
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
