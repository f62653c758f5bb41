"""Added tokens with lstrip, rstrip, single_word and normalized: compare with `tokenizers`."""

import itertools
import json
import pickle
import re
import time
from dataclasses import replace

import pytest
import unicodedata2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenizer.peers import FLAGS, assert_same, code_points, load_both, tokenizer_json
from tilth.tokenizer import Tokenizer, TokenOptions, Vocabulary, train_tokenizer
from tilth.tokenizer.formats import load_tokenizer_json, save_tokenizer_json

SPACES = " \n\t\r\u00a0\u2028\u3000\x0b\x85\u1680"
CONTENTS = [
    "<a>",
    "<ab>",
    "<a><b>",
    "ab",
    "abab",
    " ab",
    "b ",
    "\n",
    "  ",
    "<a b>",
    "a\n",
    "ﬁ",
    "_",
]
WORDS = [*CONTENTS, *SPACES, *"abé牛1½²_-\u0301\u200dⒶ", "<", ">", "fi", "   ", " \n "]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=14).map("".join)
ADDED = st.lists(
    st.tuples(st.sampled_from(CONTENTS), st.sets(st.sampled_from(FLAGS))),
    unique_by=lambda pair: pair[0],
    min_size=1,
    max_size=6,
)
NORMALIZERS = st.sampled_from([(), (), ("NFC",), ("NFKC",), ("NFKD",)])


def assert_same_unless_refused(tokenizer, peer, text):
    """Skip texts that `tokenizers` panics on: see special_tokens.hpp."""
    try:
        peer.encode(text)
    except BaseException as error:
        assert type(error).__name__ == "PanicException"  # noqa: PT017
        assert tokenizer.decode(tokenizer.encode(text)) is not None
        return
    assert_same(tokenizer, peer, text)


COMBINATIONS = [
    flags for count in range(len(FLAGS) + 1) for flags in itertools.combinations(FLAGS, count)
]


@pytest.mark.parametrize("flags", COMBINATIONS, ids="+".join)
def test_each_combination_of_flags(flags):
    tokenizer, peer = load_both(tokenizer_json(("NFKC",), [("<ﬁ>", flags), ("<b>", ())]))
    for left, right in itertools.product(
        ["", "x", " ", "x \n\t", "\u0301", "牛\u3000", "-"], repeat=2
    ):
        for middle in ("<ﬁ>", "<fi>", "<ﬁ> <fi>", "<b> <ﬁ>  <b>", "<ﬁ><fi><ﬁ>"):
            assert_same(tokenizer, peer, left + middle + right)


@settings(max_examples=300, deadline=None)
@given(ADDED, NORMALIZERS, st.lists(TEXTS, min_size=4, max_size=4))
def test_any_added_tokens(added, normalizers, texts):
    """Tokens that overlap, compete for white space, and differ in all flags."""
    tokenizer, peer = load_both(tokenizer_json(normalizers, added))
    for text in texts:
        assert_same_unless_refused(tokenizer, peer, text)


@settings(max_examples=60, deadline=None)
@given(ADDED, NORMALIZERS, st.lists(TEXTS, min_size=4, max_size=4))
def test_custom_patterns(added, normalizers, texts):
    """A pattern that the `regex` package splits by."""
    pattern = r"\p{L}+|\s+|[^\s\p{L}]"
    native, peer = load_both(tokenizer_json(normalizers, added, pattern))
    # The same pieces, by a lookbehind.
    tokenizer = Tokenizer.from_vocabulary(
        replace(native.vocabulary, pattern=rf"(?<!~)\p{{L}}+|{pattern}")
    )
    assert tokenizer._splitter
    for text in texts:
        assert_same_unless_refused(tokenizer, peer, text)


def test_white_space_and_word_characters():
    """Two planes, and the ends of all ranges of one general category; the differences are newer."""
    added = [("<s>", {"rstrip"}), ("<w>", {"single_word"})]
    tokenizer, peer = load_both(tokenizer_json(added=added))
    characters = [chr(c) for c in range(0x20000) if not 0xD800 <= c < 0xE000]
    for first, second in itertools.pairwise(map(chr, range(0x20000, 0x110000))):
        if unicodedata2.category(first) != unicodedata2.category(second):
            characters += [first, second]
    differing = set()
    for start in range(0, len(characters), 64):
        texts = [f"<s>{character}<w>" for character in characters[start : start + 64]]
        if tokenizer.encode("".join(texts)) != peer.encode("".join(texts)).ids:
            differing |= {
                each[3] for each in texts if tokenizer.encode(each) != peer.encode(each).ids
            }
    assert differing == {*characters} & {*code_points(NEWER_WORD_CHARACTERS)}


# Letters, marks and digits of Unicode 17 and 18; `tokenizers` has version 16 here.
NEWER_WORD_CHARACTERS = (
    "0558 058B-058C 05C8-05C9 088F 0B53-0B54 0C5C 0CDC 1ACF-1AF0 208F 209D-209F A7CE-A7CF A7D2 "
    "A7D4 A7DD A7E2 A7F1 AB6C-AB6D 107BB-107BF 10940-10959 10EC5-10EC7 10ECB-10ECF 10ED9-10EEE "
    "10EF0-10EFB 11B0A 11B60-11B67 11DB0-11DDB 11DE0-11DE9 11DF0-11DF1 1246F 12475-1247F "
    "12550-12686 16EA0-16EB8 16EBB-16ED3 16FF2-16FF6 187F8-187FF 18CD6-18CDA 18D09-18D20 "
    "18D80-18DF2 18E00-19191 191A0-191D2 1B123-1B128 1B168 1D127-1D128 1D250-1D252 1D25B-1D25C "
    "1D25F 1D280-1D281 1D6A6 1DF1F-1DF24 1DF2B-1DF81 1DF90-1DF96 1DFCD-1DFFF 1E6C0-1E6DE "
    "1E6E0-1E6F5 1E6FE-1E6FF 2B73A-2B73F 2B81E 2CEA2-2CEAD 323B0-33479 3D000-3FC3F "
)


@pytest.mark.parametrize(
    ("added", "text", "expected"),
    [
        # The first token takes the white space between two tokens.
        ([("<r>", {"rstrip"}), ("<l>", {"lstrip"})], "<r>  <l>", [(0, 5), (5, 8)]),
        # A token in the white space of another one is found; the rest is text again.
        ([("<r>", {"rstrip"}), ("\n", ())], "<r> \n x", [(0, 6), (4, 5), (5, 7)]),
        # An occurrence next to a word character is passed over, and the search goes on after it.
        ([("ab", {"single_word"}), ("ba", ())], "abab", [(0, 1), (1, 2), (2, 3), (3, 4)]),
    ],
)
def test_examples(added, text, expected):
    tokenizer, peer = load_both(tokenizer_json(added=added))
    assert tokenizer.encode_with_offsets(text)[1] == expected
    assert_same(tokenizer, peer, text)


def test_stripping_in_the_white_space_of_another_token():
    """`tokenizers` panics: a token with lstrip ends in white space that another one has taken."""
    tokenizer, _ = load_both(tokenizer_json(added=[("<r>", {"rstrip"}), ("\n", {"lstrip"})]))
    ids, offsets = tokenizer.encode_with_offsets("<r> \n x")
    assert ids == [*tokenizer.encode("<r>"), *tokenizer.encode_ordinary("x")]
    assert offsets == [(0, 6), (6, 7)]


def test_ordinary_text_has_no_added_tokens():
    tokenizer, peer = load_both(tokenizer_json(("NFC",), [("<a>", {"normalized"}), ("<b>", ())]))
    text = "<a> e\u0301 <b>"
    assert tokenizer.encode_ordinary(text) == [
        token_id
        for part in ("<", "a", ">", " é", " <", "b", ">")
        for token_id in peer.encode(part).ids
    ]


def test_long_texts_are_cut_at_safe_places():
    """Threads share a text, and a stream does not hold it, unless tokens may span the cuts."""
    unit, count = "word <r>  next <l> é end, " * 3 + "x <r> " * 20, 4000
    text = unit * count
    for added in (
        [("<r>", {"rstrip"}), ("<l>", {"lstrip", "normalized"})],
        [("<r>", {"rstrip", "normalized"}), ("<l>", {"single_word"})],
        [("<r>", ()), (" <l>", {"single_word"}), ("  ", {"normalized"})],
        [("d <r>", ())],
    ):
        tokenizer, peer = load_both(tokenizer_json(("NFD",), added))
        # `tokenizers` takes quadratic time. No piece or token spans two units.
        two, three = peer.encode(unit * 2).ids, peer.encode(unit * 3).ids
        period = len(three) - len(two)
        middle = three[period : 2 * period]
        expected = three[:period] + middle * (count - 2) + three[2 * period :]
        assert tokenizer.encode_array(text, threads=2).tolist() == expected
        assert tokenizer.count(text) == len(expected)
        chunks = (text[start : start + 7001] for start in range(0, len(text), 7001))
        assert list(tokenizer.encode_iterable(chunks)) == expected


def test_overlapping_tokens_load_in_little_time(tmp_path):
    """Six megabytes of added tokens, the normalized ones prefixes of each other."""
    train_tokenizer(texts=["a"], vocab_size=256).save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False) | {"special": True}
    content["added_tokens"] = [
        {"id": 254 + n, "content": "b" * (n % 2) + "a" * n, "normalized": n % 2 == 0, **flags}
        for n in range(2, 3400)
    ]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    start = time.process_time()
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    assert tokenizer.encode("a" * 3400) == [254 + 3398, 254 + 2]
    assert time.process_time() - start < 2  # 0.2 s; comparing all pairs of tokens, 4 s


def test_hostile_white_space_takes_linear_time():
    flags = {"lstrip", "rstrip"}
    tokenizer, _ = load_both(tokenizer_json(added=[("\n", flags), ("<a>", flags)]))
    start = time.process_time()
    for text in ("\n" * 10**6, " " * 10**6 + "<a>", "<a>" + "\n " * 10**6, "<a> " * 10**6):
        tokenizer.encode_with_offsets(text)
        tokenizer.encode(text)
    assert time.process_time() - start < 20  # quadratic, it took hours


# --- files and values ----------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("special",), ("normalized",), FLAGS], ids="+".join)
def test_flags_are_kept(tmp_path, flags):
    text = tokenizer_json(("NFD", "NFC"), [("<a>", flags), ("<b>", {"special"})])
    tokenizer, _ = load_both(text)
    options = TokenOptions(**{flag: flag in flags for flag in FLAGS})
    assert tokenizer.vocabulary.token_options.get("<a>", TokenOptions()) == options
    assert "<b>" not in tokenizer.vocabulary.token_options
    save_tokenizer_json(tokenizer.vocabulary, tmp_path / "tokenizer.json")
    written = json.loads((tmp_path / "tokenizer.json").read_text())
    for name in ("added_tokens", "normalizer"):
        assert written[name] == json.loads(text)[name]
    assert load_tokenizer_json(tmp_path / "tokenizer.json") == tokenizer.vocabulary
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy == tokenizer
    assert copy.encode("e\u0301 <a> ") == tokenizer.encode("e\u0301 <a> ")


def vocabulary_of(options, special_tokens=("<a>", "<b>"), normalizers=()):
    made = Vocabulary.from_parts({0: b"x"}, [], special_tokens)
    return replace(made, token_options=options, normalizers=normalizers)


def test_fingerprints():
    """Options without an effect on ids do not change it; others do."""
    plain = vocabulary_of({}).fingerprint
    assert vocabulary_of({"<a>": TokenOptions()}) == vocabulary_of({})
    assert vocabulary_of({"<a>": TokenOptions(special=False)}).fingerprint == plain
    # Without a normalizer, unless tokens overlap. GPT-2's own file has this flag.
    assert vocabulary_of({"<a>": TokenOptions(normalized=True)}).fingerprint == plain
    overlapping = ("<a><b>", "<a>")
    changed = [
        plain,
        *(vocabulary_of({"<a>": TokenOptions(**{flag: True})}).fingerprint for flag in FLAGS[1:4]),
        *(vocabulary_of({}, normalizers=forms).fingerprint for forms in (["NFC"], ["NFC", "NFD"])),
        vocabulary_of({"<a>": TokenOptions(normalized=True)}, normalizers=("NFC",)).fingerprint,
        vocabulary_of({}, overlapping).fingerprint,
        vocabulary_of({"<a><b>": TokenOptions(normalized=True)}, overlapping).fingerprint,
    ]
    assert len({*changed}) == len(changed)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.booleans(), min_size=1, max_size=5),
    st.lists(st.text("abc", max_size=12), min_size=5, max_size=5),
)
def test_options_without_an_effect_are_ignored(flagged, texts):
    """If the searches for normalized and other tokens are joined, the ids stay the same."""
    alphabet = {place: bytes([byte]) for place, byte in enumerate(b"abc")}
    options = {token: TokenOptions(normalized=True) for token, flag in flagged.items() if flag}
    vocabulary = replace(Vocabulary.from_parts(alphabet, [], [*flagged]), token_options=options)
    searches = [[each for each in flagged if each not in options], [*options]]
    for text in texts:
        expected = [text] if text else []
        for tokens in searches:  # the definition, by Python's re
            expected = list(split_unless_token(expected, tokens))
        ids = Tokenizer.from_vocabulary(vocabulary).encode(text)
        assert [vocabulary.tokens[each].decode() for each in ids] == [
            part
            for each in expected
            for part in ([each] if isinstance(each, Found) else list(each))
        ]


class Found(str):
    """An added token that was found."""

    __slots__ = ()


def split_unless_token(parts, tokens):
    pattern = "|".join(sorted(map(re.escape, tokens), key=len, reverse=True)) or "(?!)"
    for part in parts:
        if isinstance(part, Found):
            yield part
            continue
        for place, each in enumerate(re.split(f"({pattern})", part)):
            if each:
                yield Found(each) if place % 2 else each


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"<c>": TokenOptions()}, "the options of '<c>'"),
        ({"<a>": {"lstrip": True}}, "give TokenOptions"),
        ([], "token_options is"),
    ],
)
def test_invalid_options(options, message):
    with pytest.raises(ValueError, match=message):
        vocabulary_of(options)
    with pytest.raises(ValueError, match="lstrip is 1"):
        TokenOptions(lstrip=1)


def test_tokens_that_are_the_same_after_normalization():
    both = {"ﬁ": TokenOptions(normalized=True), "fi": TokenOptions(normalized=True)}
    with pytest.raises(ValueError, match="'ﬁ' and 'fi' are the same after normalization"):
        vocabulary_of(both, [*both], ("NFKC",))
    vocabulary_of(both, [*both], ("NFC",))
    vocabulary_of({"ﬁ": both["ﬁ"]}, [*both], ("NFKC",))


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (
            vocabulary_of({"<a>": TokenOptions(lstrip=True)}),
            "would lose the option lstrip of '<a>'",
        ),
        (vocabulary_of({}, normalizers=("NFC",)), "would lose the normalizer NFC"),
    ],
)
def test_formats_that_cannot_express_them(tmp_path, vocabulary, message):
    tokenizer = Tokenizer.from_vocabulary(vocabulary)
    with pytest.raises(ValueError, match=message):
        tokenizer.save_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(ValueError, match=message):
        tokenizer.save_tiktoken(tmp_path / "ranks.tiktoken")
    assert not any(tmp_path.iterdir())
    # `special` and a `normalized` without an effect are not stored anywhere but in tokenizer.json.
    plain = vocabulary_of({"<a>": TokenOptions(special=False, normalized=True)})
    Tokenizer.from_vocabulary(plain).save_tiktoken(tmp_path / "ranks.tiktoken")


def test_added_tokens_with_the_bytes_of_another_token(tmp_path):
    """GPT-NeoX has tokens of blanks twice: made by merges, and added."""
    tokenizer, peer = load_both(tokenizer_json(("NFC",), [("   ", {"normalized"}), ("\n", ())]))
    assert_same(tokenizer, peer, "a   b\n    c \n")
    assert tokenizer.encode_ordinary("\n") != tokenizer.encode("\n")
    assert tokenizer.id("\n") == tokenizer.special_tokens["\n"]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json") == tokenizer
    plain = Tokenizer({0: b"\n", 1: b"a", 2: b"\n"}, [], {"\n": 2})
    assert plain.encode("a\n") == [1, 2]
    assert plain.encode_ordinary("a\n") == [1, 0]
    with pytest.raises(ValueError, match="cannot represent the special token"):
        plain.save_files(tmp_path / "vocab.json", tmp_path / "merges.txt")
    with pytest.raises(ValueError, match="tokens 0 and 2 are both"):
        Tokenizer({0: b"\n", 1: b"a", 2: b"\n"}, [])
