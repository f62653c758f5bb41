"""Options that several verbs have, so that they are called and explained alike."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

CorpusPaths = Annotated[
    list[Path],
    Parameter(help="Text files, folders, JSON lines, Parquet, or .gz and .zst of these."),
]
Separator = Annotated[str, Parameter(help="What stands between the documents of a text file.")]
Field = Annotated[str, Parameter(help="Where JSON lines and Parquet have their text.")]
OnError = Annotated[
    Literal["stop", "skip"], Parameter(help="What to do about a document that is no text.")
]
Threads = Annotated[int | None, Parameter(help="How many threads to use; default: all cores.")]
Overwrite = Annotated[bool, Parameter(negative=(), help="Replace --out if it exists.")]
Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print JSON.")]
