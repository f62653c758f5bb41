"""Data and a config to a run directory: the loop, and what it is made of.

What enters: token files and a `TrainingConfig`. What leaves: a run directory, step by step. Read
`step.py` (one update), `evaluation.py`, `session.py` (the state between steps), then `loop.py`;
`preflight.py` checks, and `planning.py` measures, before the first step.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
