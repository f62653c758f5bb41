"""Experiments that explain training: a question to trials, and their results to an answer.

lab = tilth.lab.learning_rate("data/stories", budget="20m", out="lab/lr")
print(lab.answer)
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
