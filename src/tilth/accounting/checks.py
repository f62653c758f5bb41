"""One sentence for a number or a name that makes no sense.

What enters: the name of an option and what the user gave. What leaves: nothing, or a ValueError.

>>> check_positive("mfu", -1)
Traceback (most recent call last):
ValueError: mfu must be positive and finite, not -1.
>>> check_choice("optimizer", "adamv", ["adamw", "sgd"])
Traceback (most recent call last):
ValueError: optimizer 'adamv' is unknown; did you mean adamw?
"""

import difflib
import math
from collections.abc import Iterable


def check_positive(name: str, value: object) -> None:
    """Refuse what is not a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {value!r}.")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be positive and finite, not {value}.")


def check_choice(name: str, value: object, known: Iterable[str]) -> None:
    """Refuse a name that is not among those known, with the nearest one."""
    names = list(known)
    if value not in names:
        close = difflib.get_close_matches(str(value).lower(), names, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(names)}."
        raise ValueError(f"{name} {value!r} is unknown; {hint}")
