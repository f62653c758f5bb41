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

The plots, phrases and words are text files in this package, and `plots/either.txt` explains the
language of all of them: `texts.py` reads the files, `grammar.py` compiles the language, `casts.py`
knows who plays.
"""

import itertools
from collections.abc import Callable, Iterator
from random import Random

from tilth.corpus.stories.casts import draw_cast, scripts
from tilth.corpus.stories.grammar import Part
from tilth.files import StrPath, atomic_write

REPORT_BYTES = 1 << 20  # progress is told each time that so much has been written


def story(number: int, seed: int = 0) -> str:
    """Story `number` (from 0) of a `seed`."""
    if not 0 <= number < 1 << 64 or seed < 0:
        raise ValueError(
            f"there is no story {number} of seed {seed}; "
            "count stories from 0 to 2**64 - 1 and use a seed of 0 or more"
        )
    # Of `random`, Python promises for ever only that random() repeats itself for the same seed.
    random = Random(seed << 64 | number).random  # noqa: S311, as nothing here is a secret
    choices = scripts()
    script = choices[int(random() * len(choices))]
    cast = draw_cast(script, random)
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
