"""`batch-size`: how many sequences to train on per step.

Sizes go from 1 to the largest that fits in memory. Each is trained twice: on equally many tokens,
then for the wall-clock time of the base, at the speed measured in the first run. The learning rate
grows with the square root of the batch size.
"""

from dataclasses import replace
from itertools import pairwise

import torch

from tilth.accounting.hardware import host_memory_bytes
from tilth.accounting.memory import training_memory
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.formatting import format_duration
from tilth.lab.question import Findings, Question
from tilth.lab.trials import PlannedTrial, Results, TrialGroup, best_of, group_table, groups_of

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
FEWEST_STEPS = 8  # a run of fewer updates is all warm-up
SPREAD = 0.1  # longest over shortest of the equal times, minus one: a larger spread is reported


class BatchSize(Question):
    """A sweep of batch_size, at equal tokens and at equal time."""

    name = "batch-size"
    asks = "Which batch size is best at equal tokens, and at equal time?"
    axis = "batch size"
    by_clock = True

    def __init__(
        self,
        base: TrainingConfig,
        seeds: int | None = None,
        close_seeds: int = 1,
        memory_bytes: int | None = None,
    ) -> None:
        super().__init__(base, seeds, close_seeds)
        self.memory_bytes = memory_bytes or _machine_bytes(base.machine.device)

    def cost(self) -> float:
        """Return the cost of training each size twice."""
        return 2 * super().cost()

    def _configs(self) -> dict[int, TrainingConfig]:
        """Return the configs by size, at equal tokens."""
        base, configs = self.base, {}
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
        """Return trials at equal tokens; once their speed is known, also those at equal time."""
        configs = self._configs()
        trials = self.along_axis("tokens-{}", "{}, equal tokens", configs)
        speeds = {group.x: group.step_seconds for group in groups_of(trials, results).values()}
        if len(speeds) < len(configs):
            return trials
        seconds = speeds[self.base.batch_size] * self.base.known_steps
        timed = {
            size: replace(config, steps=max(1, round(seconds / speeds[size])))
            for size, config in configs.items()
            if seconds and speeds[size]  # else it failed, for lack of memory
        }
        timed_trials = self.along_axis("time-{}", "{}, equal time", timed)
        close = [
            call for kind in (trials, timed_trials) for call in self.close_calls(kind, results)
        ]
        return trials + timed_trials + close

    def conclude(self, results: Results) -> Findings:
        """Report the best size of each comparison, and up to which size larger is better."""
        groups = self.groups(results)
        kinds = {
            kind: [group for group in groups if group.label.endswith(kind)]
            for kind in ("equal tokens", "equal time")
        }
        whole = {kind: [each for each in kinds[kind] if each.is_whole] for kind in kinds}
        bests = [(kind, best) for kind in kinds if (best := best_of(whole[kind]))]
        said = [
            f"At {kind}, batch size {best.x:g} is best ({best.mean:.4f} bits per byte)."
            for kind, best in bests
        ]
        answer = " ".join(said) or "No batch size finished training."
        bits = {kind: [(each.x, each.mean) for each in whole[kind]] for kind, _ in bests}
        text = (
            "At equal tokens, a larger batch means fewer updates. At equal time, it means more "
            "tokens, as long as the throughput grows."
        )
        tokens = self.base.model.context_length
        timed = [each for each in kinds["equal tokens"] if each.step_seconds]
        speeds = {"tokens per second": [(g.x, g.x * tokens / g.step_seconds) for g in timed]}
        charts = (
            self.chart("Bits per byte", "bits per byte", bits, text),
            self.chart("Speed", "tokens per second", speeds),
        )
        rate = ("learning rate", lambda each: f"{each.config.optimizer.lr:.3g}")
        seeds = ("seeds",) if self.more_seeds else ()
        columns = ("bits per byte", *seeds, "steps", "tokens", rate, "ms per step")
        table = group_table("Batch sizes", groups, self.axis, *columns)
        notes = [
            "The learning rate is proportional to the square root of the batch size; the base has "
            f"batch size {self.base.batch_size}. Another rule could change the best size.",
            *(_trend(kind, best, kinds[kind][-1], whole[kind]) for kind, best in bests),
            *self._deviations(whole["equal time"]),
        ]
        first, last = kinds["equal tokens"][0], kinds["equal tokens"][-1]
        notes.append(
            f"At equal tokens, batch size {first.x:g} has {first.config.steps:,} updates, and "
            f"{last.x:g} has {last.config.steps:,}."
        )
        if left_out := [size for size in SIZES if size not in self._configs()]:
            notes.append(
                f"Left out: {', '.join(map(str, left_out))} (fewer than {FEWEST_STEPS} steps, or "
                "too large for memory)."
            )
        return Findings(answer, (table,), charts, tuple(filter(None, notes)))

    def _deviations(self, timed: list[TrialGroup]) -> list[str]:
        """Report by how much the tokens and the times of the trials differ from equal."""
        notes = []
        tokens = [config.tokens for config in self._configs().values()]
        largest = max(abs(each / self.base.tokens - 1) for each in tokens)
        if largest >= 0.0005:
            notes.append(f"Runs have whole steps, so their tokens differ by up to {largest:.1%}.")
        if seconds := {each.x: each.seconds for each in timed if each.seconds}:
            said = ", ".join(f"{x:g} took {format_duration(took)}" for x, took in seconds.items())
            spread = max(seconds.values()) / min(seconds.values()) - 1
            far = f": a difference of {spread:.0%}, which favours the sizes that took longer"
            notes.append(
                f"At equal time, without evaluations, {said}{far if spread > SPREAD else ''}."
            )
        return notes


def _trend(kind: str, best: TrialGroup, largest: TrialGroup, whole: list[TrialGroup]) -> str:
    """Say up to where larger was better; empty where too few finished to tell."""
    below = whole[: whole.index(best) + 1]
    falls = all(small.mean >= large.mean for small, large in pairwise(below))
    said = f"At {kind}, {best.x:g} is best"
    if len(below) > 1 and falls:
        said = f"At {kind}, larger batches were better up to {best.x:g}"
    if len(whole) < 3 or (best is whole[-1] and best is not largest):
        return ""
    if best is largest:
        return f"{said}, the largest size tried."
    return f"{said}; {whole[-1].x:g} is {whole[-1].mean - best.mean:.4f} bits per byte worse."


def _machine_bytes(device: str | None) -> int:
    """Return three quarters of the memory of the machine, or of its GPU."""
    if device is not None and device.startswith("cuda") and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(device).total_memory) * 3 // 4
    return host_memory_bytes() * 3 // 4
