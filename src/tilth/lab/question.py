"""A question that training runs answer: the trials that it needs, and what their results say.

Both are functions of the results so far. So an interrupted question continues: it asks again, and
finds most of the results on disk.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilth.accounting import training_flops
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.lab.trials import PlannedTrial, Results, TrialGroup, groups_of
from tilth.report.lab_file import Chart, Table

MAX_SEEDS = 1000
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Findings:
    """The answer of a question, with its tables and charts."""

    answer: str
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()


class Question(ABC):
    """One question; its module is in `questions/`."""

    name: str
    asks: str
    axis: str = ""
    by_clock = False
    """Whether it compares wall-clock times, which trials in parallel would distort."""
    later_trials = 0.0
    """How many trials, as long as the base, its first ones usually lead to."""
    usual_seeds = 1

    def __init__(self, base: TrainingConfig, seeds: int | None = None) -> None:
        seeds = self.usual_seeds if seeds is None else seeds
        if not 1 <= seeds <= MAX_SEEDS:
            raise ValueError(f"seeds is {seeds}; take at least one, and at most {MAX_SEEDS:,}.")
        self.base = base
        self.seeds = [base.seed + number for number in range(seeds)]

    @abstractmethod
    def trials(self, results: Results) -> list[PlannedTrial]:
        """All trials that are known to be needed, done or not."""

    @abstractmethod
    def conclude(self, results: Results) -> Findings:
        """The findings, once all trials are done."""

    def prepare(self, folder: Path, tell: Tell) -> None:  # noqa: B027, most need nothing
        """Make the data that the trials need besides the base's."""

    def cost(self) -> float:
        """Its cost in runs of the base, by FLOPs."""
        first = sum(relative_cost(trial.config, self.base) for trial in self.trials({}))
        return first + self.later_trials * len(self.seeds)

    def groups(self, results: Results) -> list[TrialGroup]:
        """All groups of trials that are done."""
        return list(groups_of(self.trials(results), results).values())

    def over_seeds(
        self, name: str, label: str, config: TrainingConfig, x: float | None = None
    ) -> list[PlannedTrial]:
        """The same trial once for each seed."""
        several = len(self.seeds) > 1
        return [
            PlannedTrial(
                name if seed == self.seeds[0] else f"{name}-seed-{seed}",
                f"{label}, seed {seed}" if several else label,
                label,
                x,
                config=replace(config, seed=seed),
            )
            for seed in self.seeds
        ]

    def along_axis(
        self, name: str, label: str, configs: Mapping[Any, TrainingConfig]
    ) -> list[PlannedTrial]:
        """Trials by their place on the axis; `name` and `label` are formats of the place."""
        return [
            trial
            for x, config in configs.items()
            for trial in self.over_seeds(name.format(x), label.format(x), config, x)
        ]


def relative_cost(config: TrainingConfig, base: TrainingConfig) -> float:
    """The FLOPs of a run over those of another."""
    return run_flops(config) / run_flops(base)


def run_flops(config: TrainingConfig) -> int:
    """The FLOPs of a whole run."""
    return config.known_steps * training_flops(config.model, config.batch_size)


def at_equal_flops(config: TrainingConfig, base: TrainingConfig) -> TrainingConfig:
    """The config with as many steps as cost the FLOPs of the base."""
    steps = run_flops(base) / training_flops(config.model, config.batch_size)
    return replace(config, steps=max(1, round(steps)))


def trial_config(config: TrainingConfig) -> TrainingConfig:
    """The config to train a trial with; it samples once, at the end."""
    return changed(config, {"watch.sample_every": config.steps}).filled()
