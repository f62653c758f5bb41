"""Limits of configs equal those of the native core."""

from dataclasses import replace

import pytest

import tilth.generation._core
import tilth.tokenizer._core
from tilth.config import MachineConfig, ModelConfig, limits

MODEL = ModelConfig(300, context_length=16, d_model=16, num_layers=1, num_heads=2)


def test_limits_equal_those_of_the_native_core():
    assert limits.MAX_VOCAB_SIZE == tilth.tokenizer._core.MAX_VOCAB_SIZE
    for core in (tilth.tokenizer._core, tilth.generation._core):
        assert limits.MAX_THREADS == core.MAX_THREADS
    largest = (limits.MAX_CONTEXT_LENGTH, limits.MAX_LAYERS, limits.MAX_HEADS, 4 * limits.MAX_WIDTH)
    assert max(largest) <= tilth.generation._core.MAX_DIMENSION


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("vocab_size", limits.MAX_VOCAB_SIZE),
        ("context_length", limits.MAX_CONTEXT_LENGTH),
        ("d_model", limits.MAX_WIDTH),
        ("num_layers", limits.MAX_LAYERS),
        ("d_ff", 4 * limits.MAX_WIDTH),
    ],
)
def test_shapes_beyond_the_limits_are_errors(name, limit):
    assert getattr(replace(MODEL, **{name: limit}), name) == limit
    for value in (limit + 1, 2**61, 10**400):
        with pytest.raises(
            ValueError, match=rf"^{name} must be at most {limit}, not .{{1,40}}[.]$"
        ):
            replace(MODEL, **{name: value})


def test_heads_and_threads_have_limits():
    with pytest.raises(ValueError, match="num_heads must be at most 65535, not 65536"):
        replace(MODEL, num_heads=2**16)
    with pytest.raises(ValueError, match=r"machine.threads must be at most 1024, not 18446744"):
        MachineConfig(threads=2**64)
