"""Results on stdout: lines of text, or one line of JSON."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


def print_json(values: Mapping[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(values))


def print_result(values: Mapping[str, Any], lines: Iterable[str], *, as_json: bool) -> None:
    """Print one line of JSON, or the lines."""
    print_json(values) if as_json else print(*lines, sep="\n")


def aligned(*rows: tuple[str, str]) -> list[str]:
    """Return names and values in two columns."""
    width = max(len(name) for name, _ in rows)
    return [f"{name:<{width}}  {value}" for name, value in rows]
