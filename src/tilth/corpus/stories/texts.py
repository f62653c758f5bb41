"""The text files of the stories: plots, phrases and words, read from the package.

All of them have one format: sections that begin with `== NAME`, in each some lines `key: value`,
then a body. A line that begins with `#` is a comment. What a body holds is explained at the top of
each file, the language of plots in `plots/either.txt`.

>>> load_plots()[0].title
'the lost thing'
>>> load_words()["traits"].words()[:3]
['curious', 'kind', 'happy']
"""

import itertools
import re
from collections.abc import Collection, Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from tilth.files import FileError

PLOT_FILES = ("either", "children", "animals", "tales")
WORLDS = ("child", "animal", "tale")
SLOT_KEY = "{}"  # stands for every key in braces

_KEY = re.compile(r"([a-z]+|\{[a-z]+\}): +(.*)")


class Section(NamedTuple):
    """A part of a text file below one heading."""

    file: str
    line: int
    """Of the heading."""
    name: str
    keys: dict[str, str]
    body: str

    def error(self, problem: str) -> FileError:
        """The error of a malformed section."""
        return FileError(self.file, f"{problem} in '{self.name}' on line {self.line}", "correct it")

    def words(self) -> list[str]:
        """Words with spaces between them."""
        return self.body.split()

    def items(self) -> list[str]:
        """Words with commas between them."""
        return [" ".join(item.split()) for item in self.body.split(",")]

    def rows(self, size: int) -> list[list[str]]:
        """Lines of `size` items each."""
        rows = [line.split(", ") for line in self.body.splitlines()]
        for row in rows:
            if len(row) != size:
                raise self.error(f"has {', '.join(row)!r} instead of {size} items")
        return rows

    def paragraphs(self, size: int | None = None) -> list[str]:
        """The parts between empty lines; there must be `size`."""
        found = re.split(r"\n{2,}", self.body)
        if size not in {None, len(found)}:
            raise self.error(f"has {len(found)} paragraphs instead of {size}")
        return found

    def worlds(self) -> tuple[str, ...]:
        """The worlds that it names; all of them where there is no such key."""
        if "worlds" not in self.keys:
            return WORLDS
        worlds = tuple(self.keys["worlds"].split(", "))
        if not set(worlds) <= set(WORLDS):
            raise self.error(f"has an unknown world ({', '.join(WORLDS)} are known)")
        return worlds


def parse_sections(text: str, file: str, keys: Collection[str] = ()) -> Iterator[Section]:
    """The sections of a text, which may have only the given keys."""
    heading: tuple[int, str] | None = None
    found: dict[str, str] = {}
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), "== "], 1):
        if line.startswith("#"):
            continue
        if line.startswith("== "):
            if heading:
                yield Section(file, *heading, found, "\n".join(lines).strip())
            heading, found, lines = (number, line[3:].strip()), {}, []
        elif (match := _KEY.fullmatch(line)) and heading and not lines:
            key, value = match.groups()
            if (SLOT_KEY if key.startswith("{") else key) not in keys or key in found:
                problem = f"has the unknown or repeated key {key!r} on line {number}"
                raise FileError(file, problem, "correct it")
            found[key] = value
        elif heading:
            lines.append(line.strip())
        elif line.strip():
            raise FileError(file, f"has text before a heading on line {number}", "correct it")


def read_sections(name: str, keys: Collection[str] = ()) -> dict[str, Section]:
    """The sections of a file of this package, by their names."""
    path = files(__package__).joinpath(name)
    sections: dict[str, Section] = {}
    for section in parse_sections(path.read_text(encoding="utf-8"), str(path), keys):
        # A phrase can have one section for some worlds, and another for the rest.
        key = f"{section.name} {section.keys.get('worlds', '')}".strip() if keys else section.name
        if key in sections:
            raise section.error("has a name twice, the second time")
        sections[key] = section
    return sections


class Plot(NamedTuple):
    """What can happen in a story, and what it needs."""

    title: str
    worlds: tuple[str, ...]
    """Of "child", "animal" and "tale"; the slots of a text must exist in each."""
    section: Section
    draws: dict[str, str]
    """Slots of its own, each with the group of nouns or places that fills it."""
    weather: str
    """A kind of weather, or a common name for several."""
    hero: str
    """What the hero of a tale is."""


@cache
def load_plots() -> tuple[Plot, ...]:
    """All plots, those of the files in turn, as the plots in front are told most often."""
    read = (
        read_sections(f"plots/{name}.txt", ["worlds", "weather", "hero", SLOT_KEY]).values()
        for name in PLOT_FILES
    )
    return tuple(
        Plot(
            title=section.name,
            worlds=section.worlds(),
            section=section,
            draws={key[1:-1]: group for key, group in section.keys.items() if key[0] == "{"},
            weather=section.keys.get("weather", "fair"),
            hero=section.keys.get("hero", ""),
        )
        for sections in itertools.zip_longest(*read)
        for section in sections
        if section
    )


@cache
def load_phrases() -> dict[str, dict[str, Section]]:
    """For each world, its phrases by their names."""
    phrases: dict[str, dict[str, Section]] = {world: {} for world in WORLDS}
    for section in read_sections("phrases.txt", ["worlds"]).values():
        for world in section.worlds():
            if section.name in phrases[world]:
                raise section.error(f"has a second phrase of one name for the world {world!r}")
            phrases[world][section.name] = section
    return phrases


@cache
def load_words() -> dict[str, Section]:
    """The lists of names and words."""
    return read_sections("words.txt")


@cache
def load_speech() -> dict[str, tuple[list[str], list[str]]]:
    """For each verb of a plot: what may stand in front of the words, and what may stand behind."""
    speech = {}
    for verb, section in read_sections("speech.txt").items():
        before, after = section.paragraphs(2)
        speech[verb] = (_options(before), _options(after))
    return speech


@cache
def load_alike() -> dict[str, str]:
    """From words of a text to the options that can stand for them, the words themselves first."""
    lines = read_sections("alike.txt")["alike"].body.splitlines()
    return {line.split("|")[0]: line for line in lines}


def _options(text: str) -> list[str]:
    return " ".join(text.split()).split("|")
