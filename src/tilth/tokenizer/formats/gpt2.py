r"""GPT-2's two files: `vocab.json` (a token's spelling to its id) and `merges.txt` (a pair a line).

What enters: the two files, or a `Vocabulary`. What leaves: the other of the two. The files hold
tokens and merges only: which tokens are special is said again when they are loaded, and the pattern
is GPT-2's.

JSON holds characters and a line holds no line end, so GPT-2 spells each byte as one visible
character. `tokenizer.json` does the same.

>>> spell(b" caf\xc3\xa9\n")
'ĠcafÃ©Ċ'
>>> unspell("ĠcafÃ©Ċ")
b' caf\xc3\xa9\n'
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilth.files import StrPath, check_target, write_text_atomically
from tilth.schema import short_repr
from tilth.tokenizer.formats.reading import explained, read_json, read_text
from tilth.tokenizer.vocabulary import Pair, Vocabulary

# A byte whose Latin-1 character is visible stands for itself; the others (controls, blanks, the
# soft hyphen) take the code points from 256 on, in order. All 256 are then visible and distinct,
# and English stays readable.
_VISIBLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
_SPELLINGS = {byte: 256 + place for place, byte in enumerate(_HIDDEN)}
# Back again; a hidden character itself spells nothing, and becomes one that Latin-1 lacks.
_BYTES = {spelling: byte for byte, spelling in _SPELLINGS.items()} | dict.fromkeys(_HIDDEN, 0xFFFF)


def spell(token: bytes) -> str:
    """The visible characters of a token, one for each byte."""
    return token.decode("latin-1").translate(_SPELLINGS)


def unspell(spelling: str) -> bytes:
    """The bytes of a spelling; a ValueError if a character of it spells no byte."""
    try:
        return spelling.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{short_repr(spelling)} holds {short_repr(spelling[error.start])}, which spells no byte; "
            "restore a copy, or name the token as a special token"
        ) from None


def is_spelling(text: str) -> bool:
    """Whether each character of a text spells a byte."""
    return max(map(ord, text.translate(_BYTES)), default=0) < 256


def load_gpt2(
    vocab_path: StrPath,
    merges_path: StrPath,
    special_tokens: Mapping[str, int] | Iterable[str] | None = None,
) -> Vocabulary:
    """Read `vocab.json` and `merges.txt`; special tokens that are not in them are appended.

    Lines of `merges.txt` may end in CRLF and be empty; its last needs no end.
    """
    if not isinstance(special_tokens, str | Mapping):
        special_tokens = list(special_tokens or ())
    with explained(vocab_path):
        # Hugging Face leaves special tokens as they are, "<a b>" instead of "<aĠb>".
        unspelled = {token for token in special_tokens if isinstance(token, str)}
        tokens = tokens_by_id(read_json(vocab_path), unspelled)
        vocabulary = Vocabulary.from_parts(tokens, (), special_tokens)
    with explained(merges_path):
        lines = read_text(merges_path).split("\n")
        # Only there: `# #` is a merge of GPT-2's, and `#version` may be one of its tokens.
        if lines[0].startswith("#version"):
            lines[0] = ""
        # No byte is spelled as a carriage return, so one at the end of a line is no token's.
        lines = [line.removesuffix("\r") for line in lines]
        merges = tuple(parse_merge(line) for line in lines if line)
        return replace(vocabulary, merges=merges)


def save_gpt2(
    vocabulary: Vocabulary, vocab_path: StrPath, merges_path: StrPath, *, overwrite: bool = False
) -> None:
    """Write `vocab.json` and `merges.txt`."""
    if vocabulary.pattern != "gpt2":
        raise ValueError(
            f"{vocab_path} cannot say that the pattern is {short_repr(vocabulary.pattern)}; "
            "write a tokenizer.json"
        )
    if vocabulary.whole_piece_first:
        raise ValueError(
            f"{vocab_path} cannot say that pieces are taken whole first; write a tokenizer.json"
        )
    spellings = {spell(token): token_id for token_id, token in sorted(vocabulary.tokens.items())}
    lines = [
        "#version: 0.2",
        *(f"{spell(left)} {spell(right)}" for left, right in vocabulary.merges),
    ]
    check_target(merges_path, overwrite=overwrite)  # before the first of the two is there alone
    # No line end after the object: then no part of it is whole, and a torn file cannot pass.
    write_text_atomically(
        vocab_path, json.dumps(spellings, ensure_ascii=False), overwrite=overwrite
    )
    write_text_atomically(merges_path, "\n".join(lines) + "\n", overwrite=overwrite)


def tokens_by_id(vocab: Mapping[str, object], unspelled: Iterable[str] = ()) -> dict[int, bytes]:
    """The bytes of each id, of the spelling to id of `vocab.json` and `tokenizer.json`.

    A key that spells no bytes is taken as it is if it is one of `unspelled`.
    """
    as_they_are = {token for token in unspelled if not is_spelling(token)}
    tokens: dict[int, bytes] = {}
    for spelling, token_id in vocab.items():
        if type(token_id) is not int:
            raise ValueError(
                f"the token {short_repr(spelling)} has the id {short_repr(token_id)}; give a whole number"
            )
        if token_id in tokens:
            raise ValueError(
                f"the tokens {short_repr(spell(tokens[token_id]))} and {short_repr(spelling)} both have the "
                f"id {token_id}; give each its own"
            )
        tokens[token_id] = (
            spelling.encode("utf-8") if spelling in as_they_are else unspell(spelling)
        )
    return tokens


def parse_merge(line: str) -> Pair:
    """The pair of a line such as `Ġt he`."""
    left, _, right = line.partition(" ")
    if not left or not right or " " in right:
        raise ValueError(
            f"{short_repr(line)} is no merge; write two tokens with a blank between, or restore a copy"
        )
    return unspell(left), unspell(right)
