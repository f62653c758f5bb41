"""A vocabulary is validated on construction and immutable."""

import copy
import doctest
import hashlib
import json
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.tokenizer import vocabulary as module
from tilth.tokenizer._core import MAX_VOCAB_SIZE
from tilth.tokenizer.patterns import PATTERNS
from tilth.tokenizer.vocabulary import Template, Vocabulary

TOKENS = {0: b"a", 1: b"b", 5: b"ab", 7: b"<|end|>"}
MERGES = ((b"a", b"b"),)


def small():
    return Vocabulary(TOKENS, MERGES, {"<|end|>": 7})


def test_docstring():
    assert doctest.testmod(module).failed == 0


def test_gaps_and_missing_bytes_are_valid():
    assert dict(small().tokens) == TOKENS
    assert small().merges == MERGES
    assert dict(small().special_tokens) == {"<|end|>": 7}
    assert len(Vocabulary({}).tokens) == 0


@pytest.mark.parametrize(
    ("parts", "culprit"),
    [
        ({"tokens": [b"a"]}, "tokens"),
        ({"tokens": {"0": b"a"}}, "'0'"),
        ({"tokens": {True: b"a"}}, "True"),
        ({"tokens": {0.0: b"a"}}, "0.0"),
        ({"tokens": {-1: b"a"}}, "-1"),
        ({"tokens": {2**24: b"a"}}, "16777216"),
        ({"tokens": {0: "a"}}, "token 0"),
        ({"tokens": {0: bytearray(b"a")}}, "token 0"),
        ({"tokens": {3: b""}}, "token 3"),
        ({"tokens": {3: b"a" * 65_536}}, "token 3 is 65,536 bytes"),
        ({"tokens": {0: b"a", 4: b"b", 9: b"a"}}, "tokens 0 and 9"),
        ({"merges": 5}, "merges"),
        ({"merges": ([b"a", b"b"],)}, r"\[b'a', b'b'\]"),
        ({"merges": ((b"a",),)}, "b'a'"),
        ({"merges": (b"ab",)}, "b'ab'"),
        ({"merges": (("a", "b"),)}, "'a'"),
        ({"merges": ((b"a", bytearray(b"b")),)}, "bytearray"),
        ({"merges": (7,)}, "7"),
        ({"merges": ((b"a", b"c"),)}, "needs b'c'"),
        ({"merges": ((b"b", b"a"),)}, "makes b'ba'"),
        ({"merges": (*MERGES, *MERGES)}, "b'a' and b'b'"),
        ({"special_tokens": ["<|end|>"]}, "special_tokens"),
        ({"special_tokens": {"": 7}}, "''"),
        ({"special_tokens": {b"ab": 5}}, "b'ab'"),
        ({"special_tokens": {"a": False}}, "False"),
        ({"special_tokens": {"<|end|>": 5}}, "'<|end|>'"),
        ({"special_tokens": {"<|end|>": 8}}, "8"),
        ({"special_tokens": {"<|end|>": [7]}}, r"\[7\]"),
        ({"special_tokens": {"\ud800": 0}}, "surrogate"),
        ({"pattern": ""}, "pattern"),
        ({"pattern": None}, "pattern"),
        ({"pattern": ()}, "pattern"),
        ({"pattern": ["gpt2"]}, "pattern"),
        ({"pattern": ("gpt2", "")}, "pattern"),
        ({"pattern": ("gpt2", 5)}, "pattern"),
        ({"pattern": ("a",) * 17}, "16 regexes at most"),
        ({"whole_piece_first": 1}, "whole_piece_first"),
        ({"add_prefix_space": 1}, "add_prefix_space"),
        ({"chat_template": b"x"}, "chat_template"),
        ({"template": ("<|end|>",)}, "template"),
        ({"template": Template(before=["a"])}, "a side of the template"),
        ({"template": Template(after=("<|end|>",) * 65)}, "64 special tokens at most"),
        ({"template": Template(before=("<|end|>",))}, "adds '<|end|>', which is not a special"),
        ({"template": Template(after=(7,))}, "adds 7"),
    ],
)
def test_invalid_parts_are_named_in_one_sentence(parts, culprit):
    with pytest.raises(ValueError, match=culprit) as caught:
        Vocabulary(**({"tokens": TOKENS, "merges": MERGES} | parts))
    message = str(caught.value)
    assert "; " in message, "a hint ends the sentence"
    assert "\n" not in message
    assert len(message) < 250


def test_largest_id_and_token():
    vocabulary = Vocabulary({2**24 - 1: b"a" * 65_535})
    assert max(vocabulary.tokens) == 2**24 - 1 == MAX_VOCAB_SIZE - 1


def test_special_tokens_are_appended_in_order():
    vocabulary = Vocabulary.from_parts(TOKENS, MERGES, ["<b>", "<|end|>", "<é>"])
    assert dict(vocabulary.special_tokens) == {"<b>": 8, "<|end|>": 7, "<é>": 9}
    assert vocabulary.tokens[9] == "<é>".encode()
    assert Vocabulary.from_parts({}, [], ["x"]).special_tokens["x"] == 0
    assert Vocabulary.from_parts(TOKENS, iter(MERGES)).merges == MERGES


def test_special_tokens_with_ids():
    vocabulary = Vocabulary.from_parts(TOKENS, MERGES, {"<b>": 100, "<|end|>": 7})
    assert dict(vocabulary.special_tokens) == {"<b>": 100, "<|end|>": 7}
    with pytest.raises(ValueError, match="'<b>' has the id 5"):
        Vocabulary.from_parts(TOKENS, MERGES, {"<b>": 5})


@pytest.mark.parametrize(
    ("special_tokens", "culprit"),
    [
        (["<b>", "<b>"], "twice"),
        (["<|end|>", "<|end|>"], "twice"),
        ("<|end|>", "string"),
        ([""], "''"),
        ([b"x"], "b'x'"),
        (["\udc80"], "surrogate"),
    ],
)
def test_invalid_special_tokens(special_tokens, culprit):
    with pytest.raises(ValueError, match=culprit):
        Vocabulary.from_parts(TOKENS, MERGES, special_tokens)


@pytest.mark.parametrize("tokens", [{"x": b"a"}, {0: "a"}, {0: [1]}, {None: b"a"}])
def test_invalid_tokens_with_special_tokens(tokens):
    with pytest.raises(ValueError, match="; "):
        Vocabulary.from_parts(tokens, [], ["<b>"])


def test_it_is_immutable():
    tokens, special_tokens = dict(TOKENS), {"<|end|>": 7}
    vocabulary = Vocabulary(tokens, MERGES, special_tokens)
    tokens[0] = b"z"
    special_tokens["a"] = 0
    assert vocabulary == small()
    with pytest.raises(TypeError):
        vocabulary.tokens[0] = b"z"
    with pytest.raises(TypeError):
        vocabulary.special_tokens["a"] = 0
    with pytest.raises(FrozenInstanceError):
        vocabulary.pattern = "cl100k"


def test_copies_are_equal():
    vocabulary = small()
    for twin in (
        pickle.loads(pickle.dumps(vocabulary)),
        copy.deepcopy(vocabulary),
        Vocabulary(dict(reversed(TOKENS.items())), [*MERGES], {"<|end|>": 7}),
    ):
        assert twin == vocabulary
        assert hash(twin) == hash(vocabulary)
        assert twin.fingerprint == vocabulary.fingerprint


def test_fingerprint_is_stable():
    """Manifests of token files store it: a new definition needs a new version of the manifest."""
    parts = [
        b"1 1 1 1:0157",  # ids
        b"1 1 2 7:abab<|end|>",  # tokens
        b"1 1:ab",  # merges
        b'[["<|end|>", 7]]',
        b'["gpt2", false]',
    ]
    form = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    expected = hashlib.sha256(b"tilth vocabulary 1" + form).hexdigest()
    assert small().fingerprint == expected


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": TOKENS | {8: b"c"}},
        {"tokens": {0: b"b", 1: b"a", 5: b"ab", 7: b"<|end|>"}},
        {"tokens": {0: b"a", 1: b"b", 6: b"ab", 7: b"<|end|>"}},
        {"merges": ()},
        {"special_tokens": {}},
        {"special_tokens": {"<|end|>": 7, "a": 0}},
        {"pattern": "cl100k"},
        {"pattern": r"\S+|\s+"},
        {"pattern": "llama3"},
        {"pattern": (r"\S+|\s+", "gpt2")},
        {"pattern": "starcoder"},
        {"whole_piece_first": True},
        {"add_prefix_space": True},
        {"template": Template(before=("<|end|>",))},
        {"template": Template(after=("<|end|>",))},
    ],
)
def test_every_change_changes_the_fingerprint(change):
    changed = replace(small(), **change)
    assert changed != small()
    assert changed.fingerprint != small().fingerprint
    twin = pickle.loads(pickle.dumps(changed))
    assert (twin, twin.fingerprint) == (changed, changed.fingerprint)


def test_the_chat_template_is_not_part_of_the_identity():
    changed = replace(small(), chat_template="x")
    assert changed == small()
    assert changed.fingerprint == small().fingerprint
    assert pickle.loads(pickle.dumps(changed)).chat_template == "x"


def test_a_pattern_has_one_form():
    """Files of versions without these names stored the regex: the fingerprint is that of it."""
    [regex] = PATTERNS["llama3"]
    assert replace(small(), pattern=regex).pattern == "llama3"
    assert replace(small(), pattern=(regex,)) == replace(small(), pattern="llama3")
    named = replace(small(), pattern="starcoder")
    assert replace(small(), pattern=(r"\p{N}", "gpt2")) == named
    assert replace(small(), pattern=("a", "llama3")).pattern == ("a", regex)
    assert pickle.loads(pickle.dumps(named)) == named
    parts = [b"1:0", b"1:a", b":", b"[]", json.dumps([regex, False]).encode()]
    form = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    expected = hashlib.sha256(b"tilth vocabulary 1" + form).hexdigest()
    assert Vocabulary({0: b"a"}, pattern="llama3").fingerprint == expected


def test_fingerprint_depends_on_the_order_of_merges():
    tokens = {0: b"a", 1: b"b", 2: b"ab", 3: b"ba"}
    merges = ((b"a", b"b"), (b"b", b"a"))
    assert Vocabulary(tokens, merges).fingerprint != Vocabulary(tokens, merges[::-1]).fingerprint


# Bytes that would be ambiguous if lengths were not part of the fingerprint.
FEW_BYTES = st.binary(min_size=1, max_size=3).map(
    lambda token: token.translate(b"01 ,:" * 51 + b"0")
)
SMALL = st.builds(
    lambda tokens, pattern: Vocabulary(tokens, (), {}, pattern),
    st.dictionaries(st.integers(0, 12), FEW_BYTES, max_size=4).filter(
        lambda tokens: len({*tokens.values()}) == len(tokens)
    ),
    st.sampled_from(["gpt2", "cl100k", "llama3", ("a", "b"), '["a", "b"]']),
)


@given(SMALL, SMALL)
def test_fingerprints_are_equal_if_and_only_if_the_content_is(one, other):
    assert (one == other) == (one.fingerprint == other.fingerprint)


def test_repr():
    assert repr(small()) == "<Vocabulary of 4 tokens, 1 merges, 1 special token, pattern gpt2>"
