"""Recipes: functions from a vocabulary size and a data folder to a `TrainingConfig`.

A recipe has two settings: `size` (number of layers; width and learning rate follow) and the length,
as `steps` or `budget_seconds`. The measurements behind the numbers are in `docs/experiments.md`.
`tilth.recipes` reads the vocabulary size from the data folder.

>>> sorted(RECIPES)
['leaderboard', 'openwebtext', 'small', 'tiny', 'tinystories', 'tinystories-cpu']
"""

from dataclasses import dataclass

from tilth.config.model import ModelConfig
from tilth.config.training import OptimizerConfig, Schedule, TrainingConfig, WatchConfig
from tilth.schema import check_int

D_HEAD = 32
"""Width of a head at every model width."""
SCHEDULE: Schedule = "warmup-stable-decay"
"""Linear decay over the second half. `small`, 500 steps: 2.4% fewer bits per byte than a cosine."""
EMBEDDING_LR = 0.3
"""Peak learning rate of the token embedding, at every width: its inputs are single tokens.

`small` on TinyStories, 500 steps, vocabulary 4,000, bits per byte: 1.243 at 0.01 (the rate of the
other parameters), 1.223 at 0.03, 1.188 at 0.1, 1.171 at 0.3, 1.193 at 1. One seed each.
"""
BETAS = (0.8, 0.95)
"""Of AdamW, beside Muon. `small`, 400 steps, two seeds: 0.7% fewer bits per byte than 0.9."""
MOMENTUM_WARMUP_STEPS = 300
"""`small`, 400 steps, vocabulary 4,000: 0.9% fewer bits per byte than a constant momentum."""


@dataclass(frozen=True)
class Recipe:
    """A training configuration without its data."""

    name: str
    size: int
    """Default number of layers."""
    width_per_layer: int
    """d_model divided by the number of layers."""
    context_length: int
    batch_size: int
    lr: float
    """Peak learning rate of Muon at the default size."""
    steps: int | None
    budget_seconds: float | None = None
    evaluation_tokens: int = 65_536
    """Validation tokens per evaluation."""

    def __call__(
        self,
        vocab_size: int,
        data: str,
        *,
        size: int | None = None,
        steps: int | None = None,
        budget_seconds: float | None = None,
    ) -> TrainingConfig:
        """Return the config for the data folder `data` and a tokenizer of `vocab_size` tokens."""
        num_layers = check_int("size", self.size if size is None else size)
        d_model = -(-self.width_per_layer * num_layers // D_HEAD) * D_HEAD  # whole heads
        model = ModelConfig(
            vocab_size, self.context_length, d_model, num_layers, num_heads=d_model // D_HEAD
        )
        if steps is not None and budget_seconds is not None:
            raise ValueError(
                f"both {steps} steps and a budget of {budget_seconds:g} s are given; give one."
            )
        if steps is None and budget_seconds is None:
            steps, budget_seconds = self.steps, self.budget_seconds
        # In a wider layer more inputs change each output at once.
        lr = self.lr * (self.size / num_layers) ** 0.5
        return TrainingConfig(
            data,
            model,
            recipe=self.name,
            steps=steps,
            budget_seconds=budget_seconds,
            batch_size=self.batch_size,
            optimizer=OptimizerConfig(
                *("muon", lr),
                schedule=SCHEDULE,
                betas=BETAS,
                momentum_warmup_steps=MOMENTUM_WARMUP_STEPS,
                embedding_lr_factor=float(f"{EMBEDDING_LR / lr:.4g}"),
            ),
            watch=WatchConfig(evaluation_tokens=self.evaluation_tokens),
        )


_ALL = (
    # name, layers, width per layer, context length, batch size, learning rate, steps
    # Twenty seconds on two cores: a falling loss, and first words.
    Recipe("tiny", 2, 32, 128, 8, 2e-2, 300, evaluation_tokens=16_384),
    # Some minutes on two cores: short stories that a child can follow.
    Recipe("small", 4, 24, 256, 4, 1e-2, 2_400),
    # 327,680,000 tokens, 30 to 40 minutes on an H100. Predictions: docs/training.md.
    Recipe("tinystories", 4, 128, 256, 128, 3e-3, 10_000),
    # 40,960,000 tokens, ten hours on two cores.
    Recipe("tinystories-cpu", 4, 128, 256, 32, 3e-3, 5_000),
    # The architecture and steps of tinystories, for web text with 32,000 tokens.
    Recipe("openwebtext", 4, 128, 256, 128, 3e-3, 10_000),
    # The lowest loss on OpenWebText in 90 minutes on one GPU. An H100 at 25% to 40% of its peak
    # does 1.3e18 to 2.1e18 FLOPs, with 20 tokens per parameter (Hoffmann et al. 2022) optimal for
    # 105 to 133 million parameters: 12 layers of width 768 have 110 with the output matrix.
    Recipe("leaderboard", 12, 64, 512, 128, 2.4e-3, None, budget_seconds=90 * 60.0),
)
RECIPES = {recipe.name: recipe for recipe in _ALL}
"""By name."""
