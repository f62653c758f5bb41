"""The size of a recipe's model for a time budget."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tilth.config.overrides import changed
from tilth.config.recipes import RECIPES
from tilth.config.training import MachineConfig
from tilth.model import TransformerLM
from tilth.recipes import small
from tilth.training import planning, prepare, sizing
from tilth.training.sizing import choose_size, effective_parameters, optimal_parameters, sized

SECONDS = [1.0, 10.0, 60.0, 300.0, 480.0, 1800.0, 7200.0, 36_000.0, 1e6, 1e8]
SPEED = 1e11  # two cores
TEXT = 5_300_000  # tokens of 21 MB


def parameters_for(name, seconds, text=TEXT, vocab_size=4000):
    found = choose_size(RECIPES[name], vocab_size, text, seconds, SPEED)
    return effective_parameters(RECIPES[name](vocab_size, "", size=found.num_layers).model)


def test_the_law_passes_near_chinchilla():
    """5.88e23 FLOPs, 70 billion parameters (Hoffmann et al. 2022)."""
    assert optimal_parameters(5.88e23) == pytest.approx(70e9, rel=0.1)
    assert optimal_parameters(sizing.ANCHOR_FLOPS) == sizing.ANCHOR_PARAMETERS


def test_parameters_are_those_of_the_products():
    """A token is multiplied by each matrix, and takes part in the products of attention."""
    model = RECIPES["small"](4000, "").model
    network = TransformerLM(model)
    hidden = sum(p.numel() for n, p in network.named_parameters() if p.ndim == 2 and "tok" not in n)
    attention = 2 * model.num_layers * model.d_model * model.context_length
    assert effective_parameters(model) == hidden + attention


@pytest.mark.parametrize("name", ["tiny", "small", "tinystories-cpu"])
@pytest.mark.parametrize("vocab_size", [500, 4000, 10_000])
@pytest.mark.parametrize("text", [10_000, TEXT, 10**12])
def test_a_larger_budget_never_chooses_a_smaller_model(name, vocab_size, text):
    found = [parameters_for(name, each, text, vocab_size) for each in SECONDS]
    assert found == sorted(found)
    batches = [
        choose_size(RECIPES[name], vocab_size, text, each, SPEED).batch_size for each in SECONDS
    ]
    assert batches == sorted(batches)
    assert batches[0] == RECIPES[name].batch_size


@pytest.mark.parametrize("seconds", SECONDS)
def test_more_text_never_chooses_a_smaller_model(seconds):
    found = [parameters_for("small", seconds, 10**power) for power in range(4, 12)]
    assert found == sorted(found)


def test_a_minute_stays_small_and_hours_do_not():
    usual = RECIPES["small"](4000, "").model
    assert parameters_for("small", 60.0) <= effective_parameters(usual)
    assert parameters_for("small", 7200.0) > 3 * effective_parameters(usual)


def test_the_anchor_is_the_minimum_of_a_parabola():
    """Three widths of `small` (docs/experiments.md): steps and bits per byte, at equal FLOPs."""
    usual = RECIPES["small"](4000, "").model
    models = [usual.changed({"d_model": width}) for width in (64, 96, 128)]
    sizes = np.array([effective_parameters(model) for model in models])
    flops = 6 * sizes * 1024 * [3400, 2000, 1400]
    np.testing.assert_allclose(flops, sizing.ANCHOR_FLOPS, rtol=0.06)
    square, slope, _ = np.polyfit(np.log(sizes), [0.297, 0.287, 0.309], 2)
    assert np.exp(-slope / square / 2) == pytest.approx(sizing.ANCHOR_PARAMETERS, rel=0.01)


def test_text_limits_the_model_where_the_best_one_would_read_it_too_often():
    at_limit = sizing._flops_of_tokens(sizing.MOST_PASSES * TEXT)
    parameters = optimal_parameters(at_limit)
    assert at_limit == pytest.approx(6 * parameters * sizing.MOST_PASSES * TEXT)
    seconds = at_limit / SPEED
    largest = choose_size(RECIPES["small"], 4000, TEXT, 100 * seconds, SPEED)
    just_before = choose_size(RECIPES["small"], 4000, TEXT, 0.999 * seconds, SPEED)
    assert largest.num_layers == just_before.num_layers
    assert "limited by 5,300,000 tokens of text" in largest.reason
    assert "limited" not in just_before.reason


def test_the_reason_has_the_numbers():
    """C = 4.8e13, N = 0.88e6 (C / 1.25e13)^0.46 = 1.63e6, D = C / 6 N; 4 layers have 1.6e6."""
    found = choose_size(RECIPES["small"], 10_000, TEXT, 480.0, SPEED)
    assert found.reason == (
        "4 layers of width 96: 8.0 minutes at 100 GFLOP/s suit 1.6 million parameters; "
        "about 0.94 passes over the text"
    )


@pytest.fixture
def budget(stories, monkeypatch):
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: False)
    monkeypatch.setattr(planning, "_time_steps", lambda *_: [(1.0, 1e-3)])
    monkeypatch.setattr(sizing, "MOST_PASSES", 10**9)  # of a text of some kB
    config = replace(small(stories, budget_seconds=3600.0), machine=MachineConfig("cpu", threads=1))
    return config, stories


def test_a_budget_sets_shape_batch_and_learning_rate(budget):
    config, data = budget
    found, reason = sized(config, data, {"machine.threads": 1, "seed": 3})
    assert reason.startswith(f"{found.model.num_layers} layers of width {found.model.d_model}: ")
    assert found.model == small(data, size=found.model.num_layers).model
    assert found.optimizer == small(data, size=found.model.num_layers).optimizer
    assert found.model.num_layers > config.model.num_layers
    assert found.batch_size > config.batch_size
    assert (found.seed, found.machine.threads, found.budget_seconds) == (3, 1, 3600.0)


def test_given_values_are_kept(budget):
    config, data = budget
    kept, _ = sized(config, data, {"batch_size": 3, "optimizer.lr": 0.004})
    assert (kept.batch_size, kept.optimizer.lr) == (3, 0.004)
    wide = changed(config, {"model.d_model": 128})
    assert sized(wide, data, {"model.d_model": 128}) == (wide, "")
    by_steps = small(data, steps=5)
    assert sized(by_steps, data, {}) == (by_steps, "")
    for name in ("custom", "leaderboard"):  # whose shape is for its own budget
        other = replace(config, recipe=name)
        assert sized(other, data, {}) == (other, "")


def test_speed_counts_the_products_of_a_step(budget, monkeypatch):
    config, data = budget
    by_hand = 6 * effective_parameters(config.model) * config.tokens_per_step / 1e-3
    assert math.isclose(planning.measure_flops(config, data), by_hand)
    # A CPU with bfloat16 instructions: the faster precision.
    monkeypatch.setattr(planning, "cpu_has_bfloat16", lambda: True)
    monkeypatch.setattr(planning, "_time_steps", lambda *_: [(1.0, 1e-3), (1.0, 5e-4)])
    assert math.isclose(planning.measure_flops(config, data), 2 * by_hand)


def test_a_prepared_run_has_the_size_and_its_reason(budget, tmp_path):
    config, data = budget
    given = {"machine.device": "cpu", "machine.threads": 1, "machine.compile": False}
    config = changed(config, given)
    prepared = prepare(config, tmp_path / "run", data=data, given=given)
    assert prepared.config.model.num_layers > config.model.num_layers
    assert not prepared.config.machine.compile
    lines = prepared.plan.summary().splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["model", "size", "length"]
    assert f"{prepared.config.model.num_layers} layers of width" in lines[1]
    kept = prepare(config, tmp_path / "run", data=data)  # in Python the shape is the config's
    assert kept.config.model == config.model
    assert "size" not in kept.plan.summary()
