"""The compute-optimal model size for a FLOP budget.

Hoffmann et al. (2022) trained about 400 models and found that parameters N and tokens D should
grow in proportion. Their model Chinchilla has 20 tokens per parameter, and training takes about
C = 6 N D operations, so N = sqrt(C / 120). This is a rule of thumb from large models of web text. A
model with many users is better made smaller and trained for longer.

>>> optimum = compute_optimal(5.88e23)  # about Chinchilla's
>>> round(optimum.parameters / 1e9), round(optimum.tokens / 1e12, 1)
(70, 1.4)
"""

import math
from dataclasses import dataclass

from tilth.accounting.flops import training_flops_per_token
from tilth.config.model import ModelConfig
from tilth.schema import POSITIVE, check_float

TOKENS_PER_PARAMETER = 20
FLOPS_PER_PARAMETER_AND_TOKEN = 6  # two forward, four backward


@dataclass(frozen=True)
class Optimum:
    """The compute-optimal parameters and tokens of a budget, by Hoffmann et al. (2022)."""

    flops: float
    parameters: float
    tokens: float


def effective_parameters(config: ModelConfig) -> float:
    """Return the N of a scaling law: the FLOPs per training token, divided by 6."""
    return training_flops_per_token(config) / FLOPS_PER_PARAMETER_AND_TOKEN


def compute_optimal(flops: float) -> Optimum:
    """Return the N and D with 6 N D = flops and D = 20 N."""
    flops = check_float("flops", flops, POSITIVE)
    parameters = math.sqrt(flops / (FLOPS_PER_PARAMETER_AND_TOKEN * TOKENS_PER_PARAMETER))
    return Optimum(flops, parameters, TOKENS_PER_PARAMETER * parameters)
