"""`learning-rate`: how large a learning rate may be, and which is best.

A sweep by factors of four from far too small to divergent; then once by two around the best, and
once by two before the point of divergence.
"""

from itertools import pairwise

from tilth.config.overrides import changed
from tilth.lab.question import Findings, Question
from tilth.lab.trials import (
    Column,
    PlannedTrial,
    Results,
    TrialGroup,
    best_of,
    group_table,
    groups_of,
)
from tilth.report.comparing import is_chance

STEP = 4.0
FIRST_POWERS = range(-4, 3)  # of STEP, around the base's rate
LAST_POWER = 7  # where the sweep ends, diverged or not


class LearningRate(Question):
    """A sweep of optimizer.lr."""

    name = "lr"
    asks = "Which learning rate is best, and how near is it to the one at which training diverges?"
    axis = "learning rate"
    later_trials = 3.5

    def trials(self, results: Results) -> list[PlannedTrial]:
        """The sweep, further up while nothing diverges, then what refines it."""
        powers: list[float] = [*FIRST_POWERS]
        while True:
            groups = groups_of(self._at(powers), results)
            if len(groups) < len(powers):
                return self._at(powers)
            if any(map(_is_divergent, groups.values())) or powers[-1] >= LAST_POWER:
                break
            powers.append(powers[-1] + 1)
        by_power = dict(zip(powers, groups.values(), strict=True))
        good = {power: each.mean for power, each in by_power.items() if each.is_whole}
        finer: set[float] = set()
        if good:
            best = min(good, key=lambda power: good[power])
            finer |= {best - 0.5, best + 0.5}
        if divergent := [power for power, each in by_power.items() if _is_divergent(each)]:
            finer.add(min(divergent) - 0.5)
        return self._at([*powers, *sorted(finer)])

    def _at(self, powers: list[float]) -> list[PlannedTrial]:
        rates = [float(f"{self.base.optimizer.lr * STEP**power:.3g}") for power in powers]
        configs = {lr: changed(self.base, {"optimizer.lr": lr}) for lr in rates}
        return self.along_axis("lr-{:g}", "{:g}", configs)

    def conclude(self, results: Results) -> Findings:
        """Which is best, and where it diverges."""
        groups = sorted(self.groups(results), key=lambda r: r.x)
        best = best_of(groups)
        own: dict[str, Column] = {
            "above the best": lambda each: (
                f"{each.mean - best.mean:+.4f}" if best and each.is_whole else None
            ),
            "steps taken": lambda each: sum(r.steps for r in each.results) // len(each.results),
        }
        names = ("bits per byte", *own)
        table = group_table("Learning rates", groups, "learning rate", names, own)
        if best is None:
            answer = "No learning rate trained to the end: begin from a smaller optimizer.lr."
            return Findings(answer, (table,))
        last_good = max(each.x for each in groups if each.is_whole)
        divergent = [each for each in groups if _is_divergent(each) and each.x > last_good]
        answer = f"Best is {best.label}, with {best.mean:.4f} bits per byte on validation. "
        if divergent:
            edge = divergent[0]
            answer += (
                f"From {edge.label} on training diverges: the best rate is "
                f"1/{edge.x / best.x:.3g} of that."
            )
        elif any(_is_divergent(each) for each in groups):
            answer += "Some rates diverged, and larger ones did not."
        else:
            answer += f"Nothing diverged, up to {groups[-1].label}."
        return Findings(answer, (table,), notes=tuple(_notes(groups, best, divergent)))


def _is_divergent(group: TrialGroup) -> bool:
    return "diverged" in group.states


def _notes(groups: list[TrialGroup], best: TrialGroup, divergent: list[TrialGroup]) -> list[str]:
    notes = []
    below = [each for each in groups if each.x <= best.x and each.is_whole]
    falls = all(low.mean >= high.mean for low, high in pairwise(below))
    if falls and len(below) > 2:
        notes.append(f"Up to {best.label}, a larger learning rate was better at every step.")
    above = [each for each in groups if each.x > best.x and each.is_whole]
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
    others = [each for each in groups if each.is_whole and each is not best]
    if alike := [each.label for each in others if len(each.bits) > 1 and is_chance(each, best)]:
        notes.append(f"No different from the best beyond the spread of seeds: {', '.join(alike)}.")
    if len(best.bits) == 1:
        notes.append("One seed each: neighbours that differ by some thousandths may be equal.")
    return notes
