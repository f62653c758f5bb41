"""Generate and score text with a trained model.

`load` returns the `LanguageModel` of a run directory. Names are loaded when first used: on a CPU
torch is not imported.

>>> from tilth.generation import Sampling, next_token_distribution
>>> ids, probabilities = next_token_distribution([0.0, 1.0, 3.0], Sampling(top_k=2))
>>> ids.tolist(), probabilities.round(3).tolist()
([1, 2], [0.119, 0.881])
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
