"""Recipes: complete configs with a size and a length."""

import subprocess
import sys
import tomllib

import pytest
import tomli_w

import tilth
from tilth.config import ResolvedConfig, TrainingConfig
from tilth.config.recipes import D_HEAD, EMBEDDING_LR
from tilth.files import FileError
from tilth.recipes import RECIPES

MACHINE = {"device": "cpu", "dtype": "float32", "compile": False, "threads": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    end = "<|endoftext|>"
    (folder / "text.txt").write_text(end.join(f"the cat {number}" for number in range(40)))
    tokenizer = tilth.train_tokenizer(folder / "text.txt", 262, [end])
    return tilth.tokenize(folder / "text.txt", tokenizer, folder / "data", valid=0.2)


def test_by_attribute_and_by_name(data):
    assert set(RECIPES) == {
        "tiny",
        "small",
        "tinystories",
        "tinystories-cpu",
        "openwebtext",
        "leaderboard",
    }
    for name, recipe in RECIPES.items():
        assert recipe is getattr(tilth.recipes, name.replace("-", "_"))
        assert recipe.recipe.name == name
        assert recipe(data).recipe == name


def test_the_shapes_of_the_handout(data):
    for name in ("tinystories", "tinystories-cpu", "openwebtext"):
        model = RECIPES[name](data).model
        assert (model.context_length, model.d_model, model.d_ff) == (256, 512, 1344)
        assert (model.num_layers, model.num_heads, model.rope_theta) == (4, 16, 10_000)
    assert RECIPES["tinystories"](data).tokens == 327_680_000
    on_cpu = RECIPES["tinystories-cpu"](data)
    assert (on_cpu.steps, on_cpu.batch_size, on_cpu.tokens) == (5000, 32, 40_960_000)
    assert RECIPES["openwebtext"](data).steps == RECIPES["tinystories"](data).steps
    assert RECIPES["leaderboard"](data).budget_seconds == 90 * 60


@pytest.mark.parametrize("name", RECIPES)
def test_a_config_is_complete_and_has_the_vocabulary_size_of_the_data(data, name):
    config = RECIPES[name](data)
    assert isinstance(config, TrainingConfig)
    assert config.model.vocab_size == data.vocab_size
    assert config == RECIPES[name](data.folder) == RECIPES[name](str(data.folder))
    assert (config.steps is None) != (config.budget_seconds is None)
    resolved = RECIPES[name](data, steps=40).resolve(**MACHINE)
    again = tomllib.loads(tomli_w.dumps(resolved.to_dict()))
    assert ResolvedConfig.from_dict(again) == resolved


@pytest.mark.parametrize("name", RECIPES)
def test_size_sets_layers_width_and_learning_rate(data, name):
    recipe = RECIPES[name]
    usual = recipe(data)
    assert recipe(data, size=recipe.recipe.size) == usual
    for size in range(1, 9):
        model = recipe(data, size=size).model
        assert model.num_layers == size
        assert model.d_head == D_HEAD
        assert abs(model.d_model / size - usual.model.d_model / recipe.recipe.size) <= D_HEAD / size
    lrs = [recipe(data, size=size).optimizer.lr for size in range(1, 9)]
    assert lrs == sorted(set(lrs), reverse=True), "the wider, the smaller the steps"


@pytest.mark.parametrize("name", RECIPES)
def test_the_rate_of_the_embedding_is_the_same_at_every_size(data, name):
    for size in (1, 2, 4, 8):
        optimizer = RECIPES[name](data, size=size).optimizer
        rate = optimizer.lr * optimizer.embedding_lr_factor
        assert rate == pytest.approx(EMBEDDING_LR, rel=1e-3)


@pytest.mark.parametrize("name", RECIPES)
def test_length_as_steps_or_budget(data, name):
    recipe = RECIPES[name]
    by_steps, by_time = recipe(data, steps=7), recipe(data, budget_seconds=60.0)
    assert (by_steps.steps, by_steps.budget_seconds) == (7, None)
    assert (by_time.steps, by_time.budget_seconds) == (None, 60.0)
    assert by_steps.model == by_time.model == recipe(data).model


def test_impossible_sizes_and_lengths(data, tmp_path):
    tiny = tilth.recipes.tiny
    for size in (0, -1, True, 2.0, "2"):
        with pytest.raises(ValueError, match=r"^size must be "):
            tiny(data, size=size)
    with pytest.raises(ValueError, match="steps must be at least 1, not 0"):
        tiny(data, steps=0)
    with pytest.raises(ValueError, match="budget_seconds is 0; it must be above 0"):
        tiny(data, budget_seconds=0.0)
    with pytest.raises(FileError, match="missing"):
        tiny(tmp_path / "missing")


def test_a_recipe_needs_no_torch(data):
    program = (
        "import sys, tilth\n"
        f"config = tilth.recipes.small({str(data.folder)!r})\n"
        "assert config.steps, config\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
