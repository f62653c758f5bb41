"""Parameter counts from a config equal those of the model and of published models."""

from collections import Counter

import pytest
from hypothesis import given, settings

from tests.accounting.configs import VARIANTS, XL, configs, name_of
from tilth.accounting import count_parameters
from tilth.accounting.parameters import hidden_matrices, parameter_tensors
from tilth.config import LLAMA_SHAPES
from tilth.model import TransformerLM


def by_component(model):
    found = {"embedding": 0, "attention": 0, "feed_forward": 0, "norms": 0, "head": 0}
    for name, parameter in model.named_parameters():
        if "ln" in name or "norm" in name:
            component = "norms"
        elif ".attn." in name:
            component = "attention"
        elif ".ffn." in name:
            component = "feed_forward"
        else:
            component = "head" if name.startswith("lm_head") else "embedding"
        found[component] += parameter.numel()
    return found


def shape_counts(tensors):
    counts = Counter()
    for tensor in tensors:
        counts[tensor.shape] += tensor.number
    return counts


def check(config):
    model = TransformerLM(config, device="meta")
    expected, found = by_component(model), count_parameters(config)
    assert {name: getattr(found, name) for name in expected} == expected
    assert found.total == sum(parameter.numel() for parameter in model.parameters())
    assert found.without_embedding == found.total - expected["embedding"]
    in_layers = sum(
        p.numel() for n, p in model.named_parameters() if n.startswith(("layers", "ln"))
    )
    assert found.without_embedding_and_head == in_layers
    shapes = Counter(tuple(parameter.shape) for parameter in model.parameters())
    assert shapes == shape_counts(parameter_tensors(config))
    hidden = [p for n, p in model.named_parameters() if n.startswith("layers") and p.ndim == 2]
    assert Counter(tuple(p.shape) for p in hidden) == shape_counts(hidden_matrices(config))


@pytest.mark.parametrize("config", VARIANTS, ids=name_of)
def test_every_variant(config):
    check(config)


@settings(max_examples=300)
@given(configs())
def test_any_config(config):
    check(config)


def test_gpt2_xl():
    assert count_parameters(XL).total == 2_127_057_600
    check(XL)


@pytest.mark.parametrize(
    ("name", "published"),  # from their model cards
    [
        ("tinyllama-1.1b", 1_100_048_384),
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
    ],
)
def test_published_models(name, published):
    assert count_parameters(LLAMA_SHAPES[name]).total == published
