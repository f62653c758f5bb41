"""Rank files: compare all ids with tiktoken."""

import base64
import hashlib
from dataclasses import replace

import pytest
import regex
import tiktoken_ext.openai_public
from hypothesis import event, given
from hypothesis import strategies as st

from tests.tokenizer.formats.vocabularies import (
    CL100K,
    CORPUS,
    GPT2,
    KINDS,
    SHORT_TEXTS,
    TEXTS,
    TINY,
    any_vocabulary,
    encode,
    examples,
    refusal,
    tiktoken_of,
)
from tilth.tokenizer import reference
from tilth.tokenizer.formats import (
    load,
    load_tiktoken,
    save_tiktoken,
)
from tilth.tokenizer.formats import tiktoken as tiktoken_ranks
from tilth.tokenizer.formats.tiktoken import Published, recover_merges
from tilth.tokenizer.patterns import PATTERNS
from tilth.tokenizer.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def encodings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiktoken")
    made = {}
    for name in ("gpt2", "cl100k"):
        save_tiktoken(KINDS[name], folder / f"{name}.tiktoken")
        made[name] = tiktoken_of(folder / f"{name}.tiktoken", KINDS[name])
    return made


# Of several special tokens that start at one place, tiktoken may take any.
NO_PREFIX = TEXTS.filter(lambda text: "<|endoftext|><|endoftext|>" not in text)


@pytest.mark.parametrize("name", ["gpt2", "cl100k"])
@examples(100)
@given(text=NO_PREFIX)
def test_tiktoken_gives_the_same_ids(encodings, name, text):
    assert encodings[name].encode(text, allowed_special="all") == encode(KINDS[name], text)


@pytest.mark.parametrize("name", ["gpt2", "cl100k"])
def test_tiktoken_round_trip(tmp_path, name):
    vocabulary = KINDS[name]
    path = tmp_path / "x.tiktoken"
    save_tiktoken(vocabulary, path)
    loaded = load_tiktoken(path, name, vocabulary.special_tokens)
    assert loaded == replace(vocabulary, whole_piece_first=True)
    assert loaded == load(path, pattern=name, special_tokens=vocabulary.special_tokens)
    save_tiktoken(loaded, tmp_path / "again.tiktoken")
    assert path.read_bytes() == (tmp_path / "again.tiktoken").read_bytes()
    appended = load_tiktoken(path, name, ["<|x|>", "<|y|>"])
    largest = max(vocabulary.tokens)
    assert dict(appended.special_tokens) == {"<|x|>": largest + 1, "<|y|>": largest + 2}


RANKS = st.sets(st.binary(min_size=2, max_size=6).map(lambda b: b.translate(b"ab " * 85 + b"a")))


@examples(150)
@given(
    tokens=RANKS.flatmap(lambda tokens: st.permutations(sorted(tokens))),
    step=st.sampled_from([1, 5]),
    texts=st.lists(st.text(st.sampled_from("aab "), max_size=24), min_size=8, max_size=8),
)
def test_any_ranks_give_the_ids_of_tiktoken(tmp_path_factory, tokens, step, texts):
    """Also ranks that training never produces: a token of lower rank than its parts."""
    path = tmp_path_factory.getbasetemp() / "any.tiktoken"
    ranks = {token: step * place for place, token in enumerate([*tokens, b"a", b"b", b" "])}
    path.write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in ranks.items()))
    vocabulary = load_tiktoken(path, r"[^x]+")
    assert vocabulary.whole_piece_first
    peer = tiktoken_of(path, vocabulary)
    for text in texts:
        assert encode(vocabulary, text) == peer.encode(text)


@examples(150)
@given(vocabulary=any_vocabulary(), texts=st.lists(SHORT_TEXTS, min_size=5, max_size=5))
def test_any_saved_vocabulary_gives_the_same_ids(tmp_path_factory, vocabulary, texts):
    vocabulary = replace(vocabulary, special_tokens={})
    path = tmp_path_factory.getbasetemp() / "said.tiktoken"
    try:
        save_tiktoken(vocabulary, path, overwrite=True)
    except ValueError:
        event("refused")
        return
    peer = tiktoken_of(path, vocabulary)
    for text in texts:
        assert peer.encode(text) == encode(vocabulary, text)


@examples(100)
@given(RANKS.flatmap(lambda tokens: st.permutations(sorted(tokens))))
def test_recovered_merges_equal_the_definition(tokens):
    """The definition: join the pair of lowest rank until two parts are left."""
    ranks = {token: rank for rank, token in enumerate(tokens)}
    expected = []
    for token in tokens:
        word = [bytes([byte]) for byte in token]
        while len(word) > 2:
            joined = [
                (ranks[word[place] + word[place + 1]], place)
                for place in range(len(word) - 1)
                if word[place] + word[place + 1] in ranks
            ]
            if not joined:
                break
            _, place = min(joined)
            word[place : place + 2] = [word[place] + word[place + 1]]
        if len(word) == 2:
            expected.append(tuple(word))
    assert recover_merges(dict(enumerate(tokens))) == expected


def test_a_long_token_is_fast():
    tokens = [b"ab" * 2**power for power in range(15)] + [b"ab" * 32_767]
    assert len(recover_merges(dict(enumerate(tokens)))) == 15


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        ({"merges": GPT2.merges[::-1]}, "merge 1 by rank is "),
        ({"merges": GPT2.merges[:-1]}, "merge 150 by rank is .*, not None"),
        ({"tokens": {**GPT2.tokens, 999: b"zzz"}}, "no merge makes token 999, b'zzz'"),
        ({"tokens": {**GPT2.tokens, 999: b"the sun"}}, "no merge makes token 999, b'the sun'"),
        ({"add_prefix_space": True}, "add_prefix_space"),
    ],
)
def test_ranks_cannot_represent_other_merges(tmp_path, change, culprit):
    with pytest.raises(
        ValueError, match=rf"cannot represent .*{culprit}.*; write a tokenizer\.json"
    ):
        save_tiktoken(replace(GPT2, **change), tmp_path / "x.tiktoken")
    assert not any(tmp_path.iterdir())


def test_ranks_cannot_represent_two_merges_of_one_token(tmp_path):
    tokens = dict(enumerate([b"a", b"b", b"ab", b"ba", b"aba"]))
    merges = ((b"a", b"b"), (b"b", b"a"), (b"ab", b"a"), (b"a", b"ba"))
    with pytest.raises(ValueError, match=r"merge 4 by rank is None, not \(b'a', b'ba'\)"):
        save_tiktoken(Vocabulary(tokens, merges), tmp_path / "x.tiktoken")


def test_ranks_cannot_represent_a_merge_into_a_special_token(tmp_path):
    vocabulary = replace(TINY, special_tokens={"ab": 2})
    with pytest.raises(ValueError, match=r"merge 1 by rank is None, not \(b'a', b'b'\)"):
        save_tiktoken(vocabulary, tmp_path / "x.tiktoken")
    vocabulary = replace(TINY, special_tokens={"a": 0})
    with pytest.raises(ValueError, match="special token is part of merge 1, "):
        save_tiktoken(vocabulary, tmp_path / "x.tiktoken")


@pytest.mark.parametrize(
    ("content", "culprit"),
    [
        (b"", "no tokens"),
        (b"\n\n", "no tokens"),
        (b"YQ==\n", "line 1"),
        (b"YQ== \n", "line 1"),
        (b"YQ== x\n", "line 1"),
        (b"YQ== -1\n", "line 1"),
        (b"YQ== 1.0\n", "line 1"),
        (b"YQ== 1_0\n", "line 1"),
        (b"YQ== 1 2\n", "line 1"),
        (b"YQ==  1\n", "line 1"),
        (b"YQ==\t1\n", "line 1"),
        (b"YQ== 99999999999\n", "line 1"),
        (b"YQ== 9999999999\n", "out of range"),
        (b"YQ== 0\nYQ 1\n", "line 2"),
        (b"YQ== 0\nYg=! 1\n", "line 2"),
        (b"YQ== 0\nYg==YQ== 1\n", "line 2"),
        (b"YQ== 0\n\x00 1\n", "line 2"),
        (b"YQ== 0\n\xff\xfe 1\n", "line 2"),
        (b"YQ== 0\nYg== 0\n", "second time"),
        (b"YQ== 0\nYQ== 1\n", "both b'a'"),
        (b"YQ== 0\n 1\n", "0 bytes"),
        (b"YQ== 0\nYWI= 1\n", "needs b'b'"),
        (base64.b64encode(b"a" * 1_000_000) + b" 0\n", "1,000,000 bytes"),
    ],
)
def test_damaged_ranks(tmp_path, content, culprit):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(content)
    assert culprit in refusal(load_tiktoken, path, "gpt2")


def test_ranks_with_gaps_crlf_and_no_final_newline(tmp_path):
    path = tmp_path / "x.tiktoken"
    path.write_bytes(b"YQ== 5\r\n\r\nYg== 0\r\nYWI= 77")
    vocabulary = load_tiktoken(path, "gpt2", {"<x>": 1000})
    assert dict(vocabulary.tokens) == {5: b"a", 0: b"b", 77: b"ab", 1000: b"<x>"}
    assert vocabulary.merges == ((b"a", b"b"),)
    assert "5" in refusal(load_tiktoken, path, "gpt2", {"<x>": 5})


def test_ranks_need_a_pattern(tmp_path):
    """No default: the ranks of cl100k with the pattern of GPT-2 would give other ids."""
    path = tmp_path / "any.tiktoken"
    save_tiktoken(CL100K, path)
    for read in (load, load_tiktoken):
        said = refusal(read, path)
        assert "does not say how text is split into pieces; name its pattern with --pattern" in said
        for name in PATTERNS:
            assert name in said
        assert said.endswith(", or a regex")


def test_published_ranks_are_recognised(tmp_path, monkeypatch, caplog):
    path = tmp_path / "any.tiktoken"
    save_tiktoken(CL100K, path)
    assert "does not store the pattern cl100k and the 5 special tokens" in caplog.text
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    published = Published("any", "cl100k", {"<x>": 900, "<y>": 1000})
    monkeypatch.setitem(tiktoken_ranks._FILES, digest, published)
    assert load(path) == load_tiktoken(path, "cl100k", {"<x>": 900, "<y>": 1000})
    assert load(path, pattern="gpt2").pattern == "gpt2"
    assert dict(load(path, special_tokens=[]).special_tokens) == {}
    assert dict(load(path, special_tokens={"<x>": 7777}).special_tokens) == {"<x>": 7777}
    # By name: a known token has its published id, others follow the largest.
    found = load(path, special_tokens=["<x>", "<z>"]).special_tokens
    assert dict(found) == {"<x>": 900, "<z>": 901}


@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_ranks_of_openai_are_those_of_tiktoken(monkeypatch, name):
    """The checksum, the special tokens and the pattern that tiktoken registers."""
    module = tiktoken_ext.openai_public
    hashes = []
    monkeypatch.setattr(
        module, "load_tiktoken_bpe", lambda _, expected_hash: hashes.append(expected_hash) or {}
    )
    registered = getattr(module, name)()
    [digest] = hashes
    published = tiktoken_ranks.PUBLISHED[digest]
    assert published.name == name
    assert published.special_tokens == registered["special_tokens"]
    pattern = reference.PATTERNS.get(published.pattern) or PATTERNS[published.pattern][0]
    for text in ["it's  1234 IT'S\r\n\n x", "Äé ſ'Ll ½", *CORPUS]:
        assert regex.findall(pattern, text) == regex.findall(registered["pat_str"], text)


def test_special_tokens_of_qwen():
    """tokenization_qwen.py: 3 and 205 more from id 151643 on."""
    [qwen] = [each for each in tiktoken_ranks.PUBLISHED.values() if each.name == "qwen"]
    ids = qwen.special_tokens
    assert (len(ids), ids["<|endoftext|>"], ids["<|im_end|>"]) == (208, 151_643, 151_645)
    assert (ids["<|extra_0|>"], ids["<|extra_204|>"]) == (151_646, 151_850)
