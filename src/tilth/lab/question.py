"""A question that training runs answer: the trials that it needs, and its findings.

Both are functions of the results so far. An interrupted question continues: it plans again, and
finds most of the results on disk.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilth.accounting import training_flops
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.lab.trials import (
    Column,
    PlannedTrial,
    Results,
    TrialGroup,
    best_of,
    group_table,
    groups_of,
)
from tilth.report.lab_file import LARGEST, Chart, Line, Table
from tilth.schema import Range, check_int

SEEDS = Range(at_least=1, at_most=1000)
CLOSE = 0.01  # groups within this share of the best are close
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Findings:
    """The answer of a question, with its tables and charts."""

    answer: str
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()


class Question(ABC):
    """A question; its module is in `questions/`.

    `by_clock` questions compare wall-clock times, which parallel trials would distort.
    `later_trials` is how many trials of the base's length the first results usually lead to.
    """

    name: str
    asks: str
    axis = ""
    by_clock = False
    later_trials = 0.0
    usual_seeds = 1
    close_groups = 2.0
    """How many groups are usually close to the best."""

    def __init__(
        self, base: TrainingConfig, seeds: int | None = None, close_seeds: int = 1
    ) -> None:
        seeds = self.usual_seeds if seeds is None else seeds
        check_int("seeds", seeds, SEEDS)
        check_int("close_seeds", close_seeds, SEEDS)
        self.base = base
        self.seeds = [base.seed + number for number in range(seeds)]
        self.more_seeds = [base.seed + number for number in range(seeds, close_seeds)]
        """Of the groups that are close to the best."""

    @abstractmethod
    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return all trials that are known to be needed, done or not."""

    @abstractmethod
    def conclude(self, results: Results) -> Findings:
        """Return the findings, once all trials are done."""

    def prepare(self, folder: Path, tell: Tell) -> None:  # noqa: B027, most need nothing
        """Prepare data that the trials need besides the base's."""

    def cost(self) -> float:
        """Return the expected FLOPs, as a multiple of one run of the base."""
        first = sum(relative_cost(trial.config, self.base) for trial in self.trials({}))
        later = self.later_trials * len(self.seeds) + self.close_groups * len(self.more_seeds)
        return first + later

    def groups(self, results: Results) -> list[TrialGroup]:
        """Return all groups of trials that are done."""
        return list(groups_of(self.trials(results), results).values())

    def over_seeds(
        self, name: str, label: str, config: TrainingConfig, x: float | None = None
    ) -> list[PlannedTrial]:
        """Return the same trial once for each seed."""
        trials = []
        for seed in self.seeds:
            own_name = name if seed == self.seeds[0] else f"{name}-seed-{seed}"
            own_label = f"{label}, seed {seed}" if len(self.seeds) > 1 else label
            own_config = replace(config, seed=seed)
            trials.append(PlannedTrial(own_name, own_label, label, x, config=own_config))
        return trials

    def along_axis(
        self, name: str, label: str, configs: Mapping[Any, TrainingConfig]
    ) -> list[PlannedTrial]:
        """Return the trials of configs by x; `name` and `label` are formats of (x, config)."""
        return [
            trial
            for x, config in configs.items()
            for trial in self.over_seeds(name.format(x, config), label.format(x, config), config, x)
        ]

    def close_calls(self, trials: Sequence[PlannedTrial], results: Results) -> list[PlannedTrial]:
        """Return the trials with more seeds, once all groups are done and several are close."""
        groups = groups_of(trials, results).values()
        best = best_of(groups)
        if best is None or sum(len(group.trials) for group in groups) < len(trials):
            return []
        limit = (1 + CLOSE) * best.mean
        close = [group.trials[0] for group in groups if group.is_whole and group.mean <= limit]
        return [
            replace(
                trial,
                name=f"{trial.name}-seed-{seed}",
                label=f"{trial.group}, seed {seed}",
                config=replace(trial.config, seed=seed),
            )
            for trial in close
            for seed in (self.more_seeds if len(close) > 1 else ())
        ]

    def chart(
        self,
        what: str,
        y_label: str,
        lines: Mapping[str, Iterable[tuple[float, float]]],
        text: str = "",
    ) -> Chart:
        """Return a chart over the axis, which is logarithmic."""
        drawn = tuple(
            Line(name, tuple((x, y) for x, y in points if y <= LARGEST))
            for name, points in lines.items()
        )
        title = f"{what} over the {self.axis}"
        return Chart(title, self.axis, y_label, drawn, x_scale="log", text=text)


class Sweep(Question):
    """A question whose answer is the best of its groups; `unfinished` if no group finished.

    `title`, `label` (of the groups; default the axis) and `columns` describe its table.
    """

    unfinished: str
    title: str
    label = ""

    @abstractmethod
    def columns(self, best: TrialGroup | None) -> Sequence[str | tuple[str, Column]]:
        """Return the columns of the table, as `group_table` takes them."""

    @abstractmethod
    def explain(self, groups: list[TrialGroup], best: TrialGroup) -> Findings:
        """Return the findings besides the table."""

    def conclude(self, results: Results) -> Findings:
        """Return the table, and the findings if a group finished."""
        groups = self.groups(results)
        best = best_of(groups)
        found = Findings(self.unfinished) if best is None else self.explain(groups, best)
        table = group_table(self.title, groups, self.label or self.axis, *self.columns(best))
        return replace(found, tables=(table, *found.tables))


def relative_cost(config: TrainingConfig, base: TrainingConfig) -> float:
    """Return the FLOPs of a run over those of another."""
    return run_flops(config) / run_flops(base)


def run_flops(config: TrainingConfig) -> int:
    """Return the FLOPs of a whole run."""
    return config.known_steps * step_flops(config)


def step_flops(config: TrainingConfig) -> int:
    """Return the FLOPs of one step."""
    return training_flops(config.model, config.batch_size)


def at_equal_flops(config: TrainingConfig, base: TrainingConfig) -> TrainingConfig:
    """Return the config with the number of steps that costs the FLOPs of the base."""
    return replace(config, steps=max(1, round(run_flops(base) / step_flops(config))))


def refuse_changes(begun: str, changes: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise a ValueError if settings differ: (old, new) by name. The data may have moved."""
    for name, (old, new) in changes.items():
        if name != "data":
            hint = "give the same settings, or another --out"
            raise ValueError(f"{begun} {name} = {old}, not {new}; {hint}.")


def trial_config(config: TrainingConfig) -> TrainingConfig:
    """Return the config to train a trial with; it samples once, at the end."""
    return changed(config, {"watch.sample_every": config.steps}).filled()
