"""`lr`: how large a learning rate may be, and which is best.

A sweep by factors of four from far too small to divergent; then once by two around the best, and
once by two before the point of divergence.
"""

from itertools import pairwise

from tilth.lab.experiment import (
    Findings,
    Outcomes,
    Question,
    Result,
    Setup,
    best_of,
    is_chance,
    results_of,
)
from tilth.lab.folder import Table
from tilth.recipes.changing import changed

STEP = 4.0
FIRST_POWERS = range(-4, 3)  # of STEP, around the base's rate
LAST_POWER = 7  # where the sweep ends, diverged or not


class LearningRates(Question):
    """A sweep of optimizer.lr."""

    name = "lr"
    asks = "Which learning rate is best, and how near is it to the one at which training diverges?"
    axis = "learning rate"
    later_trials = 3.5

    def setups(self, outcomes: Outcomes) -> list[Setup]:
        """The sweep, further up while nothing diverges, then what refines it."""
        powers: list[float] = [*FIRST_POWERS]
        results = self._results(powers, outcomes)
        if len(results) < len(powers):
            return self._at(powers)
        while (
            results
            and len(results) == len(powers)
            and not any(_is_divergent(each) for each in results.values())
            and powers[-1] < LAST_POWER
        ):
            powers.append(powers[-1] + 1)
            results = self._results(powers, outcomes)
        if len(results) < len(powers):
            return self._at(powers)
        by_power = dict(zip(powers, results.values(), strict=True))
        good = {power: each.mean for power, each in by_power.items() if each.is_whole}
        finer: set[float] = set()
        if good:
            best = min(good, key=lambda power: good[power])
            finer |= {best - 0.5, best + 0.5}
        divergent = [power for power, each in by_power.items() if _is_divergent(each)]
        if divergent:
            finer.add(min(divergent) - 0.5)
        return self._at([*powers, *sorted(finer)])

    def _at(self, powers: list[float]) -> list[Setup]:
        setups = []
        for power in powers:
            lr = float(f"{self.base.optimizer.lr * STEP**power:.3g}")
            config = changed(self.base, {"optimizer.lr": lr})
            setups += self.over_seeds(f"lr-{lr:g}", f"{lr:g}", config, lr)
        return setups

    def _results(self, powers: list[float], outcomes: Outcomes) -> dict[str, Result]:
        return results_of(self._at(powers), outcomes)

    def conclude(self, outcomes: Outcomes) -> Findings:
        """Which is best, and where it diverges."""
        results = sorted(results_of(self.setups(outcomes), outcomes).values(), key=lambda r: r.x)
        best = best_of(results)
        rows = tuple(
            (
                each.label,
                each.standing,
                f"{each.mean - best.mean:+.4f}" if best and each.is_whole else None,
                sum(outcome.steps for outcome in each.outcomes) // len(each.outcomes),
            )
            for each in results
        )
        columns = ("learning rate", "bits per byte", "above the best", "steps taken")
        table = Table("Learning rates", columns, rows)
        if best is None:
            answer = "No learning rate trained to the end: begin from a smaller optimizer.lr."
            return Findings(answer, (table,))
        last_good = max(each.x for each in results if each.is_whole)
        divergent = [each for each in results if _is_divergent(each) and each.x > last_good]
        answer = f"Best is {best.label}, with {best.mean:.4f} bits per byte on validation. "
        if divergent:
            edge = divergent[0]
            answer += (
                f"From {edge.label} on training diverges: the best rate is "
                f"1/{edge.x / best.x:.3g} of that."
            )
        elif any(_is_divergent(each) for each in results):
            answer += "Some rates diverged, and larger ones did not."
        else:
            answer += f"Nothing diverged, up to {results[-1].label}."
        return Findings(answer, (table,), notes=tuple(_notes(results, best, divergent)))


def _is_divergent(result: Result) -> bool:
    return "diverged" in result.states


def _notes(results: list[Result], best: Result, divergent: list[Result]) -> list[str]:
    notes = []
    below = [each for each in results if each.x <= best.x and each.is_whole]
    falls = all(low.mean >= high.mean for low, high in pairwise(below))
    if falls and len(below) > 2:
        notes.append(f"Up to {best.label}, a larger learning rate was better at every step.")
    above = [each for each in results if each.x > best.x and each.is_whole]
    if divergent and divergent[0].x <= 4.0 * best.x:
        notes.append(
            "The best rate is at the edge of stability: it is within a factor of four of the rate "
            "that diverges."
        )
    elif above and divergent:
        worst = above[-1]
        notes.append(
            f"Between the best rate and the edge lie rates that train to the end, and worse: "
            f"{worst.label} ends {worst.mean - best.mean:.4f} bits per byte above."
        )
    others = [each for each in results if each.is_whole and each is not best]
    alike = [each.label for each in others if len(each.bits) > 1 and is_chance(each, best)]
    if alike:
        notes.append(f"No different from the best beyond the spread of seeds: {', '.join(alike)}.")
    if len(best.bits) == 1:
        notes.append("One seed each: neighbours that differ by some thousandths may be equal.")
    return notes
