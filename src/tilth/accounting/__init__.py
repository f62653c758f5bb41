"""Parameters, FLOPs, memory, time, energy and price of a model, from its config. No torch.

`docs/accounting.md` derives each number.

>>> from tilth.accounting import account
>>> account("gpt2-xl").parameters.total
2127057600
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
