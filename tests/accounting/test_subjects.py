"""Names, runs and config files resolve to models."""

import pytest
import tomli_w

from tilth.accounting.subjects import SHAPE_NAMES, find_subject, subject_of
from tilth.config import (
    GPT2_SHAPES,
    LLAMA_SHAPES,
    RECIPES,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
)
from tilth.config.shapes import gpt2_parameters

MODEL = ModelConfig(1000, context_length=64, d_model=64, num_layers=2, num_heads=4)
TRAINING = TrainingConfig(
    "data/stories",
    MODEL,
    steps=400,
    batch_size=20,
    microbatch_size=8,
    optimizer=OptimizerConfig("muon"),
)


def test_openai_counts():
    """As Hugging Face's GPT2LMHeadModel counts them."""
    assert [gpt2_parameters(config) for config in GPT2_SHAPES.values()] == [
        124_439_808,
        354_823_168,
        774_030_080,
        1_557_611_200,
    ]


@pytest.mark.parametrize("name", GPT2_SHAPES)
def test_gpt2_shapes(name):
    subject = find_subject(name)
    assert subject.config.d_ff == 4 * subject.config.d_model
    assert (subject.config.ffn, subject.config.tie_embeddings) == ("swiglu", False)
    (note,) = subject.notes
    assert "in our architecture" in note
    assert f"{gpt2_parameters(subject.config):,}" in note


@pytest.mark.parametrize("name", LLAMA_SHAPES)
def test_llamas(name):
    assert find_subject(name).config == LLAMA_SHAPES[name]


@pytest.mark.parametrize("name", RECIPES)
def test_recipes(name):
    subject = find_subject(name)
    assert subject.config.context_length == RECIPES[name].context_length
    assert subject.batch_size == RECIPES[name].batch_size
    assert subject.optimizer == "muon"
    assert f"{subject.config.vocab_size:,}" in subject.notes[0]


def test_cs336_recipe():
    subject = find_subject("tinystories")
    assert subject.config == ModelConfig(10_000, 256, 512, 4, 16, d_ff=1344)
    assert subject.steps * subject.batch_size * 256 == 327_680_000


def test_run_and_config_file(tmp_path):
    (tmp_path / "config.toml").write_text(tomli_w.dumps(TRAINING.to_dict()))
    for path in (tmp_path, tmp_path / "config.toml"):
        subject = find_subject(str(path))
        assert subject == subject_of(str(path), TRAINING)
        assert subject.config == MODEL
        assert (subject.steps, subject.batch_size, subject.optimizer) == (400, 20, "muon")
        assert subject.num_microbatches == 3


def test_file_with_a_model_only(tmp_path):
    path = tmp_path / "shape.toml"
    values = {name: MODEL.to_dict()[name] for name in ("vocab_size", "context_length", "d_model")}
    path.write_text(tomli_w.dumps({"model": {**values, "num_layers": 2, "num_heads": 4}}))
    subject = find_subject(str(path))
    assert subject.config == MODEL
    assert subject.steps is None


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("model = [", "is not TOML"),
        ("steps = 3", "has no table \\[model\\]"),
        ("[model]\nd_modl = 3", "d_model"),
        ("[model]\nvocab_size = 3", "key context_length is missing"),
    ],
)
def test_invalid_files(tmp_path, text, part):
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=part) as caught:
        find_subject(str(path))
    assert str(path) in str(caught.value)


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="no shape, run or config file 'gpt2-xxl'; did you mean"):
        find_subject("gpt2-xxl")
    with pytest.raises(ValueError, match=r"there are gpt2-small, .*leaderboard"):
        find_subject("???")
    with pytest.raises(ValueError, match=r"is not a run directory \(it has no config\.toml\)"):
        find_subject(str(tmp_path))
    assert len(set(SHAPE_NAMES)) == len(SHAPE_NAMES)
