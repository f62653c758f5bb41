"""The text files of the stories: plots, phrases and words, read from the package.

All files have one format: sections that begin with `== NAME`, then lines `key: value`, then a body.
A line that begins with `#` is a comment. The top of each file explains its bodies;
`plots/either.txt` explains the language of the plots.

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
PLOT_KEYS = ("worlds", "weather", "hero", SLOT_KEY)
WORD_KEYS = ("pronoun", "table", "first", "columns", SLOT_KEY)

_KEY = re.compile(r"([a-z]+|\{[a-z]+\}): +(.*)")


class Section(NamedTuple):
    """A part of a text file below one heading; `line` is the number of the heading."""

    file: str
    line: int
    name: str
    keys: dict[str, str]
    body: str

    def error(self, problem: str) -> FileError:
        """Return the error of a malformed section."""
        return FileError(self.file, f"{problem} in '{self.name}' on line {self.line}", "correct it")

    def words(self) -> list[str]:
        """Return the words of the body, which are separated by white space."""
        return self.body.split()

    def items(self) -> list[str]:
        """Return the items of the body, which are separated by commas."""
        return [" ".join(item.split()) for item in self.body.split(",")]

    def table(self) -> list[dict[str, str]]:
        """Return the lines of the body as dictionaries; the key `columns` has their keys."""
        columns = self.keys["columns"].split(", ")
        rows = [line.split(", ") for line in self.body.splitlines()]
        for row in rows:
            if len(row) != len(columns):
                raise self.error(f"has {', '.join(row)!r} instead of {len(columns)} items")
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def paragraphs(self, size: int | None = None) -> list[str]:
        """Return the parts between empty lines, exactly `size` if given."""
        found = re.split(r"\n{2,}", self.body)
        if size not in {None, len(found)}:
            raise self.error(f"has {len(found)} paragraphs instead of {size}")
        return found

    def worlds(self) -> tuple[str, ...]:
        """Return the worlds of the key `worlds`; all worlds by default."""
        worlds = tuple(self.keys.get("worlds", ", ".join(WORLDS)).split(", "))
        if not set(worlds) <= set(WORLDS):
            raise self.error(f"has an unknown world ({', '.join(WORLDS)} are known)")
        return worlds


def parse_sections(text: str, file: str, keys: Collection[str] = ()) -> Iterator[Section]:
    """Yield the sections of a text; keys other than the given ones are an error."""
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


@cache
def read_sections(name: str, keys: tuple[str, ...] = ()) -> dict[str, Section]:
    """Return the sections of a file of this package, by name."""
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
    """A plot: its text, and its options.

    `worlds` are those it can play in; every slot of its text exists in each. `draws` maps its own
    slots to the groups of nouns or places that fill them. `weather` is a name in weather.txt,
    `hero` is the kind of thing that the hero of a tale is.
    """

    title: str
    worlds: tuple[str, ...]
    section: Section
    draws: dict[str, str]
    weather: str
    hero: str


@cache
def load_plots() -> tuple[Plot, ...]:
    """Return all plots, those of the files in turn; the first plots are told most often."""
    read = (read_sections(f"plots/{name}.txt", PLOT_KEYS).values() for name in PLOT_FILES)
    return tuple(
        Plot(
            title=section.name,
            worlds=section.worlds(),
            section=section,
            draws={key[1:-1]: group for key, group in section.keys.items() if key[0] == "{"},
            weather=section.keys.get("weather", "fair"),
            hero=section.keys.get("hero", ""),
        )
        for section in filter(None, itertools.chain(*itertools.zip_longest(*read)))
    )


@cache
def load_phrases() -> dict[str, dict[str, Section]]:
    """Return the phrases of each world, by name."""
    phrases: dict[str, dict[str, Section]] = {world: {} for world in WORLDS}
    for section in read_sections("phrases.txt", ("worlds",)).values():
        for world in section.worlds():
            if section.name in phrases[world]:
                raise section.error(f"has a second phrase of one name for the world {world!r}")
            phrases[world][section.name] = section
    return phrases


def load_words() -> dict[str, Section]:
    """Return the lists of names and words."""
    return read_sections("words.txt", WORD_KEYS)


@cache
def load_speech() -> dict[str, list[list[str]]]:
    """Return, for each verb of a plot, the options before and after the spoken words."""
    return {
        verb: [" ".join(options.split()).split("|") for options in section.paragraphs(2)]
        for verb, section in read_sections("speech.txt").items()
    }


@cache
def load_alike() -> dict[str, str]:
    """Return the options that can replace words of a text, the words themselves first."""
    lines = read_sections("alike.txt")["alike"].body.splitlines()
    return {line.split("|")[0]: line for line in lines}
