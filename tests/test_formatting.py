"""Formatting and parsing of numbers and text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.formatting import (
    format_bytes,
    format_duration,
    join_words,
    parse_bytes,
    parse_duration,
    printable,
    scientific,
    suggestion,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("5", 5),
        ("500kB", 500_000),
        (" 1.5 GB ", 1_500_000_000),
        ("64MiB", 64 << 20),
        ("2TiB", 2 << 40),
        ("0.29MB", 290_000),
    ],
)
def test_parse_bytes(text, size_bytes):
    assert parse_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "-5", "5XB", "1e9", "5 5", "9" * 400, "1." + "0" * 400])
def test_parse_bytes_errors(text):
    with pytest.raises(ValueError, match="is not a size; write 500kB"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("8m", 480), ("1h30m", 5400), ("1.5h", 5400), (".5s", 0.5)]
)
def test_parse_duration(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0s", "90", "m", "-5m", "1.2.3s", "5m1h", "9" * 400 + "h", "٣h", "nans"]
)
def test_parse_duration_errors(text):
    with pytest.raises(ValueError, match="write it like 90s, 8m or 1h30m"):
        parse_duration(text)


def test_format_uses_the_unit_that_fits():
    assert [format_bytes(n) for n in (5, 19_000, 8.5e9, -2e6)] == [
        "5 bytes",
        "19.00 kB",
        "8.50 GB",
        "-2.00 MB",
    ]
    assert [format_duration(s) for s in (0.5, 90, 150, 7200, 200_000, 2e6)] == [
        "0.5 s",
        "90 s",
        "2.5 minutes",
        "2.0 hours",
        "2.3 days",
        "23 days",
    ]
    assert scientific(4_513_336_524_800) == "4.513e12"


def test_join_words():
    assert [join_words(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]


def test_suggestions():
    assert suggestion("adamv", ["adamw", "sgd"]) == "did you mean adamw?"
    assert suggestion("x", ["adamw", "sgd"]) == "there are adamw, sgd."
    assert suggestion("x", ["adamw", "sgd"], "") == ""
    assert suggestion("a" * 10_000_000, ["adamw"]) == "there are adamw."


@given(st.text())
def test_printable(text):
    shown = printable(text, keep="\n")
    assert shown.replace("\n", "").isprintable()
    if text.isprintable():
        assert shown == text
