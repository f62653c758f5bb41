"""Runs to the files of other tools, and back; evaluation on tasks. No torch.

`tilth.formats` knows the files; here are the verbs, the model card and lm-eval.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
