"""A trial to train, its result, and groups of trials that differ only in the seed."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median

from tilth.accounting import count_parameters
from tilth.config.training import TrainingConfig
from tilth.report.comparing import SeedStatistics, format_value, grouped, is_within_seed_spread
from tilth.report.lab_file import Cell, State, Table, Trial
from tilth.runs.metrics import finite_or_none
from tilth.runs.run import CONFIG, open_run


@dataclass(frozen=True)
class PlannedTrial(Trial):
    """A trial and the config to train it with."""

    config: TrainingConfig = field(kw_only=True)


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    `loss` and `bits_per_byte` are from the last evaluation on the validation set. `first_loss` is
    the training loss before the first update, inf if it was not finite. A trial that diverges is
    stopped early, so `steps` may be fewer than planned. `step_seconds` is the median over the
    steps, `seconds` their sum; both exclude evaluations.
    """

    state: State
    loss: float | None = None
    bits_per_byte: float | None = None
    step_seconds: float = 0.0
    steps: int = 0
    first_loss: float | None = None
    seconds: float = 0.0


Results = Mapping[str, TrialResult]  # by the name of the trial


def read_result(folder: Path, state: State) -> TrialResult:
    """Return the result of the trial in a run directory."""
    run = open_run(folder) if (folder / CONFIG).exists() else None  # None: failed before it began
    if run is None or not (records := run.metrics()):
        return TrialResult(state)
    evaluations = [record.evaluation for record in records if record.evaluation is not None]
    # The median, as the first step and some others take much longer. Older runs log only a speed.
    tokens = run.config.tokens_per_step
    times = [max(r.step_seconds or tokens / max(r.tokens_per_second, 1e-9), 1e-9) for r in records]
    return TrialResult(
        state,
        finite_or_none(evaluations[-1].loss) if evaluations else None,
        finite_or_none(evaluations[-1].bits_per_byte) if evaluations else None,
        step_seconds=median(times),
        steps=records[-1].step,
        first_loss=math.inf if records[0].loss is None else records[0].loss,
        seconds=sum(times),
    )


@dataclass(frozen=True)
class TrialGroup(SeedStatistics):
    """The trials that differ only in the seed, with their results."""

    label: str
    trials: tuple[PlannedTrial, ...]
    results: tuple[TrialResult, ...]

    @property
    def states(self) -> set[State]:
        """The states of its trials."""
        return {result.state for result in self.results}

    @property
    def is_whole(self) -> bool:
        """Whether all trials finished and were evaluated; only then is the mean comparable."""
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
    def perplexity(self) -> float:
        """The exponential of the loss; infinite where a float cannot hold it."""
        return math.exp(self.loss) if self.loss < 709.0 else math.inf

    @property
    def step_seconds(self) -> float:
        """The median over its trials."""
        return median(result.step_seconds for result in self.results)

    @property
    def seconds(self) -> float:
        """The mean time of the steps of a trial."""
        return fmean(result.seconds for result in self.results)

    @property
    def config(self) -> TrainingConfig:
        """The config of its first seed."""
        return self.trials[0].config

    @property
    def x(self) -> float:
        """The position on the axis."""
        x = self.trials[0].x
        assert x is not None
        return x

    @property
    def result_text(self) -> str:
        """The mean, or the states of the trials that did not finish."""
        if self.is_whole:
            return f"{self.mean:.4f}"
        return ", ".join(sorted(self.states - {"finished"})) or "not evaluated"


def groups_of(trials: Iterable[PlannedTrial], results: Results) -> dict[str, TrialGroup]:
    """Return the groups by label, in the order of the trials; unfinished groups are left out."""
    return {
        label: TrialGroup(label, tuple(group), tuple(results[trial.name] for trial in group))
        for label, group in grouped(trials).items()
        if all(trial.name in results for trial in group)
    }


def _milliseconds(group: TrialGroup) -> str:
    milliseconds = 1e3 * group.step_seconds
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


Column = Callable[[TrialGroup], Cell]
COLUMNS: dict[str, Column] = {
    "bits per byte": lambda each: each.result_text,
    "steps": lambda each: each.config.steps,
    "tokens": lambda each: each.config.tokens,
    "parameters": lambda each: count_parameters(each.config.model).total,
    "ms per step": _milliseconds,
    "seeds": lambda each: len(each.results),
    "loss": lambda each: f"{each.loss:.4f}" if each.is_whole else None,
    "perplexity": lambda each: f"{each.perplexity:.2f}" if each.is_whole else None,
}


def group_table(
    title: str, groups: Iterable[TrialGroup], label: str, *columns: str | tuple[str, Column]
) -> Table:
    """Return a table of groups: their labels, then columns of `COLUMNS` or (name, function)."""
    chosen: dict[str, Column] = {label: lambda each: each.label}
    chosen |= dict((each, COLUMNS[each]) if isinstance(each, str) else each for each in columns)
    return Table.by(title, groups, chosen)


def best_of(groups: Iterable[TrialGroup]) -> TrialGroup | None:
    """Return the group with the fewest bits per byte among those that finished."""
    return min((each for each in groups if each.is_whole), key=lambda each: each.mean, default=None)


def difference_text(one: TrialGroup, base: TrialGroup) -> str:
    """Describe the difference between two groups."""
    if not one.is_whole:
        return one.result_text
    difference = one.mean - base.mean
    said = f"{difference:+.4f} ({difference / (base.mean or 1.0):+.1%})"
    if len(base.bits) == 1:
        return f"{said}, one seed"
    return f"{said}, within the spread over seeds" if is_within_seed_spread(one, base) else said


def setting_label(name: str, value: object) -> str:
    """Return the label of a setting: the last part of its dotted name, and its value."""
    return f"{name.rpartition('.')[2]} {format_value(name, value)}"
