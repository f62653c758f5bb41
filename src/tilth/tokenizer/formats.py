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

from collections.abc import Iterable
from pathlib import Path

from tilth.files import StrPath
from tilth.tokenizer.gpt2_files import load_gpt2, save_gpt2
from tilth.tokenizer.huggingface_file import load_tokenizer_json, save_tokenizer_json
from tilth.tokenizer.tiktoken_file import load_tiktoken, recover_merges, save_tiktoken
from tilth.tokenizer.vocabulary import Vocabulary

__all__ = [
    "load",
    "load_gpt2",
    "load_tiktoken",
    "load_tokenizer_json",
    "recover_merges",
    "save_gpt2",
    "save_tiktoken",
    "save_tokenizer_json",
]


def load(
    path: StrPath, *, pattern: str = "gpt2", special_tokens: Iterable[str] | None = None
) -> Vocabulary:
    """Read any format, told by its name: a folder (of GPT-2's two files), `.tiktoken`, or JSON.

    The pattern and the special tokens are for formats that do not hold them: a `tokenizer.json`
    says its own.
    """
    if Path(path).is_dir():
        return load_gpt2(Path(path) / "vocab.json", Path(path) / "merges.txt", special_tokens)
    if Path(path).suffix == ".tiktoken":
        return load_tiktoken(path, pattern, special_tokens)
    return load_tokenizer_json(path)
