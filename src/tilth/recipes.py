"""Recipes for a data folder: open it, then call the recipe of `tilth.config.recipes`.

    config = tilth.recipes.tinystories("data/stories", steps=5_000)

>>> sorted(RECIPES)
['leaderboard', 'openwebtext', 'small', 'tiny', 'tinystories', 'tinystories-cpu']
"""

from tilth import config
from tilth.config import Recipe, TrainingConfig
from tilth.data.token_files import Data, open_data
from tilth.files import StrPath
from tilth.formatting import suggestion


class DataRecipe:
    """A recipe that reads the vocabulary size from the data folder."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    def __call__(
        self,
        data: StrPath | Data,
        *,
        size: int | None = None,
        steps: int | None = None,
        budget_seconds: float | None = None,
    ) -> TrainingConfig:
        """Return the config for `data`, of `size` layers, for `steps` or a time budget."""
        opened = data if isinstance(data, Data) else open_data(data)
        folder = str(opened.folder)
        return self.recipe(
            opened.vocab_size, folder, size=size, steps=steps, budget_seconds=budget_seconds
        )


RECIPES = {name: DataRecipe(recipe) for name, recipe in config.RECIPES.items()}
"""By name."""

tiny = RECIPES["tiny"]
small = RECIPES["small"]
tinystories = RECIPES["tinystories"]
tinystories_cpu = RECIPES["tinystories-cpu"]
openwebtext = RECIPES["openwebtext"]
leaderboard = RECIPES["leaderboard"]


def recipe_named(name: str) -> DataRecipe:
    """Return the recipe of this name. Raises ValueError with a suggestion if there is none."""
    if name in RECIPES:
        return RECIPES[name]
    raise ValueError(f"there is no recipe {name!r}; {suggestion(name, RECIPES)}")
