"""`ablations`: what each part of the model is good for, by taking it away.

Every variant differs from the base in one thing, has as many steps, and is trained over several
seeds. A variant that may need another learning rate is also trained at its own best one: tried with
the first seed, then repeated with the others.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from tilth.config.model import ModelConfig
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.formatting import join_words
from tilth.lab.question import Findings, Question
from tilth.lab.trials import (
    Column,
    PlannedTrial,
    Results,
    TrialGroup,
    against,
    group_table,
    groups_of,
)
from tilth.report.comparing import is_chance


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
    usual_seeds = 3

    def __init__(self, base: TrainingConfig, seeds: int | None = None) -> None:
        super().__init__(base, seeds)
        self.variants = variants_of(base)

    def cost(self) -> float:
        """Of variants with a learning rate of their own, the other seeds come later."""
        tuned = sum(1 for variant in self.variants if variant.factors)
        return super().cost() + tuned * (len(self.seeds) - 1)

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Every variant with every seed; of tuned ones first the rates, then the seeds."""
        trials: list[PlannedTrial] = []
        for variant in self.variants:
            if not variant.factors:
                config = changed(self.base, variant.changes)
                trials += self.over_seeds(variant.name, variant.label, config)
                continue
            tried = self._tries(variant)
            trials += tried
            if best := self._best_try(tried, results):
                trials += self._repeated(variant, best)[1:]  # the try itself is its first seed
        return list(dict.fromkeys(trials))

    def _tries(self, variant: Variant) -> list[PlannedTrial]:
        tries = []
        for factor in variant.factors:
            if factor == 1 and (plain := self._plain(variant)):
                tries.append(plain[0])
                continue
            lr = float(f"{self.base.optimizer.lr * factor:.3g}")
            config = changed(self.base, {**variant.changes, "optimizer.lr": lr})
            short = variant.label.partition(",")[0]
            label = f"{short}, lr {lr:g}"
            tries.append(PlannedTrial(f"{variant.name}-lr-{lr:g}", label, label, config=config))
        return tries

    def _plain(self, variant: Variant) -> list[PlannedTrial]:
        """The trials of the variant with the same changes at the base's rate, if there is one."""
        for other in self.variants:
            if other.changes == variant.changes and not other.factors:
                return self.over_seeds(other.name, other.label, changed(self.base, other.changes))
        return []

    def _repeated(self, variant: Variant, best: PlannedTrial) -> list[PlannedTrial]:
        """The best try with all seeds, the try itself first."""
        plain = self._plain(variant)
        if best in plain:
            return plain
        return [best, *self.over_seeds(best.name, variant.label, best.config)[1:]]

    def _best_try(self, tries: list[PlannedTrial], results: Results) -> PlannedTrial | None:
        if not all(trial.name in results for trial in tries):
            return None
        ranked = [
            (bits, number)
            for number, trial in enumerate(tries)
            if results[trial.name].state == "finished"
            and (bits := results[trial.name].bits_per_byte) is not None
        ]
        return tries[min(ranked)[1]] if ranked else None

    def groups(self, results: Results) -> list[TrialGroup]:
        """One for each variant; that of a tuned one is of its best rate."""
        groups = []
        plain = groups_of(self.trials(results), results)
        for variant in self.variants:
            if not variant.factors:
                groups.append(plain[variant.label])
                continue
            tries = self._tries(variant)
            best = self._best_try(tries, results)
            members = tries if best is None else self._repeated(variant, best)
            found = tuple(results[trial.name] for trial in members)
            groups.append(TrialGroup(variant.label, tuple(members), found))
        return groups

    def conclude(self, results: Results) -> Findings:
        """Each variant against the base, with the spread over seeds."""
        base, *others = self.groups(results)
        own: dict[str, Column] = {
            "spread": lambda each: (
                f"{each.spread:.4f}" if each.is_whole and len(each.bits) > 1 else None
            ),
            "against the base": lambda each: (
                against(each, base) if base.is_whole and each is not base else None
            ),
            "learning rate": lambda each: f"{each.config.optimizer.lr:g}",
        }
        names = ("bits per byte", *own, "parameters", "ms a step")
        table = group_table("Variants", (base, *others), "variant", names, own)
        if not base.is_whole:
            answer = f"The base itself {base.standing}: begin from a smaller optimizer.lr."
            return Findings(answer, (table,))
        several = len(base.bits) > 1
        whole = [each for each in others if each.is_whole]
        same = [each for each in whole if several and is_chance(each, base)]
        # The most different first.
        differing = sorted(
            (each for each in whole if each not in same), key=lambda r: -abs(r.mean - base.mean)
        )
        by = {each.label: f"{each.label} ({each.mean - base.mean:+.3f})" for each in differing}
        said = {
            "worse are": [by[each.label] for each in differing if each.mean > base.mean],
            "better are": [by[each.label] for each in differing if each.mean <= base.mean],
            "no different beyond the spread of their or its seeds:": [e.label for e in same],
            "diverged:": [each.label for each in others if "diverged" in each.states],
        }
        parts = [f"The base reaches {base.mean:.4f} bits per byte"]
        if several:
            parts[0] += f" (spread over {len(base.bits)} seeds {base.spread:.4f})"
        parts += [f"{words} {join_words(labels)}" for words, labels in said.items() if labels]
        notes = [
            f"All have {self.base.steps:,} steps of {self.base.tokens_per_step:,} tokens, and the "
            "base's learning rate unless the table says otherwise."
        ]
        if not several:
            notes.append("One seed each: how much of a difference is chance is not known.")
        notes += _bad_beginnings(others, base)
        return Findings("; ".join(parts) + ".", (table,), notes=tuple(notes))


def _bad_beginnings(groups: list[TrialGroup], base: TrialGroup) -> list[str]:
    """What is said of variants whose loss was far above the base's before anything was learned."""
    usual = max(_first_losses(base), default=math.inf)
    far: dict[ModelConfig, tuple[str, set[float]]] = {}  # at several rates, it begins the same
    for each in groups:
        losses = {loss for loss in _first_losses(each) if loss > FAR_ABOVE * usual}
        model = each.config.model
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


def _first_losses(group: TrialGroup) -> list[float]:
    return [each.first_loss for each in group.results if each.first_loss is not None]
