"""A `ModelConfig` to a Transformer, from scratch.

What enters: the numbers of a config. What leaves: a `torch.nn.Module` from token ids to logits, and
each of its layers by itself. Read `layers.py`, `attention.py`, then `transformer.py`. Names are
loaded when first used: a config alone needs no torch.

>>> from tilth.config import ModelConfig
>>> from tilth.model import TransformerLM
>>> config = ModelConfig(vocab_size=100, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> sum(parameter.numel() for parameter in TransformerLM(config, device="meta").parameters())
27040
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
