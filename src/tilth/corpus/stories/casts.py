"""Who plays in a story: from slots, `{hero}`, `{he}`, `{a_thing}`, to words.

There is one cast for a whole story, so names, pronouns and things stay the same from beginning to
end. `scripts` has every plot in every world, with the casts that it can have.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, TypeVar

from tilth.corpus.stories.grammar import Compiler, Part, capitalized, every
from tilth.corpus.stories.texts import (
    Plot,
    Section,
    load_phrases,
    load_plots,
    load_words,
    read_sections,
)

Item = TypeVar("Item")
Cast: TypeAlias = dict[str, str]
"""From a slot, braces included, to its words."""

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


def draw_cast(script: Script, random: Callable[[], float]) -> Cast:
    """One cast of those that a script can have."""
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
def scripts() -> tuple[Script, ...]:
    """Every plot in every world it can play in: made at the first story, in about 0.2 s."""
    weathers, common_weathers = _weathers()
    worlds = {"child": _child_world(), "animal": _animal_world(), "tale": _tale_world()}
    compilers = {world: Compiler(load_phrases()[world]) for world in worlds}
    plots = load_plots()
    scripts: list[Script] = []
    # Each plot in its first world, then those that have a second.
    firsts = [(plot, plot.worlds[0]) for plot in plots]
    seconds = [(plot, world) for plot in plots for world in plot.worlds[1:]]
    for plot, world in firsts + seconds:
        nouns, places = _groups()
        if unknown := set(plot.draws.values()) - nouns.keys() - places.keys():
            raise plot.section.error(f"has the unknown group {unknown.pop()!r}")
        draws = [_drawn(slot, group) for slot, group in plot.draws.items()]
        kinds = common_weathers.get(plot.weather, [plot.weather])
        if unknown := set(kinds) - weathers.keys():
            raise plot.section.error(f"has the unknown weather {unknown.pop()!r}")
        heroes, friends, others = worlds[world]
        if plot.hero:
            kind = _slots(kind=plot.hero)
            heroes = [cast | kind for cast in heroes]
        scripts.append(
            Script(
                plot=plot,
                world=world,
                text=compilers[world].section(plot.section),
                heroes=heroes,
                friends=friends,
                others=(*others, *draws),
                weathers=[weathers[kind] for kind in kinds],
            )
        )
    return tuple(_by_rank(scripts))


_World: TypeAlias = tuple[list[Cast], list[Cast], list[list[Cast]]]
"""The casts of heroes, of their friends, and of each other role."""


@cache
def _child_world() -> _World:
    words = load_words()
    body = {"animal": "", "home": "house", "hand": "hand", "foot": "foot", "feet": "feet"}

    def girls(role: str) -> list[Cast]:
        return [_role(role, name, "she", kind="girl", **body) for name in words["girls"].words()]

    def boys(role: str) -> list[Cast]:
        return [_role(role, name, "he", kind="boy", **body) for name in words["boys"].words()]

    def pets(names: list[str], pronoun: str) -> list[Cast]:
        kinds = itertools.cycle(words["pets"].rows(3))
        return [
            _role("pet", name, pronoun, kind=kind, sound=sound, treat=treat)
            for name, (kind, sound, treat) in zip(names, kinds, strict=False)
        ]

    surnames = words["surnames"].words()
    others = [
        *_common_roles(words["child elders"], surnames[::2]),
        _by_name(_people("parent", words["child parents"])),
        _by_name(pets(words["pet girls"].words(), "she"), pets(words["pet boys"].words(), "he")),
        _by_rank([_slots(food=food) for food in words["child foods"].items()]),
        _titled("teacher", "Miss", "Mr.", surnames[1::2]),
    ]
    # Most stories are about Lily and her friend Tim.
    heroes = _by_name(girls("hero"), boys("hero"))
    return heroes, _by_name(boys("friend"), girls("friend")), others


def _animal_world() -> _World:
    words = load_words()
    rows = words["animals"].rows(4)

    def animals(role: str, names: list[str], pronoun: str, first: int) -> list[Cast]:
        """A name belongs to one kind of animal: the reader of `Hazel` knows of the rabbit."""
        body = {"hand": "paw", "foot": "paw", "feet": "paws"}
        kinds = itertools.cycle(rows[first:] + rows[:first])
        return [
            _role(
                role, name, pronoun, animal=kind, kind=kind, home=home, food=food, look=look, **body
            )
            for name, (kind, home, food, look) in zip(names, kinds, strict=False)
        ]

    def girls(role: str) -> list[Cast]:
        return animals(role, words["animal girls"].words(), "she", first=0)

    def boys(role: str) -> list[Cast]:  # not from the rabbit on too: friends are of two kinds
        return animals(role, words["animal boys"].words(), "he", first=2)

    others = _common_roles(words["animal elders"], words["animal surnames"].words())
    parents = _by_name(_people("parent", words["animal parents"]))
    # Most stories are about Pip the mouse and his friend Hazel.
    heroes = _by_name(boys("hero"), girls("hero"))
    return heroes, _by_name(girls("friend"), boys("friend")), [*others, parents]


def _tale_world() -> _World:
    """The hero is a thing, its friend a child."""
    things = [_role("hero", name, "it", animal="") for name in load_words()["tale names"].words()]
    rulers = [_role("ruler", "king", "he"), _role("ruler", "queen", "she")]
    _, children, others = _child_world()
    return _by_name(things), children, [*others, rulers]


def _common_roles(elders: Section, surnames: list[str]) -> list[list[Cast]]:
    traits = load_words()["traits"].words()
    return [
        [{"{break}": " "}, {"{break}": "\n\n"}, {"{break}": "\n\n"}],
        _by_rank([_slots(trait=word, a_trait=_with_article(word)) for word in traits]),
        _by_name(_people("elder", elders)),
        _titled("neighbor", "Mrs.", "Mr.", surnames),
    ]


def _people(role: str, section: Section) -> list[Cast]:
    return [_role(role, name, pronoun) for name, pronoun in section.rows(2)]


def _titled(role: str, her_title: str, his_title: str, surnames: list[str]) -> list[Cast]:
    women = [_role(role, f"{her_title} {name}", "she") for name in surnames]
    men = [_role(role, f"{his_title} {name}", "he") for name in surnames]
    return _by_name(women, men)


@cache
def _groups() -> tuple[dict[str, Section], dict[str, Section]]:
    return read_sections("nouns.txt"), read_sections("places.txt")


@cache
def _drawn(slot: str, group: str) -> list[Cast]:
    """What a plot asked for: something of a group of nouns, or a place."""
    nouns, places = _groups()
    if group in places:
        return _by_rank(
            [
                _slots(**{slot: place.partition(" ")[2], f"in_{slot}": place})
                for place in places[group].items()
            ]
        )
    casts = []
    for paragraph in nouns[group].paragraphs():
        adjectives, colon, names = paragraph.partition(":")
        if not colon:
            raise nouns[group].error("has a paragraph without a colon")
        casts += [
            _slots(
                **{
                    slot: noun,
                    f"full_{slot}": f"{adjective} {noun}",
                    f"a_{slot}": _with_article(f"{adjective} {noun}"),
                }
            )
            for noun in " ".join(names.split()).split(", ")
            for adjective in adjectives.split()
        ]
    return _by_rank(casts)


_Weather: TypeAlias = tuple[list[Cast], list[Cast]]
"""The casts of days and of sentences, which fit one another."""


def _weathers() -> tuple[dict[str, _Weather], dict[str, list[str]]]:
    """The kinds of weather, and the kinds that have a common name."""
    kinds: dict[str, _Weather] = {}
    common: dict[str, list[str]] = {}
    for name, section in read_sections("weather.txt", ["seasons", "days", "kinds"]).items():
        if "kinds" in section.keys:
            common[name] = section.keys["kinds"].split()
        elif section.keys.keys() == {"seasons", "days"}:
            kinds[name] = _weather(section)
        else:
            raise section.error("has no seasons or no days")
    return kinds, common


def _weather(section: Section) -> _Weather:
    compiler = Compiler()
    days = [
        _slots(season=season, a_day=day.replace("{season}", season))
        for season in section.keys["seasons"].split("|")
        for day in every(compiler.section(section._replace(body=section.keys["days"])))
    ]
    sentences = every(compiler.section(section._replace(body=f"[{section.body}]")))
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
    cast |= {f"{{{capitalized(slot)}}}": capitalized(word) for slot, word in words.items()}
    return cast


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
