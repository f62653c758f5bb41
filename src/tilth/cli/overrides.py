"""The fields of a config as flags and as tables of a TOML file, all optional.

`overrides_of` makes, of a frozen config dataclass, one with the same fields and types, each None
unless it is given. The help of a flag is the docstring of its field; there is no second list.

>>> from tilth.config.training import MachineConfig, TrainingConfig
>>> Overrides = overrides_of(TrainingConfig, ["steps", "machine"])
>>> machine = overrides_of(MachineConfig)(threads=2)
>>> changes(Overrides(steps=5, machine=machine))
{'steps': 5, 'machine.threads': 2}
>>> changes(None)
{}

In a verb, `overrides: Annotated[Overrides | None, Parameter(name="*")] = None` gives `--steps 5`,
`--machine.threads 2`, `--machine.compile` and `--machine.no-compile`, and `[machine]` in --config.
"""

from collections.abc import Sequence
from dataclasses import field, fields, is_dataclass, make_dataclass
from typing import Annotated, Any, Never, get_args, get_type_hints

from cyclopts import Parameter, Token

from tilth.cli.options import convert_exactly
from tilth.schema import descriptions, flat


def overrides_of(config_class: type[Any], names: Sequence[str] = ()) -> type[Any]:
    """Return the dataclass of a config's fields (default: all) in which each may be left out.

    A field that is a config itself becomes a table: its own overrides, in a group of the help. A
    verb inherits from it: a type checker does not take a call for a type.
    """
    types, texts = get_type_hints(config_class), descriptions(config_class)
    optional = []
    for name in names or [each.name for each in fields(config_class)]:
        kind: Any = types[name]
        if isinstance(kind, type) and is_dataclass(kind):
            kind, flag = overrides_of(kind), Parameter(group=name.capitalize())
        else:
            assert name in texts, f"{config_class.__name__}.{name} has no docstring"
            # --watch.no-sinks takes back what a file said; two betas cannot be none.
            negative = "no-" if get_args(kind)[-1:] == (...,) else ()
            flag = Parameter(
                help=texts[name],
                negative_bool="no-",
                negative_iterable=negative,
                converter=convert_exactly,
            )
        optional.append((name, Annotated[kind | None, flag], field(default=None)))
    name = config_class.__name__.removesuffix("Config") + "Overrides"
    overrides = make_dataclass(name, optional, frozen=True)
    # Else it would say that it stands in `types`, and what stands in the standard library has no
    # fields to cyclopts.
    overrides.__module__ = __name__
    return Parameter(converter=_refuse_a_bare_value)(overrides)


def changes(overrides: Any) -> dict[str, Any]:  # noqa: ANN401, an instance of what we made, or None
    """Return the values that were given, by dotted name."""
    if overrides is None:
        return {}
    given = {each.name: getattr(overrides, each.name) for each in fields(overrides)}
    tables = {name: changes(v) if is_dataclass(v) else v for name, v in given.items()}
    return flat({name: value for name, value in tables.items() if value is not None})


def _refuse_a_bare_value(overrides: type[Any], _tokens: Sequence[Token]) -> Never:
    """Cyclopts would take `--model 3` for the first field of all."""
    names = ", ".join(each.name for each in fields(overrides))
    raise ValueError(f"it has values of its own; give one of those by name: {names}.")
