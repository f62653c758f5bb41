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

from tilth.config.training import TrainingConfig
from tilth.formatting import suggestion

Config = TypeVar("Config", bound=TrainingConfig)


def field_names() -> list[str]:
    """Return all dotted names of a training config."""
    names: list[str] = []
    for each in fields(TrainingConfig):
        table = fields(each.type) if is_dataclass(each.type) else ()
        names += [f"{each.name}.{part.name}" for part in table] or [each.name]
    return names


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return the config with the given values, by dotted name; dependent values are derived."""
    known = field_names()
    tables: dict[str, dict[str, Any]] = {"": {}}
    for name, value in changes.items():
        if name not in known:
            hint = suggestion(name, known)
            raise ValueError(f"there is no {name} in a training config; {hint}")
        table, _, field = name.rpartition(".")
        tables.setdefault(table, {})[field] = value
    values = tables.pop("")
    for table, given in tables.items():
        old = getattr(config, table)
        values[table] = old.changed(given) if table == "model" else replace(old, **given)
    return replace(config, **values)
