"""Data and a config to a run directory: the loop, and what it is made of.

What enters: token files and a `TrainingConfig`. What leaves: a run directory, step by step. Read
`step.py` (one update), `evaluation.py`, `guards.py`, then `loop.py`; `machine.py` and `planning.py`
say where it runs, how long it will take, and whether to compile.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
