"""Generation: what is chosen, where it ends, and that no part of a character ever comes out."""

import doctest
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.generation import (
    LoadedModel,
    TextStream,
    generate,
    generate_tokens,
    sample,
    score,
)
from tilth.generation import generating as generating_module
from tilth.generation import scoring as scoring_module
from tilth.generation.generating import TokenStream
from tilth.generation.scoring import scored_token
from tilth.tokenizer import Tokenizer


def test_docstrings():
    assert doctest.testmod(generating_module).failed == 0
    assert doctest.testmod(scoring_module).failed == 0


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.9, "top_p": 0.9, "seed": 4},
        {"top_k": 20, "repetition_penalty": 1.5, "seed": 2, "sample_index": 3},
        {"min_p": 0.1},
    ],
)
def test_the_cache_changes_nothing_past_the_context_too(make_model, load, tokenizer, options):
    """80 tokens in a context of 24: the text of the model without a cache, slide after slide."""
    model = make_model()
    stream = generate(load(model), "Once", max_tokens=80, **options)
    assert "".join(stream) == sample(model, tokenizer, "Once", max_tokens=80, **options)
    assert stream.tokens.num_tokens <= 80


def test_equal_seeds_give_equal_text(make_model, load):
    model = load(make_model())
    texts = ["".join(generate(model, "a", max_tokens=30, seed=7)) for _ in range(3)]
    assert len(set(texts)) == 1
    others = {"".join(generate(model, "a", max_tokens=30, seed=s)) for s in range(4)}
    samples = {"".join(generate(model, "a", max_tokens=30, sample_index=s)) for s in range(4)}
    assert len(others) == len(samples) == 4


def test_chance_goes_on_where_a_prompt_was_cut(make_model, load):
    """Position counts from the start of the prompt: the rest of a text continues its beginning."""
    ascii_alone = Tokenizer({i: bytes([i]) for i in range(128)}, [])
    model = replace(load(make_model(context_length=64)), tokenizer=ascii_alone)
    text = "".join(generate(model, "a", max_tokens=30))
    assert "".join(generate(model, "a" + text[:10], max_tokens=20)) == text[10:]


# --- where it ends ---


@pytest.fixture
def spoken(tokenizer):
    """Makes a model say given ids, whatever it reads."""

    class Parrot:
        def __init__(self, ids, vocab_size=257):
            self.ids, self.vocab_size, self.length, self.read = ids, vocab_size, 0, []

        def truncate(self, length):
            self.length = length

        def extend(self, ids, every=False):
            self.length += len(ids)
            self.read.append(list(ids))
            logits = np.full((1, self.vocab_size), -10.0, np.float32)
            logits[0, self.ids[len(self.read) - 1]] = 10.0
            return logits

    def make(ids, config, **options):
        parrot = Parrot([*ids, 256])
        return parrot, LoadedModel(replace(config, vocab_size=257), tokenizer, lambda: parrot)

    return make


def stream_of(model, prompt="ab", stop=(), **options):
    options = {"temperature": 0.0, **options}
    return generate(model, prompt, stop=stop, **options)


def test_reasons_to_stop(spoken, make_model):
    config = make_model().config
    _, model = spoken(b"hello", config)
    stream = stream_of(model)
    assert stream.stop_reason is None
    assert "".join(stream) == "hello"
    assert (stream.stop_reason, stream.tokens.num_tokens) == ("end token", 5)
    assert list(stream) == []

    stream = stream_of(spoken(b"hello", config)[1], max_tokens=3)
    assert "".join(stream) == "hel"
    assert stream.stop_reason == "limit"

    stream = stream_of(spoken(b"hello, world", config)[1], stop=["wor", "o, "])
    assert "".join(stream) == "hell"
    assert stream.stop_reason == "stop string"

    # A context of 24 and a prompt of 2: 22 more are read, and one more is said.
    parrot, model = spoken(b"x" * 100, config)
    stream = stream_of(model, past_context="stop")
    assert "".join(stream) == "x" * 23
    assert stream.stop_reason == "context"
    assert sum(map(len, parrot.read)) == 24


def test_a_full_context_keeps_its_newer_half(spoken, make_model):
    parrot, model = spoken(b"0123456789" * 10, make_model().config)
    "".join(stream_of(model, max_tokens=40))
    assert parrot.read[0] == list(b"ab")
    assert all(len(ids) == 1 for ids in parrot.read[1:23])
    assert parrot.read[23] == list((b"0123456789" * 3)[11:23])
    assert [len(ids) for ids in parrot.read[24:37]] == [1] * 12 + [12]


def test_an_exact_fill_of_the_context(spoken, make_model):
    config = make_model().config
    for prompt in ("a" * 24, "a" * 23):
        stream = stream_of(spoken(b"xyz" * 40, config)[1], prompt, past_context="stop")
        assert len("".join(stream)) == 25 - len(prompt)
    text = "".join(stream_of(spoken(b"xyz" * 20, config)[1], "a" * 24, max_tokens=60))
    assert text == "xyz" * 20


def test_a_token_that_the_tokenizer_lacks_is_never_chosen(make_model, load):
    model = make_model()  # 260 rows, of which the tokenizer has 257
    with torch.no_grad():
        hidden = model.hidden(torch.tensor([list(b"ab")]))[0, -1]
        model.lm_head.weight[258] = 100 * hidden
    token = next(generate_tokens(load(model), "ab", temperature=0.0))
    assert token.id < 257


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; write 1 token or more."),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 2.0}, "top_p is 2.0"),
        ({"sample_index": -1}, "sample_index is -1"),
        ({"past_context": "wrap"}, "past_context is 'wrap'; choose slide or stop."),
        ({"stop": "word"}, "stop is 'word'; give a list of texts"),
        ({"stop": ["a", ""]}, "give a list of texts that are not empty"),
    ],
)
def test_bad_values_are_one_sentence(make_model, load, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        generate(load(make_model()), "a", **options)


def test_prompts_that_do_not_fit_are_one_sentence(make_model, load):
    model = load(make_model())
    with pytest.raises(ValueError, match="has 25 tokens, and the context length is 24; shorten it"):
        generate(model, "a" * 25)
    with pytest.raises(ValueError, match="alternatives is -1"):
        generate_tokens(model, "a", alternatives=-1)


@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_damaged_weights_are_one_sentence(make_model, load, bad, quantize):
    names = list(make_model(qk_norm=True).state_dict())
    assert len(names) == 2 * 11 + 3
    for name in names:
        model = make_model(qk_norm=True)
        model.state_dict()[name].view(-1)[-1] = bad
        with pytest.raises(ValueError, match=f"not every number of {name} is finite"):
            load(model, quantize=quantize)


@pytest.mark.parametrize("quantize", [None, "int8"])
@pytest.mark.parametrize("names", [("q_proj", "k_proj"), ("v_proj", "output_proj"), ("w1", "w3")])
def test_what_overflows_on_the_way_is_one_sentence(make_model, load, names, quantize):
    """It comes past every comparison, of which none is true of NaN, as it does in torch."""
    model = make_model()
    for path, weight in model.state_dict().items():
        if any(name in path for name in names):
            weight.mul_(1e30)
    assert model(torch.tensor([list(b"abc")]))[0, -1].isnan().all()
    with pytest.raises(ValueError, match="no token to choose, as the largest logit is nan"):
        next(generate(load(model, quantize=quantize), "abc"))


# --- characters and stop strings ---


def stream_over(text_bytes, stop):
    """A TextStream over the bytes of a text, one token each."""

    class Tokens(TokenStream):
        def __init__(self):
            self.tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
            self.stop_reason, self.rest = None, list(text_bytes)

        def advance(self):
            if not self.rest:
                self.stop_reason = "end token"
                raise StopIteration
            return self.rest.pop(0), None

    return TextStream(Tokens(), stop)


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
    # Whichever stop string is complete first ends the text; of those that are, the first to begin.
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
def test_parts_join_to_what_decode_gives(data):
    parts = list(stream_over(data, []))
    assert "".join(parts) == data.decode("utf-8", "replace")


def test_text_is_held_back_only_where_a_stop_string_may_begin():
    assert list(stream_over(b"ab-abc-ax", ["abd"])) == ["ab-", "abc", "-", "ax"]


# --- scores ---


def log_probabilities(model, ids, vocab_size=257):
    """Of what a tokenizer can say: a model's vocabulary may be padded."""
    with torch.no_grad():
        return model(torch.tensor([ids]))[0, :, :vocab_size].double().log_softmax(-1).numpy()


def test_tokens_carry_their_log_probabilities(make_model, load):
    model = make_model()
    stream = generate_tokens(load(model), "ab", max_tokens=15, temperature=0.5, alternatives=4)
    tokens = list(stream)
    ids = [*b"ab", *(token.id for token in tokens)]
    exact = log_probabilities(model, ids)
    for place, token in enumerate(tokens, start=1):
        row = exact[place]
        assert token.log_probability == pytest.approx(row[token.id], abs=1e-4)
        assert [i for i, _ in token.alternatives] == np.argsort(-row)[:4].tolist()
        for i, value in token.alternatives:
            assert value == pytest.approx(row[i], abs=1e-4)
    token_id, _, alternatives = next(generate_tokens(load(model), "ab", temperature=0.0))
    assert (token_id, alternatives) == (int(exact[1].argmax()), ())


@given(st.lists(st.sampled_from([-1.0, 0.0, 2.5]), min_size=1, max_size=50), st.integers(1, 9))
def test_of_equal_alternatives_the_smaller_id_goes_first(logits, number):
    found = scored_token(np.array(logits, np.float32), 0, number).alternatives
    expected = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:number]
    assert [i for i, _ in found] == expected


@pytest.mark.parametrize("integer", [np.int64, np.uint64, np.int8])
def test_numbers_of_numpy_are_numbers(make_model, load, integer):
    model, options = load(make_model()), {"seed": 5, "sample_index": 3, "max_tokens": 4}
    same = {name: integer(value) for name, value in options.items()}
    assert "".join(generate(model, "a", **options)) == "".join(generate(model, "a", **same))


def test_scores_are_the_log_likelihood(make_model, load):
    model = make_model()
    text = "a cat, a dog."
    scored = score(load(model), text, alternatives=2)
    exact = log_probabilities(model, [256, *text.encode()])
    assert [token.id for token in scored] == list(text.encode())
    for place, token in enumerate(scored):
        assert token.log_probability == pytest.approx(exact[place, token.id], abs=1e-4)
        assert [i for i, _ in token.alternatives] == np.argsort(-exact[place])[:2].tolist()
    assert score(load(model), "") == []
    with pytest.raises(ValueError, match="alternatives is -1"):
        score(load(model), "a", alternatives=-1)


@pytest.mark.parametrize("context_length", [1, 2, 5, 24, 150])
def test_long_texts_are_scored_with_half_a_context_at_least(make_model, load, context_length):
    model = make_model(context_length=context_length)
    text = "many words, and more. " * (4 if context_length < 100 else 12)
    ids = [256, *text.encode()]
    scored = score(load(model), text)
    assert [token.id for token in scored] == ids[1:]
    half = context_length // 2
    step = max(1, context_length - half)
    for place, token in enumerate(scored):
        # The first window that holds the token before: they begin every `step` ids.
        start = max(0, -(-(place + 1 - context_length) // step) * step)
        assert place == len(ids) or place - start + 1 >= min(place + 1, half)
        exact = log_probabilities(model, ids[start : place + 1])[-1, token.id]
        assert token.log_probability == pytest.approx(exact, abs=1e-4)


def test_without_an_end_token_the_first_is_not_scored(make_model):
    model = make_model()
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    loaded = LoadedModel.from_weights(model.config, weights, tokenizer)
    exact = log_probabilities(model, list(b"abc"), vocab_size=256)
    found = [token.log_probability for token in score(loaded, "abc")]
    assert found == pytest.approx([exact[0, ord("b")], exact[1, ord("c")]], abs=1e-4)
    assert score(loaded, "a") == []


def test_special_tokens_are_text_unless_allowed(make_model, load):
    model = load(make_model(context_length=64))
    assert len(score(model, "<|endoftext|>")) == 13
    assert [token.id for token in score(model, "<|endoftext|>", allow_special=True)] == [256]
