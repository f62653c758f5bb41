"""Compile the language of the plots to nested lists (a sequence) and tuples (a choice).

`plots/either.txt` explains the language. Every text is compiled once, so a story costs little more
than a draw and an append for each choice.

>>> every(Compiler().sequence("one [two|] three"))
['one two three', 'one three']
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TypeAlias

from tilth.corpus.stories.texts import Section, load_alike, load_speech

# A compiled text: a sequence is a list, a choice a tuple of options, and each ends in strings.
Part: TypeAlias = "str | list[Part] | tuple[Part, ...]"

_MARKS = re.compile(r"[\[\]|]|<\w+>|\{\w+\}|[^\[\]|<>{}]+")


class GrammarError(ValueError):
    """A syntax error in the language of the plots."""


class Compiler:
    """A compiler of texts, with the phrases of one world."""

    def __init__(self, phrases: Mapping[str, Section] | None = None) -> None:
        self.phrases = phrases or {}
        self.compiled: dict[str, tuple[Part, ...]] = {}

    def section(self, section: Section) -> list[Part]:
        """Compile the body of a section; an error names its file and line."""
        try:
            return self.sequence(section.body)
        except GrammarError as error:
            raise section.error(f"has {error}") from None

    def sequence(self, text: str) -> list[Part]:
        """Compile a text."""
        text = re.sub(r"\s*\n\s*\n\s*", "{break}", text.strip())
        text = _speech().sub(_ways_to_say, " ".join(text.split()))
        alike = load_alike()
        text = _alike().sub(lambda found: f"[{alike[found[0]]}]", text)
        marks = _MARKS.findall(text)
        if "".join(marks) != text or not _is_balanced(marks):
            raise GrammarError(f"an unpaired mark in {text!r}")
        (option,) = self._options(iter(marks))
        return option if isinstance(option, list) else [option]

    def _options(self, marks: Iterator[str]) -> tuple[Part, ...]:
        """Compile the options up to the closing bracket; the opening one has been read."""
        options: list[list[Part]] = [[]]
        for mark in marks:
            if mark == "[":
                options[-1].append(self._options(marks))
            elif mark == "|":
                options.append([])
            elif mark == "]":
                break
            else:
                options[-1].append(self._phrase(mark[1:-1]) if mark[0] == "<" else mark)
        return tuple(_tidy(option) for option in options)

    def _phrase(self, name: str) -> tuple[Part, ...]:
        if name not in self.compiled:
            if name not in self.phrases:
                raise GrammarError(f"the unknown phrase <{name}>")
            section = self.phrases[name]
            (choice,) = self.section(section._replace(body=f"[{section.body}]"))
            if not isinstance(choice, tuple):
                raise section.error("has no options")
            self.compiled[name] = choice
        return self.compiled[name]


def _is_balanced(marks: list[str]) -> bool:
    """Return whether every bracket has its partner, and every | is between two."""
    steps = ((mark == "[") - (mark == "]") for mark in marks)
    depths = list(itertools.accumulate(steps, initial=0))
    is_inside = all(depth > 0 for mark, depth in zip(marks, depths, strict=False) if mark == "|")
    return is_inside and min(depths) == depths[-1] == 0


@cache
def _speech() -> re.Pattern[str]:
    return re.compile(rf'\{{(\w+)\}} ({"|".join(load_speech())}) "([^"]+)"')


@cache
def _alike() -> re.Pattern[str]:
    words = "|".join(map(re.escape, load_alike()))
    return re.compile(rf"(?:(?<![\w'])|(?=\.))(?:{words})(?![\w',])")


def _ways_to_say(match: re.Match[str]) -> str:
    """Return `{hero} says "Come in."` as a choice of all the ways to write it."""
    who, verb, words = match.groups()
    if not re.search(r"[.?!]\]?$", words):
        raise GrammarError(f"a speech that needs a mark at its end: {words!r}")
    before, after = load_speech()[verb]
    tags = [tag for tag in after if tag.startswith("{who}") or not who.endswith("he")]
    if parts := re.match(r"([^\[\]]+?[.?!]) (.+)", words):
        first, rest = parts.groups()
        ways = [f'"{_before_tag(first)}" {tag}. "{rest}"' for tag in tags]
        ways.append(f'"{_before_tag(words)}" {tags[0]}.')
    else:
        ways = [f'"{_before_tag(words)}" {tag}.' for tag in tags]
    ways += [f'{tag} "{words}"' for tag in before]
    slots = {"{who}": f"{{{who}}}", "{Who}": f"{{{capitalized(who)}}}"}
    return "[" + re.sub(r"\{[wW]ho\}", lambda slot: slots[slot[0]], "|".join(ways)) + "]"


def _before_tag(words: str) -> str:
    """Replace the period at the end, or at the end of each last option, by a comma."""
    if words.endswith("]"):
        start = words.rindex("[")
        return words[:start] + re.sub(r"\.(?=[|\]])", ",", words[start:])
    return words[:-1] + "," if words.endswith(".") else words


def _tidy(option: list[Part]) -> Part:
    """Strip an option, and move the space next to an optional part into that part."""
    option = ["", *option, ""]
    if isinstance(option[1], str):
        option[1] = option[1].lstrip()
    if isinstance(option[-2], str):
        option[-2] = option[-2].rstrip()
    # From the end: of two adjacent optional parts, each still finds its space.
    for index in reversed(range(1, len(option) - 1)):
        before, choice, after = option[index - 1 : index + 2]
        if not isinstance(choice, tuple) or "" not in choice:
            continue
        if isinstance(after, str) and after.startswith(" "):
            option[index] = tuple([part, " "] if part else "" for part in choice)
            option[index + 1] = after[1:]
        elif isinstance(before, str) and before.endswith(" "):
            option[index] = tuple([" ", part] if part else "" for part in choice)
            option[index - 1] = before[:-1]
        else:
            raise GrammarError(f"no space next to {choice}")
    option = [part for part in option if part != ""]
    if len(option) == 1 and isinstance(option[0], str):
        return option[0]
    return option or ""


def every(part: Part) -> list[str]:
    """Return every text that `part` can become."""
    if isinstance(part, str):
        return [part]
    if isinstance(part, tuple):
        return [text for option in part for text in every(option)]
    return ["".join(texts) for texts in itertools.product(*map(every, part))]


def capitalized(text: str) -> str:
    """Return `text` with its first letter capitalized."""
    return text[:1].upper() + text[1:]
