"""Counts from a config equal those of the model, for every variant."""

import itertools

import pytest

from tilth.accounting import count_parameters
from tilth.model import ModelConfig, TransformerLM

VARIANTS = [
    {"norm": norm, "ffn": ffn, "tie_embeddings": tied, "qk_norm": qk_norm, "num_kv_heads": kv}
    for norm, ffn, tied, qk_norm, kv in itertools.product(
        ("pre", "post", "none"), ("swiglu", "silu"), (False, True), (False, True), (None, 2)
    )
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: "-".join(map(str, v.values())))
def test_every_variant(variant):
    config = ModelConfig(
        vocab_size=101, context_length=8, d_model=48, num_layers=3, num_heads=6, **variant
    )
    model = TransformerLM(config, device="meta")
    by_component = {"embedding": 0, "attention": 0, "feed_forward": 0, "norms": 0, "head": 0}
    for name, parameter in model.named_parameters():
        if "ln" in name or "norm" in name:
            component = "norms"
        elif ".attn." in name:
            component = "attention"
        elif ".ffn." in name:
            component = "feed_forward"
        else:
            component = "head" if name.startswith("lm_head") else "embedding"
        by_component[component] += parameter.numel()
    found = count_parameters(config)
    assert by_component == {name: getattr(found, name) for name in by_component}
    assert found.total == sum(parameter.numel() for parameter in model.parameters())
    assert found.without_embedding == found.total - by_component["embedding"]
    in_layers = sum(
        p.numel() for n, p in model.named_parameters() if n.startswith(("layers", "ln"))
    )
    assert found.without_embedding_and_head == in_layers
