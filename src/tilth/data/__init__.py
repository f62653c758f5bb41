"""Data folders: a corpus and a tokenizer to token files, and token files to batches.

Only `batches` needs torch, so names are imported on first use.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
