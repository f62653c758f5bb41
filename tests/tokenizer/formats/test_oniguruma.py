"""Patterns that Oniguruma and the `regex` package read alike."""

from dataclasses import replace

import pytest
import tokenizers
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.tokenizer.formats.vocabularies import TEXTS, TINY, examples, pieces, refusal
from tilth.tokenizer import reference
from tilth.tokenizer.formats import (
    oniguruma,
    save_tokenizer_json,
)
from tilth.tokenizer.splitting import CustomSplitter


@pytest.mark.parametrize(
    "pattern",
    [
        r"\s+$",
        r"^a",
        r"\p{N}{1,3}+",
        r"a{2}?",
        r"a{,2}",
        r"\h+",
        r"\w+",
        r"\bx",
        r"(?V1)a",
        r"(?:cat){e<=1}",
        r"(?i)a",
        r"(?i:strasse)",
        r"(?i:k)",
        r"[a&&b]",
        r"[a--b]",
        r"[[:alpha:]]",
        r"[[ab]c]",
        r"(a)\1",
        r"(?P<x>a)",
        r"(?<=a)b",
        r"(?#x)a",
        r"(?=a)+b",
        r"(?:a*)+b",
        r"a++*",
        r"a*",
        r"a|",
        r"(?=a)",
        r"(?:a|b?)",
        r"(a",
        r"a)",
        "(" * 100 + "a" + ")" * 100,
        r"[a",
        r"\p{Alphabetic}",
        r"\x41",
        r"\z",
        "\\",
        "a\ud800",
        reference.GPT2_PATTERN,  # it has a name
    ],
)
def test_patterns_that_engines_may_read_differently_are_refused(tmp_path, pattern):
    assert "pattern" in refusal(
        save_tokenizer_json, replace(TINY, pattern=pattern), tmp_path / "tokenizer.json"
    )
    assert not any(tmp_path.iterdir())


PARTS = [*"ab '1é\n-#,&~:!.", r"\s", r"\S", r"\d", r"\D", r"\r", r"\t", r"\p{L}", r"\P{L}"]
PARTS += [r"\p{Lu}", r"\p{M}", r"\p{Han}", r"\.", r"\$", "[ab]", "[^ab]", "[a-c1]", r"[^\s\p{L}]"]
PARTS += [r"[^\S]", "[&a]", "[a|]", "[~^]", "[!-~]", r"[^\P{L}a]", r"[\-a]", r"[a\]]"]
PARTS += ["(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?i:[sdmt]|ll|ve|re)"]
MARKS = ["(", "(?:", "(?>", "(?=", "(?!", ")", ")", ")", "|", "?", "*", "+", "??", "*?", "+?", "?+"]
MARKS += ["*+", "++", "{1,3}", "{2}", "{1,}", "{0,2}", "{1,3}+", "{2}?", "$"]
PATTERNS = st.lists(
    st.one_of(st.sampled_from(PARTS), st.sampled_from(MARKS)), min_size=1, max_size=10
).map(lambda parts: (made := "".join(parts)) + ")" * max(0, made.count("(") - made.count(")")))


@examples(150)
@given(pattern=PATTERNS, texts=st.lists(TEXTS, min_size=4, max_size=4))
def test_accepted_patterns_split_alike(pattern, texts):
    """Also with `$`, which is rewritten."""
    portable = oniguruma.portable(pattern)
    try:
        oniguruma.check_read_alike(portable)
    except ValueError:
        assume(False)
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    for text in filter(None, texts):
        assert [piece for piece, _ in split.pre_tokenize_str(text)] == [*pieces(text, portable)]


@pytest.mark.parametrize(
    "pattern",
    [
        "(?:(?:a){999}){999}",
        "(?:" * 40 + "a" + ")+" * 40,
        "(?:" * 16 + "a" + "){3}" * 16,
        "a" * 200_000,
    ],
)
def test_patterns_that_take_gigabytes_to_compile_are_refused(pattern):
    with pytest.raises(ValueError, match="too many parts or repetitions"):
        oniguruma.check_read_alike(pattern)


def test_a_pattern_nested_too_deeply_for_its_compiler():
    with pytest.raises(ValueError, match="is too large; write it shorter"):
        CustomSplitter("(" * 3000 + "a" + ")" * 3000, {})
