"""The size and the batch of a recipe's model for a time budget.

The measured trials do not determine a law L(N, D) (docs/experiments.md#scaling). So the rule is a
power law for the best size alone, through one measured optimum, with a published exponent:

    N(C) = ANCHOR_PARAMETERS * (C / ANCHOR_FLOPS) ** EXPONENT

| constant | value | source |
|---|---|---|
| ANCHOR_FLOPS | 1.25e13 | 4 layers of width 64, 96 and 128 for 3,400, 2,000 and 1,400 steps |
| ANCHOR_PARAMETERS | 0.88e6 | minimum of the parabola through their losses over log N |
| ANCHOR_TOKENS_PER_STEP | 1,024 | their batch; 2 and 4 rows of 256 were equal |
| EXPONENT | 0.46 | Hoffmann et al. (2022), approach 3 |
| MOST_PASSES | 4 | Muennighoff et al. (2023): later passes are worth less than new text |

It gives 72 billion parameters for the 5.88e23 FLOPs of Chinchilla, which has 70. N is the FLOPs per
token divided by 6, so it includes the output matrix and attention.

>>> round(optimal_parameters(4 * ANCHOR_FLOPS) / optimal_parameters(ANCHOR_FLOPS), 2)
1.89
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilth.accounting.budget import FLOPS_PER_PARAMETER_AND_TOKEN, effective_parameters
from tilth.config.overrides import changed
from tilth.config.recipes import RECIPES, Recipe
from tilth.config.training import TrainingConfig
from tilth.data import Data
from tilth.formatting import format_duration
from tilth.training.planning import measure_flops

ANCHOR_FLOPS = 1.25e13
ANCHOR_PARAMETERS = 0.88e6
ANCHOR_TOKENS_PER_STEP = 1024
EXPONENT = 0.46
MOST_PASSES = 4
SIZES = range(2, 33)  # numbers of layers


@dataclass(frozen=True)
class Size:
    """The shape that suits a budget."""

    num_layers: int
    batch_size: int
    reason: str


def sized(
    config: TrainingConfig, data: Data, given: Mapping[str, Any]
) -> tuple[TrainingConfig, str]:
    """Return the config with the size and batch for its budget, and the reason; see `choose_size`.

    The config is of a recipe, changed by the values `given`, which are kept. The config stays as it
    is, without a reason, if it has no budget, if a part of the shape is given, or if the recipe has
    a budget of its own, for which its shape was chosen.
    """
    recipe = RECIPES.get(config.recipe)
    is_given = any(name.startswith("model.") for name in given)
    if recipe is None or recipe.budget_seconds or is_given or config.budget_seconds is None:
        return config, ""
    vocab_size, seconds = config.model.vocab_size, config.budget_seconds
    speed = measure_flops(config, data)
    found = choose_size(recipe, vocab_size, len(data.train), seconds, speed)
    made = recipe(vocab_size, config.data, size=found.num_layers, budget_seconds=seconds)
    return changed(made, {"batch_size": found.batch_size, **given}), found.reason


def choose_size(
    recipe: Recipe, vocab_size: int, train_tokens: int, seconds: float, flops_per_second: float
) -> Size:
    """Choose the number of layers and the batch size of a recipe for a budget of `seconds`.

    A text that is read `MOST_PASSES` times does not pay for a larger model. The batch grows with
    the model by powers of two, which limits the share of Muon's iteration in a step.
    """
    flops = seconds * flops_per_second
    useful = min(flops, _flops_of_tokens(MOST_PASSES * train_tokens))
    wanted = optimal_parameters(useful)
    shapes = {size: recipe(vocab_size, "", size=size, steps=1).model for size in SIZES}
    sizes = {size: effective_parameters(model) for size, model in shapes.items()}
    best = min(sizes, key=lambda size: abs(math.log(sizes[size] / wanted)))
    doublings = max(0, round(math.log2(sizes[best] / ANCHOR_PARAMETERS)))
    rows = (ANCHOR_TOKENS_PER_STEP << doublings) // recipe.context_length
    tokens = flops / (FLOPS_PER_PARAMETER_AND_TOKEN * sizes[best])
    limit = f", limited by {train_tokens:,} tokens of text" if useful < flops else ""
    reason = (
        f"{best} layers of width {shapes[best].d_model}: {format_duration(seconds)} at "
        f"{flops_per_second / 1e9:,.0f} GFLOP/s suit {wanted / 1e6:.2g} million parameters{limit}; "
        f"about {tokens / train_tokens:.2g} passes over the text"
    )
    return Size(best, max(recipe.batch_size, rows), reason)


def optimal_parameters(flops: float) -> float:
    """Return the number of parameters for a number of FLOPs."""
    return ANCHOR_PARAMETERS * float((flops / ANCHOR_FLOPS) ** EXPONENT)


def _flops_of_tokens(tokens: float) -> float:
    """Return the FLOPs whose best model reads this many tokens: C with C = 6 N(C) `tokens`."""
    at_anchor = ANCHOR_FLOPS / (FLOPS_PER_PARAMETER_AND_TOKEN * ANCHOR_PARAMETERS)
    return ANCHOR_FLOPS * float((tokens / at_anchor) ** (1 / (1 - EXPONENT)))
