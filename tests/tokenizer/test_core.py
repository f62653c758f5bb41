"""Compare the native core with the `regex` package and the Python reference."""

import random

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tokenizer.texts import ALPHABET, TRICKY
from tilth.tokenizer import _core, reference, unicode_classes
from tilth.tokenizer._core import count_pieces, split, unicode_version

PATTERNS = {name: regex.compile(pattern) for name, pattern in reference.PATTERNS.items()}
both_patterns = pytest.mark.parametrize("pattern", PATTERNS)


@both_patterns
@given(st.one_of(st.text(), TRICKY))
@settings(max_examples=500)
def test_split_equals_the_reference(pattern, text):
    pieces = split(text, [pattern])
    assert pieces == reference.split(text, pattern) == PATTERNS[pattern].findall(text)
    assert count_pieces(text, [pattern]) == len(pieces)


@both_patterns
@given(TRICKY, st.integers(0, 130), st.sampled_from("a1 !é\u3000"))
@settings(max_examples=500)
def test_split_at_every_block_boundary(pattern, text, length, filler):
    text = filler * length + text + filler * length + text
    assert split(text, [pattern]) == PATTERNS[pattern].findall(text)


@pytest.mark.slow
@both_patterns
def test_a_million_random_texts(pattern):
    generator = random.Random(0)
    for _ in range(1_000_000):
        text = "".join(generator.choices(ALPHABET, k=generator.randrange(100)))
        assert split(text, [pattern]) == PATTERNS[pattern].findall(text)


def test_concatenated_pieces_with_nul_are_the_text():
    text = "a\x00b \x00\n" * 1000
    assert "".join(split(text, ["gpt2"])) == text


def test_surrogates():
    assert split("\ud83d", ["gpt2"]) == ["\ufffd"]
    assert split("a\ude42\ud83d b", ["gpt2"]) == ["a", "\ufffd\ufffd", " b"]
    assert split("\ud83d\ude42", ["gpt2"]) == ["🙂"]  # a pair is the character that it spells
    assert count_pieces("a\ud83d", ["gpt2"]) == 2


def test_text_is_str_or_bytes():
    assert split(b"a\xff b", ["gpt2"]) == ["a", "\ufffd", " b"]
    with pytest.raises(TypeError, match="a str or bytes"):
        split(7, ["gpt2"])


def test_patterns():
    assert split("a gpt3", []) == ["a gpt3"]
    assert split("a gpt3b", ["gpt3"]) == ["a ", "gpt3", "b"]
    assert split("a 12", [r"\p{N}", "gpt2"]) == ["a", " ", "1", "2"]
    assert count_pieces("a 12", [r"\p{N}", "gpt2"]) == 4
    for steps in ([""], ["a*"], [r"\w"], ["("], ["a"] * 9, ["a" * 5000]):
        with pytest.raises(ValueError):  # noqa: PT011, the message is for developers
            split("a", steps)


def test_unicode_version_of_the_tables():
    assert unicode_version == unicode_classes.UNICODE_VERSION


def byte_encoder(tokens=None):
    tokens = tokens or [(byte, bytes([byte])) for byte in range(256)]
    return _core.Encoder(_core.VocabularyTable(tokens, []), [], ["gpt2"], False)


class Emptying:
    """An int that clears its list when it is converted."""

    def __init__(self, items):
        self.items = items

    def __index__(self):
        self.items.clear()
        return 97


def test_ids_that_modify_their_list():
    for place in (0, 1, 5000):
        ids = [97] * 10_000
        ids[place] = Emptying(ids)
        with pytest.raises(ValueError, match="changed while it was decoded"):
            byte_encoder().decode_bytes(ids)


def test_integer_types_of_ids():
    encoder = byte_encoder()
    assert encoder.decode_bytes([np.int8(97), 98, True]) == b"ab\x01"
    for wrong in (-1, 2**32, 2**64, -(2**64)):
        with pytest.raises(ValueError, match="not in the vocabulary"):
            encoder.decode_bytes([97, wrong])


class Pair:
    """A pair of temporary objects that truncates its list when it is read."""

    def __init__(self, items, token_id):
        self.items = items
        self.token_id = token_id

    def __getitem__(self, place):
        if len(self.items) > 300:
            self.items[300:] = []
        return bytes([self.token_id]) if place else self.token_id


def test_temporary_token_pairs():
    tokens = []
    tokens += [Pair(tokens, byte) for byte in range(256)] + [(0, b"gone")] * 500
    tokens += [(300 + i, b"token %d" % i) for i in range(10)]
    with pytest.raises(ValueError, match="token 0 has an id or bytes that are taken"):
        byte_encoder(tokens)
    tokens = []
    tokens += [Pair(tokens, byte) for byte in range(256)]
    encoder = byte_encoder(tokens)
    assert encoder.decode_bytes(encoder.encode("a naïve text", True)) == "a naïve text".encode()


class Replacing(bytes):
    """Malformed bytes that clear their list when they are decoded."""

    def decode(self, *_):
        self.items.clear()
        return "x"


def test_texts_that_modify_their_list():
    texts = [b"a b"] * 1000
    texts[3] = Replacing(b"\xff")
    texts[3].items = texts
    assert len(byte_encoder().encode_batch(texts, True, 1)) == 4


def test_limit_of_threads():
    encoder = byte_encoder()
    for threads in (0, -1, _core.MAX_THREADS + 1, 2**64):
        for function, arguments in (
            (encoder.encode_array, ("a", True, threads)),
            (encoder.encode_batch, (["a"], True, threads)),
            (encoder.encode_documents, (["a"], 0, True, threads, None)),
            (_core.Trainer, ([], ["gpt2"], threads, None)),
        ):
            with pytest.raises(ValueError, match=r"threads is too (large|small); give 1 to 1024"):
                function(*arguments)


def test_a_trainer_refuses_a_call_from_its_progress_callback():
    seen, trainers = [], []

    def progress(*_):
        for function, argument in ((trainers[0].train, 10), (trainers[0].add_texts, ["a"])):
            with pytest.raises(ValueError, match="at work already"):
                function(argument)
        seen.append(True)

    trainer = _core.Trainer([], ["gpt2"], 2, progress)
    trainers.append(trainer)
    text = "".join(f"{i} " for i in range(400_000))
    while not seen:
        trainer.add_texts([text] * 20)
    for num_merges in (-1, 2**24, 2**64):
        with pytest.raises(ValueError, match="num_merges is too"):
            trainer.train(num_merges)
    assert len(trainer.train(10)) == 10
    trainers.clear()  # nanobind reports the cycle with `progress` as a leak


def test_limit_of_ids():
    most = _core.MAX_VOCAB_SIZE - 1
    assert byte_encoder([(most, b"a")]).encode("a", True) == [most]
    with pytest.raises(ValueError, match="has an id or bytes that are taken or out of range"):
        byte_encoder([(most + 1, b"a")])


@pytest.mark.alone
def test_ctrl_c_ends_a_long_split_within_a_second(ctrl_c_within):
    program = """
from tilth.tokenizer import split
text = "a b " * 50_000_000
print("ready", flush=True)
split(text)  # some ten seconds
"""
    _, errors = ctrl_c_within(1, program)
    assert errors.endswith("KeyboardInterrupt\n")
