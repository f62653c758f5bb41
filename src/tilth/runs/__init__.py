"""Run directories: config, tokenizer, logs and checkpoints of a training run.

`state.py` and `checkpoint_file.py` need torch, the other modules do not.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
