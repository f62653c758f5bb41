"""`batch-size`: how many sequences to learn from at once.

From 1 to what memory allows, twice: every size sees equally many tokens; then every size gets the
wall-clock time that the base took, in the speed that the first run of its size had. The learning
rate follows a rule that is stated: it grows with the square root of the batch.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from tilth.accounting.hardware import host_memory_bytes
from tilth.accounting.memory import training_memory
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.formatting import format_duration
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
from tilth.report.lab_file import Chart, Line

SIZES = (1, 4, 16, 64, 128, 256, 512)
FEWEST_STEPS = 8
"""A run of fewer updates is all warm-up."""
SPREAD = 0.1
"""From the shortest to the longest of equal times: what is more is said."""


class BatchSize(Question):
    """A sweep of batch_size, at equal tokens and at equal time."""

    name = "batch-size"
    asks = "Which batch size is best, for equally many tokens and for equal time?"
    axis = "batch size"
    by_clock = True

    def __init__(
        self, base: TrainingConfig, seeds: int | None = None, memory_bytes: int | None = None
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

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Equal tokens first: their speed says how many steps fit into equal time."""
        configs = self._configs()
        trials = self.along_axis("tokens-{}", "{}, equal tokens", configs)
        groups = {group.x: group for group in groups_of(trials, results).values()}
        if len(groups) < len(configs):
            return trials
        seconds = groups[self.base.batch_size].step_seconds * self.base.known_steps
        timed = {
            size: replace(config, steps=max(1, round(seconds / groups[size].step_seconds)))
            for size, config in configs.items()
            if seconds and groups[size].step_seconds  # else it failed, for lack of memory
        }
        return trials + self.along_axis("time-{}", "{}, equal time", timed)

    def conclude(self, results: Results) -> Findings:
        """The best of each comparison, and where larger stops being better."""
        groups = self.groups(results)
        kinds = {
            kind: [group for group in groups if group.label.endswith(kind)]
            for kind in ("equal tokens", "equal time")
        }
        said = [
            f"at {kind} {best.x:g} is best ({best.mean:.4f} bits per byte)"
            for kind, members in kinds.items()
            if (best := best_of(members))
        ]
        answer = "No batch size could be trained to the end."
        if said:
            answer = f"Of the batch sizes, {', '.join(said)}."
        lines = tuple(
            Line(kind, tuple((each.x, each.mean) for each in members if each.is_whole))
            for kind, members in kinds.items()
        )
        tokens = self.base.model.context_length
        speeds = tuple(
            (each.x, each.x * tokens / each.step_seconds)
            for each in kinds["equal tokens"]
            if each.step_seconds
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
                (Line("tokens per second", speeds),),
                x_scale="log",
            ),
        )
        names = ("bits per byte", "steps", "tokens", "learning rate", "ms a step")
        own: dict[str, Column] = {"learning rate": lambda each: f"{each.config.optimizer.lr:.3g}"}
        table = group_table("Batch sizes", groups, "batch size", names, own)
        return Findings(answer, (table,), charts, tuple(self._notes(kinds)))

    def _notes(self, kinds: dict[str, list[TrialGroup]]) -> list[str]:
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
        if left_out := [size for size in SIZES if size not in self._configs()]:
            notes.append(
                f"Left out: {', '.join(map(str, left_out))}, which would make fewer than "
                f"{FEWEST_STEPS} updates of these tokens, or not fit into memory."
            )
        return notes

    def _inequalities(self, timed: list[TrialGroup]) -> list[str]:
        """How far what was to be equal is not."""
        notes = []
        tokens = [config.tokens for config in self._configs().values()]
        largest = max(abs(each / self.base.tokens - 1) for each in tokens)
        if largest >= 0.0005:
            notes.append(f"Steps are whole, so equal tokens differ by up to {largest:.1%}.")
        seconds = {each.x: each.seconds for each in timed if each.is_whole and each.seconds}
        if seconds:
            said = ", ".join(
                f"{size:g} took {format_duration(took)}" for size, took in seconds.items()
            )
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
        total = host_memory_bytes()
        limit = Path("/sys/fs/cgroup/memory.max")  # of a container
        if limit.exists() and (said := limit.read_text().strip()).isdecimal():
            total = min(total, int(said))
    return total * 3 // 4
