"""The two files of GPT-2."""

from dataclasses import replace

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.tokenizer.formats.vocabularies import (
    BYTE_LEVEL,
    CORPUS,
    GPT2,
    SPREAD,
    TINY,
    encode,
    examples,
    refusal,
)
from tilth.tokenizer.formats import (
    gpt2,
    load,
    load_gpt2,
    save_gpt2,
)
from tilth.tokenizer.vocabulary import Vocabulary


def test_spelling_of_every_byte():
    assert {gpt2.spell(bytes([byte])) for byte in range(256)} == set(
        pre_tokenizers.ByteLevel.alphabet()
    )
    everything = bytes(range(256))
    assert gpt2.unspell(gpt2.spell(everything)) == everything
    for text in ("é", " a\n", "牛", "\x00\x7f\xa0\xad"):
        spelled = "".join(
            piece
            for piece, _ in pre_tokenizers.ByteLevel(
                add_prefix_space=False, use_regex=False
            ).pre_tokenize_str(text)
        )
        assert gpt2.spell(text.encode()) == spelled


@examples(100)
@given(st.text())
def test_invalid_spellings_are_refused(text):
    if gpt2.is_spelling(text):
        assert gpt2.spell(gpt2.unspell(text)) == text
    else:
        with pytest.raises(ValueError, match="spells no byte"):
            gpt2.unspell(text)


@pytest.mark.parametrize("vocabulary", [GPT2, SPREAD, TINY], ids=["gpt2", "spread", "tiny"])
def test_gpt2_round_trip(tmp_path, vocabulary):
    save_gpt2(vocabulary, tmp_path / "vocab.json", tmp_path / "merges.txt")
    special_tokens = [*vocabulary.special_tokens]
    assert load_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt", special_tokens) == vocabulary
    assert load(tmp_path, special_tokens=special_tokens) == vocabulary
    # Compare with `tokenizers`, without special tokens.
    model = tokenizers.models.BPE.from_file(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    )
    peer = tokenizers.Tokenizer(model)
    peer.pre_tokenizer = BYTE_LEVEL
    for text in CORPUS if vocabulary is not TINY else ["ab", "abba"]:
        assert peer.encode(text).ids == encode(vocabulary, text)


def test_only_the_first_line_may_be_a_header(tmp_path):
    vocabulary = Vocabulary.from_parts(
        {0: b"#", 1: b"##", 2: b"version", 3: b"#version"},
        [(b"#", b"#"), (b"#", b"version")],
    )
    vocab_path, merges_path = tmp_path / "vocab.json", tmp_path / "merges.txt"
    save_gpt2(vocabulary, vocab_path, merges_path)
    assert merges_path.read_text() == "#version: 0.2\n# #\n# version\n"
    for text in ("# #\n# version\n", "# #\n# version", "#version: 0.2\r\n# #\r\n\r\n# version\r\n"):
        merges_path.write_bytes(text.encode())
        assert load_gpt2(vocab_path, merges_path) == vocabulary
    merges_path.write_text("# #\n#version: 0.2\n")
    assert "needs b'#version:'" in refusal(load_gpt2, vocab_path, merges_path)


def test_unspelled_special_tokens_in_vocab_json(tmp_path):
    """As Hugging Face writes them."""
    (tmp_path / "vocab.json").write_text('{"a": 0, "<a b>": 1, "<\uff5ce>": 2}')
    (tmp_path / "merges.txt").write_text("")
    special_tokens = ["<a b>", "<\uff5ce>"]
    vocabulary = load(tmp_path, special_tokens=special_tokens)
    assert dict(vocabulary.special_tokens) == {"<a b>": 1, "<\uff5ce>": 2}
    assert "name the token as a special token" in refusal(load, tmp_path)
    # A valid spelling is read as bytes: this is the byte E9.
    (tmp_path / "vocab.json").write_text('{"é": 0}')
    assert dict(load(tmp_path, special_tokens=["é"]).tokens) == {0: b"\xe9", 1: "é".encode()}


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"pattern": "cl100k"}, "the pattern 'cl100k'"),
        ({"add_prefix_space": True}, "add_prefix_space"),
        ({"whole_piece_first": True, "merges": ()}, "whole_piece_first, by which b'ab' is a token"),
    ],
)
def test_what_gpt2_cannot_represent(tmp_path, change, culprit):
    with pytest.raises(ValueError, match=rf"cannot represent {culprit}; write a tokenizer\.json"):
        save_gpt2(replace(TINY, **change), tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert not any(tmp_path.iterdir())


def test_whole_piece_first_without_effect_is_left_out(tmp_path, caplog):
    vocab_path, merges_path = tmp_path / "vocab.json", tmp_path / "merges.txt"
    save_gpt2(replace(GPT2, whole_piece_first=True), vocab_path, merges_path)
    assert load_gpt2(vocab_path, merges_path, [*GPT2.special_tokens]) == GPT2
    assert "vocab.json does not store the 5 special tokens" in caplog.text


def test_the_empty_token_of_whisper_is_left_out(tmp_path):
    (tmp_path / "vocab.json").write_text('{"a": 0, "": 1}')
    (tmp_path / "merges.txt").write_text("")
    assert dict(load(tmp_path).tokens) == {0: b"a"}
    peer = tokenizers.models.BPE.from_file(
        str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    )
    assert [token.id for token in peer.tokenize("aa")] == [0, 0]


def test_a_pattern_for_the_two_files(tmp_path):
    save_gpt2(TINY, tmp_path / "vocab.json", tmp_path / "merges.txt")
    special_tokens = [*TINY.special_tokens]
    found = load(tmp_path, pattern="qwen2", special_tokens=special_tokens)
    assert found == replace(TINY, pattern="qwen2")


@pytest.mark.parametrize(
    ("vocab", "merges", "culprit"),
    [
        ('{"a": 0, "b": 0}', "", "'b'"),
        ('{"a": 0, "a": 1}', "", "'a' appears twice"),
        ('{"a": -1}', "", "-1"),
        ('{"a": 1e3}', "", "1000.0"),
        ('{"a": NaN}', "", "nan"),
        ('{"a": null}', "", "None"),
        ('{"a": 99999999999999999999}', "", "out of range"),
        ('{"a": ' + "9" * 5000 + "}", "", "JSON"),
        ('["a"]', "", "not a JSON object"),
        ("[" * 100_000, "", "nested"),
        ('{"a":' * 100_000, "", "nested"),
        ("", "", "JSON"),
        ('\ufeff{"a": 0}', "", "JSON"),
        ('{"a": 0}\x00', "", "JSON"),
        ('{"a": 0}', "a", "'a'"),
        ('{"a": 0}', "a  a", "'a  a'"),
        ('{"a": 0}', " a", "' a'"),
        ('{"a": 0}', "a b", "b'b'"),
        ('{"a": 0}', "a a", "b'aa'"),
        ('{"a": 0, "aa": 1}', "a a\na a\n", "twice"),
        ('{"a": 0, "aa": 1}', "a \x00", "spells no byte"),
        ('{"a": 0, "aa": 1}', "a\ta\n", "not a merge"),
    ],
)
def test_damaged_gpt2(tmp_path, vocab, merges, culprit):
    (tmp_path / "vocab.json").write_bytes(vocab.encode())
    (tmp_path / "merges.txt").write_bytes(merges.encode())
    message = refusal(load, tmp_path)
    assert culprit in message
    is_merges_fault = bool(merges)
    assert ("merges.txt" in message) == is_merges_fault
    assert ("vocab.json" in message) != is_merges_fault
