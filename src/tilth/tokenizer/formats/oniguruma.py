r"""Patterns that two engines read alike: the `regex` package's, ours, and Hugging Face's Oniguruma.

What enters: a pattern. What leaves: nothing, or a sentence about what the two may read differently.
Oniguruma reads Ruby's syntax: `$` is the end of a line there, `{1,3}+` repeats a repetition instead
of forbidding to go back, `\h` is a hexadecimal digit, `&&` in a set is an intersection. So only
what is known to be the same passes, which is what tokenizers use; each has a test against both.

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
# In a set, two of &, | or ~ would be an operator, as would a bracket be; so would two hyphens, but
# a hyphen only ever stands between the ends of a range here. Surrogates cannot be written to files.
_END = r"[^]\[\\^&|~\ud800-\udfff-]"
_MEMBER = rf"{_END}-{_END}|{_ESCAPE}|{_END}|\^|&(?!&)|\|(?!\|)|~(?!~)"
_SET = rf"\[\^?(?:{_MEMBER})+\]"
# Ignoring case, Oniguruma lets one character stand for two (ß for ss) and the regex package knows
# four kinds of i: only these contractions are known to be the same.
_ANY_CASE = r"\(\?i:(?:'s\|'t\|'re\|'ve\|'m\|'ll\|'d|\[sdmt\]\|ll\|ve\|re)\)"
_TOKEN = re.compile(
    rf"(?P<atom>{_ANY_CASE}|{_SET}|{_ESCAPE}|[^]\[\\^$|?*+(){{}}\ud800-\udfff])"
    r"|(?P<open>\((?:\?[:>=!])?)|(?P<close>\))|(?P<bar>\|)"
)
_QUANTIFIER = re.compile(
    r"(?:[?*+][?+]?|\{(?P<least>[0-9]{1,3})(?:,(?P<most>[0-9]{0,3}))?\})(?![?*+])"
)

_MOST_NESTED = 50  # the regex package runs out of stack at some hundreds
# Its compiler copies what is repeated: (?:(?:a){999}){999} takes gigabytes or a segmentation fault,
# and each + around a + doubles the memory. Patterns of tokenizers have some hundred parts.
_MOST_PARTS = 100_000


def check_read_alike(pattern: str) -> None:
    """Raise a ValueError unless both engines surely cut every text alike by this pattern."""
    # For each group that is open: is it a look ahead, can an alternative before this one match the
    # empty text, can this one so far? And how many parts does it have, repetitions written out?
    groups = [[False, False, True]]
    sizes = [0]
    place = 0
    while place < len(pattern):
        found = _TOKEN.match(pattern, place)
        if not found or (found["close"] and len(groups) == 1):
            _refuse(pattern, place)
        place = found.end()
        if found["open"]:
            if len(groups) > _MOST_NESTED:
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
            if is_look or can_be_empty:  # engines differ in when they stop repeating nothing
                _refuse(pattern, place)
            can_be_empty = quantifier[0][0] in "?*" or not int(quantifier["least"] or 1)
            size *= max(2, int(quantifier["most"] or quantifier["least"] or 2))
            place = quantifier.end()
        sizes[-1] += size
        if sizes[-1] > _MOST_PARTS:
            raise ValueError("the pattern has too many parts or repetitions; write it shorter")
        groups[-1][2] &= can_be_empty
    if len(groups) > 1:
        raise ValueError("the pattern has a group that is not closed; close it with ')'")
    if any(groups[0][1:]):  # engines differ in where they go on after nothing
        raise ValueError("the pattern can match the empty text; write + instead of *")


def _refuse(pattern: str, place: int) -> NoReturn:
    raise ValueError(
        f"the pattern has {pattern[place : place + 10]!r} at {place}, which Hugging Face may read "
        "differently; write it another way"
    )
