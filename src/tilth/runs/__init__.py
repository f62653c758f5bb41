"""Everything that a run leaves on disk, and back.

What enters: a config, a model and its optimizer, what happened at each step. What leaves: a run
directory, and all of it again. Only checkpoints need torch.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
