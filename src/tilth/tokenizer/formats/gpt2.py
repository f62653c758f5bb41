r"""GPT-2's two files: `vocab.json` (spelling to id) and `merges.txt` (one pair per line).

They store tokens and merges only. Special tokens are named again when the files are loaded, and so
is a pattern other than GPT-2's, unless other files in the folder do (`gpt2_folder.py`).

JSON holds characters and a line holds no newline, so GPT-2 spells each byte as one visible
character. `tokenizer.json` does the same.

>>> spell(b" caf\xc3\xa9\n")
'ĠcafÃ©Ċ'
>>> unspell("ĠcafÃ©Ċ")
b' caf\xc3\xa9\n'
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from tilth.files import StrPath, check_target, write_text_atomically
from tilth.schema import short_repr
from tilth.tokenizer._core import Encoder
from tilth.tokenizer.formats.reading import (
    ONLY_BYTE_LEVEL,
    check_plain,
    explained,
    read_json,
    read_text,
)
from tilth.tokenizer.formats.tiktoken import note_lost
from tilth.tokenizer.patterns import Pattern
from tilth.tokenizer.table import Pair
from tilth.tokenizer.vocabulary import SpecialTokens, Vocabulary

# A byte whose Latin-1 character is visible spells itself. The others (controls, blanks, the soft
# hyphen) are the code points from 256 on, in order: all 256 are visible and distinct, and English
# stays readable.
_VISIBLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256)]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]
_SPELLINGS = {byte: 256 + place for place, byte in enumerate(_HIDDEN)}
# The inverse. A hidden character is not a spelling: it becomes a character outside Latin-1.
_BYTES = {spelling: byte for byte, spelling in _SPELLINGS.items()} | dict.fromkeys(_HIDDEN, 0xFFFF)


def spell(token: bytes) -> str:
    """Return the visible characters of a token, one for each byte."""
    return token.decode("latin-1").translate(_SPELLINGS)


def unspell(spelling: str) -> bytes:
    """Return the bytes of a spelling; a ValueError if a character spells no byte."""
    try:
        return spelling.translate(_BYTES).encode("latin-1")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{short_repr(spelling)} holds {short_repr(spelling[error.start])}, which spells no "
            "byte; restore a copy, or name the token as a special token"
        ) from None


def is_spelling(text: str) -> bool:
    """Whether each character of a text spells a byte."""
    return max(map(ord, text.translate(_BYTES)), default=0) < 256


def load_gpt2(
    vocab_path: StrPath,
    merges_path: StrPath,
    special_tokens: SpecialTokens = None,
    *,
    pattern: Pattern = "gpt2",
) -> Vocabulary:
    """Load `vocab.json` and `merges.txt`; special tokens that are not in them are appended.

    Lines of `merges.txt` may be empty or end in CRLF; the last line may have no newline.
    """
    vocab = read_json(vocab_path)
    return gpt2_vocabulary(vocab_path, merges_path, vocab, special_tokens, pattern=pattern)


def gpt2_vocabulary(
    vocab_path: StrPath,
    merges_path: StrPath,
    vocab: Mapping[str, object],
    special_tokens: SpecialTokens = None,
    **options: Any,  # noqa: ANN401, the other fields
) -> Vocabulary:
    """Return the vocabulary of the parsed `vocab.json` and a `merges.txt`; see `load_gpt2`."""
    if not isinstance(special_tokens, str | Mapping):
        special_tokens = list(special_tokens or ())
    with explained(vocab_path):
        # Half of the tokens of CLIP. In a byte-level BPE this may be the text of one token.
        ends = sum(spelling.endswith("</w>") and spelling != "</w>" for spelling in vocab)
        if ends * 100 > len(vocab):
            raise ValueError(
                f"{ends:,} of its tokens mark the end of a word by </w>, as those of CLIP do; "
                f"{ONLY_BYTE_LEVEL}"
            )
        # Hugging Face writes special tokens unspelled: "<a b>" instead of "<aĠb>".
        unspelled = {token for token in special_tokens if isinstance(token, str)}
        tokens = tokens_by_id(vocab, unspelled)
        vocabulary = Vocabulary.from_parts(tokens, (), special_tokens, **options)
    with explained(merges_path):
        return replace(vocabulary, merges=tuple(parse_merges(read_text(merges_path))))


def parse_merges(text: str) -> Iterator[Pair]:
    """Yield the merges of a `merges.txt`."""
    # Only in the first line: `# #` is a merge of GPT-2, and `#version` may be a token.
    if text.startswith("#version"):
        text = text.partition("\n")[2]
    # No byte is spelled as a carriage return.
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return (parse_merge(line) for line in lines if line)


def save_gpt2(
    vocabulary: Vocabulary, vocab_path: StrPath, merges_path: StrPath, *, overwrite: bool = False
) -> None:
    """Save `vocab.json` and `merges.txt`; a note names the settings that they do not store."""
    check_gpt2(vocabulary, vocab_path)
    spellings = {spell(token): token_id for token_id, token in sorted(vocabulary.tokens.items())}
    lines = (f"{spell(left)} {spell(right)}\n" for left, right in vocabulary.merges)
    check_target(merges_path, overwrite=overwrite)  # both files or none
    # Without a final newline no proper prefix is valid JSON: a truncated file is detected.
    vocab = json.dumps(spellings, ensure_ascii=False)
    write_text_atomically(vocab_path, vocab, overwrite=overwrite)
    merges = "#version: 0.2\n" + "".join(lines)
    write_text_atomically(merges_path, merges, overwrite=overwrite)
    note_lost(vocab_path, vocabulary, pattern=False)


def check_gpt2(vocabulary: Vocabulary, path: StrPath) -> None:
    """Raise a ValueError if the two files would give other ids."""
    check_plain(vocabulary, path)
    if problem := _problem(vocabulary):
        raise ValueError(f"{path} cannot represent {problem}; write a tokenizer.json")


def _problem(vocabulary: Vocabulary) -> str | None:
    """Return the setting without which ids differ, or None."""
    if vocabulary.pattern != "gpt2":
        return f"the pattern {short_repr(vocabulary.pattern)}"
    if vocabulary.add_prefix_space:
        return "add_prefix_space"
    for token_id in sorted(vocabulary.repeated_ids):
        name = short_repr(vocabulary.tokens[token_id])
        return f"the special token {name} beside another token with its bytes"
    if vocabulary.whole_piece_first:
        # It has no effect if merging makes every token, as for the ranks of GPT-2.
        merging = Encoder(vocabulary.table, [], pattern=[], whole_piece_first=False)
        special_ids = {*vocabulary.special_tokens.values()}
        for token_id, token in vocabulary.tokens.items():
            # A token that is not UTF-8 is never a whole piece.
            text = token.decode("utf-8", "replace").encode()
            if token_id in special_ids or text != token:
                continue
            with suppress(ValueError):  # a byte of it is not a token
                if merging.encode(token, False) == [token_id]:
                    continue
            return f"whole_piece_first, by which {short_repr(token)} is a token"
    return None


def tokens_by_id(vocab: Mapping[str, object], unspelled: Iterable[str] = ()) -> dict[int, bytes]:
    """Return the bytes of each id, given the ids by spelling.

    A key in `unspelled` with a character that spells no byte stands for its UTF-8 bytes. The empty
    token of Whisper, which no text is encoded to, is left out.
    """
    literal = {token for token in unspelled if not is_spelling(token)}
    tokens: dict[int, bytes] = {}
    for spelling, token_id in vocab.items():
        if type(token_id) is not int or token_id in tokens:
            problem = "which is taken" if type(token_id) is int else "which is not a whole number"
            raise ValueError(
                f"the token {short_repr(spelling)} has the id {short_repr(token_id)}, {problem}; "
                "give it its own id"
            )
        tokens[token_id] = spelling.encode("utf-8") if spelling in literal else unspell(spelling)
    if (empty := vocab.get("")) is not None:
        del tokens[cast("int", empty)]
    return tokens


def parse_merge(line: str) -> Pair:
    """Return the pair of a line such as `Ġt he`."""
    left, _, right = line.partition(" ")
    if not left or not right or " " in right:
        raise ValueError(
            f"{short_repr(line)} is not a merge; write two tokens separated by a blank, or restore "
            "a copy"
        )
    return unspell(left), unspell(right)
