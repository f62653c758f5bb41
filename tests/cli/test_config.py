"""`tilth config schema`: the schema of the declared fields."""

import json
import tomllib
from dataclasses import fields, is_dataclass

import pytest
import tomli_w

from tests.test_schema import accepts
from tilth.cli.config import schema as print_schema
from tilth.config import ModelConfig, TrainingConfig
from tilth.schema import descriptions

MODEL = ModelConfig(300, context_length=16, d_model=16, num_layers=1, num_heads=2)
CONFIG = TrainingConfig("data", MODEL, steps=100)
MACHINE = {"device": "cpu", "dtype": "float32", "compile": False, "threads": 1}


@pytest.fixture
def printed(capsys):
    print_schema()
    return json.loads(capsys.readouterr().out)


def test_the_schema_describes_every_field(printed):
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    properties = printed["properties"]
    assert list(properties) == [each.name for each in fields(TrainingConfig)]
    for name, value in vars(CONFIG).items():
        if is_dataclass(value):
            table = properties[name]["properties"]
            texts = {key: entry["description"] for key, entry in table.items()}
            assert texts == descriptions(type(value))
    assert properties["steps"]["description"] == descriptions(TrainingConfig)["steps"]
    layers = properties["model"]["properties"]["num_layers"]
    assert (layers["type"], layers["minimum"], layers["maximum"]) == ("integer", 1, 10_000)
    assert properties["optimizer"]["properties"]["schedule"]["default"] == "cosine"


@pytest.mark.parametrize("config", [CONFIG, CONFIG.filled(), CONFIG.resolve(**MACHINE)])
def test_config_files_satisfy_the_schema(printed, config):
    assert accepts(printed, tomllib.loads(tomli_w.dumps(config.to_dict())))


def test_partial_files_satisfy_the_schema_and_mistakes_do_not(printed):
    assert accepts(printed, {"model": {"d_model": 128}})
    for values in (
        {"stesp": 3},
        {"steps": 0},
        {"steps": 1.5},
        {"steps": True},
        {"order": "shuffled"},
        {"model": {"d_modl": 3}},
        {"model": {"num_layers": 10**9}},
        {"optimizer": {"betas": [0.9]}},
        {"optimizer": {"betas": [0.9, 1.0]}},
        {"watch": {"sinks": ["paper"]}},
    ):
        assert not accepts(printed, values), values
