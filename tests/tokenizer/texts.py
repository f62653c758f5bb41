"""Texts that are hard to split, and the definition of splitting by several steps."""

from functools import cache

import regex
from hypothesis import strategies as st

from tilth.tokenizer import reference

# Few characters, so all neighbours occur: each class, in one byte and in several.
ALPHABET = "aslvedtmLS'' \n\t1½é牛!🌱\u00a0\u3000\u0301\r\x00\x1c\x85ſ"
TRICKY = st.text(st.sampled_from(ALPHABET), max_size=40)

compiled = cache(regex.compile)


def split_by_steps(text, steps):
    """Split by each step with the `regex` package; text between two matches is a piece too."""
    pieces = [text] if text else []
    for step in steps:
        pattern = compiled(reference.PATTERNS.get(step, step))
        pieces = [part for piece in pieces for part in _matches_and_gaps(piece, pattern)]
    return pieces


def _matches_and_gaps(text, pattern):
    start = 0
    for found in pattern.finditer(text):
        yield from filter(None, (text[start : found.start()], found[0]))
        start = found.end()
    yield from filter(None, (text[start:],))
