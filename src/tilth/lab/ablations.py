"""`ablations`: what each part of the model is good for, by taking it away.

Every variant differs from the base in one thing, has as many steps, and is trained over several
seeds. A variant that may need another learning rate is also trained at its own best one: tried with
the first seed, then repeated with the others.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from tilth.accounting import count_parameters
from tilth.lab.experiment import (
    Findings,
    Outcomes,
    Question,
    Result,
    Setup,
    against,
    is_chance,
    listed,
    results_of,
)
from tilth.lab.folder import Table
from tilth.model.config import ModelConfig
from tilth.recipes.changing import changed
from tilth.recipes.config import TrainingConfig


@dataclass(frozen=True)
class Variant:
    """A change to the base."""

    name: str
    label: str
    changes: dict[str, Any] = field(default_factory=dict)
    factors: tuple[float, ...] = ()
    """Of the base's learning rate, to find the best one among."""


BASE = Variant("base", "base")
FAR_ABOVE = 2.0  # times the base's first loss: no seed does that
WITHOUT_NORM = {"model.norm": "none"}


def variants_of(base: TrainingConfig) -> list[Variant]:
    """The base, and what it is compared with; of a switch, always the other position."""
    other = "adamw" if base.optimizer.name == "muon" else "muon"
    tied, qk_norm = not base.model.tie_embeddings, not base.model.qk_norm
    # With muon the best rates were three times those of adamw (docs/experiments.md).
    around = (1.0, 1 / 3, 1 / 10) if other == "adamw" else (1.0, 3.0, 10.0)
    silu = base.model.ffn == "swiglu"
    # SwiGLU has three matrices of d_model x d_ff, SiLU two: as many parameters in all.
    d_ff = round(base.model.d_ff * (3 / 2 if silu else 2 / 3))
    return [
        BASE,
        Variant("no-norm", "without RMSNorm, same rate", WITHOUT_NORM),
        Variant(
            "no-norm-tuned",
            "without RMSNorm, its best rate",
            WITHOUT_NORM,
            (1, 1 / 4, 1 / 16, 1 / 64),
        ),
        Variant("post-norm", "post-norm", {"model.norm": "post"}),
        Variant("no-position", "no position encoding", {"model.position": "none"}),
        Variant(
            "silu" if silu else "swiglu",
            "SiLU for SwiGLU" if silu else "SwiGLU for SiLU",
            {"model.ffn": "silu" if silu else "swiglu", "model.d_ff": d_ff},
        ),
        Variant(
            "tied" if tied else "untied",
            "tied embeddings" if tied else "untied embeddings",
            {"model.tie_embeddings": tied},
        ),
        Variant(
            "qk-norm" if qk_norm else "no-qk-norm",
            "with qk-norm" if qk_norm else "without qk-norm",
            {"model.qk_norm": qk_norm},
        ),
        Variant(other, f"{other}, its best rate", {"optimizer.name": other}, around),
    ]


class Ablations(Question):
    """The base against variants of it, over seeds."""

    name = "ablations"
    asks = "What does each part of the model and of the training contribute?"

    def __init__(self, base: TrainingConfig, seeds: int = 3) -> None:
        super().__init__(base, seeds)
        self.variants = variants_of(base)

    def cost(self) -> float:
        """Of variants with a learning rate of their own, the other seeds come later."""
        tuned = sum(1 for variant in self.variants if variant.factors)
        return super().cost() + tuned * (len(self.seeds) - 1)

    def setups(self, outcomes: Outcomes) -> list[Setup]:
        """Every variant with every seed; of tuned ones first the rates, then the seeds."""
        setups: list[Setup] = []
        for variant in self.variants:
            if not variant.factors:
                config = changed(self.base, variant.changes)
                setups += self.over_seeds(variant.name, variant.label, config)
                continue
            tried = self._tries(variant)
            setups += tried
            if best := self._best_try(tried, outcomes):
                setups += self._repeated(variant, best)[1:]  # the try itself is its first seed
        return list(dict.fromkeys(setups))

    def _tries(self, variant: Variant) -> list[Setup]:
        tries = []
        for factor in variant.factors:
            if factor == 1 and (plain := self._plain(variant)):
                tries.append(plain[0])
                continue
            lr = float(f"{self.base.optimizer.lr * factor:.3g}")
            config = changed(self.base, {**variant.changes, "optimizer.lr": lr})
            short = variant.label.partition(",")[0]
            label = f"{short}, lr {lr:g}"
            tries.append(Setup(f"{variant.name}-lr-{lr:g}", label, label, config))
        return tries

    def _plain(self, variant: Variant) -> list[Setup]:
        """The trials of the variant with the same changes at the base's rate, if there is one."""
        for other in self.variants:
            if other.changes == variant.changes and not other.factors:
                return self.over_seeds(other.name, other.label, changed(self.base, other.changes))
        return []

    def _repeated(self, variant: Variant, best: Setup) -> list[Setup]:
        """The best try with all seeds, the try itself first."""
        plain = self._plain(variant)
        if best in plain:
            return plain
        return [best, *self.over_seeds(best.name, variant.label, best.config)[1:]]

    def _best_try(self, tries: list[Setup], outcomes: Outcomes) -> Setup | None:
        if not all(setup.name in outcomes for setup in tries):
            return None
        ranked = [
            (bits, number)
            for number, setup in enumerate(tries)
            if outcomes[setup.name].state == "finished"
            and (bits := outcomes[setup.name].bits_per_byte) is not None
        ]
        return tries[min(ranked)[1]] if ranked else None

    def _results(self, outcomes: Outcomes) -> list[Result]:
        """One for each variant; that of a tuned one is of its best rate."""
        results = []
        plain = results_of(self.setups(outcomes), outcomes)
        for variant in self.variants:
            if not variant.factors:
                results.append(plain[variant.label])
                continue
            tries = self._tries(variant)
            best = self._best_try(tries, outcomes)
            members = tries if best is None else self._repeated(variant, best)
            found = tuple(outcomes[setup.name] for setup in members)
            results.append(Result(variant.label, tuple(members), found))
        return results

    def conclude(self, outcomes: Outcomes) -> Findings:
        """Each variant against the base, with the spread over seeds."""
        base, *others = self._results(outcomes)
        columns = (
            *("variant", "bits per byte", "spread", "against the base"),
            *("learning rate", "parameters", "ms a step"),
        )
        if not base.is_whole:
            rows = tuple(self._row(each, None) for each in (base, *others))
            answer = f"The base itself {base.standing}: begin from a smaller optimizer.lr."
            return Findings(answer, (Table("Variants", columns, rows),))
        several = len(base.bits) > 1
        worse = [f"{each.label} ({each.mean - base.mean:+.3f})" for each in _beyond(others, base)]
        better = [
            f"{each.label} ({each.mean - base.mean:+.3f})"
            for each in _beyond(others, base, worse=False)
        ]
        parts = [f"The base reaches {base.mean:.4f} bits per byte"]
        if several:
            parts[0] += f" (spread over {len(base.bits)} seeds {base.spread:.4f})"
        if worse:
            parts.append(f"worse are {listed(worse)}")
        if better:
            parts.append(f"better are {listed(better)}")
        if same := [
            each.label for each in others if several and each.is_whole and is_chance(each, base)
        ]:
            parts.append(f"no different beyond the spread of their or its seeds: {listed(same)}")
        if diverged := [each.label for each in others if "diverged" in each.states]:
            parts.append(f"diverged: {listed(diverged)}")
        rows = tuple(self._row(each, base) for each in (base, *others))
        notes = [
            f"All have {self.base.steps:,} steps of {self.base.tokens_per_step:,} tokens, and the "
            "base's learning rate unless the table says otherwise."
        ]
        if not several:
            notes.append("One seed each: how much of a difference is chance is not known.")
        notes += _bad_beginnings(others, base)
        return Findings(
            "; ".join(parts) + ".", (Table("Variants", columns, rows),), notes=tuple(notes)
        )

    def _row(self, each: Result, base: Result | None) -> tuple[str | int | float | None, ...]:
        config = each.setups[0].config
        return (
            each.label,
            each.standing,
            f"{each.spread:.4f}" if each.is_whole and len(each.bits) > 1 else None,
            None if base is None or each is base else against(each, base),
            f"{config.optimizer.lr:g}",
            count_parameters(config.model).total,
            each.step_milliseconds,
        )


def _bad_beginnings(results: list[Result], base: Result) -> list[str]:
    """What is said of variants whose loss was far above the base's before anything was learned."""
    usual = max(_first_losses(base), default=math.inf)
    far: dict[ModelConfig, tuple[str, set[float]]] = {}  # at several rates, it begins the same
    for each in results:
        losses = {loss for loss in _first_losses(each) if loss > FAR_ABOVE * usual}
        model = each.setups[0].config.model
        if losses:
            far.setdefault(model, (each.label.partition(",")[0], set()))[1].update(losses)
    notes = []
    for model, (name, losses) in far.items():
        said = " to ".join(f"{loss:,.0f}" for loss in sorted({min(losses), max(losses)}))
        cause = "deep sums without a norm are" if model.norm == "none" else "its outputs are"
        notes.append(
            f"{name}: its loss is {said} before the first update, and the base's {usual:.1f}: "
            f"{cause} too large from the start, whatever the rate."
        )
    return notes


def _first_losses(result: Result) -> list[float]:
    return [each.first_loss for each in result.outcomes if each.first_loss is not None]


def _beyond(results: list[Result], base: Result, *, worse: bool = True) -> list[Result]:
    """Those that finished and differ from the base by more than seeds do, the most so first."""
    whole = [each for each in results if each.is_whole and (each.mean > base.mean) is worse]
    if len(base.bits) > 1:
        whole = [each for each in whole if not is_chance(each, base)]
    return sorted(whole, key=lambda each: -abs(each.mean - base.mean))
