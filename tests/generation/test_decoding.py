"""Tests of the decode loop: stop reasons, context, whole characters and stop strings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.generation import LanguageModel, TextStream
from tilth.generation.decoding import (
    PART_TOKENS,
    Continuation,
    GenerationOptions,
    decode,
    scored_token,
    slid_context,
)
from tilth.tokenizer import Tokenizer

# --- stop reasons ---


@pytest.fixture
def spoken(tokenizer):
    """Return a function that makes a model with a fixed output."""

    class Parrot:
        def __init__(self, ids, vocab_size=257):
            self.ids, self.vocab_size, self.read = ids, vocab_size, []

        def truncate(self, row, length):
            assert (row, length) == (0, 0)

        def extend(self, ids, every=False):
            self.read.append(list(ids[0]))
            logits = np.full((1, 1, self.vocab_size), -10.0, np.float32)
            logits[0, 0, self.ids[len(self.read) - 1]] = 10.0
            return logits

    def make(ids, config, **options):
        parrot = Parrot([*ids, 256])
        model = LanguageModel(replace(config, vocab_size=257), tokenizer, lambda rows: parrot)
        return parrot, model

    return make


def stream_of(model, prompt="ab", stop=(), **options):
    options = {"temperature": 0.0, **options}
    return model.generate(prompt, stop=stop, **options)


def test_stop_reasons(spoken, make_model):
    config = make_model().config
    _, model = spoken(b"hello", config)
    stream = stream_of(model)
    assert stream.stop_reason is None
    assert "".join(stream) == "hello"
    assert (stream.stop_reason, len(stream.token_ids)) == ("end token", 5)
    assert list(stream) == []

    stream = stream_of(spoken(b"hello", config)[1], max_tokens=3)
    assert "".join(stream) == "hel"
    assert stream.stop_reason == "limit"

    stream = stream_of(spoken(b"hello, world", config)[1], stop=["wor", "o, "])
    assert "".join(stream) == "hell"
    assert stream.stop_reason == "stop string"

    # A context of 24 and a prompt of 2: 22 new tokens are read, and one more is returned.
    parrot, model = spoken(b"x" * 100, config)
    stream = stream_of(model, past_context="stop")
    assert "".join(stream) == "x" * 23
    assert stream.stop_reason == "context"
    assert sum(map(len, parrot.read)) == 24


def test_full_context_keeps_its_newer_half(spoken, make_model):
    parrot, model = spoken(b"0123456789" * 10, make_model().config)
    "".join(stream_of(model, max_tokens=40))
    assert parrot.read[0] == list(b"ab")
    assert all(len(ids) == 1 for ids in parrot.read[1:23])
    assert parrot.read[23] == list((b"0123456789" * 3)[11:23])
    assert [len(ids) for ids in parrot.read[24:37]] == [1] * 12 + [12]


def test_prompt_that_fills_the_context(spoken, make_model):
    config = make_model().config
    for prompt in ("a" * 24, "a" * 23):
        stream = stream_of(spoken(b"xyz" * 40, config)[1], prompt, past_context="stop")
        assert len("".join(stream)) == 25 - len(prompt)
    text = "".join(stream_of(spoken(b"xyz" * 20, config)[1], "a" * 24, max_tokens=60))
    assert text == "xyz" * 20


class Ones:
    """A decoder that always predicts 1 and records its calls for each row."""

    def __init__(self, rows):
        self.read = [[] for _ in range(rows)]

    def truncate(self, row, length):
        self.read[row].append("again")
        assert length == 0

    def extend(self, ids, every=False):
        for read, new in zip(self.read, ids, strict=True):
            read.append(list(new))
        return np.tile(np.eye(1, 3, k=1, dtype=np.float32), (len(ids), 1, 1))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 60))
def test_a_text_past_the_context_is_slid_as_it_was_written(context_length, prompt, written):
    """Step by step: a full context keeps its newer half, with the new id."""
    ids = list(range(min(prompt, context_length) + written))
    context = ids[: len(ids) - written]
    for token_id in ids[len(context) :]:
        is_full = len(context) == context_length
        context = [*context, token_id]
        if is_full:
            context = context[-max(1, context_length // 2) :]
    assert slid_context(ids, context_length) == context


@given(st.integers(1, 12), st.data())
def test_rows_decoded_together_read_what_they_read_alone(context_length, data):
    """Sequences of any lengths: each row reads the ids that it would read alone."""
    lengths = data.draw(st.lists(st.integers(1, context_length), min_size=1, max_size=4))
    numbers = [data.draw(st.integers(1, 40)) for _ in lengths]
    sequences = [
        Continuation(
            [0] * length,
            GenerationOptions(temperature=0, max_tokens=number),
            context_length=context_length,
        )
        for length, number in zip(lengths, numbers, strict=True)
    ]
    decoder, chosen = Ones(len(lengths)), [0] * len(lengths)
    for sequence, token_id, logits in decode(decoder, sequences, 2, len(lengths)):
        assert (token_id, len(logits)) == (1, 2)
        chosen[sequences.index(sequence)] += 1
    assert chosen == numbers == [sequence.num_tokens for sequence in sequences]
    for length, number, read in zip(lengths, numbers, decoder.read, strict=True):
        context, expected = [0] * length, ["again", [0] * length]
        for _ in range(number - 1):
            if len(context) < context_length:
                context.append(1)
                expected.append([1])
            else:
                context = [*context, 1][-max(1, context_length // 2) :]
                expected += ["again", context.copy()]
        assert [each for each in read if each] == expected


def test_a_long_prompt_does_not_stop_the_other_rows():
    """It is read in parts, and each step gives the other row a token."""

    def sequence(length, **options):
        options = GenerationOptions(temperature=0, **options)
        return Continuation([0] * length, options, context_length=10**4)

    short, long = sequence(1, max_tokens=8), sequence(5 * PART_TOKENS + 7, max_tokens=2)
    decoder = Ones(2)
    found = [each for each, _, _ in decode(decoder, [short, long], 2, rows=2)]
    assert found == [*[short] * 6, long, short, long, short]
    parts = [len(ids) for ids in decoder.read[1] if ids != "again" and ids]
    assert parts == [*[PART_TOKENS] * 5, 7, 1]
    assert decoder.read[1].count("again") == 1


def test_the_first_token_is_timed_not_the_first_text(spoken, make_model, monkeypatch):
    """The first three tokens are held back, as they may begin a stop string."""
    seconds = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(seconds))
    stream = stream_of(spoken(b"abcd", make_model().config)[1], stop=["abcx"])
    assert stream.first_token_seconds is None
    assert next(stream) == "abcd"
    assert stream.first_token_seconds == 1


# --- characters and stop strings ---


def stream_over(text_bytes, stop):
    """A TextStream over the bytes of a text, one token each."""

    class Given:  # predicts the next byte of the text
        def __init__(self):
            self.rest = [*text_bytes, 256]

        def truncate(self, row, length):
            pass

        def extend(self, ids, every=False):
            return np.eye(1, 257, k=self.rest.pop(0), dtype=np.float32)[None]

    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], ["<|endoftext|>"])
    options = GenerationOptions(temperature=0, max_tokens=99, stop=stop)
    sequence = Continuation([0], options, context_length=99, end_id=256)
    return TextStream(Given(), sequence, tokenizer)


@settings(max_examples=200)
@given(
    st.text("abé🙂", max_size=30),
    st.lists(st.text("abé🙂", min_size=1, max_size=4), max_size=3),
)
def test_parts_are_the_text_up_to_the_first_stop_string(text, stop):
    stream = stream_over(text.encode(), stop)
    parts = list(stream)
    places = [place for each in stop if (place := text.find(each)) >= 0]
    found = "".join(parts)
    # The stop string that is complete first ends the text; of several, the one that starts first.
    assert found == text[: len(found)]
    if places:
        ends = [text.find(each) + len(each) for each in stop if each in text]
        assert stream.stop_reason == "stop string"
        first_end = min(ends)
        assert found == text[: min(p for p, s in _found(text[:first_end], stop))]
    else:
        assert found == text
        assert stream.stop_reason == "end token"
    assert all(parts)
    assert "\ufffd" not in found


def _found(text, stop):
    return [(text.find(each), each) for each in stop if each in text]


@given(st.binary(max_size=20))
def test_parts_join_to_the_decoded_text(data):
    parts = list(stream_over(data, []))
    assert "".join(parts) == data.decode("utf-8", "replace")


def test_text_is_held_back_only_if_it_may_begin_a_stop_string():
    assert list(stream_over(b"ab-abc-ax", ["abd"])) == ["ab-", "abc", "-", "ax"]


def test_stop_string_completed_by_the_end_of_the_text():
    stream = stream_over(b"ab\xf0\x9f", ["b\ufffd"])  # an unfinished character becomes U+FFFD
    assert list(stream) == ["a"]
    assert stream.stop_reason == "stop string"


# --- scores ---


@given(st.lists(st.sampled_from([-1.0, 0.0, 2.5]), min_size=1, max_size=50), st.integers(1, 9))
def test_equal_alternatives_are_ordered_by_id(logits, number):
    found = scored_token(np.array(logits, np.float32), 0, number).alternatives
    expected = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:number]
    assert [i for i, _ in found] == expected
