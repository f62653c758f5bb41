"""`batch-size`: how many sequences to learn from at once.

From 1 to what memory allows, twice: every size sees equally many tokens; then every size gets the
wall-clock time that the base took, in the speed that the first run of its size had. The learning
rate follows a rule that is stated: it grows with the square root of the batch.
"""

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from tilth.accounting.memory import training_memory
from tilth.accounting.report import duration
from tilth.lab.experiment import (
    Findings,
    Outcomes,
    Question,
    Result,
    Setup,
    best_of,
    results_of,
)
from tilth.lab.folder import Chart, Line, Table
from tilth.recipes.changing import changed
from tilth.recipes.config import TrainingConfig

SIZES = (1, 4, 16, 64, 128, 256, 512)
FEWEST_STEPS = 8
"""A run of fewer updates is all warm-up."""
SPREAD = 0.1
"""From the shortest to the longest of equal times: what is more is said."""


class BatchSizes(Question):
    """A sweep of batch_size, at equal tokens and at equal time."""

    name = "batch-size"
    asks = "Which batch size is best, for equally many tokens and for equal time?"
    axis = "batch size"
    by_clock = True

    def __init__(
        self, base: TrainingConfig, seeds: int = 1, memory_bytes: int | None = None
    ) -> None:
        super().__init__(base, seeds)
        self.memory_bytes = memory_bytes or _machine_bytes(base.machine.device)

    def cost(self) -> float:
        """Each size twice."""
        return 2 * super().cost()

    def _configs(self) -> dict[int, TrainingConfig]:
        """By size, at equal tokens."""
        base = self.base
        configs = {}
        for size in sorted({*SIZES, base.batch_size}):
            steps = round(base.tokens / (size * base.model.context_length))
            needed = training_memory(base.model, size, base.optimizer.name).peak_bytes
            fits = steps >= FEWEST_STEPS and needed <= self.memory_bytes
            if fits or size == base.batch_size:
                rate = base.optimizer.lr * (size / base.batch_size) ** 0.5
                values = {"batch_size": size, "steps": steps, "optimizer.lr": rate}
                configs[size] = changed(base, {**values, "microbatch_size": size})
        return configs

    def _at_equal_tokens(self) -> list[Setup]:
        setups = []
        for size, config in self._configs().items():
            setups += self.over_seeds(f"tokens-{size}", f"{size}, equal tokens", config, size)
        return setups

    def setups(self, outcomes: Outcomes) -> list[Setup]:
        """Equal tokens first: their speed says how many steps fit into equal time."""
        setups = self._at_equal_tokens()
        results = {result.x: result for result in results_of(setups, outcomes).values()}
        configs = self._configs()
        if len(results) < len(configs):
            return setups
        base = results[self.base.batch_size]
        if not base.step_seconds:
            return setups
        seconds = base.step_seconds * self.base.steps
        for size, config in configs.items():
            if results[size].step_seconds == 0.0:  # it failed, for lack of memory
                continue
            steps = max(1, round(seconds / results[size].step_seconds))
            timed = replace(config, steps=steps)
            setups += self.over_seeds(f"time-{size}", f"{size}, equal time", timed, size)
        return setups

    def conclude(self, outcomes: Outcomes) -> Findings:
        """The best of each comparison, and where larger stops being better."""
        results = results_of(self.setups(outcomes), outcomes).values()
        kinds = {
            kind: [result for result in results if result.label.endswith(kind)]
            for kind in ("equal tokens", "equal time")
        }
        said = []
        for kind, members in kinds.items():
            if best := best_of(members):
                said.append(f"at {kind} {best.x:g} is best ({best.mean:.4f} bits per byte)")
        answer = "Of the batch sizes, " + ", ".join(said) + "."
        if not said:
            answer = "No batch size could be trained to the end."
        lines = tuple(
            Line(kind, tuple((each.x, each.mean) for each in members if each.is_whole))
            for kind, members in kinds.items()
        )
        charts = (
            Chart(
                "Bits per byte over the batch size",
                "batch size",
                "bits per byte",
                tuple(line for line in lines if line.points),
                x_scale="log",
                text="At equal tokens a larger batch means fewer updates; at equal time it means "
                "more tokens, as long as the machine works on more of them in the same time.",
            ),
            Chart(
                "Speed over the batch size",
                "batch size",
                "tokens per second",
                (Line("tokens per second", tuple(self._speeds(kinds["equal tokens"]))),),
                x_scale="log",
            ),
        )
        return Findings(answer, (self._table(list(results)),), charts, tuple(self._notes(kinds)))

    def _speeds(self, results: list[Result]) -> list[tuple[float, float]]:
        tokens = self.base.model.context_length
        return [
            (each.x, each.x * tokens / each.step_seconds) for each in results if each.step_seconds
        ]

    def _table(self, results: list[Result]) -> Table:
        rows = tuple(
            (
                each.label,
                each.standing,
                each.setups[0].config.steps,
                each.setups[0].config.tokens,
                f"{each.setups[0].config.optimizer.lr:.3g}",
                each.step_milliseconds,
            )
            for each in results
        )
        columns = ("batch size", "bits per byte", "steps", "tokens", "learning rate", "ms a step")
        return Table("Batch sizes", columns, rows)

    def _notes(self, kinds: dict[str, list[Result]]) -> list[str]:
        notes = [
            "The learning rate follows a rule: the base's, times the square root of the batch over "
            f"the base's batch of {self.base.batch_size}. Another rule could move the best size."
        ]
        for kind, members in kinds.items():
            whole = [each for each in members if each.is_whole]
            best = best_of(whole)
            if best is None or len(whole) < 3:
                continue
            below = whole[: whole.index(best) + 1]
            falls = all(small.mean >= large.mean for small, large in pairwise(below))
            said = f"At {kind}, {best.x:g} is best"
            if len(below) > 1 and falls:
                said = f"At {kind}, larger was better up to {best.x:g}"
            if best is members[-1]:
                notes.append(f"{said}, the largest that was tried.")
            elif best is not whole[-1]:
                loss = whole[-1].mean - best.mean
                notes.append(f"{said}; {whole[-1].x:g} ends {loss:.4f} bits per byte above it.")
        notes += self._inequalities(kinds["equal time"])
        left_out = [size for size in SIZES if size not in self._configs()]
        if left_out:
            notes.append(
                f"Left out: {', '.join(map(str, left_out))}, which would make fewer than "
                f"{FEWEST_STEPS} updates of these tokens, or not fit into memory."
            )
        return notes

    def _inequalities(self, timed: list[Result]) -> list[str]:
        """How far what was to be equal is not."""
        notes = []
        tokens = [config.tokens for config in self._configs().values()]
        largest = max(abs(each / self.base.tokens - 1) for each in tokens)
        if largest >= 0.0005:
            notes.append(f"Steps are whole, so equal tokens differ by up to {largest:.1%}.")
        seconds = {each.x: each.seconds for each in timed if each.is_whole and each.seconds}
        if seconds:
            said = ", ".join(f"{size:g} took {duration(took)}" for size, took in seconds.items())
            spread = max(seconds.values()) / min(seconds.values()) - 1
            far = f": they differ by {spread:.0%}, which favours those that took longer"
            notes.append(
                f"At equal time, without evaluations, {said}{far if spread > SPREAD else ''}."
            )
        return notes


def _machine_bytes(device: str | None) -> int:
    """Three quarters of the memory of the machine, or of its GPU."""
    if device is not None and device.startswith("cuda"):
        total: int = torch.cuda.get_device_properties(device).total_memory
    else:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = Path("/sys/fs/cgroup/memory.max")  # of a container
        if limit.exists() and (said := limit.read_text().strip()).isdecimal():
            total = min(total, int(said))
    return total * 3 // 4
