"""The fields of a config as flags and as tables of a TOML file, all optional.

`overrides_of` makes a dataclass with the fields and types of a config, each None unless it is
given. The help of a flag is the docstring of the field.

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
from dataclasses import asdict, field, fields, make_dataclass
from typing import Annotated, Any, Never, get_args, get_type_hints

from cyclopts import Group, Parameter, Token

from tilth.cli.options import convert_exactly
from tilth.schema import descriptions, flat, table_class


def overrides_of(config_class: type[Any], names: Sequence[str] = ()) -> type[Any]:
    """Return a dataclass of the fields of a config (default: all), each optional.

    A field that is a config becomes a table with a group in the help. Verbs subclass the result, as
    type checkers reject a call in an annotation.
    """
    types, texts = get_type_hints(config_class), descriptions(config_class)
    optional = []
    for position, name in enumerate(names or [each.name for each in fields(config_class)]):
        kind: Any = types[name]
        if (inner := table_class(kind)) is not None:
            kind, flag = (
                overrides_of(inner),
                Parameter(group=Group(name.capitalize(), sort_key=position)),
            )
        else:
            assert name in texts, f"{config_class.__name__}.{name} has no docstring"
            # --watch.no-sinks empties the list of a file; the two betas cannot be empty.
            empty = "no-" if get_args(kind)[-1:] == (...,) else ()
            flag = Parameter(help=texts[name], negative_iterable=empty, converter=convert_exactly)
        optional.append((name, Annotated[kind | None, flag], field(default=None)))
    name = config_class.__name__.removesuffix("Config") + "Overrides"
    overrides = make_dataclass(name, optional, frozen=True)
    # make_dataclass says `types`; cyclopts ignores the fields of classes of the standard library.
    overrides.__module__ = __name__
    return Parameter(converter=_refuse_a_bare_value, negative_bool="no-")(overrides)


def changes(overrides: Any) -> dict[str, Any]:  # noqa: ANN401, an instance of such a class, or None
    """Return the values that were given, by dotted name."""
    values = {} if overrides is None else flat(asdict(overrides))
    return {name: value for name, value in values.items() if value is not None}


def _refuse_a_bare_value(overrides: type[Any], _tokens: Sequence[Token]) -> Never:
    """Raise ValueError: cyclopts would take `--model 3` for the first field."""
    names = ", ".join(each.name for each in fields(overrides))
    raise ValueError(f"it is a table; set one of its values by name: {names}.")
