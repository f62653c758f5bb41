"""Products from a config equal those that torch counts while the model runs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tilth.accounting import forward_flops, forward_products, training_flops
from tilth.model import ModelConfig, TransformerLM


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"ffn": "silu"},
        {"num_kv_heads": 2},
        {"tie_embeddings": True, "norm": "none", "position": "none"},
        {"qk_norm": True, "norm": "post", "d_ff": 80},
    ],
    ids=str,
)
@pytest.mark.parametrize(("batch_size", "num_tokens"), [(1, 8), (3, 5)])
def test_against_the_counter_of_torch(variant, batch_size, num_tokens):
    config = ModelConfig(
        vocab_size=101, context_length=8, d_model=48, num_layers=3, num_heads=6, **variant
    )
    model = TransformerLM(config).use_fast_path(False)
    with FlopCounterMode(display=False) as forward:
        logits = model(torch.zeros(batch_size, num_tokens, dtype=torch.int64))
    assert forward.get_total_flops() == forward_flops(config, batch_size, num_tokens)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    both = forward.get_total_flops() + backward.get_total_flops()
    assert both == training_flops(config, batch_size, num_tokens)


def test_components_of_a_known_shape():
    """GPT-2 XL's, in our architecture: 4.513e12 a sequence, by component as worked out by hand."""
    config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
    by_component = {}
    for product in forward_products(config):
        by_component.setdefault(product.component, 0)
        by_component[product.component] += product.flops
    projections = 48 * 4 * 2 * 1024 * 1600 * 1600
    scores = 48 * 2 * 2 * 1024 * 1024 * 1600
    assert by_component == {
        "attention": projections + scores,
        "feed-forward": 48 * 3 * 2 * 1024 * 1600 * 6400,
        "head": 2 * 1024 * 1600 * 50_257,
    }
    assert f"{forward_flops(config):.3e}" == "4.513e+12"
