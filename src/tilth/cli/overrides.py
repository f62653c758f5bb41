"""A config's fields as flags and as a table of a TOML file, all optional.

What enters: one of the frozen config dataclasses. What leaves: a dataclass with the same fields and
types, each None unless it was given, whose help is the docstring of the config's own field: a verb
takes it as a parameter, and there is no second list of the fields to keep.

>>> from tilth.config.training import MachineConfig
>>> MachineOverrides = overrides_of(MachineConfig)
>>> changes(MachineOverrides(threads=2))
{'threads': 2}
>>> changes(None)
{}

In a verb, `machine: Annotated[MachineOverrides | None, Parameter(group="Machine")] = None` gives
`--machine.threads 2`, `--machine.compile` and `--machine.no-compile`, and `[machine]` in --config.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, make_dataclass
from typing import Annotated, Any, Never, get_args, get_type_hints

from cyclopts import Parameter, Token

from tilth.cli.whole_numbers import convert_exactly
from tilth.schema import descriptions


def overrides_of(config_class: type[Any]) -> type[Any]:
    """The dataclass of a config's fields in which every one may be left out."""
    types = get_type_hints(config_class)
    texts = descriptions(config_class)
    missing = types.keys() - texts.keys()
    assert not missing, f"{config_class.__name__} has fields without a docstring: {missing}"
    optional = [
        (name, Annotated[types[name] | None, _flag(types[name], text)], field(default=None))
        for name, text in texts.items()
    ]
    name = config_class.__name__.removesuffix("Config") + "Overrides"
    overrides = make_dataclass(name, optional, frozen=True)
    # Else it would say that it stands in `types`, and what stands in the standard library has no
    # fields to cyclopts.
    overrides.__module__ = __name__
    return Parameter(converter=_refuse_a_bare_value)(overrides)


def flag_of(config_class: type[Any], name: str) -> Parameter:
    """The flag of one field of a config, with the field's docstring as its help."""
    return _flag(get_type_hints(config_class)[name], descriptions(config_class)[name])


def changes(overrides: Any) -> dict[str, Any]:  # noqa: ANN401, an instance of what we made, or None
    """The values that were given, by the name of their field."""
    if overrides is None:
        return {}
    given = {each.name: getattr(overrides, each.name) for each in fields(overrides)}
    return {name: value for name, value in given.items() if value is not None}


def dotted(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The values that were given in several tables, by dotted name, as `changed` takes them."""
    return {
        f"{table}.{name}": value
        for table, overrides in tables.items()
        for name, value in changes(overrides).items()
    }


def _flag(type_hint: Any, docstring: str) -> Parameter:  # noqa: ANN401, a type
    # --watch.no-sinks takes back what a file said; two betas cannot be none.
    is_open = get_args(type_hint)[-1:] == (...,)
    negative = "no-" if is_open else ()
    return Parameter(help=docstring, negative_iterable=negative, converter=convert_exactly)


def _refuse_a_bare_value(overrides: type[Any], _tokens: Sequence[Token]) -> Never:
    """Cyclopts would take `--model 3` for the first field of all."""
    names = ", ".join(each.name for each in fields(overrides))
    raise ValueError(f"it has values of its own; give one of those by name: {names}.")
