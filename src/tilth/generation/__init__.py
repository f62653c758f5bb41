"""A run directory and a prompt to text.

What enters: the weights and the tokenizer of a run, and a prompt. What leaves: text as it comes, or
tokens with their log-probabilities, or the score of a given text. Names are loaded when first used:
what runs on a CPU needs no torch.

>>> from tilth.generation import Sampling, next_token_distribution
>>> ids, probabilities = next_token_distribution([0.0, 1.0, 3.0], Sampling(top_k=2))
>>> ids.tolist(), probabilities.round(3).tolist()
([1, 2], [0.119, 0.881])
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
