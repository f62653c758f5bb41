"""Compare the specification with the `regex` package."""

import doctest

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from tests.tokenizer.texts import TRICKY
from tilth.tokenizer import reference


def test_docstring():
    assert doctest.testmod(reference).failed == 0


@pytest.mark.parametrize("name", reference.PATTERNS)
@given(st.one_of(st.text(), TRICKY))
def test_split_equals_the_pattern(name, text):
    assert reference.split(text, name) == regex.findall(reference.PATTERNS[name], text)


@pytest.mark.parametrize(
    ("belongs", "pattern"),
    [
        (reference.is_letter, r"\p{L}"),
        (reference.is_number, r"\p{N}"),
        (reference.is_space, r"\s"),
        (reference.is_other, r"[^\s\p{L}\p{N}]"),
    ],
)
def test_classes_of_all_code_points(belongs, pattern):
    compiled = regex.compile(pattern)
    differing = [
        hex(code_point)
        for code_point in range(0x110000)
        if belongs(chr(code_point)) != bool(compiled.match(chr(code_point)))
    ]
    assert differing == []
