"""The configs of models and training runs, validated at construction. No torch, no files."""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
