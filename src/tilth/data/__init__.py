"""Corpus and tokenizer to token files, and token files to batches.

What enters: text and a tokenizer. What leaves: a data folder, and from it the tensors that a
training step reads. Only `batches` needs torch, so names are loaded when they are first used.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
