"""The figures of five write-ups of Stanford's CS336 assignment 1, and why they differ from ours.

`figures.toml` has them; only the write-up reads it.

>>> figures()["shared_merges"].values["B"]
'about half'
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilth.report.lab_file import Table

AUTHORS = ("A", "B", "C", "D", "E")


@dataclass(frozen=True)
class Figure:
    """A measurement of the write-ups: their values by author, and the reason for differences."""

    title: str
    values: Mapping[str, str]
    reason: str


@cache
def figures() -> dict[str, Figure]:
    """Return all figures by key."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {
        key: Figure(
            table["title"],
            {author: table[author] for author in AUTHORS if author in table},
            table["reason"],
        )
        for key, table in tables.items()
    }


def figures_table(title: str, here: Mapping[str, str]) -> Table:
    """Return a table of figures, with the values of this run."""
    rows = tuple(
        (
            figures()[key].title,
            value,
            *(figures()[key].values.get(author) for author in AUTHORS),
            figures()[key].reason,
        )
        for key, value in here.items()
    )
    return Table(title, ("figure", "here", *AUTHORS, "why they differ"), rows)
