"""What a search varies: words like `optimizer.lr=1e-4..1e-1` to ranges and choices of values.

What enters: words, and the config that they change. What leaves: a `Range` or a `Choice` for each,
held against the config, so that a value that could never be trained is refused before the first.

>>> space = read_space(["optimizer.lr=1e-4..1e-1", "model.num_layers=2,4,6", "seed=0..9"])
>>> print(*space, sep="; ")
optimizer.lr from 0.0001 to 0.1, by its logarithm; model.num_layers 2, 4 or 6; seed from 0 to 9
>>> said({"optimizer.lr": 0.00316, "model.num_layers": 4, "optimizer.name": "muon"})
'lr 0.00316, 4 layers, muon'
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilth.config.overrides import field_names
from tilth.config.training import TrainingConfig

FORMS = "NAME=LOW..HIGH or NAME=A,B,C"
DRAWS = 100  # of all values together: enough to find one that goes well with others, if any does
# What a search cannot compare, and what says how a run is watched instead of how it learns.
NOT_SEARCHED = ("data", "recipe", "budget_seconds", "watch.")
UNITS = {"model.num_layers": "layer", "model.num_heads": "head"}

Values = Mapping[str, Any]
"""By dotted name, as `changed` takes them."""
Build = Callable[[Values], TrainingConfig]
"""The config of a trial; ValueError where there can be none."""


@dataclass(frozen=True)
class Range:
    """All numbers from one to another, or the whole ones."""

    name: str
    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers count: both ends were written as such."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def is_logarithmic(self) -> bool:
        """Whether 0.001 to 0.01 is as long as 0.01 to 0.1: over more than a decade."""
        return not self.is_whole and 0 < 10 * self.low < self.high

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that show whether all can be trained."""
        return self.low, self.high

    def has(self, value: object) -> bool:
        """Whether a value of a config lies in it."""
        kinds = int if self.is_whole else (int, float)
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high  # type: ignore[operator]

    def at(self, parameter: float) -> float:
        """The value to train with: three digits, as a label can show all of them."""
        if self.is_whole:
            return int(parameter)
        return min(max(float(f"{parameter:.3g}"), self.low), self.high)

    def draw(self, chance: np.random.Generator) -> float:
        """Any of them, for a look at what a search will meet."""
        if self.is_whole:
            return int(chance.integers(int(self.low), int(self.high), endpoint=True))
        if self.is_logarithmic:
            return float(np.exp(chance.uniform(np.log(self.low), np.log(self.high))))
        return float(chance.uniform(self.low, self.high))

    def __str__(self) -> str:
        how = ", by its logarithm" if self.is_logarithmic else ""
        return f"{self.name} from {self.low:g} to {self.high:g}{how}"


@dataclass(frozen=True)
class Choice:
    """Some values, by the words that they were given in."""

    name: str
    words: tuple[str, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that show whether all can be trained: all of them."""
        return tuple(map(_value, self.words))

    def has(self, value: object) -> bool:
        """Whether a value of a config is one of them."""
        return self.word(value) is not None

    def word(self, value: object) -> str | None:
        """The word of a value."""
        plain = list(value) if isinstance(value, tuple) else value
        same = (word for word in self.words if _value(word) == plain)
        return next(same, None)

    def at(self, parameter: str) -> Any:  # noqa: ANN401, any value of a config
        """The value to train with."""
        return _value(parameter)

    def draw(self, chance: np.random.Generator) -> str:
        """Any of the words."""
        return self.words[int(chance.integers(len(self.words)))]

    def __str__(self) -> str:
        *first, last = self.words
        return f"{self.name} {', '.join(first)} or {last}"


Varied = Range | Choice


def read_space(words: Sequence[str]) -> tuple[Varied, ...]:
    """Read what is to vary; each field once."""
    space = tuple(_read(word) for word in words)
    if not space:
        raise ValueError(f"a search has to vary something; write {FORMS}.")
    names = [varied.name for varied in space]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} is varied twice; give all its values at once.")
    return space


def _read(words: str) -> Varied:
    name, _, values = (part.strip() for part in words.partition("="))
    if not name or not values:
        raise ValueError(f"{words!r} varies nothing; write {FORMS}.")
    if name.startswith(NOT_SEARCHED):
        raise ValueError(f"{name} is nothing to search for: its values cannot be compared.")
    if (ends := values.split(".."))[1:]:
        low, high = (_value(end) for end in (ends[0], "..".join(ends[1:])))
        if not all(type(end) in (int, float) for end in (low, high)) or not low < high:
            raise ValueError(f"{words!r} is no range; write two numbers, the lower one first.")
        return Range(name, low, high)
    chosen = [word.strip() for word in re.findall(r"\[[^]]*\]|[^,]+", values)]
    if len(dict.fromkeys(map(str, map(_value, chosen)))) < max(2, len(chosen)):
        raise ValueError(f"{words!r} is no choice; write two values or more, each once.")
    return Choice(name, tuple(chosen))


def _value(word: str) -> Any:  # noqa: ANN401, any value of a config
    """A whole number, a number, true, false, a list in brackets, or text."""
    if word in ("true", "false"):
        return word == "true"
    if word.startswith("[") and word.endswith("]"):
        return [_value(part.strip()) for part in word[1:-1].split(",")]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word


def check_space(space: Sequence[Varied], build: Build, seed: int = 0) -> float:
    """Refuse a value that no trial could have; return the share of trials that can be trained."""
    for varied in space:
        if varied.name not in field_names():
            build({varied.name: None})  # which says so, with a hint
    drawn = list(draw_values(space, DRAWS, seed))
    good = [values for values in drawn if _can_be_trained(values, build)]
    for varied in space:
        for value in varied.ends:
            # With the other values of the base; or else with some others that are searched.
            alone = {varied.name: value}
            if not any(_can_be_trained({**values, **alone}, build) for values in ({}, *drawn)):
                _refuse(alone, build)
    return len(good) / len(drawn)


def _refuse(values: Values, build: Build) -> None:
    try:
        build(values)
    except TypeError:  # a text, say, where a number is reckoned with
        name, value = next(iter(values.items()))
        raise ValueError(f"{name} cannot be {value!r}; give values of another kind.") from None


def _can_be_trained(values: Values, build: Build) -> bool:
    try:
        build(values)
    except (ValueError, TypeError):
        return False
    return True


def draw_values(space: Sequence[Varied], number: int, seed: int) -> Iterable[dict[str, Any]]:
    """Values at random."""
    chance = np.random.default_rng(seed)
    for _ in range(number):
        yield {varied.name: varied.at(varied.draw(chance)) for varied in space}  # type: ignore[arg-type]


def said(values: Values) -> str:
    """Values as people say them."""
    return ", ".join(_said(name, value) for name, value in values.items())


def _said(name: str, value: object) -> str:
    if name in UNITS:
        return f"{value} {UNITS[name]}{'' if value == 1 else 's'}"
    if name == "optimizer.name":
        return str(value)
    return f"{name.rpartition('.')[2]} {shown(value)}"


def shown(value: object) -> str:
    """A value as people write it."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
