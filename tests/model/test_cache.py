"""Tests of the key/value cache; tests/generation/test_torch_decoder.py compares logits."""

import pytest
import torch

from tests.model.conftest import CONFIG
from tilth.model import KeyValueCache


def test_memory_is_allocated_once(make_model):
    cache = KeyValueCache(CONFIG, 2, torch.device("cpu"), torch.float32)
    tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    places = [tensor.data_ptr() for tensor in tensors]
    assert {tuple(tensor.shape) for tensor in tensors} == {(2, 4, 24, 8)}
    with torch.no_grad():
        for _ in range(10):
            ids, positions = cache.begin([[1, 2], [3]])
            make_model().hidden(ids, positions, cache.layers)
    assert [t.data_ptr() for layer in cache.layers for t in (layer.keys, layer.values)] == places
    assert cache.lengths == [20, 10]


def test_invalid_arguments_are_rejected():
    cache = KeyValueCache(CONFIG, 2, torch.device("cpu"), torch.float32)
    cache.begin([[0] * 13, [0] * 7])
    with pytest.raises(ValueError, match="cannot keep 14 ids of 13"):
        cache.truncate(0, 14)
    with pytest.raises(ValueError, match="context length is 24, and 13 tokens and 12 more do not"):
        cache.begin([[0] * 12, [0]])
    for wrong in ([[0]], [[], []], [[0], [0], [0]]):
        with pytest.raises(ValueError, match="one list of ids for each of the 2 sequences, not"):
            cache.begin(wrong)
    assert cache.lengths == [13, 7]
