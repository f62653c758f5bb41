"""The trials of a search to a `Lab` with its answer, tables and charts.

>>> trials = [
...     SearchTrial(0, {"optimizer.lr": 0.01}, TrialResult("finished", None, 2.5), is_default=True),
...     SearchTrial(1, {"optimizer.lr": 0.03}, TrialResult("finished", None, 2.25)),
...     SearchTrial(2, {"optimizer.lr": 1.0}, TrialResult("diverged")),
... ]
>>> print(answer_of(trials))
Best of 3 trials is lr 0.03, with 2.2500 bits per byte on validation: 0.2500 (10.0%) less than \
the recipe's own lr 0.01.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tilth.formatting import join_words
from tilth.lab.search.space import Range, Varied, said, shown
from tilth.lab.trials import TrialResult
from tilth.report.lab_file import Cell, Chart, Lab, Line, Table, Trial

ASKS = "Which values of {} are best?"
BITS = "bits per byte on validation"
MOST_ROWS = 10
RUNNING = TrialResult("running")


@dataclass(frozen=True)
class SearchTrial:
    """A trial of a search, begun or done."""

    number: int
    values: Mapping[str, Any]
    """Of what is varied, by dotted name."""
    result: TrialResult = RUNNING
    is_default: bool = False
    """Whether it is the first one, which changes nothing."""
    reason: str = ""
    """Why it failed."""

    @property
    def name(self) -> str:
        """The name of its run directory."""
        return f"trial-{self.number:04}"

    @property
    def label(self) -> str:
        """Its name in a report."""
        return said(self.values)

    @property
    def bits(self) -> float | None:
        """Bits per byte that can be compared; None unless it finished."""
        return self.result.bits_per_byte if self.result.state == "finished" else None


def lab_of(
    trials: Sequence[SearchTrial],
    space: Sequence[Varied],
    *,
    base: dict[str, Any],
    command: Sequence[str] = (),
    notes: Sequence[str] = (),
    importances: Mapping[str, float] | None = None,
    is_over: bool = True,
) -> Lab:
    """All that is known, for `lab.json`; without an answer while trials are to come."""
    numeric = [varied for varied in space if _points(trials, varied.name)]
    axis = numeric[0].name if len(space) == len(numeric) == 1 else ""
    labels = [trial.label for trial in trials]
    tables = [_best_table(trials, space)]
    if importances:
        title = "How much each field decides whether a trial is among the best"
        rows = tuple((name, f"{share:.0%}") for name, share in importances.items())
        tables.append(Table(title, ("field", "share"), rows))
    return Lab(
        "search",
        ASKS.format(join_words([varied.name for varied in space])),
        answer_of(trials) if is_over else None,
        tuple(command),
        axis,
        tuple(
            Trial(
                trial.name,
                trial.label,
                # Its own: two trials of equal labels are no seeds of one.
                trial.label if labels.count(trial.label) == 1 else trial.name,
                trial.values[axis] if axis else None,
                trial.result.state,
            )
            for trial in trials
        ),
        tuple(tables),
        tuple(notes),
        (*(_field_chart(trials, varied) for varied in numeric), *_progress_chart(trials)),
        base,
    )


def answer_of(trials: Sequence[SearchTrial]) -> str:
    """Which values are best, and how they compare with those of the recipe."""
    ranked = _ranked(trials)
    if not ranked:
        return f"None of {len(trials)} trials came to its end: search elsewhere, or for longer."
    (bits, best), *others = ranked
    many = f"{len(trials)} trials" if len(trials) > 1 else "one trial"
    begin = f"Best of {many} is {best.label}, with {bits:.4f} {BITS}"
    if best.is_default:
        following = [f": next is {t.label}, with {its_bits:.4f}" for its_bits, t in others[:1]]
        return f"{begin}, which is the recipe's own{''.join(following)}."
    for default in (trial for trial in trials if trial.is_default):
        if not default.bits:
            return f"{begin}; the recipe's own ({default.label}) {default.result.state}."
        gain = default.bits - bits
        share = gain / default.bits
        return f"{begin}: {gain:.4f} ({share:.1%}) less than the recipe's own {default.label}."
    return f"{begin}."


def best_trial(trials: Sequence[SearchTrial]) -> SearchTrial | None:
    """The trial with the fewest bits per byte among those that finished."""
    ranked = _ranked(trials)
    return ranked[0][1] if ranked else None


def _ranked(trials: Sequence[SearchTrial]) -> list[tuple[float, SearchTrial]]:
    """The trials that finished with their bits per byte, the best first."""
    finished = [(trial.bits, trial) for trial in trials if trial.bits is not None]
    return sorted(finished, key=lambda pair: pair[0])


def _best_table(trials: Sequence[SearchTrial], space: Sequence[Varied]) -> Table:
    names = [varied.name for varied in space]
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            trial.name + (" (the recipe's own)" if trial.is_default else ""),
            *(shown(trial.values[name]) for name in names),
            bits,
            trial.result.steps,
        )
        for bits, trial in _ranked(trials)[:MOST_ROWS]
    )
    return Table("The best trials", ("trial", *names, "bits per byte", "steps"), rows)


def _field_chart(trials: Sequence[SearchTrial], varied: Varied) -> Chart:
    points = _points(trials, varied.name)
    xs = [x for x, _ in points]
    is_log = varied.is_logarithmic if isinstance(varied, Range) else 0 < 10 * min(xs) < max(xs)
    return Chart(
        f"{varied.name} and what it leads to",
        varied.name,
        BITS,
        (Line("finished trials", tuple(sorted(points))),),
        # The recipe's own value may lie outside the range.
        x_scale="log" if is_log and min(xs) > 0 else "linear",
        text="The other values differ too, from point to point.",
    )


def _points(trials: Sequence[SearchTrial], name: str) -> list[tuple[float, float]]:
    """The values of a field and the bits per byte, if all of its values are numbers."""
    values = [trial.values[name] for trial in trials]
    if not all(type(value) in (int, float) for value in values):
        return []
    return [(trial.values[name], bits) for bits, trial in _ranked(trials)]


def _progress_chart(trials: Sequence[SearchTrial]) -> tuple[Chart, ...]:
    """The best so far, trial by trial."""
    found = [(trial.number, trial.bits) for trial in trials if trial.bits is not None]
    if not found:
        return ()
    lowest = accumulate((bits for _, bits in found), min)
    line = Line("best so far", tuple(zip((number for number, _ in found), lowest, strict=True)))
    text = "Trial 0 has the recipe's own values."
    return (Chart("The best so far", "trial", BITS, (line,), text=text),)
