"""The native readers of vocabularies give what the readers in Python give, or nothing."""

import base64
import json
import pickle
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.files import FileError
from tilth.tokenizer import Tokenizer, train_tokenizer
from tilth.tokenizer._core import VocabularyTable, read_ranks, read_tokenizer_json
from tilth.tokenizer.formats.gpt2 import spell
from tilth.tokenizer.formats.huggingface import json_vocabulary, native_vocabulary
from tilth.tokenizer.formats.reading import parse_json
from tilth.tokenizer.formats.tiktoken import parse_ranks, recover_merges
from tilth.tokenizer.vocabulary import TokenOptions, Vocabulary

TEXTS = ["the cat sat on the mat, naïve 日本語 12 the the", " a\n\n  b"]


def rank_file(tokens):
    lines = (f"{base64.b64encode(t).decode()} {rank}\n" for rank, t in enumerate(tokens))
    return "".join(lines).encode()


def all_bytes(order):
    found = [bytes([byte]) for byte in range(256)]
    order.shuffle(found)
    return found


@given(st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=60), st.randoms())
def test_merges_of_any_ranks(longer, order):
    """Also where a token comes before its parts, or has no parts at all."""
    tokens = [*all_bytes(order), *longer]
    if order.random() < 0.5:
        order.shuffle(tokens)
    content = rank_file(tokens)
    table = read_ranks(content)
    assert table.tokens() == parse_ranks(content) == dict(enumerate(tokens))
    assert list(table.merges()) == recover_merges(dict(enumerate(tokens)))


@given(st.lists(st.text("ab", min_size=2, max_size=12), unique=True, max_size=40), st.randoms())
def test_merges_of_ranks_with_many_overlaps(longer, order):
    tokens = [*all_bytes(order), *(each.encode() for each in longer)]
    order.shuffle(tokens)
    assert list(read_ranks(rank_file(tokens)).merges()) == recover_merges(dict(enumerate(tokens)))


def test_merges_of_many_ranks():
    """Enough for several threads; tokens are joined from any before them, also recent ones."""
    order = random.Random(1)
    tokens = all_bytes(order)
    known = set(tokens)
    while len(tokens) < 20_000:
        recent = tokens[-order.randint(1, order.randint(1, len(tokens)))]
        joined = order.choice(tokens) + recent
        if len(joined) <= 12 and joined not in known:
            known.add(joined)
            tokens.append(joined)
    assert list(read_ranks(rank_file(tokens)).merges()) == recover_merges(dict(enumerate(tokens)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"YQ== 0",  # a vocabulary without all bytes
        b"YQ== 0\nYQ== 1\n",
        b"YQ== 1\nYg== 0\n",
        b"YQ==  0\n",
        b"YQ= 0\n",
        b"YQ== 00\n",
        b"YQ== 99999999999\n",
        b" 0\n",
        b"YQ==0\n",
    ],
)
def test_unusual_ranks_are_left_to_python(content):
    assert read_ranks(content) is None


def test_a_long_token_without_parts_is_left_to_python():
    tokens = [bytes([byte]) for byte in range(256)]
    assert read_ranks(rank_file([*tokens, bytes(range(200))])) is not None
    assert read_ranks(rank_file([*tokens, bytes(range(256)) * 20])) is None


def vocabularies():
    trained = train_tokenizer(texts=TEXTS, vocab_size=300, special_tokens=["<s>", "</s>"])
    vocabulary = trained.vocabulary
    yield vocabulary
    yield replace(vocabulary, whole_piece_first=True, normalizers=("NFC",), pattern="llama3")
    yield replace(vocabulary, token_options={"<s>": TokenOptions(lstrip=True, special=False)})
    yield Vocabulary.from_parts({0: b"h", 1: b"i", 2: b"hi"}, [(b"h", b"i")], ["<日本>"])


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("ascii_only", [False, True])
def test_tokenizer_json(tmp_path, number, ascii_only):
    vocabulary = [*vocabularies()][number]
    path = tmp_path / "tokenizer.json"
    Tokenizer.from_vocabulary(vocabulary).save(path)
    parsed = json.loads(path.read_bytes())
    for indent in (None, 2):
        content = json.dumps(parsed, ensure_ascii=ascii_only, indent=indent).encode()
        native = native_vocabulary(path, content)
        assert native == json_vocabulary(path, parsed) == vocabulary
        assert native.fingerprint == vocabulary.fingerprint
        assert native.merges == vocabulary.merges
        assert vocabulary.merges == native.merges
        assert pickle.loads(pickle.dumps(native)) == vocabulary
        texts = [*TEXTS, "<s> <日本>hi"]
        if len(native.tokens) > 256:
            opened = [Tokenizer.from_vocabulary(each) for each in (native, vocabulary)]
            assert opened[0].encode_batch(texts) == opened[1].encode_batch(texts)


def test_mutated_tokenizer_json(tmp_path):
    """Both readers accept the same files with the same result, or the native one gives way."""
    path = tmp_path / "tokenizer.json"
    train_tokenizer(texts=TEXTS, vocab_size=280, special_tokens=["<s>"]).save(path)
    content, chance = path.read_bytes(), random.Random(1)
    accepted = 0
    for _ in range(1500):
        mutated = bytearray(content)
        for _ in range(chance.choice([1, 1, 2])):
            place = chance.randrange(len(mutated))
            mutated[place : place + chance.randrange(3)] = chance.choice(
                [b'"', b"\\", b",", b"}", b"[", b"0", b"1", b"", b" ", b"\\u0120", b"\xff"]
            )
        try:
            expected = json_vocabulary(path, parse_json(path, bytes(mutated)))
        except FileError:
            expected = None
        native = native_vocabulary(path, bytes(mutated))
        assert native is None or native == expected
        accepted += native is not None
    assert accepted > 50


def test_a_table_refuses_inconsistent_parts():
    table = VocabularyTable([(0, b"h"), (1, b"i"), (5, b"hi")], [(b"h", b"i")])
    assert (len(table), table.num_merges, table.vocab_size) == (3, 1, 6)
    assert (table.find(b"hi"), table.find(b"x"), table.find(b"")) == (5, None, None)
    assert (table.has_id(5), table.has_id(2)) == (True, False)
    extended = Vocabulary.from_table(table, {"<s>": 2})
    assert extended == Vocabulary(
        {0: b"h", 1: b"i", 5: b"hi", 2: b"<s>"}, ((b"h", b"i"),), {"<s>": 2}
    )
    for special_tokens in ({"x": 5}, {"hi": 7}, {"x": 2**24}, {"x": -1}, {"x": 7, "y": 7}):
        with pytest.raises(ValueError, match="use from_parts"):
            Vocabulary.from_table(table, special_tokens)
    for token in ((5, b"x"), (7, b"hi"), (7, b""), (2**24, b"x"), (7, b"x" * 65_536)):
        with pytest.raises(ValueError, match="taken or out of range"):
            VocabularyTable([(5, b"hi"), token, (5, b"x")], [])
    for merges in ([(b"h", b"x")], [(b"i", b"h")], [(b"h", b"i")] * 2):
        with pytest.raises(ValueError, match="a merge"):
            VocabularyTable([(0, b"h"), (1, b"i"), (5, b"hi")], merges)


def test_json_that_is_left_to_python():
    for content in (b"", b"{}", b"[]", b'{"model": {"vocab": {}}}', b"\xff", b"{" * 100_000):
        assert read_tokenizer_json(content) is None
    model = (
        b'{"model": {"merges": ["a b"], "vocab": {"a": 0, "b": 1, "ab": 2}, "x": [1, {"y": 2}]}}'
    )
    table, rest, unspelled = read_tokenizer_json(model)
    assert (table.tokens(), table.merges()) == ({0: b"a", 1: b"b", 2: b"ab"}, ((b"a", b"b"),))
    assert json.loads(rest) == {"model": {"merges": [], "vocab": {}, "x": [1, {"y": 2}]}}
    assert unspelled == []


@given(st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=60), st.randoms())
def test_json_and_joined_parts(longer, order):
    """As Python writes them, whatever the order of the ids, with keys that are given."""
    table = read_ranks(rank_file([*all_bytes(order), *longer]))
    ids = order.sample(range(1000), len(table))
    tokens = dict(zip(ids, table.tokens().values(), strict=True))
    table = VocabularyTable(list(tokens.items()), list(table.merges()))
    named = {ids[0]: 'a "name" \\ é', 1000: "<|end|>"}
    keys = {each: spell(token) for each, token in tokens.items()} | named
    vocab = {keys[each]: each for each in sorted(keys)}
    merges = [[spell(left), spell(right)] for left, right in table.merges()]
    given = [(each, json.dumps(key, ensure_ascii=False).encode()) for each, key in named.items()]
    expected = tuple(json.dumps(each, ensure_ascii=False).encode() for each in (vocab, merges))
    assert table.json(sorted(given)) == expected

    def joined(parts):
        return " ".join(str(len(each)) for each in parts).encode() + b":" + b"".join(parts)

    tokens[1000] = b"<|end|>"
    parts = (
        [str(each).encode() for each in sorted(tokens)],
        [tokens[each] for each in sorted(tokens)],
    )
    pairs = [token for pair in table.merges() for token in pair]
    assert table.joined([(1000, b"<|end|>")]) == tuple(map(joined, (*parts, pairs)))
