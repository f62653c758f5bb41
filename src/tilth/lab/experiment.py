"""A question that training runs answer: which runs it needs, and what they say.

What enters: the config that all of its trials are changed from, and the outcomes so far. What
leaves: the trials that are needed, then the findings. Both are functions of the outcomes alone, so
an interrupted question goes on where it was: it asks again, and finds most of the answers on disk.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Protocol

from tilth.accounting import training_flops
from tilth.lab.folder import Chart, State, Table
from tilth.recipes.changing import changed
from tilth.recipes.config import TrainingConfig
from tilth.runs.run import CONFIG, open_run

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Setup:
    """A trial as it is to be trained."""

    name: str
    """Of its run directory."""
    label: str
    group: str
    """Trials that differ in the seed alone have the same."""
    config: TrainingConfig
    x: float | None = None
    """Its place on the question's axis."""


@dataclass(frozen=True)
class Outcome:
    """How a trial ended."""

    state: State
    loss: float | None = None
    """On the validation set, at the last evaluation."""
    bits_per_byte: float | None = None
    step_seconds: float = 0.0
    """The median over the steps, without evaluations."""
    steps: int = 0
    """That it took: one that diverged was stopped early."""
    first_loss: float | None = None
    """In training, before the first update; inf if it was not finite."""
    seconds: float = 0.0
    """Of all steps together, without evaluations."""


Outcomes = Mapping[str, Outcome]
"""By the name of the trial."""


@dataclass(frozen=True)
class Findings:
    """What the outcomes say."""

    answer: str
    tables: tuple[Table, ...] = ()
    charts: tuple[Chart, ...] = ()
    notes: tuple[str, ...] = ()


class Question(ABC):
    """One question; a file of this room each."""

    name: str
    asks: str
    axis: str = ""
    by_clock = False
    """Whether it compares wall-clock times, which two trials at once would spoil."""
    later_trials = 0.0
    """How many trials, as long as the base, its first ones usually lead to."""

    def __init__(self, base: TrainingConfig, seeds: int = 1) -> None:
        if seeds < 1:
            raise ValueError(f"seeds is {seeds}; take at least one.")
        self.base = base
        self.seeds = [base.seed + number for number in range(seeds)]

    @abstractmethod
    def setups(self, outcomes: Outcomes) -> list[Setup]:
        """All trials that are known to be needed, done or not."""

    @abstractmethod
    def conclude(self, outcomes: Outcomes) -> Findings:
        """The findings, once all trials are done."""

    def prepare(self, folder: Path, tell: Tell) -> None:  # noqa: B027, most need nothing
        """Make what the trials need besides the data, if they need anything."""

    def cost(self) -> float:
        """How many runs of the base it is worth, by their FLOPs."""
        first = sum(relative_cost(setup.config, self.base) for setup in self.setups({}))
        return first + self.later_trials * len(self.seeds)

    def over_seeds(
        self, name: str, label: str, config: TrainingConfig, x: float | None = None
    ) -> list[Setup]:
        """The same trial once for each seed."""
        several = len(self.seeds) > 1
        return [
            Setup(
                name if seed == self.seeds[0] else f"{name}-seed-{seed}",
                f"{label}, seed {seed}" if several else label,
                label,
                replace(config, seed=seed),
                x,
            )
            for seed in self.seeds
        ]


def relative_cost(config: TrainingConfig, base: TrainingConfig) -> float:
    """The FLOPs of a run over those of another."""
    return _run_flops(config) / _run_flops(base)


def _run_flops(config: TrainingConfig) -> int:
    return config.steps * training_flops(config.model, config.batch_size)


def at_equal_flops(config: TrainingConfig, base: TrainingConfig) -> TrainingConfig:
    """The config with as many steps as cost what the base costs."""
    steps = _run_flops(base) / training_flops(config.model, config.batch_size)
    return replace(config, steps=max(1, round(steps)))


def trial_config(config: TrainingConfig) -> TrainingConfig:
    """What a trial is trained with: a text at its end, and no more of itself than is needed."""
    return changed(config, {"watch.sample_every": config.steps}).resolved()


def read_outcome(folder: Path, state: State) -> Outcome:
    """How the trial in a run directory stands."""
    if not (folder / CONFIG).exists():  # it failed before it began
        return Outcome(state)
    run = open_run(folder)
    records = run.metrics()
    if not records:
        return Outcome(state)
    evaluations = [record["evaluation"] for record in records if record.get("evaluation")]
    last = evaluations[-1] if evaluations else {}
    # The first step, and some others, may take long: it is the median that a step takes.
    per_step = run.config.tokens_per_step
    times = [r.get("step_seconds", per_step / r["tokens_per_second"]) for r in records]
    return Outcome(
        state,
        last.get("loss"),
        last.get("bits_per_byte"),
        step_seconds=median(times),
        steps=records[-1]["step"],
        first_loss=records[0].get("loss", math.inf),
        seconds=sum(times),
    )


# --- over seeds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """The trials of a group together."""

    label: str
    setups: tuple[Setup, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def states(self) -> set[State]:
        """How its trials ended."""
        return {outcome.state for outcome in self.outcomes}

    @property
    def is_whole(self) -> bool:
        """Whether all of its trials finished, so that its mean says something."""
        return self.states == {"finished"} and len(self.bits) == len(self.outcomes)

    @property
    def bits(self) -> list[float]:
        """Bits per byte, by seed."""
        return [each.bits_per_byte for each in self.outcomes if each.bits_per_byte is not None]

    @property
    def mean(self) -> float:
        """Of the bits per byte."""
        return fmean(self.bits)

    @property
    def spread(self) -> float:
        """Between the best and the worst seed."""
        return max(self.bits) - min(self.bits)

    @property
    def loss(self) -> float:
        """The mean validation loss, in nats per token."""
        return fmean(each.loss for each in self.outcomes if each.loss is not None)

    @property
    def step_seconds(self) -> float:
        """The median over its trials."""
        return median(outcome.step_seconds for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        """Of the steps of a trial, in the mean."""
        return fmean(outcome.seconds for outcome in self.outcomes)

    @property
    def step_milliseconds(self) -> str:
        """The same for a table."""
        milliseconds = 1e3 * self.step_seconds
        return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"

    @property
    def x(self) -> float:
        """The place on the axis."""
        place = self.setups[0].x
        assert place is not None
        return place

    @property
    def standing(self) -> str:
        """The mean, or what happened instead."""
        if self.is_whole:
            return f"{self.mean:.4f}"
        return ", ".join(sorted(self.states - {"finished"})) or "not evaluated"


def results_of(setups: Iterable[Setup], outcomes: Outcomes) -> dict[str, Result]:
    """The results by label, in the order of the trials; groups that are not done are left out."""
    groups: dict[str, list[Setup]] = {}
    for setup in setups:
        groups.setdefault(setup.group, []).append(setup)
    return {
        label: Result(label, tuple(group), tuple(outcomes[setup.name] for setup in group))
        for label, group in groups.items()
        if all(setup.name in outcomes for setup in group)
    }


def best_of(results: Iterable[Result]) -> Result | None:
    """The one with the fewest bits per byte among those that finished."""
    return min((each for each in results if each.is_whole), key=lambda r: r.mean, default=None)


class OverSeeds(Protocol):
    """What has a mean and a spread over seeds."""

    @property
    def mean(self) -> float: ...  # noqa: D102

    @property
    def spread(self) -> float: ...  # noqa: D102


def is_chance(one: OverSeeds, other: OverSeeds) -> bool:
    """Whether two means differ by no more than the seeds of either do."""
    return abs(one.mean - other.mean) <= max(one.spread, other.spread)


def against(one: Result, base: Result) -> str:
    """How a result differs from another, in words."""
    if not one.is_whole:
        return one.standing
    difference = one.mean - base.mean
    said = f"{difference:+.4f} ({difference / base.mean:+.1%})"
    if len(base.bits) == 1:
        return f"{said}, one seed"
    return f"{said}, within the spread of seeds" if is_chance(one, base) else said


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
