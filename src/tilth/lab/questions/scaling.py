"""`scaling`: the loss as a function of model size and training tokens, and what it predicts.

Every size is trained for every length, each with a whole schedule. A law is fitted to the runs (see
`scaling_law`), checked by predicting the largest run from the others, and used to predict recipes.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilth.accounting import count_parameters
from tilth.accounting.budget import FLOPS_PER_PARAMETER_AND_TOKEN, effective_parameters
from tilth.config.model import ModelConfig
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.data import open_data
from tilth.formatting import join_words
from tilth.lab.question import Findings, Question
from tilth.lab.scaling_law import Fit, Law, Point, fit
from tilth.lab.trials import PlannedTrial, Results, TrialGroup, group_table
from tilth.recipes import RECIPES, recipe_named
from tilth.report.lab_file import Chart, Line, Table

SIZES = (1 / 2, 3 / 4, 1, 3 / 2)  # of the base's layers; the width follows, as in a recipe
LENGTHS = (1 / 8, 1 / 4, 1 / 2, 1)  # of the base's steps
PREDICTED = ("tinystories-cpu", "tinystories")
FEWEST_STEPS = 8  # a shorter run is all warm-up
MOST_EPOCHS = 4  # repeated text is worth almost as much as new text up to here
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9}
CURVE_POINTS = 40


@dataclass(frozen=True)
class Subject:
    """A model and a number of tokens to predict the loss of."""

    name: str
    model: ModelConfig
    tokens: float


class Scaling(Question):
    """A grid of sizes and lengths around the base, and a law of its losses."""

    name = "scaling"
    asks = "How does the loss depend on model size and training tokens, and what does it predict?"
    axis = "training tokens"

    def __init__(
        self,
        base: TrainingConfig,
        seeds: int | None = None,
        predict: Sequence[str] = PREDICTED,
    ) -> None:
        super().__init__(base, seeds)
        self.subjects = [_subject(each, base) for each in predict]

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return a trial for each size and length."""
        trials: list[PlannedTrial] = []
        layers = sorted({max(1, round(self.base.model.num_layers * size)) for size in SIZES})
        steps = sorted({round(self.base.known_steps * length) for length in LENGTHS})
        for number in layers:
            config = _sized(self.base, number)
            shape = f"{number} x {config.model.d_model}"
            for length in steps:
                if length >= min(FEWEST_STEPS, self.base.known_steps):
                    own = replace(config, steps=length)
                    name, label = f"layers-{number}-steps-{length}", f"{shape}, {length:,} steps"
                    trials += self.over_seeds(name, label, own, own.tokens)
        return trials

    def conclude(self, results: Results) -> Findings:
        """Fit the law, check it, and predict."""
        groups = self.groups(results)
        whole = [group for group in groups if group.is_whole]
        columns = ("loss", "bits per byte", "parameters", "tokens", "ms per step")
        try:
            found = fit([_point(group) for group in whole])
        except ValueError as error:
            table = group_table("Runs", groups, "layers x width", *columns)
            return Findings(f"No law was fitted: {error}", (table,))
        fitted = ("loss of the law", lambda group: f"{_law_loss(found.law, group):.4f}")
        per_loss = sum(group.mean / group.loss for group in whole) / len(whole)
        predictions = [(each, found.predict(*_size(each))) for each in self.subjects]
        said = [
            f"{each.name} ({each.tokens:,.0f} tokens): {middle:.3f} ({low:.3f} to {high:.3f})"
            for each, (middle, low, high) in predictions
        ]
        law = found.law
        answer = (
            f"The loss in nats per token is {law.E:.3g} + {law.A:.3g} / N^{law.alpha:.3g} + "
            f"{law.B:.3g} / D^{law.beta:.3g}."
        )
        growth = law.beta / (law.alpha + law.beta)
        answer += (
            f" With ten times the FLOPs, the best model has {10**growth:.2g} times the parameters "
            f"and {10 ** (1 - growth):.2g} times the tokens."
        )
        if said:
            answer += f" Predicted losses, with 90% intervals: {'; '.join(said)}."
        tables = (
            group_table("Runs", groups, "layers x width", *columns[:2], fitted, *columns[2:]),
            _law_table(found),
            Table.by(
                "Predictions",
                predictions,
                {
                    "model": lambda each: each[0].name,
                    "parameters": lambda each: count_parameters(each[0].model).total,
                    "tokens": lambda each: round(each[0].tokens),
                    "loss": lambda each: f"{each[1][0]:.3f}",
                    "90% interval": lambda each: f"{each[1][1]:.3f} to {each[1][2]:.3f}",
                    "bits per byte": lambda each: f"{each[1][0] * per_loss:.3f}",
                    "FLOPs": lambda each: f"{_flops(*_size(each[0])):.3g}",
                    "best parameters for these FLOPs": lambda each: (
                        f"{law.optimum(_flops(*_size(each[0])))[0]:,.0f}"
                    ),
                },
            ),
        )
        charts = (self._lengths_chart(whole, law), self._frontier_chart(whole, found))
        return Findings(answer, tables, charts, tuple(self._notes(whole)))

    def _lengths_chart(self, groups: list[TrialGroup], law: Law) -> Chart:
        """Draw the loss over tokens, a measured and a fitted line for each size."""
        shapes: dict[str, list[TrialGroup]] = {}
        for group in groups:
            shapes.setdefault(group.label.partition(",")[0], []).append(group)
        lines = {}
        for shape, own in shapes.items():
            lines[shape] = [(group.x, group.loss) for group in own]
            lines[f"{shape}, law"] = [(group.x, _law_loss(law, group)) for group in own]
        text = "Layers x width. Each point is a run with its own schedule."
        return self.chart("Loss", "nats per token", lines, text)

    def _frontier_chart(self, groups: list[TrialGroup], found: Fit) -> Chart:
        """Draw the loss over FLOPs: runs, the compute-optimal frontier, and predicted models."""
        runs = sorted((_flops(*_point(group)[:2]), group.loss) for group in groups)
        predicted = sorted(
            (_flops(*_size(each)), found.law.loss(*_size(each))) for each in self.subjects
        )
        first = math.log(runs[0][0])
        last = math.log(max(flops for flops, _ in (*runs, *predicted)))
        budgets = [
            math.exp(first + (last - first) * number / (CURVE_POINTS - 1))
            for number in range(CURVE_POINTS)
        ]
        laws = {"compute-optimal": [found.law], "95%": found.replicates, "5%": found.replicates}
        lines = [Line("runs", tuple(runs))]
        for name, several in laws.items():
            place = {"95%": 0.95, "5%": 0.05}.get(name, 0.5)
            curve = []
            for flops in budgets:
                losses = sorted(law.loss(*law.optimum(flops)) for law in several)
                curve.append((flops, losses[round(place * (len(losses) - 1))]))
            lines.append(Line(name, tuple(curve)))
        if predicted:
            lines.append(Line("predicted", tuple(predicted)))
        return Chart(
            *("Compute-optimal frontier", "FLOPs", "nats per token", tuple(lines), "log"),
            text="The lowest loss of the law at equal FLOPs, over all sizes; 5% and 95% of the "
            "resampled laws.",
        )

    def _notes(self, groups: list[TrialGroup]) -> Iterable[str]:
        yield (
            "N is the FLOPs per token divided by 6: the weights of all products, and attention; "
            "the token embedding is not part of it. D is training tokens."
        )
        yield _held_out(groups)
        available = len(open_data(self.base.data).train)
        repeated = [each.name for each in self.subjects if each.tokens > MOST_EPOCHS * available]
        if repeated:
            yield (
                f"The text has {available:,} training tokens. The law describes new text: "
                f"{join_words(repeated)} would read it more than {MOST_EPOCHS} times, so the "
                "predicted losses need a larger text."
            )
        yield (
            "The learning rate of a size follows the rule of the recipes; a better one for each "
            "size would change the law."
        )


def _held_out(groups: list[TrialGroup]) -> str:
    """Predict the run of most FLOPs from the others, and compare."""
    largest = max(groups, key=lambda group: _flops(*_point(group)[:2]))
    others = [_point(group) for group in groups if group is not largest]
    parameters, tokens, loss = _point(largest)
    try:
        middle, low, high = fit(others).predict(parameters, tokens)
    except ValueError:
        return "Too few runs are left to predict the largest one from."
    inside = "inside" if low <= loss <= high else "outside"
    return (
        f"Held out, the largest run ({largest.label}) is predicted as {middle:.4f} ({low:.4f} to "
        f"{high:.4f}); it reached {loss:.4f}, {inside} the interval, an error of "
        f"{middle / loss - 1:+.2%}."
    )


def _sized(base: TrainingConfig, layers: int) -> TrainingConfig:
    """Return the base with another number of layers; width and learning rate follow."""
    model = base.model
    heads = math.ceil(model.num_heads * layers / model.num_layers)
    rate = base.optimizer.lr * (model.num_layers / layers) ** 0.5
    values: dict[str, float] = {"model.num_layers": layers, "model.d_model": heads * model.d_head}
    if layers != model.num_layers:
        values["optimizer.lr"] = float(f"{rate:.4g}")
        factor = base.optimizer.embedding_lr_factor
        if factor != 1.0:  # the recipes' rate of the embedding is the same at every size
            values["optimizer.embedding_lr_factor"] = factor * base.optimizer.lr / rate
    return changed(base, values)


def _subject(text: str, base: TrainingConfig) -> Subject:
    """Return the model and tokens of NAME or NAME:TOKENS; NAME is a recipe."""
    name, _, said = text.partition(":")
    recipe_named(name)  # raises with a suggestion
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMB]?)", said)
    if said and (found is None or float(found[1]) == 0.0):
        raise ValueError(f"the tokens of {text!r} are not a number; write NAME:41M, for example.")
    config = RECIPES[name].recipe(base.model.vocab_size, base.data)
    if found is not None:
        return Subject(text, config.model, float(found[1]) * UNITS[found[2]])
    if config.steps is None:
        raise ValueError(f"{name} has no number of steps; give tokens, as in {name}:1B.")
    return Subject(text, config.model, config.tokens)


def _size(subject: Subject) -> tuple[float, float]:
    return effective_parameters(subject.model), subject.tokens


def _flops(parameters: float, tokens: float) -> float:
    return FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens


def _point(group: TrialGroup) -> Point:
    return effective_parameters(group.config.model), group.config.tokens, group.loss


def _law_loss(law: Law, group: TrialGroup) -> float:
    return law.loss(*_point(group)[:2])


def _law_table(found: Fit) -> Table:
    """Return the parameters of the law, and how the optimal size grows with compute."""

    def row(name: str) -> tuple[str, str, str]:
        low, high = found.interval(name)
        return name, f"{getattr(found.law, name):.4g}", f"{low:.4g} to {high:.4g}"

    growths = sorted(each.beta / (each.alpha + each.beta) for each in found.replicates)
    own = found.law.beta / (found.law.alpha + found.law.beta)
    ends = (growths[round(share * (len(growths) - 1))] for share in (0.05, 0.95))
    growth = (
        "exponent of the optimal N in FLOPs",
        f"{own:.3f}",
        " to ".join(f"{e:.3f}" for e in ends),
    )
    rows = (*(row(name) for name in ("E", "A", "alpha", "B", "beta")), growth)
    return Table("Law", ("parameter", "value", "90% interval"), rows)
