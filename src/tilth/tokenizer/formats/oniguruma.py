r"""Check that the `regex` package and Oniguruma, the engine of Hugging Face, agree on a pattern.

Oniguruma has Ruby's syntax. There `$` is the end of a line, `{1,3}+` is a nested repetition and not
possessive, `\h` is a hexadecimal digit, and `&&` in a set is an intersection. Only syntax that has
the same meaning in both passes, which covers the patterns of tokenizers. Tests compare both.

>>> check_read_alike(r" ?\p{L}+|\p{N}{1,3}|\s+(?!\S)|\s")
>>> check_read_alike(r"\s+$")
Traceback (most recent call last):
    ...
ValueError: the pattern has '$' at 3, which Hugging Face may read differently; write it another way
"""

import re
from typing import NoReturn

_CATEGORIES = (
    r"L|Lu|Ll|Lt|Lm|Lo|M|Mn|Mc|Me|N|Nd|Nl|No|P|Pc|Pd|Ps|Pe|Pi|Pf|Po|S|Sm|Sc|Sk|So|Z|Zs|Zl|Zp|Han"
)
_ESCAPE = rf"\\(?:[sSdDrnt]|[pP]\{{(?:{_CATEGORIES})\}}|[-\\/.^$|?*+()\[\]{{}}])"
# In a set, a bracket and a doubled &, | or ~ are operators. So is a doubled hyphen, but a hyphen is
# only allowed between the ends of a range. Surrogates cannot be written to files.
_END = r"[^]\[\\^&|~\ud800-\udfff-]"
_MEMBER = rf"{_END}-(?:{_END}|~(?!~))|{_ESCAPE}|{_END}|\^|&(?!&)|\|(?!\|)|~(?!~)"
_SET = rf"\[\^?(?:{_MEMBER})+\]"
# With case-insensitive matching, Oniguruma matches one character with two (ß with ss) and the regex
# package has four forms of i. Only these contractions are known to match alike.
_ANY_CASE = r"\(\?i:(?:'s\|'t\|'re\|'ve\|'m\|'ll\|'d|\[sdmt\]\|ll\|ve\|re)\)"
_TOKEN = re.compile(
    rf"(?P<atom>{_ANY_CASE}|{_SET}|{_ESCAPE}|[^]\[\\^$|?*+(){{}}\ud800-\udfff])"
    r"|(?P<open>\((?:\?[:>=!])?)|(?P<close>\))|(?P<bar>\|)"
)
_QUANTIFIER = re.compile(
    r"(?:[?*+][?+]?|\{(?P<least>[0-9]{1,3})(?:,(?P<most>[0-9]{0,3}))?\})(?![?*+])"
)

_MAX_DEPTH = 50  # the regex package exhausts the stack at some hundred
# Its compiler expands repetitions: (?:(?:a){999}){999} takes gigabytes or a segmentation fault, and
# each + around a + doubles the memory. Patterns of tokenizers have some hundred parts.
_MAX_PARTS = 100_000


_DOLLAR = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|(?P<dollar>\$)", re.DOTALL)


def portable(pattern: str) -> str:
    r"""Rewrite `$`, which in Oniguruma is the end of a line, as a lookahead that both engines read.

    >>> portable(r"[$]|\$|\s+$")
    '[$]|\\$|\\s+(?![^\\n])'
    """
    return _DOLLAR.sub(lambda found: r"(?![^\n])" if found["dollar"] else found[0], pattern)


def check_read_alike(pattern: str) -> None:
    """Raise a ValueError unless both engines are known to split every text alike."""
    # For each open group: is it a lookahead, can a previous alternative match the empty string, can
    # the current one so far? And its number of parts, with repetitions expanded.
    groups = [[False, False, True]]
    sizes = [0]
    place = 0
    while place < len(pattern):
        found = _TOKEN.match(pattern, place)
        if not found or (found["close"] and len(groups) == 1):
            _refuse(pattern, place)
        place = found.end()
        if found["open"]:
            if len(groups) > _MAX_DEPTH:
                raise ValueError("the pattern nests groups too deeply; write it flatter")
            groups.append([found[0] in ("(?=", "(?!"), False, True])
            sizes.append(0)
            continue
        if found["bar"]:
            groups[-1][1:] = [groups[-1][1] or groups[-1][2], True]
            continue
        is_look, can_be_empty, size = False, False, 1
        if found["close"]:
            size += sizes.pop()
            is_look, *alternatives = groups.pop()
            can_be_empty = is_look or any(alternatives)
        if quantifier := _QUANTIFIER.match(pattern, place):
            if is_look or can_be_empty:  # engines differ in repeating an empty match
                _refuse(pattern, place)
            can_be_empty = quantifier[0][0] in "?*" or not int(quantifier["least"] or 1)
            size *= max(2, int(quantifier["most"] or quantifier["least"] or 2))
            place = quantifier.end()
        sizes[-1] += size
        if sizes[-1] > _MAX_PARTS:
            raise ValueError("the pattern has too many parts or repetitions; write it shorter")
        groups[-1][2] &= can_be_empty
    if len(groups) > 1:
        raise ValueError("the pattern has a group that is not closed; close it with ')'")
    if any(groups[0][1:]):  # engines differ in where they continue
        raise ValueError("the pattern can match the empty string; write + instead of *")


def _refuse(pattern: str, place: int) -> NoReturn:
    raise ValueError(
        f"the pattern has {pattern[place : place + 10]!r} at {place}, which Hugging Face may read "
        "differently; write it another way"
    )
