r"""`tokenizer.json`, the format of Hugging Face `tokenizers`, which is also tilth's native format.

A file that is written gives the same ids in `tokenizers`. A file that is read gives the same ids
in tilth, or a `FileError` names the setting that tilth cannot reproduce. Of a post-processor, the
form for one text is read; the form for two texts is written as the form for one, twice.

>>> import tempfile
>>> vocabulary = Vocabulary.from_parts({0: b"h", 1: b"i", 2: b"hi"}, [(b"h", b"i")], ["<|end|>"])
>>> with tempfile.TemporaryDirectory() as folder:
...     save_tokenizer_json(vocabulary, f"{folder}/tokenizer.json")
...     load_tokenizer_json(f"{folder}/tokenizer.json") == vocabulary
True
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Set
from itertools import chain
from typing import Any

from tilth.files import FileError, StrPath, write_text_atomically
from tilth.schema import short_repr
from tilth.tokenizer._core import VocabularyTable, read_tokenizer_json
from tilth.tokenizer.formats.gpt2 import is_spelling, parse_merge, spell, tokens_by_id, unspell
from tilth.tokenizer.formats.oniguruma import check_read_alike, portable
from tilth.tokenizer.formats.reading import (
    ONLY_BYTE_LEVEL,
    explained,
    parse_json,
    read_content,
    typed,
)
from tilth.tokenizer.patterns import MAX_STEPS, PATTERNS, Pattern, canonical, steps_of
from tilth.tokenizer.table import Pair
from tilth.tokenizer.vocabulary import (
    NO_TEMPLATE,
    NORMALIZERS,
    Template,
    TokenOptions,
    Vocabulary,
)

log = logging.getLogger(__name__)

# reference.CL100K_PATTERN in Oniguruma's syntax. Possessive quantifiers are not needed: wherever a
# part could give a character back, the next part could not match it. `$` becomes `\z`.
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s+\z|\s*[\r\n]|\s+(?!\S)|\s"
)
# The steps that the core knows by name, as files write them. Llama 3 ends in
# `|\s*[\r\n]+|\s+(?!\S)|\s+`: it splits "\n " at the end of a text in two, cl100k does not.
_NAMES = {
    _CL100K: "cl100k",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": "gpt2",
}

_REGEXES = {name: regex for regex, name in _NAMES.items()}

# For each object of the file, the values that tilth reproduces, by key in the order of the file.
# The first value is the one that is written. An empty list accepts any value.
_Allowed = dict[str, list[Any]]
_ANY_FLAG = [False, True, None]
_MODEL: _Allowed = {
    "type": ["BPE", None],  # missing in the oldest files
    "dropout": [None, 0.0, 0],
    "unk_token": [],  # no effect if all bytes are tokens, like byte_fallback
    "continuing_subword_prefix": [None, ""],
    "end_of_word_suffix": [None, ""],
    "fuse_unk": _ANY_FLAG,  # no effect without unk_token
    "byte_fallback": _ANY_FLAG,
    "ignore_merges": _ANY_FLAG,
    "vocab": [],
    "merges": [],
}
_TOKENIZER: _Allowed = {
    "version": ["1.0", None],
    "truncation": [None],
    "padding": [],
    "added_tokens": [],
    "normalizer": [],
    "pre_tokenizer": [],
    "post_processor": [],
    "decoder": [],
    "model": [],
}
_ADDED_TOKEN: _Allowed = {
    "id": [],
    "content": [],
    "single_word": _ANY_FLAG,
    "lstrip": _ANY_FLAG,
    "rstrip": _ANY_FLAG,
    "normalized": _ANY_FLAG,
    "special": [True, False, None],
}
FLAGS = ("special", "lstrip", "rstrip", "single_word", "normalized")
_BYTE_LEVEL: _Allowed = {
    "type": ["ByteLevel"],
    "add_prefix_space": [False, True],
    "trim_offsets": [True, False, None],
    "use_regex": [True, False, None],
}
# A post-processor or decoder has no effect on ids.
_BYTE_LEVEL_AFTER_MODEL = _BYTE_LEVEL | {"add_prefix_space": _ANY_FLAG}
_SPLIT: _Allowed = {
    "type": ["Split"],
    "pattern": [],
    "behavior": ["Isolated"],  # text between two matches is a piece, as in tilth
    "invert": _ANY_FLAG,  # no effect, as matches and the text between them are alike
}
# Only matches are pieces, the text between them is dropped: alike if there is none.
_SPLIT_REMOVED = _SPLIT | {"behavior": ["Removed"], "invert": [True]}
# Steps that match every character.
_COMPLETE = {PATTERNS[name][0] for name in ("gpt2", "cl100k", "o200k", "llama3", "qwen2", "tekken")}
_DIGITS: _Allowed = {"type": ["Digits"], "individual_digits": [True, False]}
_PADDING: _Allowed = {
    "strategy": ["BatchLongest"],  # no effect on one text
    "direction": [],
    "pad_to_multiple_of": [None, 0],
    "pad_id": [],
    "pad_type_id": [],
    "pad_token": [],
}
_TEMPLATE: _Allowed = {
    "type": ["TemplateProcessing"],
    "single": [],
    "pair": [],
    "special_tokens": [],
}
# The forms of older classes: one token before and one after the text.
_PROCESSING: _Allowed = {
    "type": ["RobertaProcessing", "BertProcessing"],
    "sep": [],
    "cls": [],
    "trim_offsets": _ANY_FLAG,
    "add_prefix_space": _ANY_FLAG,
}
_OTHER_MODELS = {
    "WordPiece": "a WordPiece model, as BERT has",
    "Unigram": "a Unigram model, as SentencePiece makes",
    "WordLevel": "a WordLevel model, whose tokens are whole words",
}
_ONE_PIECE = r"[\s\S]+"  # a pattern that does not split


def load_tokenizer_json(path: StrPath) -> Vocabulary:
    """Load a `tokenizer.json`; a FileError names a setting that tilth cannot reproduce."""
    content = read_content(path)
    return native_vocabulary(path, content) or json_vocabulary(path, parse_json(path, content))


def native_vocabulary(path: StrPath, content: bytes) -> Vocabulary | None:
    """Return the vocabulary of a `tokenizer.json`, whose tokens and merges the core reads.

    None if the core does not: `json_vocabulary` reads the file, or explains what is wrong with it.
    """
    if (found := read_tokenizer_json(content)) is None:
        return None
    table, rest, unspelled = found
    try:
        return json_vocabulary(path, parse_json(path, rest), table, {*unspelled})
    except FileError:
        return None


def json_vocabulary(
    path: StrPath,
    content: Mapping[str, object],
    table: VocabularyTable | None = None,
    unspelled: Set[str] = frozenset(),
) -> Vocabulary:
    """Return the vocabulary of the parsed JSON of a `tokenizer.json`.

    With a table, the vocab and merges are in it, and the literal keys of the vocab in `unspelled`.
    """
    with explained(path):
        _check_kind(content.get("model"))
        _check(content, _TOKENIZER, "the file")
        if content.get("padding") is not None:
            _check(content["padding"], _PADDING, "the padding")
        if content.get("decoder") is not None:
            _check(content["decoder"], _BYTE_LEVEL_AFTER_MODEL, "the decoder")
        model = _check(content.get("model"), _MODEL, "the model")
        vocab: Mapping[str, object] = typed(model.get("vocab"), dict, "vocab")
        if table:
            vocab = _TableVocab(table, unspelled)
        added, options = added_tokens(content.get("added_tokens"), vocab)
        pattern, add_prefix_space = _pattern(content.get("pre_tokenizer"))
        settings: dict[str, Any] = {
            "pattern": pattern,
            "whole_piece_first": model.get("ignore_merges") is True,
            "normalizers": tuple(_normalizers(content.get("normalizer"))),
            "token_options": options,
            "template": _template(content.get("post_processor"), added),
            "add_prefix_space": add_prefix_space,
        }
        if table:
            if not unspelled <= added.keys():
                raise ValueError("a key of vocab spells no bytes; json_vocabulary explains it")
            vocabulary = Vocabulary.from_table(table, added, **settings)
        else:
            tokens = tokens_by_id(vocab, unspelled=added)
            for special_token, token_id in added.items():
                if special_token not in vocab and token_id in tokens:
                    raise ValueError(
                        f"the added token {short_repr(special_token)} has the id {token_id} of "
                        "another token; give it its own"
                    )
                tokens[token_id] = special_token.encode("utf-8", "surrogatepass")
            merges = tuple(_merges(model.get("merges")))
            vocabulary = Vocabulary(tokens, merges, added, **settings)
        _check_missing_bytes(vocabulary, model)
        _check_spellings(vocabulary)
        return vocabulary


class _TableVocab(Mapping[str, object]):
    """The vocab of a file that the core has read: look-ups by key, and the number of keys."""

    def __init__(self, table: VocabularyTable, unspelled: Set[str]) -> None:
        self._table = table
        self._unspelled = unspelled

    def __getitem__(self, key: str) -> object:
        is_literal = key in self._unspelled
        if not is_literal and not is_spelling(key):
            raise KeyError(key)
        token_id = self._table.find(key.encode() if is_literal else unspell(key))
        if token_id is None:
            raise KeyError(key)
        return token_id

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[str]:
        raise TypeError("the keys are in the table; look them up one by one")


def save_tokenizer_json(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Save a `tokenizer.json` that gives the same ids in `tokenizers`.

    Two exceptions: characters that are newer than its Unicode tables, and bytes without a token,
    which `tokenizers` drops and tilth refuses.
    """
    with explained(path, "cannot be written"):
        pre_tokenizer = _pre_tokenizer(vocabulary.pattern, vocabulary.add_prefix_space)
        _check_spellings(vocabulary)
    special = {token_id: token for token, token_id in vocabulary.special_tokens.items()}
    # Special tokens unspelled, and all of them: to one that is missing in the vocab, `tokenizers`
    # gives the number of tokens as its id, whatever the file says.
    names = [
        (each, json.dumps(token, ensure_ascii=False)) for each, token in sorted(special.items())
    ]
    vocab, merges = vocabulary.table.json([(each, name.encode()) for each, name in names])
    model = _written(_MODEL, ignore_merges=vocabulary.whole_piece_first, vocab={}, merges=[])
    content = _written(
        _TOKENIZER,
        added_tokens=[
            _written(_ADDED_TOKEN, id=token_id, content=token)
            | vars(vocabulary.token_options.get(token, TokenOptions()))
            for token_id, token in sorted(special.items())
        ],
        normalizer=_normalizer(vocabulary.normalizers),
        pre_tokenizer=pre_tokenizer,
        post_processor=_post_processor(vocabulary),
        decoder=_written(_BYTE_LEVEL),
        model=model,
    )
    text = json.dumps(content, ensure_ascii=False)
    # Nowhere else: in a JSON string, a quote follows a backslash.
    text = text.replace('"merges": []', f'"merges": {merges.decode()}')
    text = text.replace('"vocab": {}', f'"vocab": {vocab.decode()}')
    # Without a final newline no proper prefix is valid JSON: a truncated file is detected.
    write_text_atomically(path, text, overwrite=overwrite)


# --- the objects of the file ---------------------------------------------------------------------


def _written(allowed: _Allowed, **values: object) -> dict[str, object]:
    """Return an object with these values, and the first allowed value of every other key."""
    return {key: choices[0] if choices else None for key, choices in allowed.items()} | values


def _check(value: object, allowed: _Allowed, name: str) -> dict[str, object]:
    """Return the value if it is an object with allowed values only."""
    found: dict[str, object] = typed(value, dict, name)
    for key in (*allowed, *found):
        choices, actual = allowed.get(key), found.get(key)
        # With types, as 0 == False.
        if choices != [] and (type(actual), actual) not in [(type(c), c) for c in choices or ()]:
            problem = (
                f"{name} says {short_repr(key)}: {_brief(actual)}, which tilth cannot reproduce"
            )
            raise ValueError(f"{problem}; convert it to a byte-level BPE without that")
    return found


def _brief(value: object) -> str:
    """Format a value for an error message; of an object, its type."""
    return short_repr(value["type"] if isinstance(value, dict) and "type" in value else value)


def _normalizer(forms: tuple[str, ...]) -> dict[str, object] | None:
    parts: list[dict[str, object]] = [{"type": form} for form in forms]
    if len(parts) > 1:
        return {"type": "Sequence", "normalizers": parts}
    return parts[0] if parts else None


def _normalizers(value: object) -> Iterator[str]:
    """Yield the forms of a normalizer: one of the four, or a Sequence of them."""
    for part in [] if value is None else _flat(value, "normalizers", "the normalizer"):
        kind = typed(part, dict, "the normalizer").get("type")
        if isinstance(kind, str) and kind in NORMALIZERS:
            _check(part, {"type": [kind]}, "the normalizer")
            yield kind
        else:
            raise ValueError(
                f"the normalizer is {_brief(part)}, which tilth cannot reproduce; convert it to "
                f"{', '.join(NORMALIZERS)}, or a Sequence of these"
            )


def added_tokens(
    value: object, vocab: Mapping[str, object]
) -> tuple[dict[str, int], dict[str, TokenOptions]]:
    """Return the id of each added token, as `tokenizers` assigns it, and its options."""
    added: dict[str, int] = {}
    options: dict[str, TokenOptions] = {}
    next_id = len(vocab)
    for entry in typed([] if value is None else value, list, "added_tokens"):
        found = _check(entry, _ADDED_TOKEN, "an added token")
        token, token_id = found.get("content"), found.get("id")
        if not isinstance(token, str) or token in added:
            raise ValueError(
                f"the added token {short_repr(token)} is not text or a second one; remove it"
            )
        # `tokenizers` looks the token up in the model; else it takes the next number.
        assigned = vocab.get(token, next_id)
        if type(token_id) is not int or type(assigned) is not int:
            problem = f"the added token {short_repr(token)} has the id {short_repr(token_id)}"
            raise ValueError(f"{problem}; give it a whole number")
        if assigned != token_id:
            log.warning(
                "The added token %r has the id %d in the file; it gets %d, as in Hugging Face.",
                *(token, token_id, assigned),
            )
        added[token] = assigned
        next_id = max(next_id, assigned + 1)
        flags = {name: found[name] for name in FLAGS if found.get(name) is not None}
        options[token] = TokenOptions(**flags)  # type: ignore[arg-type]
    return added, options


def _merges(value: object) -> Iterator[Pair]:
    for merge in typed(value, list, "merges"):
        if isinstance(merge, str):  # the format until 2024
            yield parse_merge(merge)
        elif isinstance(merge, list) and [*map(type, merge)] == [str, str]:
            yield unspell(merge[0]), unspell(merge[1])
        else:
            raise ValueError(f"the merge {short_repr(merge)} is not two tokens; restore a copy")


def _pre_tokenizer(pattern: Pattern, add_prefix_space: bool) -> dict[str, object]:
    steps = steps_of(pattern)
    *splits, last = steps
    if last != "gpt2":
        splits, last = steps, ""
    parts = [_split(step) for step in splits]
    byte_level = _written(_BYTE_LEVEL, add_prefix_space=add_prefix_space, use_regex=last == "gpt2")
    if not parts:
        return byte_level
    return {"type": "Sequence", "pretokenizers": [*parts, byte_level]}


def _split(step: str) -> dict[str, object]:
    if step == r"\p{N}":
        return _written(_DIGITS)
    if step not in _REGEXES:
        check_read_alike(step)
        if step in _NAMES:
            # It would be loaded under its name: the same ids, another fingerprint.
            raise ValueError(f"the pattern is written out; call it {_NAMES[step]!r}")
    return _written(_SPLIT, pattern={"Regex": _REGEXES.get(step, step)})


def _flat(value: object, key: str, name: str) -> list[object]:
    """Return the parts of a Sequence, which may be nested, or the value alone."""
    parts: list[object] = []
    waiting = [value]  # not by recursion, which a file could make too deep
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict) and part.get("type") == "Sequence":
            waiting += reversed(typed(part.get(key), list, f"the {key} of {name}"))
        else:
            parts.append(part)
        if len(parts) > MAX_STEPS:
            raise ValueError(f"{name} has more than {MAX_STEPS} parts; give {MAX_STEPS} at most")
    return parts


def _pattern(value: object) -> tuple[Pattern, bool]:
    """Return the pattern of a pre-tokenizer and whether it adds a blank.

    It has any number of Split and Digits, then ByteLevel.
    """
    typed(value, dict, "the pre_tokenizer")
    *splits, last = _flat(value, "pretokenizers", "the pre_tokenizer") or [value]
    steps = [_step(part, number) for number, part in enumerate(splits, 1)]
    if not isinstance(last, dict) or last.get("type") != "ByteLevel":
        raise ValueError(
            f"the pre_tokenizer is {_brief(value)} with {_brief(last)} at the end, which tilth "
            "cannot reproduce; convert it to a Sequence of Split or Digits, and ByteLevel"
        )
    byte_level = _check(last, _BYTE_LEVEL, "the last pre_tokenizer")
    add_prefix_space = byte_level["add_prefix_space"] is True
    if byte_level.get("use_regex") is not False:
        steps.append("gpt2")
    elif add_prefix_space and steps[-1:] == ["gpt2"]:
        raise ValueError(
            "the pre_tokenizer splits by the pattern gpt2 and then says 'add_prefix_space': True, "
            "which tilth cannot reproduce; say 'use_regex': True instead of this Split"
        )
    # DeepSeek writes line ends as they are.
    escaped = tuple(step.replace("\r", r"\r").replace("\n", r"\n") for step in steps)
    pattern = escaped if canonical(escaped) in PATTERNS else tuple(steps)
    return pattern or _ONE_PIECE, add_prefix_space


def _step(part: object, number: int) -> str:
    """Return the step of a Split or of Digits."""
    name = f"pre_tokenizer {number}"
    if isinstance(part, dict) and part.get("type") == "Digits":
        # Rust's char::is_numeric is the general category N.
        return r"\p{N}" if _check(part, _DIGITS, name)["individual_digits"] else r"\p{N}+"
    removes = isinstance(part, dict) and part.get("behavior") == "Removed" and part.get("invert")
    pattern = _check(part, _SPLIT_REMOVED if removes else _SPLIT, name).get("pattern")
    match typed(pattern, dict, f"the pattern of {name}"):
        case {"Regex": str(regex), **others} if not others:
            pass
        case {"String": str(text), **others} if not others:
            regex = re.sub(r"[]\[\\.^$|?*+(){}]", r"\\\g<0>", text)
        case _:
            problem = f"the pattern of {name} is {short_repr(pattern)}"
            raise ValueError(f"{problem}; write it as a Regex or a String")
    name_of_step = _NAMES.get(regex)
    regex = portable(regex)
    if removes and (name_of_step or regex) not in _COMPLETE:
        raise ValueError(
            f"{name} removes the text that its pattern does not match, which tilth cannot "
            "reproduce; write 'behavior': 'Isolated' if the pattern matches every text"
        )
    if name_of_step:
        return name_of_step
    check_read_alike(regex)
    if regex in PATTERNS:
        raise ValueError(f"its pattern {regex!r} is the name of another; write it as (?:{regex})")
    return regex


def _template(value: object, special_tokens: Mapping[str, int]) -> Template:
    """Return the special tokens that a post-processor adds around one text."""
    template = NO_TEMPLATE
    for part in _flat(value, "processors", "the post_processor") if value is not None else []:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "TemplateProcessing":
            before, after = _template_sides(part, special_tokens)
        elif kind in _PROCESSING["type"]:
            fields = _check(part, _PROCESSING, "the post_processor")
            before, after = (
                _processing_token(fields[key], special_tokens) for key in ("cls", "sep")
            )
        else:
            _check(part, _BYTE_LEVEL_AFTER_MODEL, "the post_processor")
            continue
        if (
            template != NO_TEMPLATE
        ):  # the second one would take the parts of the first for two texts
            raise ValueError("the post_processor adds special tokens twice; keep one of its parts")
        template = Template(tuple(before), tuple(after))
    return template


def _processing_token(value: object, special_tokens: Mapping[str, int]) -> list[str]:
    match value:
        case [str(token), int(token_id)] if special_tokens.get(token) == token_id:
            return [token]
    raise _other_token(value)


def _template_sides(part: object, special_tokens: Mapping[str, int]) -> list[list[str]]:
    fields = _check(part, _TEMPLATE, "the post_processor")
    known: dict[str, object] = typed(fields.get("special_tokens"), dict, "special_tokens")
    sides: list[list[str]] = [[]]
    for item in typed(fields.get("single"), list, "single"):
        match item:
            case {"SpecialToken": {"id": str(name)}, **others} if not others:
                sides[-1] += _template_tokens(known.get(name), special_tokens)
            case {"Sequence": {"id": "A"}, **others} if not others and len(sides) == 1:
                sides.append([])
            case _:
                problem = f"the post_processor has {short_repr(item)} in its template"
                raise ValueError(f"{problem}; write SpecialToken, and Sequence A once")
    if len(sides) != 2:
        raise ValueError("the post_processor leaves out the text; add Sequence A to single")
    return sides


def _template_tokens(value: object, special_tokens: Mapping[str, int]) -> list[str]:
    match value:
        case {"ids": list(ids), "tokens": [str(), *_] as tokens}:
            is_text = all(isinstance(each, str) for each in tokens)
            if is_text and [special_tokens.get(each) for each in tokens] == ids:
                return [*map(str, tokens)]
    raise _other_token(value)


def _other_token(value: object) -> ValueError:
    problem = f"the post_processor adds {short_repr(value)}, which differs from the added tokens"
    return ValueError(f"{problem}; give it their ids")


def _post_processor(vocabulary: Vocabulary) -> dict[str, object] | None:
    template = vocabulary.template
    if template == NO_TEMPLATE:
        return None

    def items(text: str, type_id: int) -> list[object]:
        before, after = (
            [{"SpecialToken": {"id": token, "type_id": type_id}} for token in side]
            for side in (template.before, template.after)
        )
        return [*before, {"Sequence": {"id": text, "type_id": type_id}}, *after]

    return _written(
        _TEMPLATE,
        single=items("A", 0),
        pair=[*items("A", 0), *items("B", 1)],
        special_tokens={
            token: {"id": token, "ids": [vocabulary.special_tokens[token]], "tokens": [token]}
            for token in (*template.before, *template.after)
        },
    )


def _check_kind(model: object) -> None:
    """Raise a ValueError that says what another kind of tokenizer is."""
    kind = model.get("type") if isinstance(model, dict) else None
    if isinstance(model, dict) and kind is None and isinstance(model.get("vocab"), list):
        kind = "Unigram"  # the oldest files have no type; only Unigram has a list, with scores
    if isinstance(kind, str) and kind in _OTHER_MODELS:
        raise ValueError(f"it is {_OTHER_MODELS[kind]}; {ONLY_BYTE_LEVEL}")
    match model:
        case {"byte_fallback": True, "vocab": {"<0x00>": _}}:
            name = "a SentencePiece BPE over characters, as Llama 2 and Gemma have"
            raise ValueError(f"it is {name}; {ONLY_BYTE_LEVEL}")


def _check_missing_bytes(vocabulary: Vocabulary, model: Mapping[str, object]) -> None:
    """Raise a ValueError if the model replaces bytes that are not tokens."""
    unk, fallback = model.get("unk_token"), model.get("byte_fallback")
    if unk is None and not fallback:
        return
    known = {token for token in vocabulary.tokens.values() if len(token) == 1}
    if len(known) < 256:
        name = "'byte_fallback': True" if fallback else f"'unk_token': {short_repr(unk)}"
        raise ValueError(
            f"the model says {name} for the {256 - len(known)} bytes that are not tokens, which "
            "tilth cannot reproduce; add all bytes to the vocab"
        )


def _check_spellings(vocabulary: Vocabulary) -> None:
    """Raise a ValueError for a special token whose text is also the spelling of other bytes."""
    encoded_of = {token: token.encode() for token in vocabulary.special_tokens}
    # Visible ASCII spells itself: nearly all special tokens end here.
    unlike = [token for token, encoded in encoded_of.items() if spell(encoded) != token]
    if not unlike:
        return
    in_merges = {*chain.from_iterable(vocabulary.merges)}
    in_merges |= {left + right for left, right in vocabulary.merges}
    in_merges -= {vocabulary.tokens[token_id] for token_id in vocabulary.repeated_ids}
    known = {*vocabulary.tokens.values()}
    for token in unlike:
        # "é" spells the byte E9, "Ġa" the text " a". Bytes that are not a token, a single byte or
        # valid UTF-8 are never looked up.
        other = unspell(token) if is_spelling(token) else None
        is_looked_up = other is not None and (
            other in known or len(other) == 1 or other.decode("utf-8", "ignore").encode() == other
        )
        if encoded_of[token] in in_merges or is_looked_up:
            raise ValueError(
                f"the special token {short_repr(token)} is also the spelling of other bytes, or a "
                "merge spells it differently; choose visible ASCII characters for it"
            )
