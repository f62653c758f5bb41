"""Configs of every model variant, and GPT-2 XL, whose numbers were computed by hand."""

import itertools
from dataclasses import replace

from hypothesis import strategies as st

from tilth.config import ModelConfig

# GPT-2 XL in this architecture.
XL = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)

_CHOICES = {
    "norm": ("pre", "post", "none"),
    "position": ("rope", "none"),
    "ffn": ("swiglu", "silu"),
    "tie_embeddings": (False, True),
    "qk_norm": (False, True),
    "num_kv_heads": (None, 2),
}
VARIANTS = [
    ModelConfig(
        vocab_size=101,
        context_length=16,
        d_model=48,
        num_layers=2,
        num_heads=6,
        **dict(zip(_CHOICES, values, strict=True)),
    )
    for values in itertools.product(*_CHOICES.values())
]
# Heads of their own width, and biases, with every path that copies queries, keys or values.
VARIANTS += [
    replace(config, head_dim=10, qkv_bias=True, norm_eps=1e-6)
    for config in VARIANTS
    if config.norm == "pre" and config.ffn == "swiglu"
]


def name_of(config):
    own = "" if config.head_dim is None else "-own-heads"
    return "-".join(str(getattr(config, name)) for name in _CHOICES) + own


@st.composite
def configs(draw):
    num_kv_heads, group = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    num_heads, d_head = num_kv_heads * group, 2 * draw(st.integers(1, 8))
    return ModelConfig(
        vocab_size=draw(st.integers(1, 200)),
        context_length=draw(st.integers(1, 24)),
        d_model=draw(st.just(num_heads * d_head) | st.integers(1, 64)),
        head_dim=d_head,
        qkv_bias=draw(st.booleans()),
        num_layers=draw(st.integers(1, 3)),
        num_heads=num_heads,
        d_ff=draw(st.none() | st.integers(1, 100)),
        norm=draw(st.sampled_from(_CHOICES["norm"])),
        position=draw(st.sampled_from(_CHOICES["position"])),
        ffn=draw(st.sampled_from(_CHOICES["ffn"])),
        tie_embeddings=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        num_kv_heads=num_kv_heads,
    )
