"""`tekken.json`, the format of mistral-common: tokens by rank, the pattern and special tokens.

Special tokens have the first ids. The id of any other token is its rank plus the number of special
tokens; ranks beyond `default_vocab_size` are not used. Merges follow the ranks, as in tiktoken.
"""

import binascii
import json
import re
from collections.abc import Mapping

from tilth.files import StrPath, write_text_atomically
from tilth.schema import short_repr
from tilth.tokenizer._core import MAX_VOCAB_SIZE
from tilth.tokenizer.formats.reading import explained, read_json, typed
from tilth.tokenizer.formats.tiktoken import rank_problem, recover_merges
from tilth.tokenizer.patterns import PATTERNS, steps_of
from tilth.tokenizer.vocabulary import NO_TEMPLATE, Template, Vocabulary

BEGIN = "<s>"
_BEGIN_TEMPLATE = Template(before=(BEGIN,))
# Files up to version 7 have no list of special tokens; mistral-common has these.
_OLDER = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
]
_LAST_WITHOUT_LIST = 7
_WRITTEN_VERSION = "v7"  # the first with a list of special tokens, the last that needs no images


def looks_like_tekken(content: Mapping[str, object]) -> bool:
    """Whether a JSON object has the keys of a `tekken.json`."""
    return isinstance(content.get("config"), dict) and isinstance(content.get("vocab"), list)


def load_tekken(path: StrPath) -> Vocabulary:
    """Load a `tekken.json`; its template adds `<s>`, as mistral-common does with `bos=True`."""
    return tekken_vocabulary(path, read_json(path))


def tekken_vocabulary(path: StrPath, content: Mapping[str, object]) -> Vocabulary:
    """Return the vocabulary of the parsed JSON of a `tekken.json`."""
    with explained(path):
        config = typed(content.get("config"), dict, "config")
        num_special = _size(config, "default_num_special_tokens")
        num_ordinary = _size(config, "default_vocab_size") - num_special
        pattern = _pattern(typed(config.get("pattern"), str, "config.pattern"))
        special = _special_tokens(content, config, num_special)
        ranks = parse_vocab(typed(content.get("vocab"), list, "vocab"), num_ordinary)
        Vocabulary(ranks)  # first, as recovering the merges of a token of megabytes is slow
        tokens = {token_id: token.encode() for token, token_id in special.items()}
        tokens |= {rank + num_special: token for rank, token in ranks.items()}
        return Vocabulary(
            tokens,
            tuple(recover_merges(ranks)),
            special,
            pattern,
            whole_piece_first=True,
            template=_BEGIN_TEMPLATE if BEGIN in special else NO_TEMPLATE,
        )


def parse_vocab(entries: list[object], count: int) -> dict[int, bytes]:
    """Return the first `count` tokens of `vocab` by their ranks."""
    if not 0 <= count <= len(entries):
        problem = f"config asks for {count:,} tokens and vocab has {len(entries):,}"
        raise ValueError(f"{problem}; restore a copy")
    ranks: dict[int, bytes] = {}
    for place, entry in enumerate(entries[:count]):
        fields = typed(entry, dict, f"vocab[{place}]")
        rank, encoded = fields.get("rank"), fields.get("token_bytes")
        try:
            token = binascii.a2b_base64(typed(encoded, str, "token_bytes"), strict_mode=True)
        except ValueError:  # binascii.Error, or a character that is not ASCII
            token = b""
        if type(rank) is not int or rank != place or not token:
            name = f"vocab[{place}] has the rank {short_repr(rank)}"
            raise ValueError(f"{name} and the bytes {short_repr(encoded)}; restore a copy")
        ranks[place] = token
    return ranks


def save_tekken(vocabulary: Vocabulary, path: StrPath, *, overwrite: bool = False) -> None:
    """Save a `tekken.json`.

    mistral-common reads it if the special tokens have the first ids and the 256 bytes follow, as in
    a vocabulary that tilth trained.
    """
    num_special = len(vocabulary.special_tokens)
    special = {token_id: token for token, token_id in vocabulary.special_tokens.items()}
    ranks = {i - num_special: token for i, token in vocabulary.tokens.items() if i not in special}
    steps = steps_of(vocabulary.pattern)
    if problem := _problem(vocabulary, special, ranks, steps):
        raise ValueError(
            f"{path} cannot represent the vocabulary: {problem}; write a tokenizer.json"
        )
    from tilth.tokenizer.reference import PATTERNS as REGEXES  # noqa: PLC0415, slow to import

    content = {
        "config": {
            "pattern": REGEXES.get(steps[0], steps[0]),
            "num_vocab_tokens": len(ranks),
            "default_vocab_size": len(vocabulary.tokens),
            "default_num_special_tokens": num_special,
            "version": _WRITTEN_VERSION,
        },
        "vocab": [
            {
                "rank": rank,
                "token_bytes": binascii.b2a_base64(token, newline=False).decode("ascii"),
                "token_str": _text(token),
            }
            for rank, token in sorted(ranks.items())
        ],
        "special_tokens": [
            {"rank": rank, "token_str": token, "is_control": True}
            for rank, token in sorted(special.items())
        ],
    }
    # Without a final newline no proper prefix is valid JSON: a truncated file is detected.
    write_text_atomically(path, json.dumps(content, ensure_ascii=False), overwrite=overwrite)


def _problem(
    vocabulary: Vocabulary, special: Mapping[int, str], ranks: Mapping[int, bytes], steps: list[str]
) -> str | None:
    """Return why mistral-common would not read the file, or give other ids; or None."""
    num_special = len(special)
    if special.keys() != set(range(num_special)):
        return "its special tokens do not have the first ids"
    if ranks.keys() != set(range(len(ranks))):
        return "its ids have gaps"
    if any(ranks.get(byte) != bytes([byte]) for byte in range(256)):
        return "the 256 bytes do not follow the special tokens in order"
    if len(steps) > 1:
        return "its pattern has several steps"
    template = _BEGIN_TEMPLATE if BEGIN in vocabulary.special_tokens else NO_TEMPLATE
    if vocabulary.template != template:
        return f"the template of the file would be {template.before}, not its own"
    return rank_problem(vocabulary, ranks)


def _special_tokens(
    content: Mapping[str, object], config: Mapping[str, object], count: int
) -> dict[str, int]:
    """Return the special tokens, filled up to `count` as mistral-common does."""
    entries = content.get("special_tokens")
    if entries is None:
        version = config.get("version")
        number = re.fullmatch(r"v(\d{1,3})", version) if isinstance(version, str) else None
        if not number or int(number[1]) > _LAST_WITHOUT_LIST:
            problem = f"it has no special_tokens and the version {short_repr(version)}"
            raise ValueError(f"{problem}, whose special tokens are not known; add their list")
        names: list[object] = [*_OLDER]
    else:
        names = []
        for place, entry in enumerate(typed(entries, list, "special_tokens")):
            fields = typed(entry, dict, f"special_tokens[{place}]")
            if type(fields.get("rank")) is not int or fields["rank"] != place:
                rank = short_repr(fields.get("rank"))
                raise ValueError(f"special_tokens[{place}] has the rank {rank}; sort them by rank")
            names.append(fields.get("token_str"))
    if len(names) > count:
        problem = f"it has {len(names):,} special tokens and config says {count:,}"
        raise ValueError(f"{problem}; restore a copy")
    names += [f"<SPECIAL_{token_id}>" for token_id in range(len(names), count)]
    special = {typed(name, str, "a special token"): i for i, name in enumerate(names)}
    if len(special) < count:
        raise ValueError("two special tokens are the same; give each its own text")
    return special


def _pattern(regex: str) -> str:
    from tilth.tokenizer.reference import PATTERNS as REGEXES  # noqa: PLC0415, slow to import

    if regex in PATTERNS:
        raise ValueError(f"its pattern {regex!r} is the name of another; write it as (?:{regex})")
    return next((name for name in REGEXES if REGEXES[name] == regex), regex)


def _size(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    if type(value) is not int or not 0 <= value <= MAX_VOCAB_SIZE:
        limit = f"give a whole number up to {MAX_VOCAB_SIZE:,}"
        raise ValueError(f"config.{name} is {short_repr(value)}; {limit}")
    return value


def _text(token: bytes) -> str | None:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        return None
