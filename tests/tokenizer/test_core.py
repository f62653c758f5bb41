"""The native core against the `regex` package and the pure-Python reference."""

import random

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenizer.texts import ALPHABET, TRICKY
from tilth.tokenizer import reference, unicode_classes
from tilth.tokenizer._core import count_pieces, split, unicode_version

PATTERNS = {name: regex.compile(pattern) for name, pattern in reference.PATTERNS.items()}
both_patterns = pytest.mark.parametrize("pattern", PATTERNS)


@both_patterns
@given(st.one_of(st.text(), TRICKY))
@settings(max_examples=500)
def test_split_is_the_reference(pattern, text):
    pieces = split(text, pattern)
    assert pieces == reference.split(text, pattern) == PATTERNS[pattern].findall(text)
    assert count_pieces(text, pattern) == len(pieces)


@both_patterns
@given(TRICKY, st.integers(0, 130), st.sampled_from("a1 !é\u3000"))
@settings(max_examples=500)
def test_split_wherever_a_block_ends(pattern, text, length, filler):
    text = filler * length + text + filler * length + text
    assert split(text, pattern) == PATTERNS[pattern].findall(text)


@pytest.mark.slow
@both_patterns
def test_a_million_random_texts(pattern):
    generator = random.Random(0)
    for _ in range(1_000_000):
        text = "".join(generator.choices(ALPHABET, k=generator.randrange(100)))
        assert split(text, pattern) == PATTERNS[pattern].findall(text)


def test_pieces_join_to_the_text_even_with_nul():
    text = "a\x00b \x00\n" * 1000
    assert "".join(split(text)) == text


def test_surrogates():
    assert split("\ud83d") == ["\ufffd"]
    assert split("a\ude42\ud83d b") == ["a", "\ufffd\ufffd", " b"]
    assert split("\ud83d\ude42") == ["🙂"]  # a pair is the character that it spells
    assert count_pieces("a\ud83d") == 2


def test_bytes_are_text_and_other_things_are_not():
    assert split(b"a\xff b") == ["a", "\ufffd", " b"]
    with pytest.raises(TypeError, match="a str or bytes"):
        split(7)
    with pytest.raises(ValueError, match="gpt2"):
        split("a", "gpt3")


def test_the_tables_say_their_version():
    assert unicode_version == unicode_classes.UNICODE_VERSION


@pytest.mark.alone
def test_ctrl_c_ends_a_long_split_within_a_second(ctrl_c_within):
    program = """
from tilth.tokenizer import split
text = "a b " * 50_000_000
print("ready", flush=True)
split(text)  # some ten seconds
"""
    _, errors = ctrl_c_within(1, program)
    assert errors.endswith("KeyboardInterrupt\n")
