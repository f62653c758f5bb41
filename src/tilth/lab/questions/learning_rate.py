"""`learning-rate`: how large a learning rate may be, and which is best.

A sweep by factors of four, from far too small to divergent. Then one more factor of two on both
sides of the best rate, and one below the rate at which training diverges.
"""

from itertools import pairwise

from tilth.config.overrides import changed
from tilth.lab.question import CLOSE, Findings, Sweep
from tilth.lab.trials import Column, PlannedTrial, Results, TrialGroup, best_of, groups_of
from tilth.report.comparing import is_within_seed_spread

STEP = 4.0
FIRST_POWERS = range(-4, 3)  # of STEP, around the base's rate
LAST_POWER = 7  # where the sweep ends, diverged or not


class LearningRate(Sweep):
    """A sweep of optimizer.lr."""

    name = "lr"
    asks = "Which learning rate is best, and how close is it to divergence?"
    axis = "learning rate"
    later_trials = 3.5
    title = "Learning rates"
    unfinished = "No learning rate finished training: use a smaller optimizer.lr."

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Sweep upwards until a rate diverges, then refine."""
        powers: list[float] = [*FIRST_POWERS]
        while True:
            groups = list(groups_of(self._at(powers), results).values())
            if len(groups) < len(powers):
                return self._at(powers)
            if any(map(_is_divergent, groups)) or powers[-1] >= LAST_POWER:
                break
            powers.append(powers[-1] + 1)
        finer: set[float] = set()
        if best := best_of(groups):
            power = powers[groups.index(best)]
            finer |= {power - 0.5, power + 0.5}
        if divergent := [p for p, g in zip(powers, groups, strict=True) if _is_divergent(g)]:
            finer.add(min(divergent) - 0.5)
        trials = self._at([*powers, *sorted(finer)])
        return trials + self.close_calls(trials, results)

    def _at(self, powers: list[float]) -> list[PlannedTrial]:
        rates = [float(f"{self.base.optimizer.lr * STEP**power:.3g}") for power in powers]
        configs = {lr: changed(self.base, {"optimizer.lr": lr}) for lr in rates}
        return self.along_axis("lr-{:g}", "{:g}", configs)

    def groups(self, results: Results) -> list[TrialGroup]:
        """Return the groups by learning rate."""
        return sorted(super().groups(results), key=lambda each: each.x)

    def columns(self, best: TrialGroup | None) -> tuple[str | tuple[str, Column], ...]:
        """Return the columns: each rate compared with the best one."""

        def difference(group: TrialGroup) -> str | None:
            return f"{group.mean - best.mean:+.4f}" if best and group.is_whole else None

        steps = ("steps taken", lambda g: sum(r.steps for r in g.results) // len(g.results))
        seeds = ("seeds",) if self.more_seeds else ()
        return ("bits per byte", ("difference from best", difference), *seeds, steps)

    def explain(self, groups: list[TrialGroup], best: TrialGroup) -> Findings:
        """Report the best rate, and the rate at which training diverges."""
        last_good = max(each.x for each in groups if each.is_whole)
        divergent = [each for each in groups if _is_divergent(each) and each.x > last_good]
        bits = f"{best.mean:.4f} bits per byte on validation"
        answer = f"The best learning rate is {best.label}, with {bits}. "
        if divergent:
            edge = divergent[0]
            answer += (
                f"Training diverges at {edge.label} and above; the best learning rate is "
                f"1/{edge.x / best.x:.3g} of that."
            )
        elif any(map(_is_divergent, groups)):
            answer += "Some learning rates diverged, but larger ones did not."
        else:
            answer += f"No learning rate up to {groups[-1].label} diverged."
        notes = _notes(groups, best, divergent)
        if len(best.bits) > 1 and self.more_seeds:
            notes.append(f"Rates within {CLOSE:.0%} of the best have {len(best.bits)} seeds.")
        elif self.more_seeds:
            notes.append(
                f"Each learning rate has one seed; none is within {CLOSE:.0%} of the best."
            )
        elif len(best.bits) == 1:
            notes.append(
                "Each learning rate has one seed: differences of a few thousandths may be noise."
            )
        return Findings(answer, notes=tuple(notes))


def _is_divergent(group: TrialGroup) -> bool:
    return "diverged" in group.states


def _notes(groups: list[TrialGroup], best: TrialGroup, divergent: list[TrialGroup]) -> list[str]:
    notes = []
    whole = [each for each in groups if each.is_whole]
    below = [each for each in whole if each.x <= best.x]
    if len(below) > 2 and all(low.mean >= high.mean for low, high in pairwise(below)):
        notes.append(f"Up to {best.label}, every larger learning rate was better.")
    worst = whole[-1]
    if divergent and divergent[0].x <= 4.0 * best.x:
        notes.append(
            "The best learning rate is at the edge of stability: within a factor of four of "
            "divergence."
        )
    elif divergent and worst.x > best.x:
        notes.append(
            f"Learning rates between the best and divergence finish training, with a worse loss: "
            f"{worst.label} is {worst.mean - best.mean:.4f} bits per byte above the best."
        )
    others = [each for each in whole if each is not best]
    if alike := [
        each.label for each in others if len(each.bits) > 1 and is_within_seed_spread(each, best)
    ]:
        notes.append(f"Within the spread over seeds of the best: {', '.join(alike)}.")
    return notes
