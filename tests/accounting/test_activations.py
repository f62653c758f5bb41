"""Predicted activations equal the tensors that autograd saves, to the byte."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.accounting.configs import VARIANTS, XL, configs, name_of
from tilth.accounting import definition_path, fast_path, textbook, total_bytes
from tilth.model import TransformerLM, chunked_cross_entropy, cross_entropy

PATHS = {"fast": fast_path, "definition": definition_path}
UNTIED = [
    config for config in VARIANTS if not config.tie_embeddings
]  # tied embeddings change nothing here


def saved_by_autograd(config, batch_size, path, dtype):
    """The bytes of all tensors that autograd saves, each storage once."""
    model = TransformerLM(config).use_fast_path(path == "fast")
    inputs, targets = torch.zeros(2, batch_size, config.context_length, dtype=torch.int64).unbind()
    targets = targets.clone()  # a separate storage, as in `Batches`
    owned = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            kept[storage.data_ptr()] = storage  # keeps the address from being reused
        return tensor

    autocast = torch.autocast("cpu", getattr(torch, dtype), enabled=dtype != "float32")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast:
        if path == "fast":
            chunked_cross_entropy(model.hidden(inputs.clone()), model.head_weight, targets)
        else:
            cross_entropy(model(inputs.clone()), targets)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("config", UNTIED, ids=name_of)
def test_every_variant(config, path, dtype):
    expected = total_bytes(PATHS[path](config, dtype)).bytes(2)
    assert saved_by_autograd(config, 2, path, dtype) == expected


@settings(max_examples=60)
@given(configs(), st.integers(1, 5), st.sampled_from(list(PATHS)))
def test_any_config(config, batch_size, path):
    """Within 10%: with one head or one token, some copies are views."""
    estimate = total_bytes(PATHS[path](config)).bytes(batch_size)
    found = saved_by_autograd(config, batch_size, path, "float32")
    assert found == pytest.approx(estimate, rel=0.1)


def test_textbook_by_hand():
    seq, d_model, d_ff, heads, vocab = 1024, 1600, 6400, 25, 50_257
    block = 2 * seq * d_model  # norms
    block += 3 * seq * d_model  # queries, keys, values
    block += 2 * heads * seq * seq  # scores, softmax
    block += 2 * seq * d_model  # weighted sum, output projection
    block += 2 * seq * d_ff + seq * d_model  # w1 product, SiLU, w2 product
    total = 4 * (48 * block + seq * d_model + 2 * seq * vocab)
    assert total == 15_517_753_344
    assert total_bytes(textbook(XL)).bytes(1) == total
    assert total_bytes(textbook(XL, "bfloat16")).bytes(3) == 3 * total // 2


def test_textbook_variants():
    """The difference that each variant makes, in elements."""

    def elements_less(**changes):
        full, changed = (total_bytes(textbook(c)) for c in (XL, replace(XL, **changes)))
        return (full.bytes(1) - changed.bytes(1)) // 4

    tokens_and_layers = 1024 * 48
    assert elements_less(norm="none") == tokens_and_layers * 2 * 1600 + 1024 * 1600
    assert elements_less(norm="post") == 1024 * 1600
    assert elements_less(num_kv_heads=5) == tokens_and_layers * 2 * (1600 - 320)
    assert elements_less(qk_norm=True) == -tokens_and_layers * 2 * 1600
    assert elements_less(ffn="silu", tie_embeddings=True, position="none") == 0
