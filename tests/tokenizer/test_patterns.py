"""Named patterns: compare pieces with the `regex` package and with Hugging Face `tokenizers`."""

import doctest
import random
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
import tiktoken_ext.openai_public
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.tokenizer.published import PUBLISHED
from tests.tokenizer.texts import ALPHABET, TRICKY, split_by_steps
from tilth.tokenizer import Tokenizer, _core, patterns, reference, split, train_tokenizer
from tilth.tokenizer.patterns import PATTERNS, canonical, describe, is_native, steps_of

each_name = pytest.mark.parametrize("name", PATTERNS)

# Each class that a pattern tells apart, and characters that are alike in one pattern only: title
# case, modifier letters, marks, Hiragana, Katakana, punctuation, symbols, long s, Kelvin sign.
CHARACTERS = (
    ALPHABET + 'ABzZKǅʰªßéÉ漢字ーあカ한ก\u0e31\u093f٣ⅷ²€≠$/.,-_`~[]{}\\"’\u2003\x0b\u200b\ufffdK'
)
ADVERSARIAL = st.text(st.sampled_from(CHARACTERS), max_size=60)
ALL = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def test_docstring():
    assert doctest.testmod(patterns).failed == 0


def native(text, name):
    """The pieces by the core, which raises if it does not compile the pattern."""
    return _core.split(text, steps_of(name))


@each_name
@given(text=st.one_of(ADVERSARIAL, TRICKY, st.text(max_size=60)))
@settings(max_examples=150)
def test_pieces_equal_those_of_regex(name, text):
    expected = split_by_steps(text, PUBLISHED[name])
    assert native(text, name) == expected
    assert "".join(expected) == text


@each_name
def test_pieces_of_long_random_texts(name):
    generator = random.Random(0)
    for alphabet in (CHARACTERS, "aB1 '\n", "Aa\u0301あ ", ALL):
        for length in (2, 5, 100, 10_000):
            text = "".join(generator.choices(alphabet, k=length))
            assert native(text, name) == split_by_steps(text, PUBLISHED[name])


def in_context(characters):
    return "\n.".join(f"{c}a{c}B{c} 1{c}\n{c}!'{c} {c}" for c in characters)


@each_name
def test_code_points_at_the_bounds_of_categories(name):
    categories = [unicodedata.category(character) for character in ALL]
    bounds = [place for place, pair in enumerate(pairwise(categories), 1) if pair[0] != pair[1]]
    text = in_context(character for place in bounds for character in ALL[place - 1 : place + 1])
    assert native(text, name) == split_by_steps(text, PUBLISHED[name])


@pytest.mark.slow
@each_name
def test_every_code_point_in_context(name):
    for start in range(0, len(ALL), 1000):
        text = in_context(ALL[start : start + 1000])
        assert native(text, name) == split_by_steps(text, PUBLISHED[name]), start


@each_name
def test_long_runs(name):
    """Text that a backtracking matcher reads again and again."""
    for part in ("A", "a", "Aa", " ", " \n", "1", "!", "漢", "あ", "\u0301", "'S", "AʰA"):
        text = part * 3000 + "x"
        assert native(text, name) == split_by_steps(text, PUBLISHED[name])


def pre_tokenizer(name):
    """The pre-tokenizer of the published model: StarCoder, DeepSeek V3, or one Split."""
    if name == "starcoder":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence(
            [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
        )
    if name == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    steps = PUBLISHED[name]
    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(tokenizers.Regex(step), "isolated") for step in steps),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


@pytest.mark.parametrize("name", [name for name in PATTERNS if name != "cl100k"])
@given(text=ADVERSARIAL)
@settings(max_examples=100)
def test_pieces_equal_those_of_hugging_face(name, text):
    found = pre_tokenizer(name).pre_tokenize_str(text)
    assert split(text, name) == [text[start:end] for _, (start, end) in found]


def test_published_patterns(monkeypatch):
    """Every pattern is native under its name; those of OpenAI are still the same in tiktoken."""
    assert PUBLISHED.keys() == PATTERNS.keys()
    for name in PUBLISHED.keys() - {"gpt2", "cl100k", "starcoder"}:  # the core has other regexes
        assert canonical(PUBLISHED[name]) == name
    monkeypatch.setattr(tiktoken_ext.openai_public, "load_tiktoken_bpe", lambda *_, **__: {})
    for name, encoding in (("gpt2", "r50k"), ("cl100k", "cl100k"), ("o200k", "o200k")):
        options = getattr(tiktoken_ext.openai_public, f"{encoding}_base")()
        assert (options["pat_str"],) == PUBLISHED[name]


@each_name
def test_names_and_steps(name):
    steps = PATTERNS[name]
    assert steps_of(name) == steps_of(steps) == list(steps)
    assert canonical(name) == canonical(steps) == describe(name) == name
    if len(steps) == 1:
        assert canonical(steps[0]) == name
    assert is_native(name)
    assert name in patterns.NAMES


def test_unnamed_patterns():
    assert canonical(r"\w+") == canonical((r"\w+",)) == r"\w+"
    assert canonical((r"\w", "starcoder")) == (r"\w", r"\p{N}", "gpt2")
    assert describe((r"\w", "gpt2")) == r"\w, then gpt2"
    assert is_native(r"\p{L}+")
    assert is_native((r"\p{N}{2}", "gpt2"))
    for foreign in (r"\w+", "a\ud800", "(", (r"\w", "cl100k"), (r"\w", "gpt2")):
        assert not is_native(foreign)


@pytest.mark.parametrize(
    "pattern", [(r"\w+", "gpt2"), (r"\p{N}{2}", "cl100k"), (r"\p{N}{2}", "[aeiou]")]
)
@given(text=ADVERSARIAL)
def test_sequences_of_steps(pattern, text):
    assert split(text, pattern) == split_by_steps(text, pattern)


CORPUS = [
    "The sun's 1234 rays. HELLO World's 漢字 ひらがな カタカナ, 9-5=4; we'LL see!\n\n  x\t"
] * 3


@pytest.mark.parametrize("pattern", [*PATTERNS, (r"\p{N}{2}", "[aeiou]"), (r"\w+", "gpt2")])
@given(text=ADVERSARIAL, cut=st.integers(0, 60))
@settings(max_examples=30)
def test_every_method_gives_the_same_ids(pattern, text, cut):
    """Compare with merging the bytes of each piece."""
    tokenizer = TRAINED.get(pattern) or TRAINED.setdefault(
        pattern,
        train_tokenizer(texts=CORPUS, vocab_size=340, special_tokens=["<|e|>"], pattern=pattern),
    )
    text = f"{text}<|e|>{text}"
    ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
    ids = {token: token_id for token_id, token in tokenizer.vocab.items()}
    expected = [
        ids[token]
        for piece in split_by_steps(text[: text.index("<|e|>")], steps_of(pattern))
        for token in reference.encode_piece(piece.encode(), ranks)
    ]
    expected = [*expected, tokenizer.special_tokens["<|e|>"], *expected]
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode_array(text, threads=2).tolist() == expected
    assert tokenizer.encode_batch([text, ""]) == [expected, []]
    assert tokenizer.count(text) == len(expected)
    assert tokenizer.encode_with_offsets(text)[0] == expected
    assert [*tokenizer.encode_iterable([text[:cut], text[cut:]])] == expected
    assert [*tokenizer.encode_iterable(text)] == expected
    assert tokenizer.decode(expected) == text


TRAINED: dict[object, Tokenizer] = {}


@pytest.mark.parametrize("pattern", [*PATTERNS, (r"\p{N}{2}", "[aeiou]")])
def test_merges_equal_the_reference(pattern, tmp_path):
    text = "".join(CORPUS) * 50
    (tmp_path / "text.txt").write_text(text, newline="")
    counts = Counter(piece.encode() for piece in split_by_steps(text, steps_of(pattern)))
    expected = tuple(reference.learn_merges(counts, 80))
    trained = train_tokenizer(texts=[text], vocab_size=336, pattern=pattern)
    assert trained.merges == expected
    assert train_tokenizer(tmp_path / "text.txt", 336, pattern=pattern, threads=2) == trained
