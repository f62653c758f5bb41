"""A section of the write-up: its parts, the setting that they share, and their folds.

`sections.toml` lists the sections, and has the texts of their parts.
"""

import os
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from tilth.data.token_files import Data
from tilth.formatting import parse_duration
from tilth.lab.planning import Options
from tilth.lab.question import Tell
from tilth.lab.sections.figures import figures_table
from tilth.report.lab_file import Fold, Lab

SHORT_SECONDS = 1800.0
"""A write-up of less time trains the recipe tiny and evaluates each trial once."""
WATCH = {"watch.evaluation_tokens": 16_384, "watch.save_every": 0, "watch.sample_every": 0}
"""Of each trial. As in other labs, evaluations and samples took 86% to 96% of 5 minutes, and half
of two hours."""
SHORT_WATCH = {**WATCH, "watch.evaluation_tokens": 8_192, "watch.evaluate_every": 0}
Here = Mapping[str, str]
"""The values of this run for the figures of `figures.toml`, by key."""


@dataclass(frozen=True)
class Setting:
    """What all parts share."""

    folder: Path
    corpora: tuple[Data, ...]
    """The stories, then the other text."""
    names: tuple[str, ...]
    """Names of the corpora."""
    budget: str
    """The time for all trials."""
    steps: int | None
    """Steps per trial, instead of the time."""
    max_bytes: int
    """Most text of a split that is read."""
    options: Options
    """Of every question: recipe, seed, workers, changes, batch_size."""
    tell: Tell

    @property
    def seconds(self) -> float:
        """The budget in seconds."""
        return parse_duration(self.budget)

    def command(self, out: Path, *only: str) -> tuple[str, ...]:
        """Return the command of the whole document, or of the sections `only`."""
        length = {"budget": self.budget} if self.steps is None else {"steps": self.steps}
        options = Options(**{**self.options, **length, "out": out})  # type: ignore[typeddict-item]
        words = command_of("writeup", [data.folder for data in self.corpora], options)
        sections = (word for name in only for word in ("--only", name))
        return (*words, "--max-bytes", str(self.max_bytes), *sections)

    @property
    def texts(self) -> list[tuple[str, Data]]:
        """The corpora with their names."""
        return list(zip(self.names, self.corpora, strict=True))

    def options_of(self, name: str, share: float, **own: Any) -> Options:  # noqa: ANN401
        """Return the options of a question that takes a share of the time."""
        watch = SHORT_WATCH if self.seconds < SHORT_SECONDS else WATCH
        own["changes"] = {**watch, **own.get("changes", {}), **self.options.get("changes", {})}
        options = Options(**{**self.options, **own})  # type: ignore[typeddict-item]
        options["out"], options["tell"] = self.folder / name, self.tell
        if self.steps is not None:
            options["steps"] = self.steps
        elif "steps" not in own:
            options["budget"] = f"{self.seconds * share:.6g}s"
        return options


@dataclass(frozen=True)
class Made:
    """A lab of a part, how its numbers were computed, and its values for the figures."""

    lab: Lab
    how: tuple[str, ...]
    here: Here

    @classmethod
    def of(cls, lab: Lab, part: str, here: Here | None = None, **values: object) -> Self:
        """Return a lab with the texts of a part, in which `values` are filled in."""
        own = declared()["parts"][part]
        how, notes = (
            tuple(text.format(**values) for text in own.get(key, ())) for key in ("how", "notes")
        )
        lab = replace(lab, asks=own.get("asks", lab.asks), notes=notes or lab.notes)
        return cls(lab, how, here or {})

    def folded(self) -> Lab:
        """Return the lab with its folds."""
        command = shlex.join(self.lab.command)
        folds = [Fold("How it was computed", self.how, command)]
        if self.here:
            title = "The figures of the five write-ups, A to E"
            folds.append(Fold(title, table=figures_table(title, self.here)))
        return replace(self.lab, folds=tuple(folds))


@dataclass(frozen=True)
class Part:
    """A lab of the write-up, in the folder `name`; `problems` are those of the handout."""

    name: str
    problems: tuple[str, ...]
    make: Callable[[Setting], Made]


@dataclass(frozen=True)
class Section:
    """A numbered section: its name for --only, its title and its parts."""

    name: str
    title: str
    parts: tuple[Part, ...]


@cache
def declared() -> dict[str, Any]:
    """Return the content of `sections.toml`."""
    return tomllib.loads(Path(__file__).with_name("sections.toml").read_text("utf-8"))


def read_sections(makers: Mapping[str, Callable[[Setting], Made]]) -> tuple[Section, ...]:
    """Return the sections in their order; `makers` has the function of each part."""
    problems = {name: tuple(part["problems"]) for name, part in declared()["parts"].items()}
    return tuple(
        Section(
            section["name"],
            section["title"],
            tuple(Part(name, problems[name], makers[name]) for name in section["parts"]),
        )
        for section in declared()["sections"]
    )


def own_command(setting: Setting, name: str) -> tuple[str, ...]:
    """Return the command of a section that only the write-up computes."""
    return setting.command(Path("writeup-again"), name)


def command_of(question: str, folders: Sequence[Path], options: Options) -> tuple[str, ...]:
    """Return the command line of a question with these options."""
    words = ["tilth", "lab", question]
    for folder in folders:
        words += ["--data", os.fspath(folder)]
    for predicted in options.get("predict", ()):
        words += ["--predict", predicted]
    for name in (
        "recipe",
        "steps",
        "budget",
        "batch_size",
        "seed",
        "seeds",
        "close_seeds",
        "workers",
        "out",
    ):
        if (value := options.get(name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for variant in options.get("variants", ()):
        words += ["--variant", variant]
    for name, value in options.get("changes", {}).items():
        words += flag_of(name, value)
    return tuple(words)


def flag_of(name: str, value: object) -> list[str]:
    """Return a field of a config as words of a command line."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        table, _, last = flag.rpartition(".")
        return [f"--{table}.{'' if value else 'no-'}{last}"]
    return [f"--{flag}", str(value)]
