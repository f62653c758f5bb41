"""The cache in torch: equal to the model without one, at every position, in every batch."""

import copy
import doctest

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.generation import CachedModel, generate, generate_batch
from tilth.generation import batch as batch_module
from tilth.generation import cache as cache_module
from tilth.generation.cache import TorchDecoder, check_device, torch_model
from tilth.generation.sampling import Sampling

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


@pytest.mark.parametrize("module", [batch_module, cache_module])
def test_docstring(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("changes", VARIANTS)
def test_cached_logits_equal_uncached_ones(make_model, changes):
    model = make_model(**changes)
    rows = [some_ids(24, seed) for seed in range(3)]
    cached = CachedModel(model, 3)
    found = [[], [], []]
    # Lengths that differ from row to row and from call to call. One row reads nothing at first; one
    # ends at the end of the context, where what fills it up must not be written.
    for cuts in ([(0, 5), (0, 1), (0, 0)], [(5, 23), (1, 9), (0, 1)], [(23, 24), (9, 10), (1, 12)]):
        logits = cached.extend([row[a:b] for row, (a, b) in zip(rows, cuts, strict=True)])
        for row, (a, b) in enumerate(cuts):
            found[row].append(logits[row, : b - a])
    with torch.no_grad():
        for row, parts, length in zip(rows, found, cached.lengths, strict=True):
            expected = model(torch.tensor([row[:length]]))[0]
            torch.testing.assert_close(torch.cat(parts), expected, rtol=0, atol=1e-5)
    assert cached.lengths == [24, 10, 12]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=4))
def test_any_cut_into_calls_gives_the_same_logits(make_model, counts):
    model = make_model()
    rows = [some_ids(24, seed) for seed in (3, 4)]
    cached = CachedModel(model, 2)
    for pair in counts:
        if not any(pair):
            continue
        before = cached.lengths
        new = [row[a : a + n] for row, a, n in zip(rows, before, pair, strict=True)]
        logits = cached.extend(new, every=False)
        assert logits.shape == (2, 1, 260)
        for row in range(2):
            if pair[row]:
                with torch.no_grad():
                    expected = model(torch.tensor([rows[row][: cached.lengths[row]]]))[0, -1]
                torch.testing.assert_close(logits[row, 0], expected, rtol=0, atol=1e-5)


def test_truncated_rows_read_again(make_model):
    model = make_model()
    cached = CachedModel(model, 2)
    cached.extend([some_ids(24, 0), some_ids(7, 1)])
    cached.truncate(0, 3)
    ids = [*some_ids(24, 0)[:3], *some_ids(10, 2)]
    found = cached.extend([ids[3:], []], every=False)[0, 0]
    with torch.no_grad():
        torch.testing.assert_close(found, model(torch.tensor([ids]))[0, -1], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="cannot keep 14 ids of 13"):
        cached.truncate(0, 14)
    with pytest.raises(ValueError, match="context length is 24, and 13 tokens and 12 more do not"):
        cached.extend([[0] * 12, [0]])


def test_memory_is_allocated_once(make_model):
    cached = CachedModel(make_model(), 2)
    places = [tensor.data_ptr() for tensor in (*cached._keys, *cached._values)]
    for _ in range(10):
        cached.extend([[1, 2], [3]])
    assert [tensor.data_ptr() for tensor in (*cached._keys, *cached._values)] == places


def test_the_torch_decoder_equals_the_native_one(make_model, load):
    model = make_model()
    torch_decoder, native = TorchDecoder(model), load(model).decoder()
    ids = some_ids(24, 0)
    for part in (ids[:10], ids[10:11], ids[11:]):
        every = torch_decoder.extend(part, every=True)
        np.testing.assert_allclose(every, native.extend(part, every=True), rtol=0, atol=1e-4)
        assert torch_decoder.length == native.length
    torch_decoder.truncate(4)
    native.truncate(4)
    found = torch_decoder.extend(ids[4:6])
    assert found.shape == (1, 260)
    np.testing.assert_allclose(found, native.extend(ids[4:6]), rtol=0, atol=1e-4)


def test_a_batch_is_its_sequences(make_model, load, tokenizer):
    """Each row as if alone, with its own end, though prompts and slides come at other places."""
    model = make_model()
    with torch.no_grad():  # so that the end token comes, at different times
        model.lm_head.weight[256] *= 2
    prompts = ["a", "Once upon a time", "", "a" * 24]
    sampling = Sampling(temperature=0.7, seed=1)
    texts = generate_batch(model, tokenizer, prompts, max_tokens=50, sampling=sampling)
    for row, prompt in enumerate(prompts):
        alone = generate(
            load(model), prompt, max_tokens=50, temperature=0.7, seed=1, sample_index=row
        )
        assert texts[row] == "".join(alone)
    assert len({len(text) for text in texts}) > 1
    with pytest.raises(ValueError, match="takes a list of prompts"):
        generate_batch(model, tokenizer, "a prompt")
    with pytest.raises(ValueError, match="max_tokens is 0; write 1 token or more"):
        generate_batch(model, tokenizer, ["a prompt"], max_tokens=0)


def test_weights_go_to_a_device_or_get_a_sentence(make_model):
    model = make_model(qk_norm=True)
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    decoder = TorchDecoder(torch_model(model.config, copy.deepcopy(weights), "cpu"))
    with torch.no_grad():
        expected = model(torch.tensor([[1, 2, 3]]))[0, -1:].numpy()
    np.testing.assert_allclose(decoder.extend([1, 2, 3]), expected, rtol=0, atol=1e-5)
    check_device("cpu")
    with pytest.raises(ValueError, match=r"torch cannot use the device 'quantum' \(.*\); try cpu."):
        check_device("quantum")
    del weights["ln_final.weight"]
    with pytest.raises(ValueError, match=r"Missing key.*ln_final"):
        torch_model(model.config, weights, "cpu")
