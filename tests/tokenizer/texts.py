"""Texts that are hard to split."""

from hypothesis import strategies as st

# Few characters, so all neighbours occur: each class, in one byte and in several.
ALPHABET = "aslvedtmLS'' \n\t1½é牛!🌱\u00a0\u3000\u0301\r\x00\x1c\x85ſ"
TRICKY = st.text(st.sampled_from(ALPHABET), max_size=40)
