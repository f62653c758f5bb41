"""Compare the files of two editions: every value of the old one, bit by bit.

The new edition may add files, and keys to JSON, TOML and metrics, but not change values. Timings,
dates, versions and reports are not compared. The findings of a lab are compared by their numbers:
their words were rewritten.
"""

import json
import re
import struct
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

TIMINGS = {
    *("seconds", "step_seconds", "tokens_per_second", "utilisation", "peak_bytes", "created"),
    *("versions", "bytes_per_second", "peak_memory_bytes", "checksum"),
}
"""Keys whose values vary between runs (the checksum of a manifest covers paths)."""

UNCOMPARED = ("stderr-*", "lock", "README.md", "report*", "search.journal", "*.png")

TIMED_COLUMN = re.compile(r"\b(ms|seconds?|minutes?|time|tokens/s|faster|slower)\b")
"""Columns with measured times in the tables of a lab."""

SENTENCES = {
    *("asks", "answer", "notes", "text", "title", "columns", "rows", "x_label", "y_label"),
}
"""Keys of a lab file whose texts are compared by their numbers."""

NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?%?|\b(?:inf|nan)\b")

WORKSPACE = ".workspace"
"""A file that marks a workspace and holds the path in which its commands ran."""

Difference = tuple[str, str]
"""(FILE or FILE:KEY, description)."""


def differences(old: Path, new: Path) -> Iterator[Difference]:
    """Yield files of the old folder that are missing or have other values in the new one."""
    for path in sorted(old.rglob("*")):
        if path.is_dir() or any(path.match(pattern) for pattern in UNCOMPARED):
            continue
        name = path.relative_to(old).as_posix()
        other = new / name
        if not other.is_file():
            yield name, "is missing"
            continue
        yield from _compare_files(name, path, other)


def _compare_files(name: str, old: Path, new: Path) -> Iterator[Difference]:
    reader = _reader_of(old)
    if reader is None:
        if old.read_bytes() != new.read_bytes():
            yield name, "has different bytes"
        return
    try:
        found = reader(new)
    except ValueError as error:
        yield name, f"cannot be read ({error})"
        return
    yield from _compare_values(name, reader(old), found)


def _compare_values(where: str, old: Any, new: Any) -> Iterator[Difference]:  # noqa: ANN401, JSON
    if isinstance(old, dict) and isinstance(new, dict):
        if {"columns", "rows"} <= old.keys() & new.keys():
            old, new = _without_times(old), _without_times(new)
        for key, value in old.items():
            if key in TIMINGS:
                continue
            place = f"{where}:{key}" if ":" not in where else f"{where}.{key}"
            if key not in new:
                yield place, "is missing"
            else:
                yield from _compare_values(place, value, new[key])
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield where, f"has {len(new)} items, not {len(old)}"
        for number, (left, right) in enumerate(zip(old, new, strict=False)):
            yield from _compare_values(f"{where}[{number}]", left, right)
    elif isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        yield from _compare_arrays(where, old, new)
    elif type(old) is not type(new) or repr(old) != repr(new):  # 0.0 is not -0.0; NaN is NaN
        yield where, f"is {_short(new)}, not {_short(old)}"


def _without_times(table: dict[str, Any]) -> dict[str, Any]:
    kept = [n for n, name in enumerate(table["columns"]) if not TIMED_COLUMN.search(str(name))]
    columns = [table["columns"][n] for n in kept]
    return {**table, "columns": columns, "rows": [[row[n] for n in kept] for row in table["rows"]]}


def _compare_arrays(where: str, old: np.ndarray, new: np.ndarray) -> Iterator[Difference]:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        yield where, f"is {new.dtype}{new.shape}, not {old.dtype}{old.shape}"
    elif old.tobytes() != new.tobytes():
        number = int((old != new).sum())
        largest = np.abs(old.astype(np.float64) - new.astype(np.float64)).max()
        yield where, f"differs in {number} of {old.size} numbers, by up to {largest:.3g}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- readers -------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    """Return the text, with the path of its workspace replaced."""
    mark = next(folder / WORKSPACE for folder in path.parents if (folder / WORKSPACE).exists())
    return path.read_text("utf-8").replace(mark.read_text(), "WORKSPACE")


def _read_json(path: Path) -> Any:  # noqa: ANN401
    return json.loads(_text(path))


def _read_lab(path: Path) -> Any:  # noqa: ANN401
    return _without_words(_read_json(path))


def _read_answer(path: Path) -> list[Any]:
    return [_numbers(line) for line in _text(path).splitlines()]


def _without_words(value: Any) -> Any:  # noqa: ANN401
    """Return a lab with the numbers of each sentence, heading and cell instead of its text."""
    if isinstance(value, list):
        return [_without_words(item) for item in value]
    if not isinstance(value, dict):
        return value
    if {"columns", "rows"} <= value.keys():
        value = _without_times(value)
    return {
        key: _numbers(item) if key in SENTENCES else _without_words(item)
        for key, item in value.items()
    }


def _numbers(value: Any) -> Any:  # noqa: ANN401
    """Return the sorted numbers of a text, or of each text in a list; other values as they are."""
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return sorted(NUMBER.findall(value)) if isinstance(value, str) else value


def _read_json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in _text(path).splitlines()]


def _read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(_text(path))


DTYPES = {
    **{"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1"},
    **{"U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?", "BF16": "u2"},
}


def _read_safetensors(path: Path) -> dict[str, Any]:
    """Return tensors and metadata by name, without the safetensors package."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    tensors: dict[str, Any] = {"__metadata__": header.pop("__metadata__", {})}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        array = np.frombuffer(content[begin:end], DTYPES[entry["dtype"]])
        tensors[f"{name} ({entry['dtype']})"] = array.reshape(entry["shape"])
    return tensors


def _read_npy(path: Path) -> Any:  # noqa: ANN401
    return np.load(path)


def _reader_of(path: Path) -> Callable[[Path], Any] | None:
    """Return the reader of a file; None to compare its bytes."""
    if path.name == "tokenizer.json":
        return None
    if path.name == "lab.json":
        return _read_lab
    if path.match("lab-*/stdout-*.txt"):
        return _read_answer
    return READERS.get(path.suffix)


READERS: dict[str, Callable[[Path], Any]] = {
    ".txt": _text,
    ".json": _read_json,
    ".jsonl": _read_json_lines,
    ".toml": _read_toml,
    ".safetensors": _read_safetensors,
    ".npy": _read_npy,
}
