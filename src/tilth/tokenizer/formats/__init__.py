"""Tokenizer files, read into a `Vocabulary` and written from one: tilth's own and other people's.

What enters: a path, or a `Vocabulary`. What leaves: the other of the two. Each format is a file of
its own; all refuse, in one sentence, what they cannot hold and what is damaged.

| file | holds | read and written by |
|---|---|---|
| `tokenizer.json` | everything; tilth's own format | Hugging Face `tokenizers` |
| `vocab.json` and `merges.txt` | tokens and merges | GPT-2 |
| `NAME.tiktoken` | tokens, whose ids say when they are merged | tiktoken |

>>> import tempfile
>>> vocabulary = Vocabulary({0: b"h", 1: b"i", 2: b"hi"}, ((b"h", b"i"),))
>>> with tempfile.TemporaryDirectory() as folder:
...     save_gpt2(vocabulary, f"{folder}/vocab.json", f"{folder}/merges.txt")
...     load(folder) == vocabulary
True
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tilth.files import StrPath
from tilth.tokenizer.formats.gpt2 import load_gpt2, save_gpt2
from tilth.tokenizer.formats.huggingface import load_tokenizer_json, save_tokenizer_json
from tilth.tokenizer.formats.tiktoken import (
    holds_ranks,
    load_tiktoken,
    recover_merges,
    save_tiktoken,
)
from tilth.tokenizer.vocabulary import Vocabulary

__all__ = [
    "load",
    "load_gpt2",
    "load_tiktoken",
    "load_tokenizer_json",
    "recover_merges",
    "save",
    "save_gpt2",
    "save_tiktoken",
    "save_tokenizer_json",
]


def load(
    path: StrPath,
    *,
    pattern: str | None = None,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
) -> Vocabulary:
    """Read any format, told by its content: a `tokenizer.json`, ranks, or a folder.

    A folder holds GPT-2's two files, or else a `tokenizer.json`. The pattern and the special tokens
    are for formats that do not hold them. Ranks need a pattern, unless they are OpenAI's own.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / "vocab.json").exists() and (path / "tokenizer.json").exists():
            return load_tokenizer_json(path / "tokenizer.json")
        return load_gpt2(path / "vocab.json", path / "merges.txt", special_tokens)
    if holds_ranks(path):
        return load_tiktoken(path, pattern, special_tokens)
    return load_tokenizer_json(path)


def save(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Write NAME.json, NAME.tiktoken, or a folder with GPT-2's `vocab.json` and `merges.txt`."""
    path = Path(path)
    if path.suffix == ".json":
        save_tokenizer_json(vocabulary, path, overwrite=overwrite)
    elif path.suffix == ".tiktoken":
        save_tiktoken(vocabulary, path, overwrite=overwrite)
    else:
        path.mkdir(exist_ok=True)
        save_gpt2(vocabulary, path / "vocab.json", path / "merges.txt", overwrite=overwrite)
