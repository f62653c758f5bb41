"""The Transformer and its layers as `torch.nn.Module`s, from scratch.

Read `layers.py`, `attention.py`, then `transformer.py`. Names are loaded when first used: a
`ModelConfig` alone does not import torch.

>>> from tilth.config import ModelConfig
>>> from tilth.model import TransformerLM
>>> config = ModelConfig(vocab_size=100, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> sum(parameter.numel() for parameter in TransformerLM(config, device="meta").parameters())
27040
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
