r"""Formatting and parsing of numbers, sizes, durations, lists and suggestions.

>>> scientific(4_513_336_524_800), format_bytes(8_508_230_400), format_duration(6584 * 86400)
('4.513e12', '8.51 GB', '6,584 days (18.0 years)')
>>> parse_bytes("64MiB"), parse_duration("1h30m")
(67108864, 5400.0)
>>> join_words(["a", "b", "c"]), suggestion("adamv", ["adamw", "sgd"])
('a, b and c', 'did you mean adamw?')
>>> print(printable("\x1b[31mred"))
\x1b[31mred
"""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from difflib import get_close_matches

UNITS = {"b": 1} | {
    f"{letter}{ending}": base**power
    for power, letter in enumerate("kmgt", 1)
    for ending, base in (("b", 1000), ("ib", 1024))
}


def scientific(number: float) -> str:
    """Format a number with four significant digits and a power of ten."""
    return f"{number:.3e}".replace("e+", "e").replace("e0", "e")


def format_bytes(number_bytes: float) -> str:
    """Format a size in the decimal unit that fits."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(number_bytes) >= scale:
            return f"{number_bytes / scale:,.2f} {unit}"
    return f"{number_bytes:.0f} bytes"


def parse_bytes(text: str) -> int:
    """Parse a size: 500kB, 50MB, 1.5GB, 64MiB, or a number of bytes."""
    match = re.fullmatch(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([a-z]*)", text.strip().lower())
    if match is None or (match[2] and match[2] not in UNITS):
        raise ValueError(f"{text!r} is not a size; write 500kB, 50MB, 1.5GB, 64MiB, or bytes.")
    return int(Decimal(match[1]) * UNITS[match[2] or "b"])


def format_duration(seconds: float) -> str:
    """Format a duration in the unit that fits."""
    days = seconds / 86400
    if days >= 2:
        years = f" ({days / 365.25:.1f} years)" if days >= 730 else ""
        return f"{days:,.0f} days{years}" if days >= 10 else f"{days:.1f} days"
    for unit, scale in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.1f} {unit}"
    return f"{seconds:.3g} s"


def parse_duration(text: str) -> float:
    """Parse a duration (90s, 8m, 1h30m); return seconds."""
    number = r"(\d{1,12}(?:\.\d{0,12})?|\.\d{1,12})"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text.strip(), re.ASCII)
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = 3600.0 * hours + 60 * minutes + seconds
    if total <= 0:
        raise ValueError(f"{text!r} is not a duration; write it like 90s, 8m or 1h30m.")
    return total


def join_words(words: Sequence[str]) -> str:
    """Join words for a sentence: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def suggestion(wrong: object, names: Iterable[str], otherwise: str | None = None) -> str:
    """Return a hint for an unknown name: the nearest name, else `otherwise` (default: all)."""
    names = list(names)
    if nearest := nearest_name(wrong, names):
        return f"did you mean {nearest}?"
    return f"there are {', '.join(names)}." if otherwise is None else otherwise


def nearest_name(wrong: object, names: Iterable[str]) -> str | None:
    """Return the known name that is similar to `wrong`, if any."""
    # Untrusted names may be megabytes long, and the comparison takes quadratic time.
    return next(iter(get_close_matches(str(wrong)[:100], list(names), n=1)), None)


def printable(text: str, keep: str = "") -> str:
    """Replace control characters, except those in `keep`, by Python escapes.

    Untrusted text (of a model, a file name, a tokenizer) may hold terminal escape sequences.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii")
        for c in text
    )
