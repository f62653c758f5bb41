"""What a model costs, from its config alone. No torch.

What enters: a model, by name or as a config, and how it is to be trained. What leaves: its
parameters by component, every matrix product with its FLOPs, the bytes of training and generating,
and hours, energy and money on some hardware. `docs/accounting.md` says how each number comes about.

>>> print(account("gpt2-xl").parameters.total)
2127057600
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
