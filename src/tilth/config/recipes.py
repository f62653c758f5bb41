"""The recipes: functions from a vocabulary size and a data folder to a `TrainingConfig`.

Two dials change a recipe: `size` (the number of layers, which width and learning rate follow) and
the length, as `steps` or `budget_seconds`. The measurements behind the numbers are in
`docs/experiments.md`. `tilth.recipes` opens the data folder and reads the vocabulary size from it.

>>> sorted(RECIPES)
['leaderboard', 'openwebtext', 'small', 'tiny', 'tinystories', 'tinystories-cpu']
"""

from dataclasses import dataclass, replace

from tilth.config.model import ModelConfig
from tilth.config.training import OptimizerConfig, TrainingConfig, WatchConfig
from tilth.schema import check_int

D_HEAD = 32
"""The width of a head, whatever that of the model."""


@dataclass(frozen=True)
class Recipe:
    """A training configuration but for its data."""

    name: str
    what: str
    """What to expect of it, in a sentence."""
    size: int
    """The number of layers, unless another is asked for."""
    width_per_layer: int
    """d_model over the number of layers."""
    context_length: int
    batch_size: int
    optimizer: OptimizerConfig
    """At the recipe's own size."""
    steps: int | None = None
    budget_seconds: float | None = None
    evaluation_tokens: int = 65_536
    """What each evaluation reads: more is more exact, and takes longer."""

    def __call__(
        self,
        vocab_size: int,
        data: str,
        *,
        size: int | None = None,
        steps: int | None = None,
        budget_seconds: float | None = None,
    ) -> TrainingConfig:
        """Make the config for the data folder `data`, whose tokenizer has `vocab_size` tokens."""
        num_layers = check_int("size", self.size if size is None else size)
        d_model = -(-self.width_per_layer * num_layers // D_HEAD) * D_HEAD  # whole heads
        model = ModelConfig(
            vocab_size,
            context_length=self.context_length,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=d_model // D_HEAD,
        )
        if steps is not None and budget_seconds is not None:
            raise ValueError(
                f"both {steps} steps and a budget of {budget_seconds:g} s are given; give one."
            )
        if steps is None and budget_seconds is None:
            steps, budget_seconds = self.steps, self.budget_seconds
        # The wider a layer is, the more inputs move at once with each of its outputs.
        lr = self.optimizer.lr * (self.size / num_layers) ** 0.5
        return TrainingConfig(
            data,
            model,
            recipe=self.name,
            steps=steps,
            budget_seconds=budget_seconds,
            batch_size=self.batch_size,
            optimizer=replace(self.optimizer, lr=lr),
            watch=WatchConfig(evaluation_tokens=self.evaluation_tokens),
        )


tiny = Recipe(
    "tiny",
    "twenty seconds on two cores: a loss that falls, and first words",
    size=2,
    width_per_layer=32,
    context_length=128,
    batch_size=8,
    steps=300,
    evaluation_tokens=16_384,
    optimizer=OptimizerConfig("muon", lr=2e-2),
)
small = Recipe(
    "small",
    "some minutes on two cores: short stories that a child could follow",
    size=4,
    width_per_layer=24,
    context_length=256,
    batch_size=4,
    steps=2_400,
    optimizer=OptimizerConfig("muon", lr=1e-2),
)
tinystories = Recipe(
    "tinystories",
    "327,680,000 tokens, 30 to 40 minutes on an H100: validation loss 1.45 or less expected",
    size=4,
    width_per_layer=128,
    context_length=256,
    batch_size=128,
    steps=10_000,
    optimizer=OptimizerConfig("muon", lr=3e-3),
)
tinystories_cpu = replace(
    tinystories,
    name="tinystories-cpu",
    what="40,960,000 tokens, some ten hours on two cores: validation loss 2.00 or less expected",
    batch_size=32,
    steps=5_000,
)
openwebtext = replace(
    tinystories,
    name="openwebtext",
    what="the architecture and steps of tinystories, for web text with 32,000 tokens",
)
leaderboard = Recipe(
    "leaderboard",
    "the best that 90 minutes of one GPU make of OpenWebText (--time-limit: another time)",
    size=8,
    width_per_layer=64,
    context_length=512,
    batch_size=128,
    budget_seconds=90 * 60.0,
    optimizer=OptimizerConfig("muon", lr=3e-3),
)

RECIPES = {
    recipe.name: recipe
    for recipe in (tiny, small, tinystories, tinystories_cpu, openwebtext, leaderboard)
}
"""By name."""
