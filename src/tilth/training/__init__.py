"""Training: token files and a `TrainingConfig` to a run directory.

Read `step.py` (one update), `evaluation.py`, `session.py` (the state between steps), then
`loop.py`. Before the first step, `preflight.py` checks and `planning.py` measures.
"""

from tilth.lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
