"""`shape`: how to spend a budget of FLOPs on a model.

Three questions with an axis each: depth against width; the context length; the size of the
vocabulary. What is compared costs equally many FLOPs (depth, vocabulary) or sees equally many
tokens (context).
"""

import math
from dataclasses import replace
from pathlib import Path

from tilth.accounting import training_flops
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.data import open_data
from tilth.lab.question import Findings, Question, Tell, at_equal_flops
from tilth.lab.texts import retokenize
from tilth.lab.trials import PlannedTrial, Results, best_of, group_table
from tilth.report.lab_file import Chart, Line

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)
CONTEXT_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)
VOCABULARY_FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)
SHOWN = ("bits per byte", "parameters", "ms a step")
SMALLEST_VOCABULARY = 300  # 256 bytes, the end token, and something to learn


class Depth(Question):
    """Layers against width, at equal FLOPs."""

    name = "depth"
    asks = "With equally many FLOPs, is it better to be deep or wide?"
    axis = "layers"

    def trials(self, results: Results) -> list[PlannedTrial]:
        """For each depth the width whose FLOPs a token are nearest to the base's."""
        trials: list[PlannedTrial] = []
        for layers in sorted({*DEPTHS, self.base.model.num_layers}):
            config = _deep(self.base, layers)
            # Heads are whole, so very deep models cannot be narrow enough: their FLOPs say so.
            if _cost(config) < 1.5 * _cost(self.base):
                label = f"{layers} x {config.model.d_model}"
                config = at_equal_flops(config, self.base)
                trials += self.over_seeds(f"layers-{layers}", label, config, layers)
        return trials

    def conclude(self, results: Results) -> Findings:
        """The best shape, and how flat the optimum is."""
        groups = self.groups(results)
        best = best_of(groups)
        title, label = "Depth and width at equal FLOPs", "layers x width"
        table = group_table(title, groups, label, (*SHOWN, "steps"))
        if best is None:
            return Findings("No shape could be trained to the end.", (table,))
        near = [each.label for each in groups if each.is_whole and each.mean < 1.01 * best.mean]
        answer = (
            f"Best is {best.label} (layers x width), with {best.mean:.4f} bits per byte; within 1% "
            f"of it: {', '.join(near)}."
        )
        steps = [each.config.known_steps for each in groups]
        note = (
            f"Steps go from {min(steps):,} to {max(steps):,}, so that every run costs the same "
            "FLOPs."
        )
        return Findings(answer, (table,), notes=(note,))


def _deep(base: TrainingConfig, layers: int) -> TrainingConfig:
    """The base with so many layers, and the width that makes a token cost about as much."""
    widths = [heads * base.model.d_head for heads in range(1, 64)]
    configs = [
        changed(base, {"model.num_layers": layers, "model.d_model": width}) for width in widths
    ]
    return min(configs, key=lambda config: abs(_cost(config) - _cost(base)))


def _cost(config: TrainingConfig) -> int:
    return training_flops(config.model, 1)


class Context(Question):
    """The context length, at equal tokens."""

    name = "context"
    asks = "What does a longer context cost, and what does it bring?"
    axis = "context length"
    by_clock = True

    def trials(self, results: Results) -> list[PlannedTrial]:
        """As many tokens in a step as the base has, in fewer and longer sequences."""
        tokens, configs = self.base.tokens_per_step, {}
        for factor in CONTEXT_FACTORS:
            length = int(self.base.model.context_length * factor)
            if length >= 16 and tokens % length == 0:  # else too short to be prompted, or not whole
                values = {"model.context_length": length, "batch_size": tokens // length}
                configs[length] = changed(self.base, {**values, "microbatch_size": None})
        return self.along_axis("context-{}", "{}", configs)

    def conclude(self, results: Results) -> Findings:
        """Time a step and perplexity over the length."""
        groups = self.groups(results)
        whole = [each for each in groups if each.is_whole]
        title = "Context length at equal tokens"
        table = group_table(title, groups, "context length", (*SHOWN, "perplexity"))
        best = best_of(groups)
        if best is None:
            return Findings("No context length could be trained to the end.", (table,))
        first, last = whole[0], whole[-1]
        times = last.step_seconds / first.step_seconds
        answer = (
            f"From {first.label} to {last.label} tokens of context, a step of "
            f"{self.base.tokens_per_step:,} tokens takes {times:.2f} times as long, and the "
            f"perplexity goes from {math.exp(first.loss):.2f} to {math.exp(last.loss):.2f}; best "
            f"is {best.label} with {best.mean:.4f} bits per byte."
        )
        points = tuple((each.x, each.step_seconds * 1e3) for each in whole)
        charts = (
            Chart(
                "Time per step over the context length",
                "context length",
                "milliseconds",
                (Line("a step", points),),
                x_scale="log",
                text="Equally many tokens in every step: what grows is attention, each token of "
                "which looks at all before it.",
            ),
            Chart(
                "Perplexity over the context length",
                "context length",
                "perplexity on validation",
                (Line("perplexity", tuple((each.x, math.exp(each.loss)) for each in whole)),),
                x_scale="log",
            ),
        )
        note = (
            "Validation uses the same context length, so a short one also has less to predict "
            "from; equally many tokens in a step mean fewer sequences of a longer one."
        )
        return Findings(answer, (table,), charts, (note,))


class Vocabulary(Question):
    """The vocabulary size, at equal FLOPs, on the same text."""

    name = "vocabulary"
    asks = "With equally many FLOPs, how large should the vocabulary be?"
    axis = "vocabulary size"

    def __init__(
        self, base: TrainingConfig, seeds: int | None, folder: Path, max_bytes: int
    ) -> None:
        super().__init__(base, seeds)
        self.folder, self.max_bytes = folder, max_bytes
        sizes = {int(base.model.vocab_size * factor) for factor in VOCABULARY_FACTORS}
        self.sizes = sorted(size for size in sizes if size >= SMALLEST_VOCABULARY)

    def _data(self, size: int) -> str:
        return str(self.folder / "data" / f"vocabulary-{size}")

    def prepare(self, folder: Path, tell: Tell) -> None:
        """Learn the tokenizers, and tokenize the text of the data again with each."""
        data = open_data(self.base.data)
        for size in list(self.sizes):
            tell(f"a vocabulary of {size:,} tokens: training and tokenizing")
            found = retokenize(data, self._data(size), size, self.max_bytes).vocab_size
            if found < size:
                tell(f"the text has pairs for {found:,} tokens only; {size:,} are left out")
                self.sizes.remove(size)

    def trials(self, results: Results) -> list[PlannedTrial]:
        """A larger vocabulary makes each token dearer, and needs fewer of them for a text."""
        configs = {}
        for size in self.sizes:
            config = replace(self.base, data=self._data(size))
            configs[size] = at_equal_flops(changed(config, {"model.vocab_size": size}), self.base)
        return self.along_axis("vocabulary-{}", "{:,}", configs)

    def conclude(self, results: Results) -> Findings:
        """The best size, by bits per byte."""
        groups = self.groups(results)
        title = "Vocabulary sizes at equal FLOPs"
        table = group_table(title, groups, "vocabulary", (*SHOWN, "loss", "steps"))
        best = best_of(groups)
        if best is None:
            return Findings("No vocabulary could be trained with to the end.", (table,))
        answer = (
            f"Best is a vocabulary of {best.label}, with {best.mean:.4f} bits per byte; "
            f"{groups[0].label} gives {groups[0].standing}, {groups[-1].label} gives "
            f"{groups[-1].standing}."
        )
        note = (
            "The loss is per token, and a token of a larger vocabulary is more text: only bits per "
            "byte can be compared here."
        )
        return Findings(answer, (table,), notes=(note,))
