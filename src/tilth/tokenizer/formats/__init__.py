"""Tokenizer files: each format loads into a `Vocabulary` and is saved from one.

Every loader checks the whole file. A damaged file, or one that tilth cannot reproduce, is a
`FileError`; a vocabulary that a format cannot represent is a `ValueError`.

| file | holds | tool |
|---|---|---|
| `tokenizer.json` | everything; the native format of tilth | Hugging Face `tokenizers` |
| `vocab.json` and `merges.txt` | tokens and merges | GPT-2 |
| `NAME.tiktoken` | tokens; their ids are the order of merging | tiktoken |
| `tekken.json` | tokens by rank, the pattern, special tokens | mistral-common |

Other kinds of tokenizers (SentencePiece, WordPiece, Unigram) are refused by name.

>>> import tempfile
>>> vocabulary = Vocabulary({0: b"h", 1: b"i", 2: b"hi"}, ((b"h", b"i"),))
>>> with tempfile.TemporaryDirectory() as folder:
...     save(vocabulary, f"{folder}/tokenizer.json")
...     load(folder) == load(f"{folder}/tokenizer.json") == vocabulary
True
"""

import logging
from dataclasses import replace
from pathlib import Path

from tilth.files import FileError, StrPath
from tilth.tokenizer.formats.chat_template import (
    check_chat_template,
    load_chat_template,
    save_chat_template,
)
from tilth.tokenizer.formats.gpt2 import check_gpt2, load_gpt2, save_gpt2
from tilth.tokenizer.formats.gpt2_folder import VOCAB, load_gpt2_folder
from tilth.tokenizer.formats.huggingface import (
    json_vocabulary,
    load_tokenizer_json,
    native_vocabulary,
    save_tokenizer_json,
)
from tilth.tokenizer.formats.reading import ONLY_BYTE_LEVEL, parse_json, read_content
from tilth.tokenizer.formats.tekken import (
    load_tekken,
    looks_like_tekken,
    save_tekken,
    tekken_vocabulary,
)
from tilth.tokenizer.formats.tiktoken import (
    load_tiktoken,
    looks_like_ranks,
    ranks_vocabulary,
    save_tiktoken,
)
from tilth.tokenizer.patterns import Pattern
from tilth.tokenizer.vocabulary import SpecialTokens, Vocabulary

__all__ = [
    "load",
    "load_gpt2",
    "load_tekken",
    "load_tiktoken",
    "load_tokenizer_json",
    "save",
    "save_gpt2",
    "save_native",
    "save_tekken",
    "save_tiktoken",
    "save_tokenizer_json",
]

log = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
# In a folder, the first of these is loaded. A tokenizer.json says everything that the others say.
_IN_FOLDER = (TOKENIZER, "tekken.json", VOCAB, "*.tiktoken", "*.model", "vocab.txt")


def load(
    path: StrPath, *, pattern: Pattern | None = None, special_tokens: SpecialTokens = None
) -> Vocabulary:
    """Load any format, detected by content; of a folder, its `tokenizer.json` if there is one.

    Other folders have a `tekken.json`, GPT-2's two files or a rank file. `pattern` and
    `special_tokens` are for formats that do not store them. Ranks need a pattern, unless the file
    is in `tiktoken.PUBLISHED`. GPT-2's two files have those of the folder: `gpt2_folder.py`. The
    chat template of the folder is kept; for a file, if its name is
    `tokenizer.json`.
    """
    path = Path(path)
    if not path.is_dir():
        vocabulary = _load_file(path, pattern, special_tokens)
        return _with_chat_template(vocabulary, path.parent if path.name == TOKENIZER else None)
    found = next((each for name in _IN_FOLDER for each in sorted(path.glob(name))), None)
    if found is None:
        names = "a tokenizer.json, a tekken.json, or vocab.json and merges.txt"
        raise FileError(path, "has no tokenizer file", f"name a file, or a folder with {names}")
    if found.name == VOCAB:
        vocabulary = load_gpt2_folder(path, special_tokens, pattern=pattern)
    else:
        vocabulary = _load_file(found, pattern, special_tokens)
    return _with_chat_template(vocabulary, path)


def _load_file(path: Path, pattern: Pattern | None, special_tokens: SpecialTokens) -> Vocabulary:
    content = read_content(path)
    if looks_like_ranks(content):
        return ranks_vocabulary(path, content, pattern, special_tokens)
    if other := _other_kind(content):
        raise FileError(path, f"is {other}", ONLY_BYTE_LEVEL)
    if path.suffix == ".tiktoken" and not content.lstrip().startswith(b"{"):
        return ranks_vocabulary(path, content, pattern, special_tokens)
    if vocabulary := native_vocabulary(path, content):
        return vocabulary
    parsed = parse_json(path, content)
    if looks_like_tekken(parsed):
        return tekken_vocabulary(path, parsed)
    if parsed and all(type(value) is int for value in parsed.values()):
        hint = "name its folder, which also has merges.txt"
        raise FileError(path, "is one of GPT-2's two files, vocab.json", hint)
    return json_vocabulary(path, parsed)


def _other_kind(content: bytes) -> str | None:
    """Return what a file is if it is a SentencePiece model or a WordPiece vocabulary."""
    # A protobuf whose first field is a piece of text: its length, then the text and its length.
    head = content[:4]
    if len(head) == 4 and head[0] == head[2] == 0x0A and head[3] + 2 <= head[1] < 0x80:
        return "a SentencePiece model (tokenizer.model), as Llama 2 and Gemma have"
    beginning = content[: 1 << 16].split()
    if b"[UNK]" in beginning and b"[CLS]" in beginning:
        return "a WordPiece vocabulary (vocab.txt), as BERT has"
    return None


def _with_chat_template(vocabulary: Vocabulary, folder: Path | None) -> Vocabulary:
    chat_template = load_chat_template(folder) if folder else None
    return replace(vocabulary, chat_template=chat_template) if chat_template else vocabulary


def save(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Save NAME.json, NAME.tiktoken, or a folder with GPT-2's `vocab.json` and `merges.txt`.

    A NAME with `tekken` is saved as a `tekken.json`: mistral-common finds it by this name. The chat
    template is written beside a `tokenizer.json` and into a folder.
    """
    path = Path(path)
    if path.suffix not in (".json", ".tiktoken"):
        check_gpt2(vocabulary, path)
        path.mkdir(exist_ok=True)
        check_chat_template(vocabulary.chat_template, path, overwrite=overwrite)
        save_gpt2(vocabulary, path / VOCAB, path / "merges.txt", overwrite=overwrite)
        save_chat_template(vocabulary.chat_template, path, overwrite=overwrite)
        return
    if path.suffix == ".tiktoken":
        save_tiktoken(vocabulary, path, overwrite=overwrite)
    elif "tekken" in path.name:
        save_tekken(vocabulary, path, overwrite=overwrite)
    else:
        save_native(vocabulary, path, overwrite=overwrite)
        return
    _note_chat_template(vocabulary, path)


def save_native(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Save a `tokenizer.json` under any name, or into a folder that exists.

    The chat template is written beside it if its name is `tokenizer.json`; else a note says that it
    is not stored.
    """
    path = Path(path)
    if path.is_dir():
        path /= TOKENIZER
    has_template = path.name == TOKENIZER
    if has_template:
        check_chat_template(vocabulary.chat_template, path.parent, overwrite=overwrite)
    save_tokenizer_json(vocabulary, path, overwrite=overwrite)
    if has_template:
        save_chat_template(vocabulary.chat_template, path.parent, overwrite=overwrite)
    else:
        _note_chat_template(vocabulary, path)


def _note_chat_template(vocabulary: Vocabulary, path: Path) -> None:
    if vocabulary.chat_template is not None:
        log.warning("%s does not store the chat template; a tokenizer.json has it beside.", path)
