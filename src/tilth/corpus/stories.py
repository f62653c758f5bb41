"""Short stories for children, without end: the corpus that tilth brings along.

What enters: a number and a seed. What leaves: a story, always the same one, on every machine and
every Python; `stories` counts on from there and `write_stories` fills a file.

>>> story(0) == next(stories(seed=0))
True

How a story comes about:

1. A generator of random numbers is made from (seed, number). Nothing else decides anything.
2. It draws a plot and the world it plays in (of children, of animals, or a tale about a thing),
   those in front of the lists more often: so it is with all words and names (`_by_rank`).
3. It draws the cast: a dictionary from slots, `{hero}`, `{he}`, `{a_thing}`, to words. There is one
   for the whole story, so names, pronouns and things stay the same from beginning to end.
4. The plot is a text in which `[one|two]` offers a choice and `<happy>` is a choice of all the
   phrases of that name. From beginning to end, every choice is decided; an option may hold more
   choices, and so the story branches.
5. What was chosen is joined, with the words of the cast in its slots.

The words stand in `story_words.py`, the phrases in `story_phrases.py`, the plots in
`story_plots*.py`. In all of them white space does not count, an empty line is a paragraph (or not:
the cast decides), an option may be empty, and `{hero} says "Come in."` becomes any of the ways to
write that down. All texts are compiled once, at the first story, into nested lists (a sequence) and
tuples (a choice): then a story costs little more than a draw and an append for each choice.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

from tilth.corpus import story_phrases, story_words
from tilth.corpus.story_plots import PLOTS, Plot
from tilth.corpus.story_plots_animals import ANIMAL_PLOTS
from tilth.corpus.story_plots_children import CHILD_PLOTS
from tilth.corpus.story_plots_tales import TALE_PLOTS
from tilth.files import StrPath, atomic_write

# In turns, as those in front are told most often.
ALL_PLOTS: tuple[Plot, ...] = tuple(
    plot
    for plots in itertools.zip_longest(PLOTS, CHILD_PLOTS, ANIMAL_PLOTS, TALE_PLOTS)
    for plot in plots
    if plot
)
REPORT_BYTES = 1 << 20  # progress is told each time that so much has been written

# A compiled text: a sequence is a list, a choice a tuple of options, and each ends in strings.
Part: TypeAlias = "str | list[Part] | tuple[Part, ...]"
Item = TypeVar("Item")
Cast: TypeAlias = dict[str, str]
"""From a slot, braces included, to its words."""


def story(number: int, seed: int = 0) -> str:
    """Story `number` (from 0) of a `seed`."""
    if not 0 <= number < 1 << 64 or seed < 0:
        raise ValueError(
            f"there is no story {number} of seed {seed}; "
            "count stories from 0 to 2**64 - 1 and use a seed of 0 or more"
        )
    # Of `random`, Python promises for ever only that random() repeats itself for the same seed.
    random = Random(seed << 64 | number).random  # noqa: S311, as nothing here is a secret
    scripts = _scripts()
    script = scripts[int(random() * len(scripts))]
    cast = _draw_cast(script, random)
    pieces: list[str] = []
    _decide(script.text, random, pieces)
    return "".join(map(cast.get, pieces, pieces))  # a piece is a slot of the cast, or itself


def stories(seed: int = 0, start: int = 0) -> Iterator[str]:
    """All stories of a `seed`, from number `start` on."""
    for number in itertools.count(start):
        yield story(number, seed)


def write_stories(
    path: StrPath,
    size_bytes: int,
    seed: int = 0,
    *,
    separator: str = "<|endoftext|>",
    overwrite: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> int:
    """Write stories until they are `size_bytes` or more, and return their number.

    Each is followed by a line that holds the `separator`.
    """
    if size_bytes < 1:
        raise ValueError(f"cannot write {size_bytes} bytes of stories; ask for 1 or more")
    tell = progress or (lambda _phase, _done, _total: None)
    written = number = told = 0
    with atomic_write(path, overwrite=overwrite) as file:
        while written < size_bytes:
            text = story(number, seed)
            if separator in text:
                raise ValueError(
                    f"story {number} contains {separator!r} itself; "
                    "choose a separator that no text has, such as <|endoftext|>"
                )
            written += file.write(f"{text}\n{separator}\n".encode())
            number += 1
            if written - told >= REPORT_BYTES:
                told = written
                tell("write", min(written, size_bytes), size_bytes)
    tell("write", size_bytes, size_bytes)
    return number


def _decide(sequence: list[Part], random: Callable[[], float], pieces: list[str]) -> None:
    """Append the pieces of `sequence`, with every choice in it decided by `random`."""
    for part in sequence:
        while isinstance(part, tuple):
            part = part[int(random() * len(part))]  # noqa: PLW2901
        if isinstance(part, str):
            pieces.append(part)
        else:
            _decide(part, random, pieces)


# The cast

PRONOUNS = {
    "she": {"he": "she", "him": "her", "his": "her", "himself": "herself"},
    "he": {"he": "he", "him": "him", "his": "his", "himself": "himself"},
    "it": {"he": "it", "him": "it", "his": "its", "himself": "itself"},
}


class Script(NamedTuple):
    """A plot in one world, compiled, and the casts of which each story draws one for each role."""

    plot: Plot
    world: str
    text: list[Part]
    heroes: Sequence[Cast]
    friends: Sequence[Cast]
    others: Sequence[Sequence[Cast]]
    weathers: Sequence[tuple[Sequence[Cast], Sequence[Cast]]]


def _draw_cast(script: Script, random: Callable[[], float]) -> Cast:
    hero = script.heroes[int(random() * len(script.heroes))]
    friend = script.friends[int(random() * len(script.friends))]
    # Two friends are of two pronouns, so that "she" and "he" tell who; two animals of two kinds.
    while friend["{friend_he}"] == hero["{he}"] or (
        friend["{friend_animal}"] == hero["{animal}"] != ""
    ):
        friend = script.friends[int(random() * len(script.friends))]
    cast = {**hero, **friend}
    for casts in script.others:
        cast.update(casts[int(random() * len(casts))])
    for casts in script.weathers[int(random() * len(script.weathers))]:
        cast.update(casts[int(random() * len(casts))])
    return cast


@cache
def _scripts() -> tuple[Script, ...]:
    """Every plot in every world it can play in: made at the first story, in about 0.2 s."""
    weathers = {kind: _weather(weather) for kind, weather in story_words.WEATHER.items()}
    worlds = {"child": _child_world(), "animal": _animal_world(), "tale": _tale_world()}
    compilers = {world: _Compiler(story_phrases.PHRASES[world]) for world in worlds}
    scripts = []
    # Each plot in its first world, then those that have a second.
    firsts = [(plot, plot.worlds[0]) for plot in ALL_PLOTS]
    seconds = [(plot, world) for plot in ALL_PLOTS for world in plot.worlds[1:]]
    for plot, world in firsts + seconds:
        draws = [_drawn(slot, group) for slot, group in plot.draws.items()]
        kinds = story_words.COMMON_WEATHER.get(plot.weather, [plot.weather])
        heroes, friends, others = worlds[world]
        if plot.hero:
            heroes = [cast | _slots(kind=plot.hero) for cast in heroes]
        scripts.append(
            Script(
                plot=plot,
                world=world,
                text=compilers[world].sequence(plot.text),
                heroes=heroes,
                friends=friends,
                others=(*others, *draws),
                weathers=[weathers[kind] for kind in kinds],
            )
        )
    return tuple(_by_rank(scripts))


_World: TypeAlias = tuple[list[Cast], list[Cast], list[list[Cast]]]
"""The casts of heroes, of their friends, and of each other role."""


def _child_world() -> _World:
    body = {"animal": "", "home": "house", "hand": "hand", "foot": "foot", "feet": "feet"}

    def girls(role: str) -> list[Cast]:
        return [_role(role, name, "she", kind="girl", **body) for name in story_words.GIRLS]

    def boys(role: str) -> list[Cast]:
        return [_role(role, name, "he", kind="boy", **body) for name in story_words.BOYS]

    def pets(names: list[str], pronoun: str) -> list[Cast]:
        return [
            _role("pet", name, pronoun, **pet._asdict())
            for name, pet in zip(names, itertools.cycle(story_words.PETS), strict=False)
        ]

    parents = [_role("parent", name, pronoun) for name, pronoun in story_words.CHILD_PARENTS]
    others = [
        *_common_roles(story_words.CHILD_ELDERS, story_words.SURNAMES[::2]),
        _by_name(parents),
        _by_name(pets(story_words.PET_GIRLS, "she"), pets(story_words.PET_BOYS, "he")),
        _by_rank([_slots(food=food) for food in story_words.CHILD_FOODS]),
        _titled("teacher", "Miss", "Mr.", story_words.SURNAMES[1::2]),
    ]
    # Most stories are about Lily and her friend Tim.
    heroes = _by_name(girls("hero"), boys("hero"))
    return heroes, _by_name(boys("friend"), girls("friend")), others


def _animal_world() -> _World:
    def animals(role: str, names: list[str], pronoun: str, first: int) -> list[Cast]:
        """A name belongs to one kind of animal: whoever reads `Hazel` knows of the rabbit."""
        body = {"hand": "paw", "foot": "paw", "feet": "paws"}
        kinds = itertools.cycle(story_words.ANIMALS[first:] + story_words.ANIMALS[:first])
        return [
            _role(role, name, pronoun, animal=animal.kind, **animal._asdict(), **body)
            for name, animal in zip(names, kinds, strict=False)
        ]

    def girls(role: str) -> list[Cast]:
        return animals(role, story_words.ANIMAL_GIRLS, "she", first=0)

    def boys(role: str) -> list[Cast]:  # not from the rabbit on too: friends are of two kinds
        return animals(role, story_words.ANIMAL_BOYS, "he", first=2)

    parents = [_role("parent", name, pronoun) for name, pronoun in story_words.ANIMAL_PARENTS]
    others = _common_roles(story_words.ANIMAL_ELDERS, story_words.ANIMAL_SURNAMES)
    # Most stories are about Pip the mouse and his friend Hazel.
    heroes = _by_name(boys("hero"), girls("hero"))
    return heroes, _by_name(girls("friend"), boys("friend")), [*others, _by_name(parents)]


def _tale_world() -> _World:
    """The hero is a thing, its friend a child."""
    things = [_role("hero", name, "it", animal="") for name in story_words.TALE_NAMES]
    rulers = [_role("ruler", "king", "he"), _role("ruler", "queen", "she")]
    _, children, others = _child_world()
    return _by_name(things), children, [*others, rulers]


def _common_roles(elders: list[tuple[str, str]], surnames: list[str]) -> list[list[Cast]]:
    traits = [_slots(trait=word, a_trait=_with_article(word)) for word in story_words.TRAITS]
    return [
        [{"{break}": " "}, {"{break}": "\n\n"}, {"{break}": "\n\n"}],
        _by_rank(traits),
        _by_name([_role("elder", name, pronoun) for name, pronoun in elders]),
        _titled("neighbor", "Mrs.", "Mr.", surnames),
    ]


def _titled(role: str, her_title: str, his_title: str, surnames: list[str]) -> list[Cast]:
    women = [_role(role, f"{her_title} {name}", "she") for name in surnames]
    men = [_role(role, f"{his_title} {name}", "he") for name in surnames]
    return _by_name(women, men)


@cache
def _drawn(slot: str, group: str) -> list[Cast]:
    """What a plot asked for: something of a group of nouns, or a place."""
    if group in story_words.PLACES:
        places = [place.split() for place in story_words.PLACES[group].split(",")]
        return _by_rank(
            [
                _slots(**{slot: " ".join(words[1:]), f"in_{slot}": " ".join(words)})
                for words in places
            ]
        )
    return _by_rank(
        [
            _slots(
                **{
                    slot: noun,
                    f"full_{slot}": f"{adjective} {noun}",
                    f"a_{slot}": _with_article(f"{adjective} {noun}"),
                }
            )
            for adjectives, nouns in story_words.NOUNS[group]
            for noun in " ".join(nouns.split()).split(", ")
            for adjective in adjectives.split()
        ]
    )


def _weather(weather: story_words.Weather) -> tuple[list[Cast], list[Cast]]:
    """The casts of days and of sentences, which fit one another."""
    days = [
        _slots(season=season, a_day=day.replace("{season}", season))
        for season in weather.seasons.split("|")
        for day in _every(_Compiler({}).sequence(weather.days))
    ]
    sentences = _every(_Compiler({}).sequence(f"[{weather.sentences}]"))
    return days, [_slots(weather=sentence) for sentence in sentences]


def _role(role: str, name: str, pronoun: str, **words: str) -> Cast:
    """The slots of somebody: `{friend}`, `{friend_his}`, ...; those of the hero lack the prefix."""
    prefix = "" if role == "hero" else f"{role}_"
    words |= PRONOUNS[pronoun]
    if "kind" in words:
        words["a_kind"] = _with_article(words["kind"])
    return _slots(**{role: name}, **{prefix + slot: word for slot, word in words.items()})


def _slots(**words: str) -> Cast:
    """`{his}` and `{His}`: each word under its name, and capitalized under its capitalized name."""
    cast = {f"{{{slot}}}": word for slot, word in words.items()}
    cast |= {f"{{{_capitalized(slot)}}}": _capitalized(word) for slot, word in words.items()}
    return cast


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _with_article(words: str) -> str:
    vowel = words[0] in "aeiou" and not words.startswith(("use", "uni", "one"))
    return f"{'an' if vowel or words.startswith('hon') else 'a'} {words}"


def _by_rank(words: Sequence[Item], power: int = 1) -> list[Item]:
    """The word of rank r so often that it is drawn 1 / r^power as often as the first.

    That is Zipf's law of natural text: few words do most of the work, and are learned first.
    """
    return [
        word
        for rank, word in enumerate(words, start=1)
        for _ in range(round((len(words) / rank) ** power))
    ]


def _by_name(*groups: Sequence[Cast]) -> list[Cast]:
    """Those with names, of each of the groups in turn, so that most stories are about the first.

    With names as frequent as other words (power 1), a model that had read for five minutes knew
    that a name must come, but not whose: 6.0 nats a name, and Lily was Clara a sentence later.
    """
    return _by_rank([cast for casts in zip(*groups, strict=True) for cast in casts], power=2)


# The texts

_SPEECH = re.compile(r'\{(\w+)\} (says|asks|replies|cries|whispers|laughs|sighs|worries) "([^"]+)"')
_ALIKE = re.compile(
    rf"(?:(?<![\w'])|(?=\.))(?:{'|'.join(map(re.escape, story_phrases.ALIKE))})(?![\w',])"
)
_MARKS = re.compile(r"[\[\]|]|<\w+>|\{\w+\}|[^\[\]|<>{}]+")


class _Compiler:
    """Turns texts into sequences and choices, with the phrases of one world."""

    def __init__(self, phrases: dict[str, str]) -> None:
        self.phrases = phrases
        self.compiled: dict[str, tuple[Part, ...]] = {}

    def sequence(self, text: str) -> list[Part]:
        text = re.sub(r"\s*\n\s*\n\s*", "{break}", text.strip())
        text = _SPEECH.sub(_ways_to_say, " ".join(text.split()))
        text = _ALIKE.sub(lambda found: f"[{story_phrases.ALIKE[found[0]]}]", text)
        marks = _MARKS.findall(text)
        assert "".join(marks) == text, f"an unpaired mark in {text}"
        (option,) = self._options(iter(marks))
        return option if isinstance(option, list) else [option]

    def _options(self, marks: Iterator[str]) -> tuple[Part, ...]:
        """What stands between two brackets, the first of which has been read."""
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
            (choice,) = self.sequence(f"[{self.phrases[name]}]")
            assert isinstance(choice, tuple)
            self.compiled[name] = choice
        return self.compiled[name]


def _ways_to_say(match: re.Match[str]) -> str:
    """`{hero} says "Come in."` as a choice of all the ways to write that down."""
    who, verb, words = match.groups()
    assert re.search(r"[.?!]\]?$", words), f"a speech needs a mark at its end: {words}"
    before, after = story_phrases.SPEECH[verb]
    tags = [tag for tag in after if tag.startswith("{who}") or not who.endswith("he")]
    if parts := re.match(r"([^\[\]]+?[.?!]) (.+)", words):
        first, rest = parts.groups()
        ways = [f'"{_before_tag(first)}" {tag}. "{rest}"' for tag in tags]
        ways.append(f'"{_before_tag(words)}" {tags[0]}.')
    else:
        ways = [f'"{_before_tag(words)}" {tag}.' for tag in tags]
    ways += [f'{tag} "{words}"' for tag in before]
    slots = {"{who}": f"{{{who}}}", "{Who}": f"{{{_capitalized(who)}}}"}
    return "[" + re.sub(r"\{[wW]ho\}", lambda slot: slots[slot[0]], "|".join(ways)) + "]"


def _before_tag(words: str) -> str:
    """With a comma for the period at its end, or at the end of each option that it ends in."""
    if words.endswith("]"):
        start = words.rindex("[")
        return words[:start] + re.sub(r"\.(?=[|\]])", ",", words[start:])
    return words[:-1] + "," if words.endswith(".") else words


def _tidy(option: list[Part]) -> Part:
    """Strip an option, and give the space beside an optional part to that part."""
    if option and isinstance(option[0], str):
        option[0] = option[0].lstrip()
    if option and isinstance(option[-1], str):
        option[-1] = option[-1].rstrip()
    # From the end, so that of two optional parts in a row each still finds its space.
    for index in reversed(range(len(option))):
        choice = option[index]
        if not isinstance(choice, tuple) or "" not in choice:
            continue
        behind = option[index + 1] if index + 1 < len(option) else None
        before = option[index - 1] if index else None
        if isinstance(behind, str) and behind.startswith(" "):
            option[index] = tuple([part, " "] if part else "" for part in choice)
            option[index + 1] = behind[1:]
        else:
            assert isinstance(before, str), f"no space beside {choice}"
            assert before.endswith(" "), f"no space beside {choice}"
            option[index] = tuple([" ", part] if part else "" for part in choice)
            option[index - 1] = before[:-1]
    option = [part for part in option if part != ""]
    if not option:
        return ""
    return option[0] if len(option) == 1 and isinstance(option[0], str) else option


def _every(part: Part) -> list[str]:
    """Every text that `part` can become."""
    if isinstance(part, str):
        return [part]
    if isinstance(part, tuple):
        return [text for option in part for text in _every(option)]
    return ["".join(texts) for texts in itertools.product(*map(_every, part))]
