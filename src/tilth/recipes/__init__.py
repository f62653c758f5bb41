"""A name and a few dials to a whole training configuration. No torch.

What enters: a recipe's name, the token files, perhaps a size and a length. What leaves: a
`TrainingConfig` in which the rest has followed. Why the numbers are what they are stands in
`docs/experiments.md`.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
