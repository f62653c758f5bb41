"""ModelConfig: validation, derived widths, round trips."""

import ast
import dataclasses
import inspect
import json
import subprocess
import sys
import tomllib
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import tomli_w

import tilth.model
from tilth.config.model import ModelConfig, RopeScaling, default_d_ff

SHAPE = {
    "vocab_size": 100,
    "context_length": 16,
    "d_model": 64,
    "num_layers": 2,
    "num_heads": 4,
}


def test_defaults_are_filled_in():
    config = ModelConfig(10_000, 256, 512, 4, 16)
    assert config.to_dict() == {
        "vocab_size": 10_000,
        "context_length": 256,
        "d_model": 512,
        "num_layers": 4,
        "num_heads": 16,
        "d_ff": 1344,
        "rope_theta": 10_000.0,
        "norm": "pre",
        "position": "rope",
        "ffn": "swiglu",
        "tie_embeddings": False,
        "qk_norm": False,
        "num_kv_heads": 16,
    }
    silu = dataclasses.replace(config, ffn="silu", d_ff=None)
    assert silu.d_ff == 2048
    assert dataclasses.replace(config, num_heads=8, num_kv_heads=None).num_kv_heads == 8
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d_model = 1


def test_later_values_are_written_only_if_they_differ_from_the_default():
    config = ModelConfig(**SHAPE, head_dim=10, norm_eps=1e-6, qkv_bias=True)
    later = {"head_dim": 10, "norm_eps": 1e-6, "qkv_bias": True}
    assert config.to_dict() == ModelConfig(**SHAPE).to_dict() | later
    assert (config.d_head, config.d_query) == (10, 40)
    scaled = ModelConfig(**SHAPE, rope_scaling=RopeScaling(8.0, 8192))
    for each in (config, scaled):
        assert ModelConfig.from_dict(tomllib.loads(tomli_w.dumps(each.to_dict()))) == each
    wider = config.changed({"d_model": 128})
    assert (wider.num_heads, wider.d_head, wider.d_ff) == (4, 10, 320)
    assert ModelConfig(**SHAPE | {"d_model": 63}, head_dim=10).d_query == 40


def test_frequencies_of_llama_3():
    """Against the rope parameters of transformers, over the 64 pairs of Llama 3.1 8B."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0}
    rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 8192}
    other = LlamaConfig(hidden_size=4096, num_attention_heads=32, rope_parameters=rope)
    expected, scale = ROPE_INIT_FUNCTIONS["llama3"](other, "cpu")
    shape = SHAPE | {"d_model": 4096, "num_heads": 32}
    config = ModelConfig(**shape, rope_theta=500_000.0, rope_scaling=RopeScaling(8.0, 8192))
    assert scale == 1
    np.testing.assert_allclose(config.rope_frequencies, expected.numpy(), rtol=2e-6)
    assert ModelConfig(**SHAPE, position="none").rope_frequencies == []


def test_default_width_is_the_nearest_multiple_of_64():
    for d_model in range(13, 3000):  # smaller widths would round to 0
        exact = Fraction(8 * d_model, 3)
        assert abs(default_d_ff(d_model, "swiglu") - exact) <= 32, d_model
        assert default_d_ff(d_model, "swiglu") % 64 == 0
    assert {default_d_ff(d_model, "swiglu") for d_model in range(1, 13)} == {64}


def test_field_docstrings():
    """Each field has a docstring of one sentence."""
    body = ast.parse(inspect.getsource(ModelConfig)).body[0].body
    for field, after in pairwise(body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(after, ast.Expr), field.target.id
            assert after.value.value.endswith("."), field.target.id


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        *[
            ({name: value}, f"{name} {problem}")
            for name in (*SHAPE, "d_ff", "num_kv_heads")
            for value, problem in (
                (0, "must be at least 1, not 0"),
                (-3, "must be at least 1, not -3"),
                (True, "must be a whole number, not True"),
                (16.0, "must be a whole number, not 16.0"),
                ("16", "must be a whole number, not '16'"),
                (np.True_, "must be a whole number, not np.True_"),
            )
        ],
        *[({name: None}, f"{name} must be a whole number, not None") for name in SHAPE],
        ({"d_model": 66}, "d_model 66 is not a multiple of num_heads 4; all heads"),
        ({"d_model": 60}, "the head width 15 .* is odd; make it even for RoPE"),
        ({"num_kv_heads": 3}, "num_heads 4 is not a multiple of num_kv_heads 3; query heads"),
        ({"num_kv_heads": 8}, "num_heads 4 is not a multiple of num_kv_heads 8; query heads"),
        ({"norm": "Pre"}, "norm 'Pre' is unknown; choose one of pre, post, none"),
        ({"norm": None}, "norm None is unknown; choose one of pre, post, none"),
        ({"position": "learned"}, "position 'learned' is unknown; choose one of rope, none"),
        ({"ffn": "gelu"}, "ffn 'gelu' is unknown; choose one of swiglu, silu"),
        ({"tie_embeddings": 1}, "tie_embeddings must be true or false, not 1"),
        ({"qk_norm": "yes"}, "qk_norm must be true or false, not 'yes'"),
        ({"norm_eps": 0}, "norm_eps is 0; it must be above 0"),
        ({"head_dim": 0}, "head_dim must be at least 1, not 0"),
        ({"head_dim": 5}, "the head width 5 is odd; make it even for RoPE"),
        ({"qkv_bias": 1}, "qkv_bias must be true or false, not 1"),
        ({"rope_scaling": {"factor": 8}}, "the key original_context_length is missing"),
        (
            {"rope_scaling": {"factor": 0.5, "original_context_length": 8}},
            "rope_scaling.factor is 0.5; it must be at least 1",
        ),
        (
            {"rope_scaling": {"factor": 2, "original_context_length": 8, "low_freq_factor": 4}},
            "rope_scaling.high_freq_factor 4 must be above low_freq_factor 4",
        ),
        ({"rope_theta": 0}, "rope_theta is 0; it must be above 0"),
        ({"rope_theta": -1.0}, "rope_theta is -1; it must be above 0"),
        ({"rope_theta": float("nan")}, "rope_theta is nan; it must be finite"),
        ({"rope_theta": float("inf")}, "rope_theta is inf; it must be finite"),
        ({"rope_theta": True}, "rope_theta must be a number, not True"),
        ({"rope_theta": "10000"}, "rope_theta must be a number, not '10000'"),
        ({"rope_theta": None}, "rope_theta must be a number, not None"),
    ],
)
def test_impossible_values(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}.*[.]$"):
        ModelConfig(**{**SHAPE, **changes})


def test_odd_head_widths_without_rope():
    assert ModelConfig(**{**SHAPE, "d_model": 60}, position="none").d_head == 15


def test_numpy_numbers_become_python_numbers():
    numpy = ModelConfig(
        **{name: np.int64(value) for name, value in SHAPE.items()}, rope_theta=np.float32(500)
    )
    assert numpy == ModelConfig(**SHAPE, rope_theta=500)
    assert {type(value) for value in numpy.to_dict().values()} == {int, float, str, bool}


def test_round_trip_through_files():
    config = ModelConfig(**SHAPE, d_ff=7, rope_theta=500, norm="post", num_kv_heads=2, qk_norm=True)
    assert ModelConfig.from_dict(config.to_dict()) == config
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert ModelConfig.from_dict(tomllib.loads(tomli_w.dumps(config.to_dict()))) == config
    assert ModelConfig.from_dict(SHAPE) == ModelConfig(**SHAPE)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {**SHAPE, "num_head": 4},
            "'num_head' is not a key of a model config; did you mean num_he",
        ),
        (
            {**SHAPE, "dropout": 0.1},
            "'dropout' is not a key of a model config; there are vocab_siz",
        ),
        ({**SHAPE, 3: 4}, "3 is not a key of a model config"),
        ({"vocab_size": 5}, "the key context_length is missing from a model config; add it"),
    ],
)
def test_wrong_dicts(values, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        ModelConfig.from_dict(values)


def test_a_config_needs_no_torch():
    probe = "import sys, tilth.config.model, tilth.model; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_names_load_when_used():
    for name in tilth.model.__all__:
        assert getattr(tilth.model, name).__name__ == name
        assert name in dir(tilth.model)
    with pytest.raises(AttributeError, match="no attribute 'LayerNorm'"):
        _ = tilth.model.LayerNorm


def test_a_numpy_width_derives_the_same_shape():
    config = ModelConfig(1000, context_length=64, d_model=512, num_layers=4, num_heads=16)
    assert config.changed({"d_model": np.int64(256)}) == config.changed({"d_model": 256})
    with pytest.raises(ValueError, match=r"d_model must be a whole number, not 2.5"):
        config.changed({"d_model": 2.5})
