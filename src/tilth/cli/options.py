"""Options that several verbs have, so that they are called and explained alike."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

from cyclopts import Parameter, Token


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


CorpusPaths = Annotated[
    list[Path],
    Parameter(help="Text files, folders, JSON lines, Parquet, or .gz and .zst of these."),
]
Separator = Annotated[
    str, Parameter(help="What stands between the documents of a text file.", converter=utf8)
]
Field = Annotated[
    str, Parameter(help="Where JSON lines and Parquet have their text.", converter=utf8)
]
OnError = Annotated[
    Literal["stop", "skip"], Parameter(help="What to do about a document that is no text.")
]
DataFolder = Annotated[Path, Parameter(help="The folder that `tilth tokenize` wrote.")]
RunFolder = Annotated[Path, Parameter(help="The run directory.")]
Threads = Annotated[int | None, Parameter(help="How many threads to use; default: all cores.")]
Overwrite = Annotated[bool, Parameter(help="Replace --out if it exists.")]
Json = Annotated[bool, Parameter(help="Print JSON.")]
