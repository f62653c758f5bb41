"""Generated short stories for children: the built-in corpus.

A story depends only on its number and the random seed, on every machine and Python version.
`stories` is an endless iterator, `write_stories` fills a file.

>>> story(0) == next(stories(seed=0))
True

How a story is made:

1. (seed, number) seeds a random number generator, the only source of randomness.
2. It draws a plot and a world (children, animals, or a tale about a thing). The first entries of a
   list are drawn most often, as for all words and names (`_by_rank`).
3. It draws the cast: a dictionary from slots (`{hero}`, `{he}`, `{a_thing}`) to words. There is one
   for the whole story, so names, pronouns and things stay the same from beginning to end.
4. In a plot, `[one|two]` is a choice and `<happy>` a choice of all phrases of that name. Every
   choice is drawn, from beginning to end; an option may contain choices.
5. The chosen texts are joined, with the words of the cast in the slots.

Plots, phrases and words are text files in this package; `plots/either.txt` explains their language.
`texts.py` reads the files, `grammar.py` compiles the language, `casts.py` builds the casts.
"""

import itertools
from collections.abc import Callable, Iterator
from random import Random

from tilth.corpus.stories.casts import draw_cast, scripts
from tilth.corpus.stories.grammar import Part
from tilth.files import Progress, StrPath, atomic_write, no_progress
from tilth.schema import Range, check_int

STORY_NUMBERS, SEEDS = Range(at_least=0, below=2**64), Range(at_least=0)
REPORT_BYTES = 1 << 20  # between two reports of progress


def story(number: int, seed: int = 0) -> str:
    """Return story `number` (from 0) of a random seed."""
    number = check_int("number", number, STORY_NUMBERS)
    seed = check_int("seed", seed, SEEDS)
    # Of the module `random`, Python guarantees only the sequence of random() for a seed.
    random = Random(seed << 64 | number).random  # noqa: S311, not for cryptography
    choices = scripts()
    script = choices[int(random() * len(choices))]
    cast = draw_cast(script, random)
    pieces: list[str] = []
    _decide(script.text, random, pieces)
    return "".join(map(cast.get, pieces, pieces))  # a piece is a slot of the cast, or itself


def stories(seed: int = 0, start: int = 0) -> Iterator[str]:
    """Yield the stories of a random seed from number `start` on, without end."""
    for number in itertools.count(start):
        yield story(number, seed)


def write_stories(
    path: StrPath,
    size_bytes: int,
    seed: int = 0,
    *,
    separator: str = "<|endoftext|>",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write at least `size_bytes` of stories, and return their number.

    A line with the `separator` follows each story.
    """
    check_int("size_bytes", size_bytes)
    tell = progress or no_progress
    written = number = told = 0
    with atomic_write(path, overwrite=overwrite) as file:
        while written < size_bytes:
            text = story(number, seed)
            if separator in text:
                hint = "choose a separator that no text has, such as <|endoftext|>"
                raise ValueError(f"story {number} contains {separator!r}; {hint}")
            written += file.write(f"{text}\n{separator}\n".encode())
            number += 1
            if written - told >= REPORT_BYTES:
                told = written
                tell("write", min(written, size_bytes), size_bytes)
    tell("write", size_bytes, size_bytes)
    return number


def _decide(sequence: list[Part], random: Callable[[], float], pieces: list[str]) -> None:
    """Append the texts of `sequence` to `pieces`; `random` draws every choice in it."""
    for part in sequence:
        while isinstance(part, tuple):
            part = part[int(random() * len(part))]  # noqa: PLW2901
        if isinstance(part, str):
            pieces.append(part)
        else:
            _decide(part, random, pieces)
