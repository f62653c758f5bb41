"""Changes by dotted name."""

import pytest

from tilth.config import ModelConfig, RopeScaling, TrainingConfig
from tilth.config.overrides import changed, field_names, omitted

MODEL = ModelConfig(500, context_length=32, d_model=96, num_layers=2, num_heads=3)
CONFIG = TrainingConfig("data", MODEL, steps=100)


def test_values_of_every_table_are_changed_and_nothing_else():
    values = {
        "steps": 7,
        "model.num_layers": 5,
        "optimizer.lr": 0.5,
        "machine.threads": 3,
        "watch.sample_tokens": 9,
    }
    found = changed(CONFIG, values).to_dict()
    expected = CONFIG.to_dict()
    for name, value in values.items():
        table, _, field = name.rpartition(".")
        (expected[table] if table else expected)[field] = value
    assert found == expected


def test_optional_table_is_made_and_changed():
    scaled = changed(
        CONFIG,
        {"model.rope_scaling.factor": 8, "model.rope_scaling.original_context_length": 16},
    )
    assert scaled.model.rope_scaling == RopeScaling(8.0, 16)
    again = changed(scaled, {"model.rope_scaling.factor": 4, "steps": 3})
    assert again.model.rope_scaling == RopeScaling(4.0, 16)
    assert again.steps == 3
    with pytest.raises(ValueError, match="original_context_length is missing"):
        changed(CONFIG, {"model.rope_scaling.factor": 8})


def test_no_change_is_the_same_config():
    assert changed(CONFIG, {}) == CONFIG


def test_dependent_widths_are_derived_again_unless_given():
    wider = changed(CONFIG, {"model.d_model": 128}).model
    assert (wider.num_heads, wider.num_kv_heads) == (4, 4)
    assert wider.d_ff == ModelConfig(500, 32, 128, 2, 4).d_ff
    given = changed(CONFIG, {"model.d_model": 128, "model.num_heads": 2, "model.d_ff": 10}).model
    assert (given.num_heads, given.num_kv_heads, given.d_ff) == (2, 2, 10)


def test_independent_values_stay():
    grouped = changed(CONFIG, {"model.num_kv_heads": 1, "model.d_ff": 100})
    for change in ({"model.norm": "none"}, {"model.vocab_size": 9}, {"model.num_layers": 3}):
        model = changed(grouped, change).model
        assert (model.num_kv_heads, model.d_ff, model.num_heads) == (1, 100, 3)
    assert changed(grouped, {"model.ffn": "silu"}).model.d_ff == 4 * 96


def test_a_width_that_is_not_a_multiple_of_a_head_keeps_the_number_of_heads():
    assert changed(CONFIG, {"model.d_model": 60}).model.num_heads == 3


@pytest.mark.parametrize(
    ("name", "hint"),
    [("optimizer.lt", "optimizer.lr"), ("model.dmodel", "model.d_model"), ("stepz", "steps")],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(name, hint):
    with pytest.raises(ValueError, match=f"no {name} in a training config; did you mean {hint}"):
        changed(CONFIG, {name: 1})


def test_the_config_checks_changed_values():
    with pytest.raises(ValueError, match=r"optimizer\.lr"):
        changed(CONFIG, {"optimizer.lr": -1.0})
    with pytest.raises(ValueError, match="num_heads"):
        changed(CONFIG, {"model.num_heads": 7})


def test_a_table_in_place_of_a_number_is_an_error():
    with pytest.raises(ValueError, match=r"optimizer.lr must be a number, not \{'a': \{'b': 1\}\}"):
        changed(CONFIG, {"optimizer.lr": {"a": {"b": 1}}})


def test_every_name_can_be_changed_to_its_own_value():
    flat = {}
    for name, value in CONFIG.to_dict().items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[name] = value
    assert flat.keys() <= set(field_names())
    assert changed(CONFIG, flat) == CONFIG


def test_the_file_of_a_run_says_what_it_leaves_out():
    """A recipe may have another value than an old run, whose file does not name it."""
    run = {f"optimizer.{name}": value for name, value in CONFIG.to_dict()["optimizer"].items()}
    usual = {"optimizer.embedding_lr_factor": 1.0, "optimizer.momentum_warmup_steps": 0}
    assert omitted(run) == usual
    for name, value in usual.items():
        assert {**omitted({**run, name: 3.0}), name: value} == usual
        assert name not in omitted({**run, name: 3.0})
    assert omitted({"optimizer.lr": 1e-3}) == {}
