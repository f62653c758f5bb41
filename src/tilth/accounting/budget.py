"""What fits a budget: the size and the tokens that make the most of so many FLOPs.

What enters: FLOPs. What leaves: an estimate. Hoffmann et al. (2022) trained some 400 models and
found that parameters N and tokens D should grow alike; their own Chinchilla has 20 tokens for each
parameter, and training takes about C = 6 N D operations. So N = sqrt(C / 120). It is a rule of
thumb from large models of web text: a model that will be used a lot is better made smaller and
trained for longer.

>>> optimum = compute_optimal(5.88e23)  # about Chinchilla's
>>> round(optimum.parameters / 1e9), round(optimum.tokens / 1e12, 1)
(70, 1.4)
"""

import math
from dataclasses import dataclass

from tilth.schema import POSITIVE, check_float

TOKENS_PER_PARAMETER = 20
FLOPS_PER_PARAMETER_AND_TOKEN = 6  # two forward, four backward


@dataclass(frozen=True)
class Optimum:
    """The compute-optimal size of a budget, as estimated by Hoffmann et al. (2022)."""

    flops: float
    parameters: float
    tokens: float


def compute_optimal(flops: float) -> Optimum:
    """The N and D with 6 N D = flops and D = 20 N."""
    flops = check_float("flops", flops, POSITIVE)
    parameters = math.sqrt(flops / (FLOPS_PER_PARAMETER_AND_TOKEN * TOKENS_PER_PARAMETER))
    return Optimum(flops, parameters, TOKENS_PER_PARAMETER * parameters)
