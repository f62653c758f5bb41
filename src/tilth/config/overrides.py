"""A config and changes by dotted name to another config: what flags, files, labs and searches say.

What enters: a `TrainingConfig` and values like {"model.d_model": 128, "optimizer.lr": 3e-3}. What
leaves: the config with these values, checked as a whole, in which what follows from a changed value
follows again.

>>> from tilth.config.model import ModelConfig
>>> model = ModelConfig(1000, context_length=64, d_model=96, num_layers=2, num_heads=3)
>>> config = changed(TrainingConfig("data/stories", model), {"model.d_model": 128, "steps": 50})
>>> config.model.num_heads, config.model.d_ff, config.steps
(4, 320, 50)
>>> changed(config, {"optimizer.lt": 1e-3})
Traceback (most recent call last):
ValueError: there is no optimizer.lt in a training config; did you mean optimizer.lr?
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from tilth.config.model import ModelConfig
from tilth.config.training import MachineConfig, OptimizerConfig, TrainingConfig, WatchConfig
from tilth.formatting import suggestion

Config = TypeVar("Config", bound=TrainingConfig)

TABLES = {
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "machine": MachineConfig,
    "watch": WatchConfig,
}


def field_names() -> list[str]:
    """Every name that a change may have."""
    names = [each.name for each in fields(TrainingConfig) if each.name not in TABLES]
    for table, config_class in TABLES.items():
        names += [f"{table}.{each.name}" for each in fields(config_class)]
    return names


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with other values, each given by its dotted name."""
    known = field_names()
    values: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    for name, value in changes.items():
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"there is no {name} in a training config; {hint}")
        table, _, field = name.rpartition(".")
        (tables[table] if table else values)[field] = value
    if tables["model"]:
        values["model"] = config.model.changed(tables.pop("model"))
    for name, table_changes in tables.items():
        if table_changes:
            values[name] = replace(getattr(config, name), **table_changes)
    return replace(config, **values)
