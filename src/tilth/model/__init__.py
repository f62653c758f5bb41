"""A `ModelConfig` to a Transformer, from scratch.

What enters: the numbers of a config. What leaves: a `torch.nn.Module` from token ids to logits, and
each of its layers by itself. Read `layers.py`, `attention.py`, then `transformer.py`. Names are
loaded when first used: a config alone needs no torch.

>>> from tilth.model import ModelConfig, TransformerLM
>>> config = ModelConfig(vocab_size=100, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> sum(parameter.numel() for parameter in TransformerLM(config, device="meta").parameters())
27040
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tilth.model.config import ModelConfig

if TYPE_CHECKING:
    from tilth.model.attention import (
        MultiHeadSelfAttention,
        RotaryPositionalEmbedding,
        scaled_dot_product_attention,
    )
    from tilth.model.layers import (
        Embedding,
        Linear,
        RMSNorm,
        SiLUFeedForward,
        SwiGLU,
        silu,
        softmax,
    )
    from tilth.model.transformer import TransformerBlock, TransformerLM

__all__ = [
    "Embedding",
    "Linear",
    "ModelConfig",
    "MultiHeadSelfAttention",
    "RMSNorm",
    "RotaryPositionalEmbedding",
    "SiLUFeedForward",
    "SwiGLU",
    "TransformerBlock",
    "TransformerLM",
    "scaled_dot_product_attention",
    "silu",
    "softmax",
]

# Where each name that needs torch lives.
_HOME = {
    "Embedding": "tilth.model.layers",
    "Linear": "tilth.model.layers",
    "MultiHeadSelfAttention": "tilth.model.attention",
    "RMSNorm": "tilth.model.layers",
    "RotaryPositionalEmbedding": "tilth.model.attention",
    "SiLUFeedForward": "tilth.model.layers",
    "SwiGLU": "tilth.model.layers",
    "TransformerBlock": "tilth.model.transformer",
    "TransformerLM": "tilth.model.transformer",
    "scaled_dot_product_attention": "tilth.model.attention",
    "silu": "tilth.model.layers",
    "softmax": "tilth.model.layers",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tilth.model' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
