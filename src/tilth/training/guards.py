"""What watches over a training: steps that must not be applied, and a loss that runs away.

What enters: the loss and the gradient's norm of each step. What leaves: whether the step counts,
whether the run diverges, and the end of the run when nothing is finite any more. The guard's memory
is part of a run's state, so a resumed run judges as it would have.
"""

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from tilth.schema import Range, read

MEMORY = 0.95  # of the running mean of the loss: some twenty steps
FAR = 0.5  # nats above its lowest value: where a running mean never gets by chance


class DivergedError(ValueError):
    """Nothing is finite any more: the run cannot go on, and what is saved is good."""


@dataclass
class Guard:
    """Counts skipped steps, and follows the loss."""

    max_skipped: Annotated[int, Range(at_least=1)]
    skipped_in_a_row: Annotated[int, Range(at_least=0)] = 0
    skipped: Annotated[int, Range(at_least=0)] = 0
    loss: float | None = None
    mean_loss: float | None = None
    lowest_mean_loss: float | None = None

    def see(self, loss: float, grad_norm: float) -> bool:
        """Return whether the step was applied."""
        if math.isfinite(loss) and math.isfinite(grad_norm):
            self.skipped_in_a_row, self.loss = 0, loss
            mean = loss if self.mean_loss is None else self.mean_loss
            self.mean_loss = MEMORY * mean + (1.0 - MEMORY) * loss
            lowest = self.mean_loss if self.lowest_mean_loss is None else self.lowest_mean_loss
            self.lowest_mean_loss = min(lowest, self.mean_loss)
            return True
        self.skipped += 1
        self.skipped_in_a_row += 1
        return False

    @property
    def is_over(self) -> bool:
        """Whether too many steps in a row were not applied for the run to go on."""
        return self.skipped_in_a_row >= self.max_skipped

    @property
    def is_diverging(self) -> bool:
        """Whether the loss is far above what it had been, now and in the mean.

        A spike stays in the mean for a while after the loss has come down again.
        """
        if self.loss is None or self.mean_loss is None or self.lowest_mean_loss is None:
            return False
        return min(self.loss, self.mean_loss) > self.lowest_mean_loss + FAR

    def to_dict(self) -> dict[str, Any]:
        """The memory, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """Make one of what `to_dict` gave; ValueError for anything else."""
        return read(cls, values, "the guard", table="guard")
