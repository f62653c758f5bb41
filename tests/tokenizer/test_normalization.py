"""Normalization: compare with `unicodedata2`, `unicodedata` and `tokenizers`."""

import random
import time
import unicodedata
from itertools import pairwise, product

import pytest
import unicodedata2
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from tests.tokenizer.peers import assert_same, code_points, load_both, tokenizer_json
from tilth.tokenizer import Tokenizer, Vocabulary, _core

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
PEERS = {form: getattr(normalizers, form)() for form in FORMS}
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHANGING = [c for c in CHARACTERS if unicodedata2.normalize("NFKD", c) != c]
MARKS = [c for c in CHARACTERS if unicodedata2.combining(c)]
JAMO = [chr(c) for c in [0x1100, 0x1112, 0x1113, 0x1161, 0x1175, 0x11A7, 0x11A8, 0x11C2, 0xAC00]]
# Stable since Unicode 9, the version of `tokenizers`.
OLD = [*"aeoq AÅéǖﬁ²ﷺ½か\u3099\u0301\u0323\u0328\u0345\u0f73\u0344\u09be\u0cd5\u1e69"]
OLD += [*JAMO, *" \n<>-1", "\u1fbf", "\u212b", "\uff76\uff9e", "가각", "\u0958", "\u2126", "㎞"]
TEXTS = st.lists(st.sampled_from(OLD), max_size=12).map("".join)


def separately(characters, normalize, form):
    """Normalize each character: nothing combines with a line end."""
    lines = normalize("\n\n".join(c for c in characters if c != "\n"), form)
    return lines.split("\n\n")


def test_versions():
    assert _core.unicode_version == unicodedata2.unidata_version == "18.0.0"


@pytest.mark.parametrize("form", FORMS)
def test_every_code_point(form):
    assert separately(CHARACTERS, _core.normalize, form) == separately(
        CHARACTERS, lambda text, form: unicodedata2.normalize(form, text), form
    )
    text = "".join(CHARACTERS)
    assert _core.normalize(text, form) == unicodedata2.normalize(form, text)


@pytest.mark.parametrize("form", FORMS)
def test_random_sequences(form):
    """As in NormalizationTest.txt: base characters and marks that combine or are reordered."""
    choose = random.Random(form)
    pools = [MARKS, CHANGING, CHARACTERS, JAMO, [*"aeiou \u0338"]]
    decomposed = [*{c for each in CHANGING for c in unicodedata2.normalize("NFD", each)}]
    pools.append(decomposed)
    for _ in range(20_000):
        text = "".join(choose.choice(choose.choice(pools)) for _ in range(choose.randint(1, 8)))
        text = " " * choose.choice([0, 0, 31, 40]) + text
        expected = unicodedata2.normalize(form, text)
        assert _core.normalize(text, form) == expected
        assert _core.normalize(expected, form) == expected


@pytest.mark.parametrize("form", FORMS)
def test_python_agrees_on_its_own_version(form):
    """`unicodedata` is as old as the interpreter: compare the code points that it knows."""
    known = [c for c in CHARACTERS if unicodedata.category(c) != "Cn"]
    assert separately(known, _core.normalize, form) == separately(
        known, lambda text, form: unicodedata.normalize(form, text), form
    )


# Code points that `tokenizers` (Unicode 9) leaves as they are, and those whose combining class it
# does not know. All are newer than its version.
_CANONICAL = "105C9 105E4 11383 11385 1138E 11391 113C5 113C7-113C8 11938 16121-16128 16D68-16D6A "
_COMPATIBILITY = (
    "0558 058B-058C 209D-209F 32FF A7F1-A7F4 AB69 10781-10785 10787-107B0 107B2-107BF "
    "1B123-1B126 1CCD6-1CCF9 1D6A6 1DF95 1DFCD-1DFFF 1E030-1E06D 1F16C 1FBF0-1FBF9 "
)
NEWER = {
    "NFC": "",
    "NFD": _CANONICAL,
    "NFKC": _COMPATIBILITY,
    "NFKD": _CANONICAL + _COMPATIBILITY,
    "marks": (
        "05C8-05C9 07FD 0897-089F 08CA-08D3 09FE 0C3C 0D3B-0D3C 0EBA 1715 1ABF-1AF0 1DF6-1DFA A82C "
        "10D24-10D27 10D69-10D6D 10EAB-10EAC 10ECB-10ECF 10EF0-10EFB 10EFD-10EFF 10F46-10F50 "
        "10F82-10F85 11070 1133B 113CE-113D0 1145E 11839-1183A 1193D-1193E 11943 119E0 11A34 11A47 "
        "11A99 11D42 11D44-11D45 11D97 11F41-11F42 1612F 16FF0-16FF1 1D127-1D128 1D250-1D252 "
        "1D25B-1D25C 1D25F 1D280-1D281 1E08F 1E130-1E136 1E2AE 1E2EC-1E2EF 1E4EC-1E4EF 1E5EE-1E5EF "
        "1E6E3 1E6E6 1E6EE-1E6EF 1E6F5 "
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_tokenizers_differs_on_newer_code_points_only(form):
    found = zip(
        [c for c in CHARACTERS if c != "\n"],
        separately(CHARACTERS, _core.normalize, form),
        separately(CHARACTERS, lambda text, form: PEERS[form].normalize_str(text), form),
        strict=True,
    )
    differing = {character for character, ours, theirs in found if ours != theirs}
    assert differing == set(code_points(NEWER[form]))


def test_tokenizers_does_not_know_newer_marks():
    """A mark of a class that `tokenizers` does not know is not reordered there."""
    differing = {
        mark
        for mark in MARKS
        if any(
            _core.normalize(text, "NFD") != PEERS["NFD"].normalize_str(text)
            for text in (f"q\u0345{mark}", f"q{mark}\u0334")
        )
    }
    assert differing == set(code_points(NEWER["marks"]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(FORMS), max_size=3), st.lists(TEXTS, min_size=3, max_size=3))
def test_tokenizers_gives_the_same_ids_and_offsets(forms, texts):
    tokenizer, peer = load_both(
        tokenizer_json(forms, [("<a>", {"normalized"}), ("<Å>", {"normalized"})])
    )
    for text in texts:
        assert_same(tokenizer, peer, text)


@pytest.mark.parametrize("forms", [*product(FORMS), *product(FORMS, repeat=2)], ids="+".join)
def test_sequences(forms):
    """Every sequence of two forms, on every pair of old characters."""
    tokenizer, peer = load_both(tokenizer_json(forms))
    for pair in product(OLD, repeat=2):
        text = "x" + "".join(pair) + "y"
        expected = peer.encode(text)
        assert tokenizer.encode_with_offsets(text) == (expected.ids, expected.offsets)
        assert tokenizer.encode(text) == expected.ids


def test_streams_are_cut_anywhere():
    tokenizer, peer = load_both(tokenizer_json(("NFC",), [("<e\u0301>", {"normalized"})]))
    text = "cafe\u0301 \u1112\u1161\u11ab e\u0323\u0301x <e\u0301> q\u0301\u0323 end"
    ids = tokenizer.encode(text)
    assert ids == peer.encode(text).ids
    encoded = text.encode()
    for first in range(len(encoded) + 1):
        for last in range(first, len(encoded) + 1):
            chunks = [encoded[:first], encoded[first:last], encoded[last:]]
            assert list(tokenizer.encode_iterable(chunks)) == ids


def test_long_streams_and_documents():
    tokenizer, peer = load_both(tokenizer_json(("NFKC",), [("<end>", {"special"})]))
    text = "e\u0301te\u0301 ﬁn \u1112\u1161\u11ab\uae00 x² " * 12_000
    ids = peer.encode(text).ids
    assert tokenizer.encode_array(text, threads=2).tolist() == ids
    chunks = (text[start : start + 997] for start in range(0, len(text), 997))
    assert list(tokenizer.encode_iterable(chunks)) == ids
    end = tokenizer.special_tokens["<end>"]
    found, ends = tokenizer.encode_documents([text, "e\u0301"], "<end>", threads=2)
    assert found.tolist() == [*ids, end, *peer.encode("é").ids, end]
    assert ends.tolist() == [len(ids) + 1, len(found)]


def test_text_may_be_cut_before_blanks():
    """The lemma at Encoder::may_cut, for all code points."""

    def is_space(character):
        return unicodedata2.category(character)[0] == "Z" or character in "\t\n\v\f\r\x85"

    for character in CHARACTERS:
        if not is_space(character):
            for form in FORMS:
                normalized = unicodedata2.normalize(form, character + " ")
                assert normalized == unicodedata2.normalize(form, character) + " "
                assert not is_space(normalized[-2])
    for first, second in pairwise(CHANGING):
        for form in FORMS:
            parts = [unicodedata2.normalize(form, part) for part in (first, " " + second)]
            assert unicodedata2.normalize(form, f"{first} {second}") == "".join(parts)


@pytest.mark.parametrize("allow_special", [False, True])
def test_offset_of_a_missing_byte(allow_special):
    """It refers to the text before normalization."""
    tokens = {0: b"a", 1: b" ", 2: b"\xc3", 3: b"\xa9", 4: b"<s>"}
    vocabulary = Vocabulary(tokens, (), {"<s>": 4}, normalizers=("NFC",))
    tokenizer = Tokenizer.from_vocabulary(vocabulary)
    text = "a e\u0301e\u0301 " * 60_000 + "<s>aa e\u0301e\u0300 a"
    if not allow_special:
        text = text.replace("<s>", "")
    place = text.encode().rindex(b"e")
    calls = [
        lambda: tokenizer.encode_array(text, allow_special=allow_special),
        lambda: tokenizer.encode_array(text, allow_special=allow_special, threads=2),
        lambda: tokenizer.encode_with_offsets(text, allow_special=allow_special),
        lambda: tokenizer.count(text, allow_special=allow_special),
        lambda: list(tokenizer.encode_iterable([text[:9], text[9:]], allow_special=allow_special)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"byte 0xA8 at offset {place} "):
            call()


@pytest.mark.parametrize("form", FORMS)
def test_hostile_text_takes_linear_time(form):
    tokenizer, _ = load_both(tokenizer_json((form,)))
    start = time.process_time()
    for text in ("e" + "\u0301\u0323\u0328" * 100_000, "\ufdfa" * 30_000, "\u1100\u1161" * 200_000):
        assert _core.normalize(text, form) == unicodedata2.normalize(form, text)
        tokenizer.encode_with_offsets(text[:50_000])
    assert time.process_time() - start < 30  # quadratic, it took hours


def test_lone_surrogates_and_malformed_bytes():
    tokenizer, _ = load_both(tokenizer_json(("NFC",)))
    assert tokenizer.decode(tokenizer.encode("e\u0301\ud800\u0301")) == "é\ufffd\u0301"
    assert tokenizer.decode(tokenizer.encode(b"e\xff\xcc\x81")) == "e\ufffd\u0301"


@pytest.mark.parametrize("given", ["NFC", ("nfc",), ("NFC",) * 17, 5, (["NFC"],)])
def test_invalid_normalizers(given):
    with pytest.raises(ValueError, match="the normalizers are"):
        Vocabulary({0: b"a"}, normalizers=given)
