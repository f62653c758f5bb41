"""The trials of a search to a `Lab` with its answer, tables and charts.

>>> trials = [
...     SearchTrial(0, {"optimizer.lr": 0.01}, Outcome("finished", 2.5), is_default=True),
...     SearchTrial(1, {"optimizer.lr": 0.03}, Outcome("finished", 2.25)),
...     SearchTrial(2, {"optimizer.lr": 1.0}, Outcome("diverged")),
... ]
>>> print(answer_of(trials))
The best of 3 trials is lr 0.03, with 2.2500 bits per byte on validation: 0.2500 (10.0%) less \
than the recipe (lr 0.01).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

from tilth.config.training import CountOrZero
from tilth.formatting import join_words
from tilth.lab.search.space import Range, Varied, settings_label
from tilth.report.comparing import format_value
from tilth.report.lab_file import Cell, Chart, Lab, Line, Real, State, Table, Trial

BITS = "bits per byte on validation"
MOST_ROWS = 10


@dataclass(frozen=True)
class Outcome:
    """The result of a trial, as the journal has it; `reason` says why the trial failed."""

    state: State | Literal["repeated"]
    bits_per_byte: Real | None = None
    steps: CountOrZero = 0
    reason: str = ""


@dataclass(frozen=True)
class SearchTrial:
    """A trial of a search, begun or done, as the journal has it.

    `values` are those of the searched fields, by dotted name; {} until they are drawn, or if they
    repeat those of another trial. The first trial `is_default`: it has the values of the base.
    """

    number: int
    values: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome = Outcome("running")
    is_default: bool = False

    @property
    def state(self) -> State:
        """Its state in `lab.json`."""
        return "failed" if self.outcome.state == "repeated" else self.outcome.state

    @property
    def name(self) -> str:
        """The name of its run directory."""
        return f"trial-{self.number:04}"

    @property
    def label(self) -> str:
        """Its name in a report."""
        return settings_label(self.values)

    @property
    def bits(self) -> float | None:
        """Bits per byte; None unless it finished."""
        return self.outcome.bits_per_byte if self.state == "finished" else None


def lab_of(
    trials: Sequence[SearchTrial],
    space: Sequence[Varied],
    importances: Mapping[str, float] | None = None,
    is_over: bool = True,
) -> Lab:
    """Return the lab of the trials so far; without an answer while trials are to come."""
    names = [varied.name for varied in space]
    numeric = [varied for varied in space if _points(trials, varied.name)]
    axis = numeric[0].name if len(space) == len(numeric) == 1 else ""
    labels = [trial.label for trial in trials]
    rows: list[tuple[Cell, ...]] = []
    for bits, trial in _ranked(trials)[:MOST_ROWS]:
        suffix = " (recipe)" if trial.is_default else ""
        values = [format_value(name, trial.values[name]) for name in names]
        rows.append((trial.name + suffix, *values, bits, trial.outcome.steps))
    tables = [Table("Best trials", ("trial", *names, "bits per byte", "steps"), tuple(rows))]
    if importances:
        title = "Importance of each field for a trial to be among the best"
        shares = tuple((name, f"{share:.0%}") for name, share in importances.items())
        tables.append(Table(title, ("field", "share"), shares))
    charts = [_field_chart(trials, varied) for varied in numeric]
    if best := [(trial.number, trial.bits) for trial in trials if trial.bits is not None]:
        lowest = accumulate((bits for _, bits in best), min)
        points = tuple(zip((number for number, _ in best), lowest, strict=True))
        line, text = Line("best so far", points), "Trial 0 has the values of the recipe."
        charts.append(Chart("Best trial so far", "trial", BITS, (line,), text=text))
    return Lab(
        "search",
        f"Which values of {join_words(names)} are best?",
        answer_of(trials) if is_over else None,
        axis=axis,
        trials=tuple(
            Trial(
                trial.name,
                trial.label,
                # The name where labels are equal: these trials are not seeds of one group.
                trial.label if labels.count(trial.label) == 1 else trial.name,
                trial.values[axis] if axis else None,
                trial.state,
            )
            for trial in trials
        ),
        tables=tuple(tables),
        charts=tuple(charts),
    )


def answer_of(trials: Sequence[SearchTrial]) -> str:
    """Return the best values, compared with those of the recipe."""
    ranked = _ranked(trials)
    if not ranked:
        return f"None of {len(trials)} trials finished: search other values, or more trials."
    (bits, best), *others = ranked
    many = f"{len(trials)} trials" if len(trials) > 1 else "one trial"
    begin = f"The best of {many} is {best.label}, with {bits:.4f} {BITS}"
    if best.is_default:
        second = [f". The second best is {t.label}, with {b:.4f}" for b, t in others[:1]]
        return f"{begin}: the values of the recipe{''.join(second)}."
    for default in (trial for trial in trials if trial.is_default):
        if not default.bits:
            return f"{begin}; the recipe ({default.label}) {default.state}."
        gain = default.bits - bits
        share = gain / default.bits
        return f"{begin}: {gain:.4f} ({share:.1%}) less than the recipe ({default.label})."
    return f"{begin}."


def best_trial(trials: Sequence[SearchTrial]) -> SearchTrial | None:
    """Return the trial with the fewest bits per byte among those that finished."""
    return next((trial for _, trial in _ranked(trials)), None)


def _ranked(trials: Sequence[SearchTrial]) -> list[tuple[float, SearchTrial]]:
    """Return the trials that finished with their bits per byte, the best first."""
    finished = [(trial.bits, trial) for trial in trials if trial.bits is not None]
    return sorted(finished, key=lambda pair: pair[0])


def _field_chart(trials: Sequence[SearchTrial], varied: Varied) -> Chart:
    points = _points(trials, varied.name)
    xs = [x for x, _ in points]
    is_log = varied.is_logarithmic if isinstance(varied, Range) else 0 < 10 * min(xs) < max(xs)
    return Chart(
        f"Bits per byte by {varied.name}",
        varied.name,
        BITS,
        (Line("finished trials", tuple(sorted(points))),),
        # The recipe's own value may lie outside the range.
        x_scale="log" if is_log and min(xs) > 0 else "linear",
        text="The other searched values differ between points.",
    )


def _points(trials: Sequence[SearchTrial], name: str) -> list[tuple[float, float]]:
    """Return the values of a field and the bits per byte, if all of its values are numbers."""
    if not all(type(trial.values[name]) in (int, float) for trial in trials):
        return []
    return [(trial.values[name], bits) for bits, trial in _ranked(trials)]
