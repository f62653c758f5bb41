r"""Cut text into pieces by a pattern: natively by the two known ones, through `regex` by any other.

>>> split("x = 3\n\nprint('hello')")
['x', ' =', ' 3', '\n', '\n', 'print', "('", 'hello', "')"]
>>> split("1234 It'S", pattern="cl100k")
['123', '4', ' It', "'S"]
>>> split("low lower", pattern=r"\S+")
['low', ' ', 'lower']
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tilth.errors import import_extra
from tilth.schema import short_repr
from tilth.tokenizer import _core

NATIVE_PATTERNS = ("gpt2", "cl100k")

# The ceiling of a pattern that is not native, in CPU time: backtracking may take exponential time.
# Known patterns take 0.6 µs a character, with encoding, so this leaves them a factor of 100.
SECONDS_PER_TEXT = 2.0
SECONDS_PER_CHARACTER = 1e-4


def split(text: str, pattern: str = "gpt2") -> list[str]:
    """Cut a text into pieces; joined, the pieces are the text again.

    A lone surrogate, which UTF-8 cannot hold, becomes U+FFFD.
    """
    if pattern in NATIVE_PATTERNS:
        return _core.split(text, pattern)
    return [piece for piece, _ in CustomSplitter(pattern, {}).split(text, allow_special=False)]


class CustomSplitter:
    """Cuts by a pattern for the `regex` package: slower, but any."""

    def __init__(self, pattern: str, special_tokens: Mapping[str, int]) -> None:
        self._pattern = _compile(pattern)
        self._special_tokens = dict(special_tokens)
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def split(self, text: str | bytes, allow_special: bool) -> Iterator[tuple[str, int | None]]:
        """Pieces, and special tokens with their ids.

        What the pattern leaves out between two matches is a piece of its own: nothing is lost.
        """
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else _repaired(text)
        start = 0
        for found in self._special.finditer(text) if allow_special else ():
            yield from ((piece, None) for piece in self._pieces(text[start : found.start()]))
            yield found[0], self._special_tokens[found[0]]
            start = found.end()
        yield from ((piece, None) for piece in self._pieces(text[start:]))

    def _pieces(self, text: str) -> Iterator[str]:
        start = 0
        ceiling = SECONDS_PER_TEXT + len(text) * SECONDS_PER_CHARACTER
        try:
            for found in self._pattern.finditer(text, timeout=ceiling):
                if found.start() > start:
                    yield text[start : found.start()]
                if found[0]:
                    yield found[0]
                start = found.end()
        except TimeoutError:
            raise ValueError(
                f"The pattern {short_repr(self._pattern.pattern)} backtracks too long at character "
                f"{start:,} of a text; write it without alternatives or repetitions that match "
                "the same characters in several ways."
            ) from None
        if start < len(text):
            yield text[start:]


def _compile(pattern: str) -> Any:  # noqa: ANN401, regex has no types
    names = ", ".join(NATIVE_PATTERNS)
    regex = import_extra("regex", f"The pattern {short_repr(pattern)} is not one of {names} and")
    try:
        return regex.compile(pattern)
    except (RecursionError, MemoryError):
        raise ValueError(
            f"The pattern {short_repr(pattern)} is too large; write it shorter."
        ) from None
    except regex.error as error:
        raise ValueError(f"The pattern {pattern!r} is not one that regex reads: {error}.") from None


def _repaired(text: str) -> str:
    """Surrogates joined where they make a pair, U+FFFD where they do not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
