r"""Split text into pieces: natively if the core compiles the pattern, else with `regex`.

>>> split("x = 3\n\nprint('hello')")
['x', ' =', ' 3', '\n', '\n', 'print', "('", 'hello', "')"]
>>> split("1234 It'S", pattern="cl100k")
['123', '4', ' It', "'S"]
>>> split("low lower", pattern=r"\S+")
['low', ' ', 'lower']
>>> split("low 12", pattern=(r"\p{N}", "gpt2"))
['low', ' ', '1', '2']
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tilth.errors import import_extra
from tilth.schema import short_repr
from tilth.tokenizer import _core
from tilth.tokenizer.patterns import NAMES, Pattern, is_native, steps_of

# The timeout of a custom pattern, in CPU time: backtracking may take exponential time. Known
# patterns take 0.6 µs per character, encoding included, so this leaves them a factor of 100.
SECONDS_PER_TEXT = 2.0
SECONDS_PER_CHARACTER = 1e-4

# `regex` reads these as characters of a set. For tiktoken's engine, Oniguruma and the V1 syntax of
# `regex` itself they are operations on sets, or a nested set: ids would differ, without a word.
_SET = re.compile(r"\\.|(?P<set>\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^]\\])*\])", re.DOTALL)
_SET_PART = re.compile(r"\\.|\[:\^?[a-z]+:\]|(?P<operation>&&|--|\|\||~~|\[)", re.DOTALL)


def split(text: str, pattern: Pattern = "gpt2") -> list[str]:
    """Split a text into pieces, whose concatenation is the text.

    The pattern is a name (`patterns.PATTERNS`), a regex, or a tuple of steps. A lone
    surrogate, which UTF-8 cannot encode, becomes U+FFFD.
    """
    if is_native(pattern):
        return _core.split(text, steps_of(pattern))
    return [piece for piece, _ in CustomSplitter(pattern, {}).split(text, allow_special=False)]


class CustomSplitter:
    """Splits by any pattern for the `regex` package; slower than the native patterns.

    With `native`, the core splits by the pattern, which may have no steps at all.
    """

    def __init__(
        self, pattern: Pattern, special_tokens: Mapping[str, int], *, native: bool = False
    ) -> None:
        from tilth.tokenizer.reference import PATTERNS  # noqa: PLC0415, slow to import

        steps = steps_of(pattern)
        self._native_steps = steps if native else []
        self._steps = [] if native else [_compile(PATTERNS.get(step, step)) for step in steps]
        self._special_tokens = dict(special_tokens)
        longest_first = sorted(special_tokens, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def split(self, text: str | bytes, allow_special: bool) -> Iterator[tuple[str, int | None]]:
        """Yield the pieces with None, and special tokens with their ids."""
        for part, special_id in self.segments(text, allow_special):
            if special_id is not None:
                yield part, special_id
                continue
            for piece in self.pieces(part):
                yield piece, None

    def segments(self, text: str | bytes, allow_special: bool) -> Iterator[tuple[str, int | None]]:
        """Yield the text between special tokens with None, and special tokens with their ids."""
        if isinstance(text, str):  # join surrogate pairs; a lone surrogate becomes U+FFFD
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        else:
            text = text.decode("utf-8", "replace")
        specials = self._special.finditer(text) if allow_special else ()
        for part, is_special in _matches_and_gaps(text, specials):
            yield part, self._special_tokens[part] if is_special else None

    def pieces(self, text: str) -> Iterable[str]:
        """Yield the pieces of text without special tokens."""
        if self._native_steps:
            return _core.split(text, self._native_steps)
        timeout = SECONDS_PER_TEXT + len(text) * SECONDS_PER_CHARACTER
        deadline = time.process_time() + timeout
        pieces: Iterable[str] = (text,)
        for step in self._steps:
            pieces = _split_by(step, pieces, deadline)
        return pieces


def _split_by(pattern: Any, texts: Iterable[str], deadline: float) -> Iterator[str]:  # noqa: ANN401
    """Yield the pieces of each text until the process has used `deadline` seconds of CPU time.

    The text between two matches of the pattern is a piece too: nothing is lost.
    """
    done = 0
    for text in texts:
        timeout = max(1e-3, deadline - time.process_time())
        try:
            for piece, _ in _matches_and_gaps(text, pattern.finditer(text, timeout=timeout)):
                yield piece
                done += len(piece)
        except TimeoutError:
            raise ValueError(
                f"The pattern {short_repr(pattern.pattern)} backtracks too long at "
                f"character {done:,} of a text; write it without alternatives or repetitions "
                "that match the same characters in several ways."
            ) from None


def _matches_and_gaps(text: str, matches: Iterable[Any]) -> Iterator[tuple[str, bool]]:
    """Yield all of a text in order, without empty parts: (part, whether it is a match)."""
    start = 0
    for found in matches:
        if found.start() > start:
            yield text[start : found.start()], False
        if found[0]:
            yield found[0], True
        start = found.end()
    if start < len(text):
        yield text[start:], False


def _compile(pattern: str) -> Any:  # noqa: ANN401, regex has no types
    name = f"The pattern {short_repr(pattern)}"
    if operation := _set_operation(pattern):
        raise ValueError(
            f"{name} has {operation!r} in a set, which is an operation on sets for some engines; "
            "write the set without it, or escape the characters."
        )
    regex = import_extra("regex", f"{name} is not native ({NAMES}) and")
    try:
        return regex.compile(pattern)
    except (RecursionError, MemoryError):
        raise ValueError(f"{name} is too large; write it shorter.") from None
    except regex.error as error:
        raise ValueError(f"{name} is not one that regex reads: {error}.") from None


def _set_operation(pattern: str) -> str | None:
    r"""Return the first operation in a set.

    >>> _set_operation(r"\w--|[^]\[\]--]"), _set_operation("[a-z&&[^b]]"), _set_operation("[[a]]")
    ('--', '&&', '[')
    >>> _set_operation(r"[[:alpha:]]|[a-z\-\-]|\[a--b]|a||b|[&|~-]")
    """
    for found in _SET.finditer(pattern):
        for part in _SET_PART.finditer(found["set"] or "", 1):
            if part["operation"]:
                return part["operation"]
    return None
