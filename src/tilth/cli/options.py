"""Options that several verbs share, and the conversion of words to their values."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from cyclopts import Parameter, Token, convert

_FRACTION = re.compile(r"[-+]?\d*\.\d*[1-9]\d*")  # 4.7, but not 4.0, which is 4


def convert_exactly(type_hint: Any, tokens: Sequence[Token]) -> Any:  # noqa: ANN401, any option's
    """Convert as cyclopts does, but refuse a fraction for an integer: `--steps 4.7` is not 5."""
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


def utf8(type_hint: Any, tokens: Sequence[Token]) -> str | list[str]:  # noqa: ANN401, a type
    """Convert an option of text, decoded as UTF-8 in every locale.

    Python decodes arguments by the locale and hides what does not fit in surrogates.
    """
    texts = []
    for token in tokens:
        try:
            texts.append(token.value.encode("utf-8", "surrogateescape").decode("utf-8"))
        except UnicodeError:
            sentence = f"{token.keyword} {token.value!r} is not UTF-8; write it in UTF-8."
            raise ValueError(sentence) from None
    return texts if get_origin(type_hint) is list else texts[-1]


UTF8 = Parameter(converter=utf8)

CorpusPaths = Annotated[
    list[Path],
    Parameter(help="Text files, folders, JSON lines, Parquet, or .gz and .zst of these."),
]
DataFolder = Annotated[Path, Parameter(help="The folder that `tilth tokenize` wrote.")]
RunFolder = Annotated[Path, Parameter(help="The run directory.")]
Threads = Annotated[int | None, Parameter(help="How many threads to use; default: all cores.")]
Overwrite = Annotated[bool, Parameter(help="Replace --out if it exists.")]
Json = Annotated[bool, Parameter(help="Print JSON.")]


@Parameter(name="*")
@dataclass(frozen=True)
class CorpusOptions:
    """How documents are read; None is the default of the function that reads."""

    separator: Annotated[str | None, UTF8] = None
    """What stands between the documents of a text file; default: <|endoftext|>."""
    field: Annotated[str | None, UTF8] = None
    """Where JSON lines and Parquet have their text; default: text."""
    on_error: Literal["stop", "skip"] | None = None
    """What to do about a document that is no text; default: stop, for `corpus info` skip."""
