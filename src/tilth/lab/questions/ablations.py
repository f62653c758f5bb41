"""`ablations`: what each part of the model contributes, measured by removing it.

Every variant differs from the base in one thing, has as many steps, and is trained over several
seeds. A variant that may need another learning rate is also trained at its own best one: tried with
the first seed, then repeated with the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilth.config.model import ModelConfig
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.formatting import suggestion
from tilth.lab.question import Findings, Question
from tilth.lab.trials import (
    PlannedTrial,
    Results,
    TrialGroup,
    best_of,
    difference_text,
    group_table,
    groups_of,
)
from tilth.report.comparing import is_within_seed_spread


@dataclass(frozen=True)
class Variant:
    """A change to the base; `factors` of its learning rate are tried if there are any."""

    name: str
    label: str
    changes: dict[str, Any] = field(default_factory=dict)
    factors: tuple[float, ...] = ()


BASE = Variant("base", "base")
FAR_ABOVE = 2.0  # times the base's first loss: more than any seed varies
SWITCHES = ("silu", "swiglu", "tied", "untied", "qk-norm", "no-qk-norm", "adamw", "muon")
"""Variants of which the base decides the position: the other one is left out."""
WITHOUT_NORM = {"model.norm": "none"}


def variants_of(base: TrainingConfig) -> list[Variant]:
    """Return the base and its variants; each switch is set to its other position."""
    model = base.model
    other = "adamw" if base.optimizer.name == "muon" else "muon"
    # With muon the best rates were three times those of adamw (docs/experiments.md).
    around = (1.0, 1 / 3, 1 / 10) if other == "adamw" else (1.0, 3.0, 10.0)
    # SwiGLU has three matrices of d_model x d_ff, SiLU two: as many parameters in all.
    ffn, ffn_label, width = "silu", "SiLU for SwiGLU", 3 / 2
    if model.ffn != "swiglu":
        ffn, ffn_label, width = "swiglu", "SwiGLU for SiLU", 2 / 3
    tied = "untied" if model.tie_embeddings else "tied"
    normed = ("no-qk-norm", "without qk-norm") if model.qk_norm else ("qk-norm", "with qk-norm")
    rates = (1, 1 / 4, 1 / 16, 1 / 64)
    return [
        BASE,
        Variant("no-norm", "without RMSNorm, same rate", WITHOUT_NORM),
        Variant("no-norm-tuned", "without RMSNorm, its best rate", WITHOUT_NORM, rates),
        Variant("post-norm", "post-norm", {"model.norm": "post"}),
        Variant("no-position", "no position encoding", {"model.position": "none"}),
        Variant(ffn, ffn_label, {"model.ffn": ffn, "model.d_ff": round(model.d_ff * width)}),
        Variant(tied, f"{tied} embeddings", {"model.tie_embeddings": not model.tie_embeddings}),
        Variant(*normed, {"model.qk_norm": not model.qk_norm}),
        Variant(other, f"{other}, its best rate", {"optimizer.name": other}, around),
    ]


class Ablations(Question):
    """The base against variants of it, over seeds."""

    name = "ablations"
    asks = "What does each part of the model and of the training contribute?"
    usual_seeds = 3

    def __init__(
        self, base: TrainingConfig, seeds: int | None = None, variants: Sequence[str] = ()
    ) -> None:
        super().__init__(base, seeds)
        named = {variant.name: variant for variant in variants_of(base)}
        for name in variants:
            if name not in named and name not in SWITCHES:
                raise ValueError(f"there is no variant {name!r}; {suggestion(name, named)}")
        wanted = (BASE.name, *(variants or named))
        self.variants = [variant for name, variant in named.items() if name in wanted]

    def cost(self) -> float:
        """Add the other seeds of tuned variants, which are planned later."""
        tuned = sum(1 for variant in self.variants if variant.factors)
        return super().cost() + tuned * (len(self.seeds) - 1)

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Every variant with every seed; of tuned ones first the rates, then the seeds."""
        trials: list[PlannedTrial] = []
        for variant in self.variants:
            trials += [trials_at_rate[0] for trials_at_rate in self._at_rates(variant)]
            trials += self._members(variant, results)
        return list(dict.fromkeys(trials))

    def _at_rates(self, variant: Variant) -> list[list[PlannedTrial]]:
        """Return the trials over all seeds, for each learning rate of the variant."""
        alike = [v for v in self.variants if v.changes == variant.changes and not v.factors]
        at_rates = []
        for factor in variant.factors or (1,):
            if factor == 1 and alike:  # the variant at the base's rate is not trained twice
                plain, config = alike[0], changed(self.base, variant.changes)
                at_rates.append(self.over_seeds(plain.name, plain.label, config))
                continue
            lr = float(f"{self.base.optimizer.lr * factor:.3g}")
            config = changed(self.base, {**variant.changes, "optimizer.lr": lr})
            name, label = f"{variant.name}-lr-{lr:g}", f"{_short(variant.label)}, lr {lr:g}"
            first = PlannedTrial(name, label, label, config=config)
            at_rates.append([first, *self.over_seeds(name, variant.label, config)[1:]])
        return at_rates

    def _members(self, variant: Variant, results: Results) -> list[PlannedTrial]:
        """Return the trials at the best rate, or of the first seed until that rate is known."""
        at_rates = self._at_rates(variant)
        if len(at_rates) == 1:
            return at_rates[0]
        tries = [trials[0] for trials in at_rates]
        groups = groups_of(tries, results)
        best = best_of(groups.values()) if len(groups) == len(tries) else None
        return tries if best is None else at_rates[tries.index(best.trials[0])]

    def groups(self, results: Results) -> list[TrialGroup]:
        """Return one group for each variant, at its best rate."""
        groups = []
        for variant in self.variants:
            members = tuple(self._members(variant, results))
            found = tuple(results[trial.name] for trial in members)
            groups.append(TrialGroup(variant.label, members, found))
        return groups

    def conclude(self, results: Results) -> Findings:
        """Compare each variant with the base, with the spread over seeds."""
        base, *others = self.groups(results)
        table = group_table(
            "Variants",
            (base, *others),
            "variant",
            "bits per byte",
            ("spread", lambda g: f"{g.spread:.4f}" if g.is_whole and len(g.bits) > 1 else None),
            (
                "difference from base",
                lambda g: difference_text(g, base) if base.is_whole and g is not base else None,
            ),
            ("learning rate", lambda g: f"{g.config.optimizer.lr:g}"),
            "parameters",
            "ms per step",
        )
        if not base.is_whole:
            answer = f"The base itself {base.result_text}: use a smaller optimizer.lr."
            return Findings(answer, (table,))
        several = len(base.bits) > 1
        whole = [each for each in others if each.is_whole]
        same = [each for each in whole if several and is_within_seed_spread(each, base)]
        gaps = [(each, each.mean - base.mean) for each in whole if each not in same]
        gaps.sort(key=lambda pair: -abs(pair[1]))  # the most different first
        said = {
            "Worse": [f"{each.label} ({gap:+.3f})" for each, gap in gaps if gap > 0],
            "Better": [f"{each.label} ({gap:+.3f})" for each, gap in gaps if gap <= 0],
            "Within the spread over seeds": [each.label for each in same],
            "Diverged": [each.label for each in others if "diverged" in each.states],
        }
        answer = f"The base reaches {base.mean:.4f} bits per byte"
        if several:
            answer += f" (spread over {len(base.bits)} seeds: {base.spread:.4f})"
        # Some labels contain commas.
        lists = [f" {title}: {'; '.join(labels)}." for title, labels in said.items() if labels]
        notes = [
            f"Every variant has {self.base.steps:,} steps of {self.base.tokens_per_step:,} tokens, "
            "and the base's learning rate unless the table says otherwise."
        ]
        if not several:
            notes.append("Each variant has one seed, so the noise between seeds is unknown.")
        notes += _high_first_losses(others, base)
        return Findings(f"{answer}.{''.join(lists)}", (table,), notes=tuple(notes))


def _short(label: str) -> str:
    return label.partition(",")[0]


def _high_first_losses(groups: list[TrialGroup], base: TrialGroup) -> list[str]:
    """Name the variants whose loss was far above the base's before the first update."""
    usual = max(_first_losses(base), default=math.inf)
    far: dict[ModelConfig, tuple[str, set[float]]] = {}  # the rate does not change the first loss
    for each in groups:
        if losses := {loss for loss in _first_losses(each) if loss > FAR_ABOVE * usual}:
            far.setdefault(each.config.model, (_short(each.label), set()))[1].update(losses)
    notes = []
    for model, (name, losses) in far.items():
        said = " to ".join(f"{loss:,.0f}" for loss in sorted({min(losses), max(losses)}))
        cause = "deep sums without a norm" if model.norm == "none" else "its outputs"
        notes.append(
            f"{name}: the loss before the first update is {said}, that of the base {usual:.1f}; "
            f"{cause} are too large at initialization, at any learning rate."
        )
    return notes


def _first_losses(group: TrialGroup) -> list[float]:
    return [each.first_loss for each in group.results if each.first_loss is not None]
