"""Vocabularies and texts for the tests of all formats."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiktoken
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizers import pre_tokenizers

from tests.tokenizer.texts import ALPHABET, split_by_steps
from tilth.files import FileError
from tilth.tokenizer import reference
from tilth.tokenizer.patterns import PATTERNS, steps_of
from tilth.tokenizer.vocabulary import Vocabulary

DATA = Path(__file__).parents[3].parent / "shared" / "data"

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
CORPUS = [
    "The sun rose. The sunflower turned; we'll see, they've said: IT'S 1234 degrees!\n\n",
    "Die Sonne scheint schön über den Dächern, ½ Stunde.  Été, où êtes-vous?\r\n",
    "太阳升起，太阳花转向。牛 牛 牛 Солнце светит, солнце! 🌱🌱 नमस्ते\u00a0दुनिया   \n\t x = 10;",
    "aaaa aaaaa abab ababab 's 'll 'S 12 123 12345 ...!!!\n\n\n   ",
]
SPECIAL = ["<|endoftext|>", "<|endoftext|><|endoftext|>", "<end of text>", "<récit>", "<|終|>"]
# Characters with a stable class: each package has another Unicode version.
WORDS = [*ALPHABET, *"SLVREDTMоतर्दुБж太ß", " the", " sun", "Sonne", "ab", *SPECIAL]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=30).map("".join),
    # Few characters, so all neighbours occur, also at the end of a text.
    st.text(st.sampled_from("a1!' \n\r\tsSlLſ\u00a0"), max_size=10),
)


def examples(count):
    """Set the number of examples; a slow machine is not a failure."""
    unhurried = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=count, suppress_health_check=unhurried)


def pieces(text, pattern):
    """The definition: the matches of each step and the text between them, split by the next."""
    return split_by_steps(text, steps_of(pattern))


def encode(vocabulary, text):
    """Return the ids by the specification; None if a byte has no token."""
    ids = {token: token_id for token_id, token in vocabulary.tokens.items()}
    ranks = {pair: rank for rank, pair in enumerate(vocabulary.merges)}
    found = []
    for part, is_special in reference.split_at_special_tokens(text, vocabulary.special_tokens):
        if is_special:
            found.append(vocabulary.special_tokens[part])
            continue
        for piece in pieces(part, vocabulary.pattern):
            word = piece.encode()
            is_whole = vocabulary.whole_piece_first and word in ids
            word = [word] if is_whole else reference.encode_piece(word, ranks)
            if not ids.keys() >= {*word}:
                return None
            found += [ids[token] for token in word]
    return found


def trained(pattern, special_tokens=SPECIAL):
    vocab, merges = reference.train(
        CORPUS, 256 + len(special_tokens) + 150, special_tokens, pattern
    )
    return Vocabulary.from_parts(vocab, merges, special_tokens, pattern=pattern)


GPT2, CL100K = trained("gpt2"), trained("cl100k")
# Ids with gaps and out of order; tokens that no merge makes, with and without whole_piece_first.
SPREAD = Vocabulary(
    {(token_id * 7919) % 100_003: token for token_id, token in GPT2.tokens.items()},
    GPT2.merges,
    {token: (token_id * 7919) % 100_003 for token, token_id in GPT2.special_tokens.items()},
)
WHOLE = replace(CL100K, merges=CL100K.merges[:60], whole_piece_first=True)
KINDS = {
    "gpt2": GPT2,
    "cl100k": CL100K,
    **{name: replace(CL100K, pattern=name) for name in PATTERNS if name not in reference.PATTERNS},
    "custom": replace(CL100K, pattern=r"\p{Lu}+?\p{Ll}+|\s+|\S"),
    "steps": replace(CL100K, pattern=(r"\p{N}{1,2}", "cl100k", "[aeiou]", "gpt2")),
    "leaves text out": replace(GPT2, pattern=r"\p{L}+|\p{N}{2}"),
    "spread": SPREAD,
    "whole": WHOLE,
    "not whole": replace(WHOLE, whole_piece_first=False),
}
TINY = Vocabulary.from_parts({0: b"a", 1: b"b", 2: b"ab"}, [(b"a", b"b")], ["<|e|>"])


def refusal(function, *arguments, **options):
    """Return the message of the FileError (or OSError) that a call must raise."""
    with pytest.raises((FileError, OSError)) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    assert "; " in message, "a hint ends the sentence"
    return message


TOKEN = st.binary(min_size=1, max_size=4).map(
    lambda token: token.translate(b"ab \xc3\xa9\n<e" * 32)
)


@st.composite
def any_vocabulary(draw):
    """Bytes, tokens, some of the possible merges; ids and ranks in any order."""
    singles = {bytes([byte]) for byte in "abeé<Ġ \n".encode()}
    tokens = singles | draw(st.sets(TOKEN, max_size=25))
    pairs = [
        (token[:cut], token[cut:])
        for token in sorted(tokens)
        for cut in range(1, len(token))
        if {token[:cut], token[cut:]} <= tokens
    ]
    pairs = draw(st.permutations(pairs))
    pairs = pairs[: draw(st.integers(0, len(pairs)))]
    order = draw(st.permutations([token for token in sorted(tokens) if len(token) > 1]))
    made = [left + right for left, right in pairs]
    if draw(st.booleans()):  # as training would have it
        order.sort(key=lambda token: made.index(token) if token in made else -1)
    ids = sorted(singles) + order
    step = draw(st.sampled_from([1, 3]))
    special = st.text(st.sampled_from("ab é<Ġ\n"), min_size=1, max_size=3)
    return Vocabulary.from_parts(
        {place * step: token for place, token in enumerate(ids)},
        pairs,
        draw(st.lists(special, max_size=3, unique=True)),
        pattern=draw(st.sampled_from(["gpt2", "cl100k", r"[^x]+"])),
        whole_piece_first=draw(st.booleans()),
    )


SHORT_TEXTS = st.text(st.sampled_from("aab  é\n<eĠ"), max_size=20)


def changed(content, where, value):
    content = json.loads(json.dumps(content))
    *parents, last = where
    place = content
    for key in parents:
        place = place[key]
    place[last] = value
    return content


def tiktoken_of(path, vocabulary):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", "")  # it would keep the first file of this name
        ranks = load_tiktoken_bpe(str(path))
    [step] = steps_of(vocabulary.pattern)
    pattern = reference.PATTERNS.get(step, step)
    return tiktoken.Encoding(
        "test",
        pat_str=pattern,
        mergeable_ranks=ranks,
        special_tokens=dict(vocabulary.special_tokens),
    )
