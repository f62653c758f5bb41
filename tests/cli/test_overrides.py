"""Config fields as flags and tables: same names, types and docstrings, all optional."""

from dataclasses import dataclass, fields
from io import StringIO
from typing import Annotated

import pytest
from cyclopts import App, CoercionError, CycloptsError, Parameter, UnknownOptionError
from cyclopts.config import Dict
from rich.console import Console

from tilth.cli.overrides import changes, overrides_of
from tilth.config.model import ModelConfig
from tilth.config.training import MachineConfig, OptimizerConfig, WatchConfig

CONFIGS = [ModelConfig, OptimizerConfig, MachineConfig, WatchConfig]
ModelOverrides, OptimizerOverrides, MachineOverrides, WatchOverrides = map(overrides_of, CONFIGS)


def parse(*words, toml=None):
    """Return the overrides that a verb receives, or the help."""
    app = App(
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
        help_format="plaintext",
    )
    app.config = () if toml is None else (Dict(toml, use_commands_as_keys=False, source="a.toml"),)

    @app.command
    def go(
        recipe: str,
        /,
        *,
        model: Annotated[ModelOverrides | None, Parameter(group="Model")] = None,
        optimizer: Annotated[OptimizerOverrides | None, Parameter(group="Optimizer")] = None,
        machine: Annotated[MachineOverrides | None, Parameter(group="Machine")] = None,
        watch: Annotated[WatchOverrides | None, Parameter(group="Watching")] = None,
    ):
        tables = {"model": model, "optimizer": optimizer, "machine": machine, "watch": watch}
        return {name: changes(table) for name, table in tables.items() if changes(table)}

    text = StringIO()
    result = app(["go", *words], console=Console(file=text, width=100))
    return text.getvalue() if "--help" in words else result


@pytest.mark.parametrize("config", CONFIGS)
def test_the_fields_equal_those_of_the_config(config):
    overrides = overrides_of(config)
    assert [each.name for each in fields(overrides)] == [each.name for each in fields(config)]
    assert changes(overrides()) == {}
    with pytest.raises(TypeError):
        overrides(nonsense=1)


def test_no_overrides():
    assert changes(None) == {}
    assert parse("tiny") == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--model.d-model 256", {"model": {"d_model": 256}}),
        ("--model.d_model 256", {"model": {"d_model": 256}}),
        ("--model.qk-norm", {"model": {"qk_norm": True}}),
        ("--model.no-qk-norm", {"model": {"qk_norm": False}}),
        ("--machine.compile", {"machine": {"compile": True}}),
        (
            "--machine.no-compile --machine.device cpu",
            {"machine": {"compile": False, "device": "cpu"}},
        ),
        # "none" is a choice here, not None.
        (
            "--model.norm none --model.position none",
            {"model": {"norm": "none", "position": "none"}},
        ),
        ("--optimizer.betas 0.9 0.99", {"optimizer": {"betas": (0.9, 0.99)}}),
        ("--optimizer.lr 3e-3 --optimizer.name muon", {"optimizer": {"lr": 3e-3, "name": "muon"}}),
        ("--optimizer.weight-decay 0", {"optimizer": {"weight_decay": 0.0}}),
        ("--watch.sinks wandb", {"watch": {"sinks": ("wandb",)}}),
        ("--watch.sinks wandb --watch.sinks trackio", {"watch": {"sinks": ("wandb", "trackio")}}),
        ("--watch.no-sinks --watch.save-every 0", {"watch": {"sinks": (), "save_every": 0}}),
    ],
)
def test_flags(words, expected):
    assert parse("tiny", *words.split()) == expected
    assert parse(*words.split(), "tiny") == expected


def test_a_config_accepts_the_overrides():
    given = parse("tiny", "--optimizer.betas", "0.8", "0.9", "--optimizer.schedule", "constant")
    config = OptimizerConfig(**given["optimizer"])
    assert config == OptimizerConfig(betas=(0.8, 0.9), schedule="constant")


def test_flags_override_the_tables_of_a_file():
    toml = {
        "model": {"d_model": 256, "qk_norm": True, "norm": "none"},
        "optimizer": {"betas": [0.9, 0.99]},
        "watch": {"sinks": ["wandb", "trackio"], "sample_prompt": "[a]"},
    }
    expected = {
        "model": {"d_model": 256, "qk_norm": True, "norm": "none"},
        "optimizer": {"betas": (0.9, 0.99)},
        "watch": {"sinks": ("wandb", "trackio"), "sample_prompt": "[a]"},
    }
    assert parse("tiny", toml=toml) == expected
    words = ["--model.d-model", "64", "--model.no-qk-norm", "--watch.no-sinks"]
    expected["model"] |= {"d_model": 64, "qk_norm": False}
    expected["watch"]["sinks"] = ()
    assert parse("tiny", *words, toml=toml) == expected


@pytest.mark.parametrize(
    ("words", "kind", "part"),
    [
        ("--model.d-modl 3", UnknownOptionError, "Did you mean --model.d-model?"),
        ("--modle.d-model 3", UnknownOptionError, "Did you mean --model.d-model?"),
        ("--model.norm pst", CoercionError, 'Did you mean "post"?'),
        ("--model.d-model x", CoercionError, 'unable to convert "x" into int'),
        ("--optimizer.betas 0.9", CycloptsError, "2"),
        ("--optimizer.no-betas", UnknownOptionError, "--optimizer.no-betas"),
        ("--watch.sinks paper", CoercionError, '"tensorboard", "trackio", "wandb"'),
        ("--model 3", CoercionError, "by name: vocab_size, context_length"),
    ],
)
def test_wrong_flags(words, kind, part):
    with pytest.raises(kind) as caught:
        parse("tiny", *words.split())
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "kind", "part"),
    [
        ({"model": {"d_modl": 3}}, UnknownOptionError, "d_modl"),
        ({"modle": {"d_model": 3}}, UnknownOptionError, "modle"),
        ({"model": {"d_model": "wide"}}, CoercionError, "wide"),
        ({"model": 3}, CoercionError, "by name: vocab_size, context_length"),
    ],
)
def test_wrong_tables(toml, kind, part):
    with pytest.raises(kind) as caught:
        parse("tiny", toml=toml)
    assert part in str(caught.value)


def test_help_is_the_docstring_of_the_field():
    text = parse("go", "--help")
    flat = " ".join(text.replace("│", " ").split())
    assert "Width of the residual stream." in flat
    assert "Steps between text samples; default 1/5 of the run." in flat
    assert "[choices: cosine, warmup-stable-decay, constant]" in flat
    assert "--watch.no-sinks" in flat
    for config in CONFIGS:
        table = config.__name__.removesuffix("Config").lower()
        for each in fields(config):
            assert f"--{table}.{each.name.replace('_', '-')}" in flat
    assert flat.count("--model.qk-norm") == 1


def test_a_field_without_a_docstring_is_an_assertion_error():
    with pytest.raises(AssertionError, match="seed"):
        overrides_of(Undocumented)


@dataclass
class Undocumented:
    """A config with an undocumented field."""

    seed: int = 0
