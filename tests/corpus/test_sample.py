import doctest

from tilth.corpus import SAMPLE, sample
from tilth.tokenizer import reference


def test_docstring():
    assert doctest.testmod(sample).failed == 0


def test_sample_has_every_kind_of_character():
    for belongs in (
        reference.is_letter,
        reference.is_number,
        reference.is_space,
        reference.is_other,
    ):
        assert any(
            belongs(character)
            for character in SAMPLE
            if not character.isascii() or belongs is reference.is_space
        )
