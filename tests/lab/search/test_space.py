"""Words to ranges and choices; values that can never be trained are refused with a hint."""

import numpy as np
import pytest

from tilth.config.model import ModelConfig
from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.lab.search.space import (
    Choice,
    Range,
    check_space,
    draw_points,
    read_space,
    settings_label,
)

BASE = TrainingConfig("data", ModelConfig(300, 16, d_model=16, num_layers=2, num_heads=2), steps=9)


def build(values):
    return changed(BASE, values)


@pytest.mark.parametrize(
    ("words", "is_whole", "is_logarithmic"),
    [
        ("optimizer.lr=1e-4..1e-1", False, True),
        ("optimizer.lr=0.01..0.1", False, False),  # no more than a decade
        ("optimizer.weight_decay=0.0..1.0", False, False),
        ("optimizer.weight_decay=0..1", True, False),
        ("model.num_layers=1..100", True, False),
        ("optimizer.momentum=0..0.99", False, False),
    ],
)
def test_ranges(words, is_whole, is_logarithmic):
    (varied,) = read_space([words])
    assert isinstance(varied, Range)
    assert (varied.is_whole, varied.is_logarithmic) == (is_whole, is_logarithmic)
    low, high = map(float, words.partition("=")[2].split(".."))
    drawn = [values[varied.name] for _, values in draw_points([varied], 300, seed=1)]
    assert all(low <= value <= high and varied.parameter(value) == value for value in drawn)
    assert all(isinstance(value, int) for value in drawn) == is_whole
    middle = np.sqrt(low * high) if is_logarithmic else (low + high) / 2
    assert 0.4 < np.mean(np.array(drawn) <= middle) < 0.6


def test_a_value_has_three_digits_and_stays_inside():
    (varied,) = read_space(["optimizer.lr=0.0123456..0.5"])
    assert varied.at(0.333333) == 0.333
    assert varied.at(0.0123457) == 0.0123456


def test_choices():
    layers, name, betas, compiled = read_space(
        [
            "model.num_layers=2, 4,6",
            "optimizer.name=adamw,muon",
            "optimizer.betas=[0.9, 0.95],[0.9,0.99]",
            "machine.compile=true,false",
        ]
    )
    assert isinstance(layers, Choice)
    assert [layers.at(word) for word in layers.words] == [2, 4, 6]
    assert name.ends == ("adamw", "muon")
    assert betas.ends == ([0.9, 0.95], [0.9, 0.99])
    assert betas.parameter((0.9, 0.99)) == "[0.9,0.99]"  # as a config has it
    assert compiled.ends == (True, False)
    assert layers.parameter(4) == "4"
    assert layers.parameter(3) is None
    everything = [values for _, values in draw_points([layers, name], 100, seed=0)]
    assert {(v["model.num_layers"], v["optimizer.name"]) for v in everything} == {
        (number, word) for number in (2, 4, 6) for word in ("adamw", "muon")
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "a search must vary a field"),
        (["optimizer.lr"], "'optimizer.lr' varies nothing; write NAME=LOW..HIGH or NAME=A,B,C"),
        (["=1,2"], "varies nothing"),
        (
            ["optimizer.lr=0.1..0.01"],
            "is not a range; write two numbers below 2\\^63, the lower one first",
        ),
        (["optimizer.lr=1e-4..1e400"], "is not a range"),  # these four ended in an internal error
        (["optimizer.lr=-1e308..1e308"], "is not a range"),
        (["optimizer.lr=1e-4.." + "9" * 400], "is not a range"),
        (["optimizer.lr=" + "[" * 600 + "]" * 600 + "..1"], "is not a range"),
        (["optimizer.lr=low..high"], "is not a range"),
        (["optimizer.lr=1..2..3"], "is not a range"),
        (["optimizer.lr=0.1"], "is not a choice; write two values or more, each once"),
        (["model.num_layers=2,02"], "each once"),
        (["seed=1,2", "seed=3,4"], "seed is varied twice"),
        (["data=one,two"], "data cannot be searched"),
        (["watch.top_p=0.5..0.9"], "watch.top_p cannot be searched"),
    ],
)
def test_invalid_spaces(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_space(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("optimizer.lt=0.1..0.2", "there is no optimizer.lt in a .*; did you mean optimizer.lr?"),
        ("optimizer.name=adamw,mouon", "optimizer.name 'mouon' is unknown; choose one of adamw"),
        ("optimizer.lr=-1.0..1.0", "optimizer.lr is -1; it must be above 0"),
        ("optimizer.lr=0.1,nan", "optimizer.lr is nan; it must be finite"),
        ("model.num_layers=1.5..3.5", "num_layers must be a whole number"),
        ("model.num_heads=2,3", "is not a multiple of num_heads 3"),
        ("model.d_model=wide,narrow", "d_model must be a whole number"),
    ],
)
def test_values_that_are_never_valid(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_space(read_space([words]), build)


def test_values_that_depend_on_each_other():
    words = ["model.d_model=16,20", "model.num_heads=2,5"]
    assert 0.5 < check_space(read_space(words), build) < 1.0  # 16 has no five heads
    with pytest.raises(ValueError, match="num_heads 5"):
        check_space(read_space(words[1:]), build)


def test_labels():
    values = {"model.d_model": 64, "optimizer.lr": 3e-3, "optimizer.betas": [0.9, 0.95]}
    assert settings_label(values) == "d_model 64, lr 0.003, betas [0.9, 0.95]"
