"""Changes of a config by dotted name, as flags, files, labs and searches give them.

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
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from tilth import schema
from tilth.config.training import OptimizerConfig, TrainingConfig
from tilth.formatting import suggestion

Config = TypeVar("Config", bound=TrainingConfig)


def field_names() -> list[str]:
    """Return all dotted names of a training config."""
    return schema.field_names(TrainingConfig)


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the config with the given values, by dotted name; dependent values are derived."""
    known = field_names()
    for name in changes:
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"there is no {name} in a training config; {hint}")
    return replace(config, **_merged(config, schema.nested(changes)))


def omitted(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a file of `to_dict` leaves out of the table "optimizer": its usual values.

    The file of a run repeats the run, whatever its recipe says today. Files that people write give
    some values of the optimizer, and leave the others to the recipe.
    """
    if "optimizer.begin_step" not in changes:  # a file of a run has it
        return {}
    usual = {
        f"optimizer.{each.name}": each.default
        for each in fields(OptimizerConfig)
        if schema.unwritten in each.metadata
    }
    return {name: value for name, value in usual.items() if name not in changes}


def _merged(old: object, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, with each table in them as a changed copy of the old one."""
    merged = dict(values)
    for name, given in values.items():
        table = getattr(old, name)
        is_changed = isinstance(given, dict) and is_dataclass(table)
        if not is_changed:  # the config reads a new table
            continue
        inner = _merged(table, given)
        merged[name] = table.changed(inner) if name == "model" else replace(table, **inner)
    return merged
