"""The traffic of training in several processes.

>>> from tilth.config.model import ModelConfig
>>> model = ModelConfig(1000, context_length=64, d_model=96, num_layers=2, num_heads=4)
>>> gradient_traffic(model, 1), gradient_traffic(model, 2), gradient_traffic(model, 4)
(0, 1654656, 2481984)
"""

from tilth.accounting.parameters import count_parameters
from tilth.config.model import ModelConfig

GRADIENT_BYTES = 4  # gradients are float32


def gradient_traffic(model: ModelConfig, ranks: int, *, exact: bool = False) -> int:
    """Return the bytes that each of `ranks` sends in a step, at most, to add up gradients.

    A ring all-reduce of n bytes sends 2 (ranks - 1) / ranks * n. In exact sums, a rank passes the
    sum on once, and its result again in a broadcast.
    """
    size = GRADIENT_BYTES * count_parameters(model).total
    if ranks == 1:
        return 0
    return 2 * size if exact else round(2 * (ranks - 1) / ranks * size)
