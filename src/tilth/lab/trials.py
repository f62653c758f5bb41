"""A trial to train, its result, and groups of trials that differ only in the seed."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from tilth.accounting import count_parameters
from tilth.config.training import TrainingConfig
from tilth.report.comparing import OverSeeds, is_chance
from tilth.report.lab_file import Cell, State, Table, Trial
from tilth.runs.metrics import finite_or_none
from tilth.runs.run import CONFIG, open_run


@dataclass(frozen=True)
class PlannedTrial(Trial):
    """A trial and the config to train it with."""

    config: TrainingConfig = field(kw_only=True)


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended."""

    state: State
    loss: float | None = None
    """On the validation set, at the last evaluation."""
    bits_per_byte: float | None = None
    """On the validation set, at the last evaluation."""
    step_seconds: float = 0.0
    """The median over the steps, without evaluations."""
    steps: int = 0
    """Steps taken: a trial that diverged was stopped early."""
    first_loss: float | None = None
    """In training, before the first update; inf if it was not finite."""
    seconds: float = 0.0
    """Of all steps together, without evaluations."""


Results = Mapping[str, TrialResult]
"""By the name of the trial."""


def read_result(folder: Path, state: State) -> TrialResult:
    """The result of the trial in a run directory."""
    if not (folder / CONFIG).exists():  # it failed before it began
        return TrialResult(state)
    run = open_run(folder)
    records = run.metrics()
    if not records:
        return TrialResult(state)
    evaluations = [record.evaluation for record in records if record.evaluation is not None]
    last = evaluations[-1] if evaluations else None
    # The first step, and some others, may take long: it is the median that a step takes.
    times = [
        run.config.tokens_per_step / max(record.tokens_per_second, 1e-9)
        if record.step_seconds is None
        else record.step_seconds
        for record in records
    ]
    return TrialResult(
        state,
        None if last is None else finite_or_none(last.loss),
        None if last is None else finite_or_none(last.bits_per_byte),
        step_seconds=median(times),
        steps=records[-1].step,
        first_loss=math.inf if records[0].loss is None else records[0].loss,
        seconds=sum(times),
    )


@dataclass(frozen=True)
class TrialGroup(OverSeeds):
    """The trials that differ only in the seed, with their results."""

    label: str
    trials: tuple[PlannedTrial, ...]
    results: tuple[TrialResult, ...]

    @property
    def states(self) -> set[State]:
        """How its trials ended."""
        return {result.state for result in self.results}

    @property
    def is_whole(self) -> bool:
        """Whether all of its trials finished, so that its mean says something."""
        return self.states == {"finished"} and len(self.bits) == len(self.results)

    @property
    def bits(self) -> list[float]:
        """Bits per byte, by seed."""
        return [each.bits_per_byte for each in self.results if each.bits_per_byte is not None]

    @property
    def loss(self) -> float:
        """The mean validation loss, in nats per token."""
        return fmean(each.loss for each in self.results if each.loss is not None)

    @property
    def step_seconds(self) -> float:
        """The median over its trials."""
        return median(result.step_seconds for result in self.results)

    @property
    def seconds(self) -> float:
        """The mean time of the steps of a trial."""
        return fmean(result.seconds for result in self.results)

    @property
    def step_milliseconds(self) -> str:
        """`step_seconds` for a table."""
        milliseconds = 1e3 * self.step_seconds
        return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"

    @property
    def config(self) -> TrainingConfig:
        """The config of its first seed."""
        return self.trials[0].config

    @property
    def x(self) -> float:
        """The place on the axis."""
        place = self.trials[0].x
        if place is None:
            raise ValueError(f"{self.label} has no place on an axis.")
        return place

    @property
    def standing(self) -> str:
        """The mean, or the states of those that did not finish."""
        if self.is_whole:
            return f"{self.mean:.4f}"
        return ", ".join(sorted(self.states - {"finished"})) or "not evaluated"


def groups_of(trials: Iterable[PlannedTrial], results: Results) -> dict[str, TrialGroup]:
    """The groups by label, in the order of the trials, without those that are not done."""
    members: dict[str, list[PlannedTrial]] = {}
    for trial in trials:
        members.setdefault(trial.group, []).append(trial)
    return {
        label: TrialGroup(label, tuple(group), tuple(results[trial.name] for trial in group))
        for label, group in members.items()
        if all(trial.name in results for trial in group)
    }


Column = Callable[[TrialGroup], Cell]

COLUMNS: dict[str, Column] = {
    "bits per byte": lambda each: each.standing,
    "steps": lambda each: each.config.steps,
    "tokens": lambda each: each.config.tokens,
    "parameters": lambda each: count_parameters(each.config.model).total,
    "ms a step": lambda each: each.step_milliseconds,
    "loss": lambda each: f"{each.loss:.4f}" if each.is_whole else None,
    "perplexity": lambda each: f"{math.exp(each.loss):.2f}" if each.is_whole else None,
}
"""The columns of several questions, by name."""


def group_table(
    title: str,
    groups: Iterable[TrialGroup],
    label: str,
    names: Sequence[str],
    own: Mapping[str, Column] | None = None,
) -> Table:
    """A table of groups: their labels, then columns by name, `own` ones included."""
    known = {**COLUMNS, **(own or {}), label: lambda each: each.label}
    return Table.by(title, groups, {name: known[name] for name in (label, *names)})


def best_of(groups: Iterable[TrialGroup]) -> TrialGroup | None:
    """The group with the fewest bits per byte among those that finished."""
    return min((each for each in groups if each.is_whole), key=lambda each: each.mean, default=None)


def against(one: TrialGroup, base: TrialGroup) -> str:
    """The difference between two groups, in words."""
    if not one.is_whole:
        return one.standing
    difference = one.mean - base.mean
    said = f"{difference:+.4f} ({difference / base.mean:+.1%})"
    if len(base.bits) == 1:
        return f"{said}, one seed"
    return f"{said}, within the spread of seeds" if is_chance(one, base) else said
