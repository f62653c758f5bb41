"""Read untrusted tokenizer files: strict UTF-8 and JSON, with errors that name the file.

Checks of the content raise a ValueError "problem; hint"; `explained` turns it into a `FileError`.

>>> with explained("vocab.json"):
...     raise ValueError("token 7 is empty; leave it out")
Traceback (most recent call last):
    ...
tilth.files.FileError: vocab.json cannot be used because token 7 is empty; leave it out
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from tilth.files import FileError, StrPath, read_bytes, unique_keys
from tilth.schema import short_repr
from tilth.tokenizer.vocabulary import Vocabulary

T = TypeVar("T")

MAX_TOKENIZER_BYTES = 1 << 30
"""Larger tokenizer files are refused."""

ONLY_BYTE_LEVEL = "tilth opens byte-level BPE only, such as GPT-2, Llama 3, Qwen or tekken"
"""The hint for other kinds of tokenizers."""


@contextmanager
def explained(path: StrPath, verdict: str = "cannot be used") -> Iterator[None]:
    """Turn a ValueError about the content of a file into a FileError that names it."""
    try:
        yield
    except FileError:
        raise
    except ValueError as error:
        problem, _, hint = str(error).rpartition("; ")
        raise FileError(path, f"{verdict} because {problem}", hint) from None


def read_content(path: StrPath) -> bytes:
    """Return the bytes of a file of any format."""
    return read_bytes(path, MAX_TOKENIZER_BYTES)


def decode_text(path: StrPath, content: bytes) -> str:
    """Return the text of a UTF-8 file, with unchanged line ends."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 at byte {error.start:,}"
        raise FileError(path, problem, "restore a copy, or check the path") from None


def parse_json(path: StrPath, content: bytes) -> dict[str, object]:
    """Return the object of a JSON file; a repeated key is an error."""
    text = decode_text(path, content)
    try:
        parsed = json.loads(text, object_pairs_hook=unique_keys)
    except RecursionError:
        raise FileError(path, "is nested too deeply", "check the path") from None
    except ValueError as error:
        hint = "restore a copy, or check the path"
        raise FileError(path, f"is truncated or is not JSON ({error})", hint) from None
    if not isinstance(parsed, dict):
        raise FileError(path, "is not a JSON object", "check the path")
    return parsed


def read_text(path: StrPath) -> str:
    """Return the text of a UTF-8 file, with unchanged line ends."""
    return decode_text(path, read_content(path))


def read_json(path: StrPath) -> dict[str, object]:
    """Return the object of a JSON file; a repeated key is an error."""
    return parse_json(path, read_content(path))


def typed(value: object, kind: type[T], name: str) -> T:
    """Return a value of a JSON file; raise a ValueError if it has another type."""
    if not isinstance(value, kind):
        noun = {"dict": "an object", "list": "a list", "str": "a string"}[kind.__name__]
        raise ValueError(f"{name} is {short_repr(value)} and not {noun}; restore a copy")
    return value


def check_plain(vocabulary: Vocabulary, path: StrPath) -> None:
    """Raise a ValueError for normalizers or token options, which only `tokenizer.json` stores."""
    lost = [f"the normalizer {form}" for form in vocabulary.normalizers]
    for token, options in vocabulary.effective_options.items():
        flags = [name for name, value in vars(options).items() if value and name != "special"]
        lost.append(f"the option {flags[0]} of {short_repr(token)}")
    if lost:
        raise ValueError(f"{path} would lose {lost[0]}; write a tokenizer.json")
