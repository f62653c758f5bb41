"""The end of a run with a time budget, decided during the run.

The speed of a machine changes after the measurement at the start. With the schedule
warmup-stable-decay, the learning rate of the constant phase does not depend on the length of the
run. So the number of steps is decided at the end of that phase, from the time that its steps took,
and stored in the config: the run is that of its config, and resumes to the same bits.
"""

import time
from dataclasses import replace

from tilth.config.limits import MAX_COUNT
from tilth.config.training import ResolvedConfig
from tilth.runs.metrics import StepRecord


class Deadline:
    """Decides how many steps a run takes, so that it ends at a time of `time.monotonic`.

    Args:
        ends_at: The end of the budget.
        config: The config of the plan. Its share of steps with a decaying learning rate is kept.

    Attributes:
        config: The config of the run; that of the plan until the decision.
        is_decided: Whether the decision was made.

    """

    def __init__(self, ends_at: float, config: ResolvedConfig) -> None:
        self.ends_at, self.config = ends_at, config
        self.is_decided = config.optimizer.schedule != "warmup-stable-decay"
        self._length = config.steps - config.optimizer.begin_step
        self._first: tuple[int, float] | None = None  # step and its end
        self._last = 0.0
        self._evaluation_seconds = 0.0

    def see(self, record: StepRecord) -> bool:
        """Add a step; return True if the decision is made now, and change `config`."""
        now = time.monotonic()
        if self._first is None:  # this step may have compiled the model
            self._first, self._last = (record.step, now), now
            return False
        if record.evaluation is not None:
            self._evaluation_seconds = now - self._last - (record.step_seconds or 0.0)
        self._last = now
        if self.is_decided:
            return False
        config, optimizer = self.config, self.config.optimizer
        latest = config.steps - optimizer.decay_steps  # the last step that is constant in the plan
        # With the evaluations, samples and checkpoints between the steps.
        pace = max((now - self._first[1]) / (record.step - self._first[0]), 1e-9)
        left = (self.ends_at - now - self._evaluation_seconds) / pace  # the last step evaluates
        steps = min(record.step + max(1, int(left)), MAX_COUNT)
        # A slower machine than planned: with the planned share of decay, it begins earlier.
        share = optimizer.decay_steps / self._length
        due = min(latest, steps - share * (steps - optimizer.begin_step))
        if record.step < max(due, optimizer.begin_step + optimizer.warmup_steps):
            return False
        self.is_decided = True
        if record.step > latest:  # a plan of a few steps
            return False
        decaying = replace(optimizer, decay_steps=steps - record.step)
        self.config = replace(config, steps=steps, optimizer=decaying)
        return True
