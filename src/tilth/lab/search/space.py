"""The space of a search: words like `optimizer.lr=1e-4..1e-1` to ranges and choices of values.

All values are checked against the config before the first trial.

>>> space = read_space(["optimizer.lr=1e-4..1e-1", "model.num_layers=2,4,6", "seed=0..9"])
>>> print(*space, sep="; ")
optimizer.lr from 0.0001 to 0.1, log scale; model.num_layers 2, 4 or 6; seed from 0 to 9
>>> settings_label({"optimizer.lr": 0.00316, "model.num_layers": 4, "optimizer.name": "muon"})
'lr 0.00316, 4 layers, muon'
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilth.config.overrides import field_names
from tilth.config.training import TrainingConfig
from tilth.lab.trials import setting_label
from tilth.schema import short_repr

FORMS = "NAME=LOW..HIGH or NAME=A,B,C"
DRAWS = 100  # of all values together: enough to find values that fit with others, if any do
# Fields whose values cannot be compared, or that do not change the training.
NOT_SEARCHED = ("data", "recipe", "budget_seconds", "watch.")
UNITS = {"model.num_layers": "layer", "model.num_heads": "head"}

Values = Mapping[str, Any]
"""By dotted name, as `changed` takes them."""
Build = Callable[[Values], TrainingConfig]
"""The config of a trial; ValueError or TypeError if the values do not fit together."""


@dataclass(frozen=True)
class Range:
    """A range of numbers, or of whole numbers."""

    name: str
    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """Whether it has only whole numbers: both ends were written as integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def is_logarithmic(self) -> bool:
        """Whether it is searched by its logarithm: it spans more than a decade."""
        return not self.is_whole and 0 < 10 * self.low < self.high

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values to check before a search."""
        return self.low, self.high

    def parameter(self, value: Any) -> Any:  # noqa: ANN401, any value of a config
        """Return the Optuna parameter of a value; None if the value is outside."""
        kinds = (int,) if self.is_whole else (int, float)
        return value if type(value) in kinds and self.low <= value <= self.high else None

    def at(self, parameter: float) -> float:
        """Return the value to train with: three digits, as a label shows all of them."""
        if self.is_whole:
            return int(parameter)
        return min(max(float(f"{parameter:.3g}"), self.low), self.high)

    def draw(self, random: np.random.Generator) -> float:
        """Draw a parameter."""
        if self.is_whole:
            return int(random.integers(int(self.low), int(self.high), endpoint=True))
        if self.is_logarithmic:
            return float(np.exp(random.uniform(np.log(self.low), np.log(self.high))))
        return float(random.uniform(self.low, self.high))

    def __str__(self) -> str:
        how = ", log scale" if self.is_logarithmic else ""
        return f"{self.name} from {self.low:g} to {self.high:g}{how}"


@dataclass(frozen=True)
class Choice:
    """Some values, by the words that they were given in."""

    name: str
    words: tuple[str, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values to check before a search: all of them."""
        return tuple(map(_value, self.words))

    def parameter(self, value: object) -> str | None:
        """Return the word of a value; None if it has none."""
        plain = list(value) if isinstance(value, tuple) else value
        return next((word for word in self.words if _value(word) == plain), None)

    def at(self, parameter: str) -> Any:  # noqa: ANN401, any value of a config
        """Return the value to train with."""
        return _value(parameter)

    def draw(self, random: np.random.Generator) -> str:
        """Draw a word."""
        return self.words[int(random.integers(len(self.words)))]

    def __str__(self) -> str:
        *first, last = self.words
        return f"{self.name} {', '.join(first)} or {last}"


Varied = Range | Choice


def read_space(words: Sequence[str]) -> tuple[Varied, ...]:
    """Parse the space of a search, with each field once."""
    space = tuple(map(_read, words))
    if not space:
        raise ValueError(f"a search must vary a field; write {FORMS}.")
    names = [varied.name for varied in space]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} is varied twice; give all its values at once.")
    return space


def _read(words: str) -> Varied:
    name, _, values = (part.strip() for part in words.partition("="))
    if not name or not values:
        raise ValueError(f"{short_repr(words)} varies nothing; write {FORMS}.")
    if name.startswith(NOT_SEARCHED):
        raise ValueError(f"{name} cannot be searched: its values are not comparable.")
    if ".." in values:
        ends: list[Any] = [_scalar(end) for end in values.split("..", 1)]
        # Within 64 bits, from which NumPy draws: neither infinite nor NaN.
        are_numbers = all(type(end) in (int, float) and abs(end) < 2**63 for end in ends)
        if not are_numbers or ends[0] >= ends[1]:
            problem = f"{short_repr(words)} is not a range"
            raise ValueError(f"{problem}; write two numbers below 2^63, the lower one first.")
        return Range(name, *ends)
    chosen = [word.strip() for word in re.findall(r"\[[^]]*\]|[^,]+", values)]
    if len({str(_value(word)) for word in chosen}) < max(2, len(chosen)):
        problem = f"{short_repr(words)} is not a choice"
        raise ValueError(f"{problem}; write two values or more, each once.")
    return Choice(name, tuple(chosen))


def _value(word: str) -> Any:  # noqa: ANN401, any value of a config
    """Parse a whole number, a number, true, false, a list in brackets, or text."""
    if word.startswith("[") and word.endswith("]"):
        return [_scalar(part.strip()) for part in word[1:-1].split(",")]
    return _scalar(word)


def _scalar(word: str) -> bool | float | str:
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word


def check_space(space: Sequence[Varied], build: Build, seed: int = 0) -> float:
    """Refuse values that no trial could have; return the share of trials that can be trained."""
    for varied in space:
        if varied.name not in field_names():
            build({varied.name: None})  # an error, with a suggestion
    drawn = [values for _, values in draw_points(space, DRAWS, seed)]
    for varied in space:
        for value in varied.ends:
            # With the other values of the base; or else with some others that are searched.
            alone = {varied.name: value}
            if not any(fits({**values, **alone}, build) for values in ({}, *drawn)):
                try:
                    build(alone)
                except TypeError:  # for example text in place of a number
                    hint = "give values of another kind"
                    raise ValueError(f"{varied.name} cannot be {value!r}; {hint}.") from None
    return sum(fits(values, build) for values in drawn) / len(drawn)


def fits(values: Values, build: Build) -> bool:
    """Return whether values fit together."""
    with suppress(ValueError, TypeError):
        build(values)
        return True
    return False


def draw_points(
    space: Sequence[Varied], number: int, seed: int | list[int]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Draw points at random; yield their Optuna parameters and their values."""
    random = np.random.default_rng(seed)
    for _ in range(number):
        drawn: dict[str, Any] = {varied.name: varied.draw(random) for varied in space}
        yield drawn, {varied.name: varied.at(drawn[varied.name]) for varied in space}


def settings_label(values: Values) -> str:
    """Return the label of a trial with these values."""
    return ", ".join(_label(name, value) for name, value in values.items())


def _label(name: str, value: object) -> str:
    if name in UNITS:
        return f"{value} {UNITS[name]}{'' if value == 1 else 's'}"
    return str(value) if name == "optimizer.name" else setting_label(name, value)
