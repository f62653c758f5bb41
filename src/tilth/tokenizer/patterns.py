r"""Split patterns by name, as data for the native core.

A pattern is a name, a regex, or a tuple of steps: each step is a regex (or `gpt2`, `cl100k`) and
splits the pieces of the step before. Matches and the text between them are pieces.
`core/bpe/regex.hpp` documents the regexes that the core compiles; the `regex` package splits by
others.

>>> steps_of("starcoder")
['\\p{N}', 'gpt2']
>>> canonical((r"\p{N}", "gpt2"))
'starcoder'
>>> is_native(r"\p{L}+|\s+"), is_native(r"\w+")
(True, False)
"""

from functools import lru_cache

from tilth.tokenizer import _core

Pattern = str | tuple[str, ...]
"""A name, a regex, or several steps."""

MAX_STEPS = 16

_NAMED = _core.named_patterns()

PATTERNS: dict[str, tuple[str, ...]] = {
    # Hand-written splitters of the core; `reference.PATTERNS` has their regexes.
    "gpt2": ("gpt2",),
    "cl100k": ("cl100k",),
    # GPT-4o and gpt-oss; Llama 3; Qwen 2, 2.5 and 3; Mistral. `core/bpe/pattern.cpp` has them.
    **{name: (_NAMED[name],) for name in ("o200k", "llama3", "qwen2", "tekken")},
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",  # Chinese characters, Hiragana and Katakana
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    # StarCoder, SmolLM
    "starcoder": (r"\p{N}", "gpt2"),
}
"""The steps of each named pattern."""

_NAMES = {steps: name for name, steps in PATTERNS.items()}

NAMES = ", ".join(PATTERNS)
"""All names, for messages."""


def steps_of(pattern: Pattern) -> list[str]:
    """Return the steps of a pattern for the core; names in a tuple are expanded."""
    given = (pattern,) if isinstance(pattern, str) else pattern
    return [step for each in given for step in PATTERNS.get(each, (each,))]


def canonical(pattern: Pattern) -> Pattern:
    """Return the name of a pattern if it has one, else its regex or the tuple of its steps."""
    steps = tuple(steps_of(pattern))
    return _NAMES.get(steps) or (steps[0] if len(steps) == 1 else steps)


def describe(pattern: Pattern) -> str:
    """Format a pattern for a message or a table."""
    return pattern if isinstance(pattern, str) else ", then ".join(pattern)


def is_native(pattern: Pattern) -> bool:
    """Return whether the core splits by this pattern."""
    steps = tuple(steps_of(pattern))
    # Compiling takes some milliseconds; named patterns compile.
    return steps in _NAMES or _compiles(steps)


@lru_cache(maxsize=256)
def _compiles(steps: tuple[str, ...]) -> bool:
    try:
        _core.count_pieces("", list(steps))
    except (ValueError, TypeError):  # TypeError: a lone surrogate is not UTF-8
        return False
    return True
