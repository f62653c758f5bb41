"""Whole numbers that were given as such: cyclopts alone would take `--steps 4.7` for 5.

What enters: what cyclopts hands to the converter of an option, a type and the words that were given
for it. What leaves: cyclopts' own reading of them, or one sentence.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from cyclopts import Token, convert

_FRACTION = re.compile(r"[-+]?\d*\.\d*[1-9]\d*")  # 4.7, but not 4.0, which is 4


def convert_exactly(type_hint: Any, tokens: Sequence[Token]) -> Any:  # noqa: ANN401, any option's
    """As cyclopts converts, but never to another number."""
    kinds = set(_kinds(type_hint))
    if int in kinds and not kinds & {float, str}:
        for token in tokens:
            if _FRACTION.fullmatch(token.value):
                raise ValueError(f"{token.value} is not a whole number.")
    return convert(type_hint, tokens)


def _kinds(type_hint: Any) -> Iterator[Any]:  # noqa: ANN401, a type
    """A type, or those that a union or a tuple is made of."""
    yield type_hint
    for part in get_args(type_hint):
        yield from _kinds(part)
