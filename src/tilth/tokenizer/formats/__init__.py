"""Tokenizer files: each format loads into a `Vocabulary` and is saved from one.

Every loader checks the whole file. A damaged file, or one that tilth cannot reproduce, is a
`FileError`; a vocabulary that a format cannot represent is a `ValueError`.

| file | holds | tool |
|---|---|---|
| `tokenizer.json` | everything; the native format of tilth | Hugging Face `tokenizers` |
| `vocab.json` and `merges.txt` | tokens and merges | GPT-2 |
| `NAME.tiktoken` | tokens; their ids are the order of merging | tiktoken |

>>> import tempfile
>>> vocabulary = Vocabulary({0: b"h", 1: b"i", 2: b"hi"}, ((b"h", b"i"),))
>>> with tempfile.TemporaryDirectory() as folder:
...     save(vocabulary, f"{folder}/hi.tiktoken")
...     load(f"{folder}/hi.tiktoken", pattern="gpt2").tokens == vocabulary.tokens
True
"""

from pathlib import Path

from tilth.files import StrPath
from tilth.tokenizer.formats.gpt2 import load_gpt2, save_gpt2
from tilth.tokenizer.formats.huggingface import load_tokenizer_json, save_tokenizer_json
from tilth.tokenizer.formats.tiktoken import holds_ranks, load_tiktoken, save_tiktoken
from tilth.tokenizer.patterns import Pattern
from tilth.tokenizer.vocabulary import SpecialTokens, Vocabulary


def load(
    path: StrPath, *, pattern: Pattern | None = None, special_tokens: SpecialTokens = None
) -> Vocabulary:
    """Load any format, detected by content: a `tokenizer.json`, tiktoken ranks, or a folder.

    A folder has GPT-2's two files, or else a `tokenizer.json`. `pattern` and `special_tokens` are
    for formats that do not store them. Ranks need a pattern, unless OpenAI published the file.
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
    """Save NAME.json, NAME.tiktoken, or a folder with GPT-2's `vocab.json` and `merges.txt`."""
    path = Path(path)
    if path.suffix == ".json":
        save_tokenizer_json(vocabulary, path, overwrite=overwrite)
    elif path.suffix == ".tiktoken":
        save_tiktoken(vocabulary, path, overwrite=overwrite)
    else:
        path.mkdir(exist_ok=True)
        save_gpt2(vocabulary, path / "vocab.json", path / "merges.txt", overwrite=overwrite)
