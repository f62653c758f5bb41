r"""The JSON files beside GPT-2's two files, in a folder that Hugging Face `transformers` wrote.

`tokenizer_config.json` names the class of the tokenizer, which has its pattern. Special tokens are
in `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as name:
...     _ = (Path(name) / "vocab.json").write_text('{"a": 0, "<|endoftext|>": 1}')
...     _ = (Path(name) / "merges.txt").write_text("")
...     _ = (Path(name) / "tokenizer_config.json").write_text('{"pad_token": "<pad>"}')
...     dict(load_gpt2_folder(Path(name)).special_tokens)
{'<|endoftext|>': 1, '<pad>': 2}
"""

import re
from collections.abc import Container, Mapping
from pathlib import Path

from tilth.files import MAX_JSON_BYTES, FileError, read_bytes
from tilth.formatting import join_words
from tilth.schema import short_repr
from tilth.tokenizer.formats.chat_template import CONFIG
from tilth.tokenizer.formats.gpt2 import gpt2_vocabulary
from tilth.tokenizer.formats.huggingface import FLAGS, added_tokens
from tilth.tokenizer.formats.reading import explained, parse_json, read_json, typed
from tilth.tokenizer.patterns import Pattern
from tilth.tokenizer.vocabulary import SpecialTokens, Template, TokenOptions, Vocabulary

VOCAB = "vocab.json"
END = "<|endoftext|>"
CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "GPT2Tokenizer": ("gpt2", ()),
    "Qwen2Tokenizer": ("qwen2", ("NFC",)),
}
"""The pattern and the normalizers of each class that has the two files."""

# In the order in which transformers gives ids to those that the vocabulary lacks.
_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_ID = re.compile("[0-9]{1,10}")
_LISTS = ("additional_special_tokens", "extra_special_tokens")


def load_gpt2_folder(
    folder: Path, special_tokens: SpecialTokens = None, *, pattern: Pattern | None = None
) -> Vocabulary:
    """Load a folder with `vocab.json` and `merges.txt`.

    `pattern` and `special_tokens` replace those of the folder. A folder without a class is GPT-2's.
    As in both classes, the first roles of special tokens have `<|endoftext|>` unless the folder
    says otherwise; here only if the vocabulary has it.
    """
    config = _settings(folder / CONFIG)
    of_class, normalizers = _class_of(folder / CONFIG, config, is_needed=pattern is None)
    vocab = read_json(folder / VOCAB)
    defaults = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END if END in vocab else None)
    roles = {**defaults, **_settings(folder / "special_tokens_map.json"), **config}
    options: dict[str, TokenOptions] = {}
    with explained(folder):
        if special_tokens is None:
            special_tokens, options = added_tokens(_entries(vocab, folder, roles), vocab)
        elif not isinstance(special_tokens, str | Mapping):
            special_tokens = list(special_tokens)
        return gpt2_vocabulary(
            folder / VOCAB,
            folder / "merges.txt",
            vocab,
            special_tokens,
            pattern=of_class if pattern is None else pattern,
            normalizers=normalizers,
            token_options=options,
            template=_template(config, roles, special_tokens),
            add_prefix_space=config.get("add_prefix_space") is True,
        )


def _settings(path: Path) -> Mapping[str, object]:
    """Return the content of a JSON file; nothing if there is none."""
    return parse_json(path, read_bytes(path, MAX_JSON_BYTES)) if path.is_file() else {}


def _class_of(
    path: Path, config: Mapping[str, object], *, is_needed: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the pattern and the normalizers of the class of a folder."""
    name = config.get("tokenizer_class")
    if name is None:
        return CLASSES["GPT2Tokenizer"]
    known = CLASSES.get(name.removesuffix("Fast")) if isinstance(name, str) else None
    if known is None and is_needed:
        problem = f"names the class {short_repr(name)}, and its pattern is not that of "
        hint = "save it as a tokenizer.json with transformers, or name its pattern with --pattern"
        raise FileError(path, problem + join_words([*CLASSES]), hint)
    return known or ("", ())


def _entries(
    vocab: Mapping[str, object], folder: Path, roles: Mapping[str, object]
) -> list[dict[str, object]]:
    """Return the added tokens as a `tokenizer.json` has them, in the order of their ids."""
    listed = [roles[role] for role in _ROLES if roles.get(role) is not None]
    for name in _LISTS:
        several = roles.get(name) or []
        listed += several.values() if isinstance(several, dict) else typed(several, list, name)
    special = dict(map(_content, listed))
    decoder = typed(roles.get("added_tokens_decoder") or {}, dict, "added_tokens_decoder")
    entries: dict[str, dict[str, object]] = {}
    for digits, entry in decoder.items():
        token, flags = _content(entry)
        entries[token] = {"id": int(digits) if _ID.fullmatch(digits) else digits, **flags}
    for token, token_id in _settings(folder / "added_tokens.json").items():
        flags = {"special": token in special, "normalized": token not in special}
        entries.setdefault(token, {"id": token_id, **flags})
    next_id = max([len(vocab), *(_checked_id(each) + 1 for each in entries.values())])
    for token, flags in special.items():
        if token not in entries:
            entries[token] = {"id": vocab.get(token, next_id), **flags}
            next_id += token not in vocab
    in_order = sorted(entries.items(), key=lambda item: _checked_id(item[1]))
    return [{"content": token, **entry} for token, entry in in_order]


def _checked_id(entry: Mapping[str, object]) -> int:
    if type(token_id := entry["id"]) is not int:
        raise ValueError(
            f"an added token has the id {short_repr(token_id)}; give it a whole number"
        )
    return token_id


def _content(value: object) -> tuple[str, dict[str, object]]:
    """Return the text and the flags of a token: a string, or an object with them."""
    entry = {"content": value} if isinstance(value, str) else typed(value, dict, "a special token")
    flags = {name: entry[name] for name in FLAGS if name in entry}
    return typed(entry.get("content"), str, "the content of a special token"), flags


def _template(
    config: Mapping[str, object], roles: Mapping[str, object], special_tokens: Container[str]
) -> Template:
    """Return the tokens that `add_bos_token` and `add_eos_token` ask for."""
    sides: list[tuple[str, ...]] = []
    for role in ("bos", "eos"):
        token, _ = _content(roles.get(f"{role}_token") or "")
        is_added = config.get(f"add_{role}_token") is True and token in special_tokens
        sides.append((token,) if is_added else ())
    return Template(*sides)
