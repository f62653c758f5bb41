"""Detection of steps with non-finite numbers and of a diverging loss.

The guard is part of the checkpoint, so a resumed run decides as an uninterrupted one would.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from tilth.schema import Range

MEAN_DECAY = 0.95  # of the exponential moving average of the loss: some twenty steps
DIVERGENCE_MARGIN = 0.5  # nats above its lowest value; noise does not raise a mean loss so far


class DivergedError(ValueError):
    """Loss, gradients or weights are not finite; the checkpoints before are intact."""


@dataclass
class Guard:
    """Counts skipped steps and tracks the moving average of the loss; plain data."""

    max_skipped: Annotated[int, Range(at_least=1)]
    skipped_in_a_row: Annotated[int, Range(at_least=0)] = 0
    skipped: Annotated[int, Range(at_least=0)] = 0
    loss: float | None = None
    mean_loss: float | None = None
    lowest_mean_loss: float | None = None

    def see(self, loss: float, grad_norm: float) -> bool:
        """Record a step; return whether its loss and gradient norm are finite, so it is applied."""
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.skipped_in_a_row, self.loss = 0, loss
            mean = loss if self.mean_loss is None else self.mean_loss
            self.mean_loss = MEAN_DECAY * mean + (1.0 - MEAN_DECAY) * loss
            lowest = self.mean_loss if self.lowest_mean_loss is None else self.lowest_mean_loss
            self.lowest_mean_loss = min(lowest, self.mean_loss)
            return True
        self.skipped += 1
        self.skipped_in_a_row += 1
        return False

    @property
    def is_over(self) -> bool:
        """Whether so many steps in a row were skipped that the run must end."""
        return self.skipped_in_a_row >= self.max_skipped

    @property
    def is_diverging(self) -> bool:
        """Whether loss and mean loss are both DIVERGENCE_MARGIN above the lowest mean loss.

        A spike raises the mean for a while after the loss has come down again.
        """
        if self.loss is None or self.mean_loss is None or self.lowest_mean_loss is None:
            return False
        return min(self.loss, self.mean_loss) > self.lowest_mean_loss + DIVERGENCE_MARGIN
