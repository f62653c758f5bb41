"""The casts of the stories: dictionaries from slots (`{hero}`, `{he}`, `{a_thing}`) to words.

A story has one cast, so names, pronouns and things stay the same from beginning to end. `scripts`
returns every plot in every world, with the casts that it can have.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias, TypeVar

from tilth.corpus.stories.grammar import Compiler, Part, capitalized, every
from tilth.corpus.stories.texts import Plot, load_phrases, load_plots, load_words, read_sections

Item = TypeVar("Item")
Cast: TypeAlias = dict[str, str]  # from a slot, braces included, to its words
Weather: TypeAlias = tuple[list[Cast], list[Cast]]  # casts of days, and of sentences that fit them
World: TypeAlias = tuple[list[Cast], list[Cast], list[list[Cast]]]  # heroes, friends, other roles

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
    weathers: Sequence[Weather]


def draw_cast(script: Script, random: Callable[[], float]) -> Cast:
    """Draw one of the casts that a script can have."""

    def draw(items: Sequence[Item]) -> Item:
        return items[int(random() * len(items))]

    hero = draw(script.heroes)
    friend = draw(script.friends)
    # Friends have different pronouns, so "she" and "he" are clear; animals differ in kind.
    while friend["{friend_he}"] == hero["{he}"] or friend["{friend_kind}"] == hero.get("{kind}"):
        friend = draw(script.friends)
    cast = hero | friend
    for casts in script.others:
        cast |= draw(casts)
    for casts in draw(script.weathers):
        cast |= draw(casts)
    return cast


@cache
def scripts() -> tuple[Script, ...]:
    """Return every plot in every world it can play in: made at the first story, in about 0.2 s."""
    weathers, worlds = _weathers(), _worlds()
    groups = read_sections("nouns.txt").keys() | read_sections("places.txt").keys()
    compilers = {world: Compiler(load_phrases()[world]) for world in worlds}
    plots = load_plots()
    found: list[Script] = []
    # Each plot in its first world, then those that have a second.
    firsts = [(plot, plot.worlds[0]) for plot in plots]
    seconds = [(plot, world) for plot in plots for world in plot.worlds[1:]]
    for plot, world in firsts + seconds:
        if unknown := set(plot.draws.values()) - groups:
            raise plot.section.error(f"has the unknown group {unknown.pop()!r}")
        if plot.weather not in weathers:
            raise plot.section.error(f"has the unknown weather {plot.weather!r}")
        heroes, friends, others = worlds[world]
        if plot.hero:
            heroes = [cast | _slots(kind=plot.hero) for cast in heroes]
        others = [*others, *(_drawn(slot, group) for slot, group in plot.draws.items())]
        text = compilers[world].section(plot.section)
        found.append(Script(plot, world, text, heroes, friends, others, weathers[plot.weather]))
    return tuple(_by_rank(found))


def _worlds() -> dict[str, World]:
    """Return the casts of each world."""
    words = load_words()
    surnames = words["surnames"].words()
    children = _by_name(_named("friend", "boys"), _named("friend", "girls"))
    child_roles = [
        *_common_roles("child", surnames[::2]),
        _by_name(_named("pet", "pet girls"), _named("pet", "pet boys")),
        _by_rank([_slots(food=food) for food in words["child foods"].items()]),
        _titled("teacher", "Miss", "Mr.", surnames[1::2]),
    ]
    animals = _by_name(_named("friend", "animal girls"), _named("friend", "animal boys"))
    animal_roles = _common_roles("animal", words["animal surnames"].words())
    rulers = [_role("ruler", "king", "he"), _role("ruler", "queen", "she")]
    heroes = _by_name(_named("hero", "girls"), _named("hero", "boys"))
    animal_heroes = _by_name(_named("hero", "animal boys"), _named("hero", "animal girls"))
    things = _by_name(_named("hero", "tale names"))
    return {
        "child": (heroes, children, child_roles),  # mostly Lily and her friend Tim
        "animal": (animal_heroes, animals, animal_roles),  # mostly Pip the mouse and Hazel
        "tale": (things, children, [*child_roles, rulers]),  # a thing and a child
    }


def _common_roles(world: str, surnames: list[str]) -> list[list[Cast]]:
    words = load_words()

    def relatives(role: str) -> list[Cast]:
        return _by_name([_role(role, **row) for row in words[f"{world} {role}s"].table()])

    traits = [_slots(trait=word, a_trait=_with_article(word)) for word in words["traits"].words()]
    return [
        [{"{break}": " "}, {"{break}": "\n\n"}, {"{break}": "\n\n"}],
        _by_rank(traits),
        relatives("elder"),
        _titled("neighbor", "Mrs.", "Mr.", surnames),
        relatives("parent"),
    ]


def _titled(role: str, her_title: str, his_title: str, surnames: list[str]) -> list[Cast]:
    women = [_role(role, f"{her_title} {name}", "she") for name in surnames]
    men = [_role(role, f"{his_title} {name}", "he") for name in surnames]
    return _by_name(women, men)


@cache
def _drawn(slot: str, group: str) -> list[Cast]:
    """Return the casts of a slot that a plot fills from a group of nouns or places."""
    places = read_sections("places.txt")
    if group in places:
        casts = [
            _slots(**{slot: place.partition(" ")[2], f"in_{slot}": place})
            for place in places[group].items()
        ]
    else:
        casts = [
            _slots(**{slot: noun, f"full_{slot}": full, f"a_{slot}": _with_article(full)})
            for adjectives, nouns in (
                part.split(":") for part in read_sections("nouns.txt")[group].paragraphs()
            )
            for noun in " ".join(nouns.split()).split(", ")
            for full in (f"{adjective} {noun}" for adjective in adjectives.split())
        ]
    return _by_rank(casts)


def _weathers() -> dict[str, list[Weather]]:
    """Return the kinds of weather that each name in weather.txt stands for."""
    compiler = Compiler()
    weathers: dict[str, list[Weather]] = {}
    for name, section in read_sections("weather.txt", ("seasons", "days", "kinds")).items():
        if "kinds" in section.keys:
            weathers[name] = [weathers[kind][0] for kind in section.keys["kinds"].split()]
            continue
        days = [
            _slots(season=season, a_day=day.replace("{season}", season))
            for season in section.keys["seasons"].split("|")
            for day in every(compiler.section(section._replace(body=section.keys["days"])))
        ]
        sentences = every(compiler.section(section._replace(body=f"[{section.body}]")))
        weathers[name] = [(days, [_slots(weather=sentence) for sentence in sentences])]
    return weathers


def _named(role: str, names: str) -> list[Cast]:
    """Return the cast of a role for each name in a list of words.txt."""
    section = load_words()[names]
    fixed = {key[1:-1]: word for key, word in section.keys.items() if key.startswith("{")}
    rows: list[dict[str, str]] = [{}]
    if "table" in section.keys:
        rows = load_words()[section.keys["table"]].table()
        # Not everybody from the first row on: two friends are of two kinds.
        kinds = [row["kind"] for row in rows]
        first = kinds.index(section.keys.get("first", kinds[0]))
        rows = rows[first:] + rows[:first]
    return [
        _role(role, name, section.keys["pronoun"], **fixed, **row)
        for name, row in zip(section.words(), itertools.cycle(rows), strict=False)
    ]


def _role(role: str, name: str, pronoun: str, **words: str) -> Cast:
    """Return the slots of a role: `{friend}`, `{friend_his}`, ...; the hero's have no prefix."""
    prefix = "" if role == "hero" else f"{role}_"
    words |= PRONOUNS[pronoun]
    if "kind" in words:
        words["a_kind"] = _with_article(words["kind"])
    return _slots(**{role: name}, **{prefix + slot: word for slot, word in words.items()})


def _slots(**words: str) -> Cast:
    """Return each word under its name, and capitalized under its capitalized name."""
    words |= {capitalized(slot): capitalized(word) for slot, word in words.items()}
    return {f"{{{slot}}}": word for slot, word in words.items()}


def _with_article(words: str) -> str:
    vowel = words[0] in "aeiou" and not words.startswith(("use", "uni", "one"))
    return f"{'an' if vowel or words.startswith('hon') else 'a'} {words}"


def _by_rank(words: Sequence[Item], power: int = 1) -> list[Item]:
    """Repeat the words so that the one of rank r is drawn 1 / r^power as often as the first.

    Natural text follows this distribution (Zipf's law); frequent words are learned first.
    """
    return [
        word
        for rank, word in enumerate(words, start=1)
        for _ in range(round((len(words) / rank) ** power))
    ]


def _by_name(*groups: Sequence[Cast]) -> list[Cast]:
    """Repeat casts by rank, those of the groups in turn, so most stories are about the first.

    With names as frequent as other words (power 1), a model that had read for five minutes knew
    that a name must come, but not whose: 6.0 nats a name, and Lily was Clara a sentence later.
    """
    return _by_rank([cast for casts in zip(*groups, strict=True) for cast in casts], power=2)
