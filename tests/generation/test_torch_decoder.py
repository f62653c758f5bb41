"""Tests of the torch decoders against the native decoder and the forward pass."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.conftest import CONFIG
from tilth.generation import LanguageModel
from tilth.generation.torch_decoder import TorchDecoder, UncachedDecoder
from tilth.model import TransformerLM

VARIANTS = [
    {},
    {"num_kv_heads": 2},
    {"num_kv_heads": 1},
    {"tie_embeddings": True},
    {"qk_norm": True},
    {"norm": "post"},
    {"norm": "none"},
    {"position": "none"},
    {"ffn": "silu", "d_ff": None},
]


def some_ids(length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 260, (length,), generator=generator).tolist()


@pytest.mark.parametrize("changes", VARIANTS)
def test_cached_logits_equal_uncached_ones(make_model, changes):
    model = make_model(**changes)
    rows = [some_ids(24, seed) for seed in range(3)]
    cached = TorchDecoder(model, 3)
    found = [[], [], []]
    # Lengths differ between rows and calls. One row starts empty; one fills the context, where
    # padding must not be written.
    for cuts in ([(0, 5), (0, 1), (0, 0)], [(5, 23), (1, 9), (0, 1)], [(23, 24), (9, 10), (1, 12)]):
        new = [row[a:b] for row, (a, b) in zip(rows, cuts, strict=True)]
        logits = torch.tensor(cached.extend(new, every=True))
        for row, (a, b) in enumerate(cuts):
            found[row].append(logits[row, : b - a])
    with torch.no_grad():
        for row, parts, length in zip(rows, found, (24, 10, 12), strict=True):
            expected = model(torch.tensor([row[:length]]))[0]
            torch.testing.assert_close(torch.cat(parts), expected, rtol=0, atol=1e-5)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4))
def test_logits_do_not_depend_on_the_split_into_calls(make_model, counts):
    model = make_model()
    rows = [some_ids(24, seed) for seed in (3, 4)]
    cached, lengths = TorchDecoder(model, 2), [0, 0]
    for pair in counts:
        if not any(pair):
            continue
        new = [row[a : a + n] for row, a, n in zip(rows, lengths, pair, strict=True)]
        lengths = [a + n for a, n in zip(lengths, pair, strict=True)]
        logits = torch.tensor(cached.extend(new))
        assert logits.shape == (2, 1, 260)
        for row in range(2):
            if pair[row]:
                with torch.no_grad():
                    expected = model(torch.tensor([rows[row][: lengths[row]]]))[0, -1]
                torch.testing.assert_close(logits[row, 0], expected, rtol=0, atol=1e-5)


def test_truncated_rows_can_be_extended(make_model):
    model = make_model()
    cached = TorchDecoder(model, 2)
    cached.extend([some_ids(24, 0), some_ids(7, 1)])
    cached.truncate(0, 3)
    ids = [*some_ids(24, 0)[:3], *some_ids(10, 2)]
    found = torch.tensor(cached.extend([ids[3:], []]))[0, 0]
    with torch.no_grad():
        torch.testing.assert_close(found, model(torch.tensor([ids]))[0, -1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [TorchDecoder, UncachedDecoder])
def test_torch_decoders_equal_the_native_decoder(make_model, load, kind):
    model = make_model()
    found, native = kind(model), load(model).decoder(1)
    ids = some_ids(24, 0)
    for part in (ids[:10], ids[10:11], ids[11:]):
        logits = found.extend([part], every=True)
        assert logits.shape == (1, len(part), 260)
        np.testing.assert_allclose(logits, native.extend([part], every=True), rtol=0, atol=1e-4)
    for decoder in (found, native):
        decoder.truncate(0, 4)
    logits = found.extend([ids[4:6]])
    assert logits.shape == (1, 1, 260)
    np.testing.assert_allclose(logits, native.extend([ids[4:6]]), rtol=0, atol=1e-4)


def test_context_larger_than_the_memory_is_rejected(tokenizer):
    """No weight bounds the context length, which determines the size of tables and cache."""
    config = replace(CONFIG, context_length=2**24)
    model = TransformerLM(config, device="meta")
    with pytest.raises(ValueError, match=r"a context of 16,777,216 tokens takes .* TB in torch"):
        TorchDecoder(model, rows=1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sysconf", lambda name: 4096)
        with pytest.raises(ValueError, match=r"takes 10\.74 GB in torch, and this machine has 16"):
            LanguageModel.from_model(model, tokenizer)


# --- a model in training ---


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return TransformerLM(replace(CONFIG, context_length=16, d_model=16))


@pytest.fixture
def sample(tokenizer):
    def generate(model, prompt, **options):
        uncached = LanguageModel.from_model(model, tokenizer, cached=False)
        return "".join(uncached.generate(prompt, **options))

    return generate


def test_sampling_leaves_a_model_in_training_unchanged(model, sample):
    model.train()
    model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    state = torch.random.get_rng_state()
    text = sample(model, "abc", max_tokens=40, seed=5)  # slides more than once
    assert torch.equal(torch.random.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert text == sample(model, "abc", max_tokens=40, seed=5)
    assert text != sample(model, "abc", max_tokens=40, seed=6)
    assert text != sample(model, "abc", max_tokens=40, seed=5, sample_index=1)
    with pytest.raises(ValueError, match="max_tokens must be at least 1, not 0"):
        sample(model, "abc", max_tokens=0)


def test_model_with_nan_weights_is_reported(model, sample):
    broken = TransformerLM(model.config)
    with torch.no_grad():
        broken.token_embeddings.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="largest logit is nan"):
        sample(broken, "abc", max_tokens=2)
    assert broken.training


def test_greedy_decoding_is_argmax(model, sample, tokenizer):
    ids = list(b"ab")
    for _ in range(10):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids]))[0, -1, :257].argmax()))
    assert sample(model, "ab", max_tokens=10, temperature=0.0) == tokenizer.decode(ids[2:])


def test_generation_stops_at_the_end_token(model, sample):
    likely = TransformerLM(model.config)
    with torch.no_grad():
        likely.lm_head.weight.zero_()
        hidden = likely.hidden(torch.tensor([list(b"ab")]))[0, -1]
        likely.lm_head.weight[256] = hidden
    assert sample(likely, "ab", max_tokens=10, temperature=0.0) == ""


def test_uncached_scores_equal_native_scores(model, load, tokenizer):
    uncached = LanguageModel.from_model(model, tokenizer, cached=False)
    found = [token.log_probability for token in uncached.score("many words, and more")]
    exact = [token.log_probability for token in load(model).score("many words, and more")]
    assert found == pytest.approx(exact, abs=1e-4)
