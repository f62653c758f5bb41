r"""`tokenizer.json`, the file of Hugging Face's `tokenizers`, and tilth's own format.

What enters: the file, or a `Vocabulary`. What leaves: the other of the two. What is written, gives
the same ids in `tokenizers`; what cannot be reproduced here is refused by name when read.

>>> import tempfile
>>> vocabulary = Vocabulary.from_parts({0: b"h", 1: b"i", 2: b"hi"}, [(b"h", b"i")], ["<|end|>"])
>>> with tempfile.TemporaryDirectory() as folder:
...     save_tokenizer_json(vocabulary, f"{folder}/tokenizer.json")
...     load_tokenizer_json(f"{folder}/tokenizer.json") == vocabulary
True
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Set
from itertools import chain
from typing import Any

from tilth.files import StrPath, write_text_atomically
from tilth.schema import shown
from tilth.tokenizer.formats.gpt2 import is_spelling, merge_of, spell, tokens_by_id, unspell
from tilth.tokenizer.formats.oniguruma import check_read_alike
from tilth.tokenizer.formats.reading import explained, read_json
from tilth.tokenizer.vocabulary import Pair, Vocabulary

# reference.CL100K_PATTERN as Oniguruma reads it. Nothing needs to be possessive: wherever one part
# could give a character back, the next part could not take it. `$` becomes `\z`, the end of text.
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+\z|\s*[\r\n]|\s+(?!\S)|\s"
)
# How files write the known patterns. Llama 3 ends in `|\s*[\r\n]+|\s+(?!\S)|\s+`, which is another:
# at the end of a text it cuts "\n " in two, where cl100k does not.
_NAMES = {
    _CL100K: "cl100k",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
}

MOST_COMPARED = 64  # characters of added tokens, where their overlaps are sought

# What each part of the file may say without changing an id, or in a way that is understood here.
_Allowed = dict[str, list[Any]]
_ANYTHING: list[Any] = []
_MODEL: _Allowed = {
    "type": ["BPE", None],  # the oldest files do not name it
    "dropout": [None],
    "unk_token": [None],
    "continuing_subword_prefix": [None, ""],
    "end_of_word_suffix": [None, ""],
    "fuse_unk": [None, False, True],  # says what to do with unk_token
    "byte_fallback": [None, False],
    "ignore_merges": [None, False, True],
    "vocab": _ANYTHING,
    "merges": _ANYTHING,
}
_TOKENIZER: _Allowed = {
    "version": ["1.0", None],
    "truncation": [None],
    "padding": [None],
    "added_tokens": _ANYTHING,
    "normalizer": [None],
    "pre_tokenizer": _ANYTHING,
    "post_processor": _ANYTHING,
    "decoder": _ANYTHING,
    "model": _ANYTHING,
}
_ADDED_TOKEN: _Allowed = {
    "id": _ANYTHING,
    "content": _ANYTHING,
    "single_word": [None, False],
    "lstrip": [None, False],
    "rstrip": [None, False],
    "normalized": [None, False, True],  # nothing is, without a normalizer
    # All are found in the text; it says what decoding may leave out.
    "special": [None, False, True],
}
_BYTE_LEVEL: _Allowed = {
    "type": ["ByteLevel"],
    "add_prefix_space": [False],
    "trim_offsets": [None, False, True],
    "use_regex": [None, False, True],
}
# A post-processor or decoder of this type changes offsets, or nothing.
_BYTE_LEVEL_AFTER = _BYTE_LEVEL | {"add_prefix_space": [None, False, True]}
_SPLIT: _Allowed = {
    "type": ["Split"],
    "pattern": _ANYTHING,
    "behavior": ["Isolated"],  # what the pattern leaves out is a piece of its own, as it is here
    "invert": [None, False],
}


def load_tokenizer_json(path: StrPath) -> Vocabulary:
    """Read a `tokenizer.json` that gives the same ids here; a FileError names what would not."""
    content = read_json(path)
    with explained(path):
        _check(content, _TOKENIZER, "the file")
        for name in ("post_processor", "decoder"):
            if content.get(name) is not None:
                _check(content[name], _BYTE_LEVEL_AFTER, f"the {name}")
        model = _check(content.get("model"), _MODEL, "the model")
        vocab = _object(model.get("vocab"), "the vocab")
        added, normalized = _added_tokens(content.get("added_tokens"), vocab)
        tokens = tokens_by_id(vocab, unspelled=added)
        for special_token, token_id in added.items():
            if special_token not in vocab and token_id in tokens:
                raise ValueError(
                    f"the added token {shown(special_token)} has the id {token_id} of another "
                    "token; give it its own"
                )
            tokens[token_id] = special_token.encode("utf-8", "surrogatepass")
        vocabulary = Vocabulary(
            tokens,
            tuple(_merges(model.get("merges"))),
            added,
            _pattern_name(content.get("pre_tokenizer")),
            model.get("ignore_merges") is True,
        )
        _check_spellings(vocabulary)
        _check_overlaps(normalized, added.keys() - normalized)
        return vocabulary


def save_tokenizer_json(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Write a `tokenizer.json` in which `tokenizers` finds the same ids.

    Up to characters that are younger than its tables of Unicode, and bytes without a token, which
    it leaves out where tilth raises an error.
    """
    with explained(path, "cannot be written"):
        pre_tokenizer = _pre_tokenizer(vocabulary.pattern)
        _check_spellings(vocabulary)
    special = {token_id: token for token, token_id in vocabulary.special_tokens.items()}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    spelled = {token: spell(token) for token in vocabulary.tokens.values()}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id, token in sorted(special.items())
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": byte_level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": vocabulary.whole_piece_first,
            # Special tokens stand here too, as they are: `tokenizers` gives one that does not the
            # number of tokens as its id, whatever the file says.
            "vocab": {
                special.get(token_id) or spelled[token]: token_id
                for token_id, token in sorted(vocabulary.tokens.items())
            },
            "merges": [[spelled[left], spelled[right]] for left, right in vocabulary.merges],
        },
    }
    # No line end after the object: then no part of it is whole, and a torn file cannot pass.
    write_text_atomically(path, json.dumps(content, ensure_ascii=False), overwrite=overwrite)


# --- the parts of the file -----------------------------------------------------------------------


def _object(value: object, name: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {shown(value)} and not an object; restore a copy")
    return value


def _check(value: object, allowed: _Allowed, name: str) -> dict[str, object]:
    """The value, an object that says nothing but what is allowed."""
    found = _object(value, name)
    for key in (*allowed, *found):
        choices = allowed.get(key, [])
        said = found.get(key)
        # `in` alone would take 0 for False.
        if choices is not _ANYTHING and not any(
            said == choice and type(said) is type(choice) for choice in choices
        ):
            problem = f"{name} says {shown(key)}: {_brief(said)}, which tilth cannot reproduce"
            raise ValueError(f"{problem}; convert it to a byte-level BPE without that")
    return found


def _brief(said: object) -> str:
    """A value for a sentence: of an object, its type."""
    return shown(said["type"] if isinstance(said, dict) and "type" in said else said)


def _added_tokens(value: object, vocab: Mapping[str, object]) -> tuple[dict[str, int], set[str]]:
    """The id of each added token, the one that `tokenizers` gives it, and which are normalized."""
    if value is None:
        return {}, set()
    if not isinstance(value, list):
        raise ValueError(f"the added_tokens are {shown(value)} and not a list; restore a copy")
    added: dict[str, int] = {}
    next_id = len(vocab)
    normalized: set[str] = set()
    for entry in value:
        found = _check(entry, _ADDED_TOKEN, "an added token")
        token, token_id = found.get("content"), found.get("id")
        if not isinstance(token, str) or token in added:
            raise ValueError(
                f"the added token {shown(token)} is no text or a second one; remove it"
            )
        # `tokenizers` asks the model first, and then counts on from the number of its tokens.
        given = vocab.get(token, next_id)
        if type(token_id) is not int or given != token_id:
            raise ValueError(
                f"the added token {shown(token)} has the id {shown(token_id)}, and Hugging Face "
                f"would give it {shown(given)}; add it to the vocab under its id"
            )
        added[token] = token_id
        next_id = max(next_id, token_id + 1)
        if found.get("normalized") is True:
            normalized.add(token)
    return added, normalized


def _check_overlaps(normalized: Set[str], others: Set[str]) -> None:
    """Raise a ValueError for a normalized token in which another may begin."""
    # `tokenizers` looks through the whole text for the others, and then for these in what is left;
    # here all are looked for at once. It is the same unless one of the others begins in one of
    # these, or with it and is shorter.
    whole = _prefix_free(others)
    # Linear: an other that shares its first 64 characters with a later place counts as an overlap.
    beginnings = _prefix_free(other[:MOST_COMPARED] for other in others)
    for token in normalized:
        overlaps = _begins_with_one(token, whole) or any(
            _begins_with_one(rest, beginnings) or _begins_one(rest, beginnings)
            for start in range(1, len(token))
            for rest in (token[start : start + MOST_COMPARED],)
        )
        if overlaps:
            raise ValueError(
                f"the added token {shown(token)} is normalized and overlaps one that is not, "
                "which Hugging Face looks for first; make both alike"
            )


def _prefix_free(texts: Iterable[str]) -> list[str]:
    """The texts, in order, without those that begin with another."""
    kept: list[str] = []
    for text in sorted(texts):
        if not kept or not text.startswith(kept[-1]):
            kept.append(text)
    return kept


def _begins_with_one(text: str, prefix_free: list[str]) -> bool:
    # All that stands between a beginning and the text has the same beginning, so nothing does.
    place = bisect_right(prefix_free, text)
    return place > 0 and text.startswith(prefix_free[place - 1])


def _begins_one(text: str, prefix_free: list[str]) -> bool:
    place = bisect_left(prefix_free, text)
    return place < len(prefix_free) and prefix_free[place].startswith(text)


def _merges(value: object) -> Iterable[Pair]:
    if not isinstance(value, list):
        raise ValueError(f"the merges are {shown(value)} and not a list; restore a copy")
    for merge in value:
        if isinstance(merge, str):  # until 2024 a merge was a string
            yield merge_of(merge)
        elif isinstance(merge, list) and [*map(type, merge)] == [str, str]:
            yield unspell(merge[0]), unspell(merge[1])
        else:
            raise ValueError(f"the merge {shown(merge)} is no pair of tokens; restore a copy")


def _pre_tokenizer(pattern: str) -> dict[str, object]:
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    if pattern == "gpt2":
        return byte_level | {"use_regex": True}
    if pattern == "cl100k":
        pattern = _CL100K
    else:
        check_read_alike(pattern)
        if pattern in _NAMES:
            # Read again it would be called by its name: the same ids, another fingerprint.
            raise ValueError(f"the pattern is written out; call it {_NAMES[pattern]!r}")
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]}


def _pattern_name(value: object) -> str:
    """The pattern of a pre-tokenizer: ByteLevel alone, or Split and then ByteLevel."""
    found = _object(value, "the pre_tokenizer")
    if found.get("type") == "ByteLevel":
        if _check(found, _BYTE_LEVEL, "the pre_tokenizer").get("use_regex") is False:
            raise ValueError(
                "the pre_tokenizer is ByteLevel without its pattern; put a Split before it"
            )
        return "gpt2"
    parts = found.get("pretokenizers")
    if found.get("type") != "Sequence" or not isinstance(parts, list) or len(parts) != 2:
        raise ValueError(
            f"the pre_tokenizer is {_brief(value)}, which tilth cannot reproduce; "
            "convert it to ByteLevel, or to a Sequence of Split and ByteLevel"
        )
    split = _check(parts[0], _SPLIT, "the first pre_tokenizer")
    byte_level = _check(parts[1], _BYTE_LEVEL, "the second pre_tokenizer")
    if byte_level.get("use_regex") is not False:
        raise ValueError("ByteLevel cuts again what Split has cut; set its use_regex to false")
    regex = _object(split.get("pattern"), "the pattern").get("Regex")
    if not isinstance(regex, str):
        raise ValueError(f"the pattern is {shown(split['pattern'])}; write it as a Regex")
    if regex in _NAMES:
        return _NAMES[regex]
    check_read_alike(regex)
    if regex in _NAMES.values():
        raise ValueError(f"its pattern {regex!r} is the name of another; write it as (?:{regex})")
    return regex


def _check_spellings(vocabulary: Vocabulary) -> None:
    """Raise a ValueError for a special token that is also how other bytes are spelled."""
    in_merges = {*chain.from_iterable(vocabulary.merges)}
    in_merges |= {left + right for left, right in vocabulary.merges}
    known = {*vocabulary.tokens.values()}
    for token, token_id in vocabulary.special_tokens.items():
        own = vocabulary.tokens[token_id]
        if spell(own) == token:
            continue
        if own in in_merges:
            raise ValueError(
                f"the special token {shown(token)} is part of a merge, where it has another "
                "spelling; choose visible ASCII characters for it"
            )
        if not is_spelling(token):
            continue
        # "é" spells the byte E9, "Ġa" the text " a". What is no token, no single byte and no text
        # is never looked up.
        other = unspell(token)
        if other in known or len(other) == 1 or other.decode("utf-8", "ignore").encode() == other:
            raise ValueError(
                f"the special token {shown(token)} is also how {shown(other)} is spelled; "
                "put it in brackets, or choose visible ASCII characters for it"
            )
