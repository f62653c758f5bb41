"""The trials of a search to what they say: a lab with its answer, tables and charts.

What enters: the trials as the journal has them. What leaves: a `Lab`.

>>> trials = [
...     Tried(0, {"optimizer.lr": 0.01}, "finished", 2.5, steps=100, is_default=True),
...     Tried(1, {"optimizer.lr": 0.03}, "finished", 2.25, steps=100),
...     Tried(2, {"optimizer.lr": 1.0}, "diverged", None, steps=12),
... ]
>>> print(answer_of(trials))
Best of 3 trials is lr 0.03, with 2.2500 bits per byte on validation: 0.2500 (10.0%) less than \
the recipe's own lr 0.01.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilth.lab.experiment import listed
from tilth.lab.folder import Chart, Lab, Line, State, Table, Trial
from tilth.lab.search_space import Range, Varied, said, shown

ASKS = "Which values of {} are best?"
BITS = "bits per byte on validation"
MOST_ROWS = 10


@dataclass(frozen=True)
class Tried:
    """A trial of a search, begun or done."""

    number: int
    values: Mapping[str, Any]
    """Of what is varied, by dotted name."""
    state: State = "running"
    bits_per_byte: float | None = None
    """Of the last evaluation."""
    steps: int = 0
    """That it took."""
    is_default: bool = False
    """Whether it is the first one, which changes nothing."""
    reason: str = ""
    """Why it failed."""

    @property
    def name(self) -> str:
        """Of its run directory."""
        return f"trial-{self.number:04}"

    @property
    def label(self) -> str:
        """What it is called in a report."""
        return said(self.values)

    @property
    def is_whole(self) -> bool:
        """Whether its bits per byte can be compared."""
        return self.state == "finished" and self.bits_per_byte is not None


def lab_of(
    trials: Sequence[Tried],
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
    labels = [tried.label for tried in trials]
    return Lab(
        "search",
        ASKS.format(listed([varied.name for varied in space])),
        answer_of(trials) if is_over else None,
        tuple(command),
        axis,
        tuple(
            Trial(
                tried.name,
                tried.label,
                # Its own: two trials of equal labels are no seeds of one.
                tried.label if labels.count(tried.label) == 1 else tried.name,
                tried.values[axis] if axis else None,
                tried.state,
            )
            for tried in trials
        ),
        (_best_table(trials, space), *_importance_table(importances or {})),
        tuple(notes),
        (*(_field_chart(trials, varied) for varied in numeric), *_progress_chart(trials)),
        base,
    )


def answer_of(trials: Sequence[Tried]) -> str:
    """Which values are best, and how they compare with those of the recipe."""
    ranked = _ranked(trials)
    if not ranked:
        return f"None of {len(trials)} trials came to its end: search elsewhere, or for longer."
    best, *others = ranked
    default = next(tried for tried in trials if tried.is_default)
    many = f"{len(trials)} trials" if len(trials) > 1 else "one trial"
    begin = f"Best of {many} is {best.label}, with {best.bits_per_byte:.4f} {BITS}"
    if best.is_default:
        following = [f": next is {t.label}, with {t.bits_per_byte:.4f}" for t in others[:1]]
        return f"{begin}, which is the recipe's own{''.join(following)}."
    if default.bits_per_byte is None or not default.is_whole:
        return f"{begin}; the recipe's own ({default.label}) {default.state}."
    assert best.bits_per_byte is not None
    gain = default.bits_per_byte - best.bits_per_byte
    share = gain / default.bits_per_byte
    return f"{begin}: {gain:.4f} ({share:.1%}) less than the recipe's own {default.label}."


def best_of(trials: Sequence[Tried]) -> Tried | None:
    """The trial with the fewest bits per byte among those that finished."""
    ranked = _ranked(trials)
    return ranked[0] if ranked else None


def _ranked(trials: Sequence[Tried]) -> list[Tried]:
    # `or 0.0` for the type checker: whole ones have a number.
    return sorted((t for t in trials if t.is_whole), key=lambda t: t.bits_per_byte or 0.0)


def _best_table(trials: Sequence[Tried], space: Sequence[Varied]) -> Table:
    names = [varied.name for varied in space]
    rows = tuple(
        (
            tried.name + (" (the recipe's own)" if tried.is_default else ""),
            *(shown(tried.values[name]) for name in names),
            tried.bits_per_byte,
            tried.steps,
        )
        for tried in _ranked(trials)[:MOST_ROWS]
    )
    return Table("The best trials", ("trial", *names, "bits per byte", "steps"), rows)


def _importance_table(importances: Mapping[str, float]) -> tuple[Table, ...]:
    if not importances:
        return ()
    rows = tuple((name, f"{share:.0%}") for name, share in importances.items())
    title = "How much each field decides whether a trial is among the best"
    return (Table(title, ("field", "share"), rows),)


def _field_chart(trials: Sequence[Tried], varied: Varied) -> Chart:
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


def _points(trials: Sequence[Tried], name: str) -> list[tuple[float, float]]:
    """The values of a field and the bits per byte, if all of its values are numbers."""
    values = [tried.values[name] for tried in trials]
    if not all(type(value) in (int, float) for value in values):
        return []
    return [
        (t.values[name], t.bits_per_byte) for t in _ranked(trials) if t.bits_per_byte is not None
    ]


def _progress_chart(trials: Sequence[Tried]) -> tuple[Chart, ...]:
    """The best so far, trial by trial."""
    points: list[tuple[float, float]] = []
    for tried in trials:
        if tried.is_whole and tried.bits_per_byte is not None:
            lowest = min(tried.bits_per_byte, points[-1][1] if points else tried.bits_per_byte)
            points.append((tried.number, lowest))
    if not points:
        return ()
    line = Line("best so far", tuple(points))
    text = "Trial 0 has the recipe's own values."
    return (Chart("The best so far", "trial", BITS, (line,), text=text),)
