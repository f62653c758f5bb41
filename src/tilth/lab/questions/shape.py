"""`shape`: how to spend a budget of FLOPs on a model.

Three questions with an axis each: depth against width; the context length; the vocabulary size.
Depth and vocabulary are compared at equal FLOPs, the context length at equal tokens.
"""

from dataclasses import replace
from pathlib import Path

from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.data import open_data
from tilth.lab.question import Findings, Sweep, Tell, at_equal_flops, step_flops
from tilth.lab.texts import retokenize
from tilth.lab.trials import PlannedTrial, Results, TrialGroup
from tilth.schema import check_int

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)
FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4)  # of the base's context length or vocabulary size
SMALLEST_VOCABULARY = 300  # 256 bytes, the end token, and some merges


class ShapeSweep(Sweep):
    """A sweep of one dimension of the model; `more_columns` follow its quality, size and speed."""

    more_columns: tuple[str, ...]

    def columns(self, best: TrialGroup | None) -> tuple[str, ...]:
        """Return the columns: quality, size and speed of each shape."""
        return ("bits per byte", "parameters", "ms per step", *self.more_columns)


class Depth(ShapeSweep):
    """Layers against width, at equal FLOPs."""

    name = "depth"
    asks = "At equal FLOPs, is a deeper or a wider model better?"
    axis = "layers"
    unfinished = "No shape finished training."
    title, label, more_columns = "Depth and width at equal FLOPs", "layers x width", ("steps",)

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return a trial per depth, with the width that costs about as much per token."""
        depths = sorted({*DEPTHS, self.base.model.num_layers})
        nearest = {layers: _deep(self.base, layers) for layers in depths}
        configs = {
            layers: at_equal_flops(config, self.base)
            for layers, config in nearest.items()
            # Heads are whole, so very deep models cannot be narrow enough: they cost more.
            if step_flops(config) < 1.5 * step_flops(self.base)
        }
        return self.along_axis("layers-{0}", "{0} x {1.model.d_model}", configs)

    def explain(self, groups: list[TrialGroup], best: TrialGroup) -> Findings:
        """Report the best shape, and the shapes within 1% of it."""
        others = sorted(
            (each for each in groups if each.is_whole and each is not best),
            key=lambda each: each.mean,
        )
        near = [each.label for each in others if each.mean < 1.01 * best.mean]
        answer = (
            f"The best shape is {best.label} (layers x width), with {best.mean:.4f} bits per byte."
        )
        if near:
            answer += f" Within 1% of it: {', '.join(near)}."
        elif others:
            gap = others[0].mean / best.mean - 1
            answer += f" No other shape is within 1%; the next is {others[0].label} (+{gap:.1%})."
        steps = [each.config.known_steps for each in groups]
        note = f"The runs have {min(steps):,} to {max(steps):,} steps, at equal FLOPs per run."
        return Findings(answer, notes=(note,))


def _deep(base: TrainingConfig, layers: int) -> TrainingConfig:
    """Return the base with `layers` layers and the width that costs about as much per token."""
    widths = [heads * base.model.d_head for heads in range(1, 64)]
    shapes = [{"model.num_layers": layers, "model.d_model": width} for width in widths]
    configs = [changed(base, shape) for shape in shapes]
    return min(configs, key=lambda config: abs(step_flops(config) - step_flops(base)))


class Context(ShapeSweep):
    """The context length, at equal tokens."""

    name = "context"
    asks = "What does a longer context cost, and what does it gain?"
    axis = "context length"
    by_clock = True
    unfinished = "No context length finished training."
    title, more_columns = "Context length at equal tokens", ("perplexity",)

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return a trial per context length, with as many tokens per step as the base."""
        tokens, configs = self.base.tokens_per_step, {}
        for length in [int(self.base.model.context_length * factor) for factor in FACTORS]:
            if length >= 16 and tokens % length == 0:  # else too short for a prompt, or not whole
                values = {"model.context_length": length, "batch_size": tokens // length}
                configs[length] = changed(self.base, {**values, "microbatch_size": None})
        return self.along_axis("context-{}", "{}", configs)

    def explain(self, groups: list[TrialGroup], best: TrialGroup) -> Findings:
        """Report time per step and perplexity by context length."""
        whole = [each for each in groups if each.is_whole]
        first, last = whole[0], whole[-1]
        times = last.step_seconds / first.step_seconds
        answer = (
            f"From context length {first.label} to {last.label}, a step of "
            f"{self.base.tokens_per_step:,} tokens takes {times:.2f} times as long, and the "
            f"perplexity changes from {first.perplexity:.2f} to {last.perplexity:.2f}. The "
            f"best context length is {best.label}, with {best.mean:.4f} bits per byte."
        )
        steps = {"a step": [(each.x, each.step_seconds * 1e3) for each in whole]}
        text = (
            "Every step has the same number of tokens; only the cost of attention grows, because "
            "each token attends to all earlier ones."
        )
        perplexities = {"perplexity": [(each.x, each.perplexity) for each in whole]}
        note = (
            "Validation uses the same context length, so a short context also has less to predict "
            "from. At equal tokens per step, a longer context means fewer sequences."
        )
        charts = (
            self.chart("Time per step", "milliseconds", steps, text),
            self.chart("Perplexity", "perplexity on validation", perplexities),
        )
        return Findings(answer, charts=charts, notes=(note,))


class Vocabulary(ShapeSweep):
    """The vocabulary size, at equal FLOPs, on the same text."""

    name = "vocabulary"
    asks = "At equal FLOPs, which vocabulary size is best?"
    axis = "vocabulary size"
    unfinished = "No vocabulary size finished training."
    title, more_columns = "Vocabulary sizes at equal FLOPs", ("loss", "steps")

    def __init__(
        self, base: TrainingConfig, seeds: int | None, folder: Path, max_bytes: int
    ) -> None:
        super().__init__(base, seeds)
        check_int("max_bytes", max_bytes)
        self.folder, self.max_bytes = folder, max_bytes
        sizes = {int(base.model.vocab_size * factor) for factor in FACTORS}
        self.sizes = sorted(size for size in sizes if size >= SMALLEST_VOCABULARY)

    def _data(self, size: int) -> str:
        return str(self.folder / "data" / f"vocabulary-{size}")

    def prepare(self, folder: Path, tell: Tell) -> None:
        """Train a tokenizer of each size, and tokenize the text of the data with it."""
        data = open_data(self.base.data)
        for size in list(self.sizes):
            tell(f"vocabulary size {size:,}: training a tokenizer and tokenizing the text")
            found = retokenize(data, self._data(size), size, self.max_bytes).vocab_size
            if found < size:
                tell(f"vocabulary size {size:,}: left out, the text has merges for only {found:,}")
                self.sizes.remove(size)

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return a trial per vocabulary size, with the steps that cost the FLOPs of the base."""
        configs = {}
        for size in self.sizes:
            config = replace(self.base, data=self._data(size))
            configs[size] = at_equal_flops(changed(config, {"model.vocab_size": size}), self.base)
        return self.along_axis("vocabulary-{}", "{:,}", configs)

    def explain(self, groups: list[TrialGroup], best: TrialGroup) -> Findings:
        """Report the best size, by bits per byte."""
        first, last = groups[0], groups[-1]
        answer = (
            f"The best vocabulary size is {best.label}, with {best.mean:.4f} bits per byte "
            f"({first.label}: {first.result_text}; {last.label}: {last.result_text})."
        )
        note = (
            "The loss is per token, and tokens of a larger vocabulary are longer: compare bits per "
            "byte."
        )
        return Findings(answer, notes=(note,))
