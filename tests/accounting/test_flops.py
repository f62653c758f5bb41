"""FLOPs from a config equal those that torch counts while the model runs."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tests.accounting.configs import VARIANTS, XL, configs, name_of
from tilth.accounting import (
    count_parameters,
    elementwise_flops,
    flops_by_component,
    forward_elementwise,
    forward_flops,
    forward_products,
    optimizer_operations,
    training_flops,
)
from tilth.accounting.flops import MUON_ITERATIONS
from tilth.config import GPT2_SHAPES, ModelConfig
from tilth.model import TransformerLM
from tilth.optim import Muon, muon, muon_groups


def counted(work):
    with FlopCounterMode(display=False) as counter:
        result = work()
    return counter.get_total_flops(), result


def check(config, batch_size, num_tokens):
    """Compare the forward and the backward pass of the definition with torch's counter."""
    config = replace(config, context_length=num_tokens)
    model = TransformerLM(config).use_fast_path(False)
    ids = torch.zeros(batch_size, num_tokens, dtype=torch.int64)
    forward, logits = counted(lambda: model(ids))
    assert forward == forward_flops(config, batch_size)
    backward, _ = counted(logits.sum().backward)
    assert forward + backward == training_flops(config, batch_size)
    again = training_flops(config, batch_size, recompute=True)
    assert again == forward + backward + forward


@pytest.mark.parametrize("config", VARIANTS[::3], ids=name_of)
def test_variants_against_torch(config):
    check(config, batch_size=3, num_tokens=5)


@settings(max_examples=15)
@given(configs(), st.integers(1, 4))
def test_any_config_against_torch(config, batch_size):
    check(config, batch_size, config.context_length)


def test_gpt2_xl_by_component():
    by_component = flops_by_component(XL)
    assert by_component == {
        "attention projections": 1_006_632_960_000,
        "attention scores and values": 322_122_547_200,
        "feed-forward": 3_019_898_880_000,
        "head": 164_682_137_600,
    }
    assert forward_flops(XL) == sum(by_component.values()) == 4_513_336_524_800
    assert [f"{p.m} {p.n} {p.p} {p.times}" for p in forward_products(XL)[2:5]] == [
        "1024 1600 1600 48",
        "1024 64 1024 1200",
        "1024 1024 64 1200",
    ]


def test_gpt2_sizes():
    assert [forward_flops(config) for config in GPT2_SHAPES.values()] == [
        349_630_365_696,
        1_033_109_504_000,
        2_257_754_521_600,
        4_513_336_524_800,
    ]


def test_long_context():
    long = flops_by_component(replace(XL, context_length=16_384))
    assert sum(long.values()) == 149_522_795_724_800
    assert round(long["attention scores and values"] / sum(long.values()), 3) == 0.552


def test_elementwise_by_hand():
    """One token, in a model small enough to count by hand."""
    config = replace(VARIANTS[0], num_layers=1, num_heads=1, d_model=2, d_ff=3, num_kv_heads=1)
    config = replace(config, vocab_size=7, context_length=1)
    found = forward_elementwise(config)
    assert found == {
        "norms": 3 * 4 * 2,  # two in the block and the last
        "rotations": 2 * 6,  # a pair of the query, and one of the key
        "scaled queries": 2,
        "softmax": 5,
        "SiLU": 6 * 3,
        "residual sums": 2 * 2,
        "cross-entropy": 4 * 7,
    }
    assert elementwise_flops(config) == sum(found.values())
    assert elementwise_flops(config, 3) == 3 * elementwise_flops(config)
    bare = replace(config, norm="none", position="none", ffn="silu", qk_norm=True)
    found = forward_elementwise(bare)
    assert "norms" not in found
    assert "rotations" not in found
    assert found["query and key norms"] == 4 * (2 + 2)
    assert found["SiLU"] == 5 * 3


def test_elementwise_with_heads_and_layers():
    """Two layers of four heads that share two, post-norm; two sequences of three tokens."""
    config = ModelConfig(7, 3, d_model=16, num_layers=2, num_heads=4, num_kv_heads=2, norm="post")
    found = forward_elementwise(config, 2)
    tokens = 2 * 3
    assert found["norms"] == 4 * tokens * 16 * (2 * 2)  # no last one
    assert found["rotations"] == 3 * tokens * 2 * (16 + 8)
    assert found["softmax"] == 5 * tokens * 2 * (4 * 3)
    assert found["cross-entropy"] == 4 * tokens * 7


def test_adamw_and_sgd():
    total = count_parameters(XL).total
    assert optimizer_operations(XL, "adamw") == {
        "first moment": 3 * total,
        "second moment": 4 * total,
        "update": 5 * total,
        "decay": 2 * total,
    }
    assert sum(optimizer_operations(XL, "adamw").values()) == 14 * total
    assert sum(optimizer_operations(XL, "sgd").values()) == 2 * total


@pytest.mark.parametrize("config", VARIANTS[:8], ids=name_of)
def test_muon_products(config):
    model = TransformerLM(config)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    found, _ = counted(Muon(muon_groups(model, weight_decay=0.1)).step)
    operations = optimizer_operations(config, "muon")
    assert found == operations["iteration, products"]
    parameters = count_parameters(config)
    hidden = parameters.attention + parameters.feed_forward
    assert operations["momentum"] == 3 * hidden
    assert operations["decay (AdamW)"] == 2 * (parameters.total - hidden)
    assert len(muon.FIXED) == MUON_ITERATIONS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0,), "batch_size must be at least 1, not 0."),
        ((-2,), "batch_size must be at least 1, not -2."),
        ((1.5,), "batch_size must be a whole number, not 1.5."),
    ],
)
def test_invalid_batch_size(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        forward_flops(XL, *arguments)
