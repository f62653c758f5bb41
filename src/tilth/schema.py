r"""Schema validation: the annotations of a dataclass are its schema.

Configs, manifests, states, journals, metrics lines and lab files declare their fields once, with
types, limits and a docstring for each field. This module validates values against the declaration,
converts JSON and TOML values to dataclasses and back, and writes the declaration as a JSON schema.

>>> @dataclass(frozen=True)
... class Shape:
...     width: Annotated[int, Range(at_least=1)]
...     norm: Literal["pre", "post"] = "pre"
...     scale: float | None = None
...     def __post_init__(self) -> None:
...         check(self)
>>> read(Shape, {"width": 8, "scale": 2}, "a shape")
Shape(width=8, norm='pre', scale=2.0)
>>> plain(Shape(8))
{'width': 8, 'norm': 'pre'}
>>> Shape(0)
Traceback (most recent call last):
ValueError: width must be at least 1, not 0.
>>> read(Shape, {"with": 8}, "a shape")
Traceback (most recent call last):
ValueError: 'with' is not a key of a shape; did you mean width?

Supported annotations: `bool`, `int`, `float`, `str`, `None`, `Literal`, `Any`, nested dataclasses,
`tuple[X, ...]`, `tuple[X, Y]`, `list[X]`, `dict[str, X]`, unions, and `Annotated` with `Range`,
`Length` and `Pattern`.

Types are strict: a bool is not an int, 4.0 is not an int, but 3 is a float. NumPy integers and
floats are converted to Python's. Numbers must be finite. Error messages truncate long values.

Not pydantic: it adds a dependency and 0.12 s of import time to every verb that reads a config. Here
positional arguments and `dataclasses.replace` are validated too, and each error is one sentence.
"""

import ast
import inspect
import math
import operator
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache, partial
from itertools import pairwise
from numbers import Real
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    SupportsIndex,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tilth.formatting import printable, suggestion

T = TypeVar("T")
Extra = Literal["forbid", "ignore"]
Checker = Callable[[str, object, Extra], Any]
"""Called with a dotted name, a value and the treatment of unknown keys; returns the valid value."""

DEPTH = 64
"""The maximum nesting depth of a JSON value, or of a value annotated with `Any`."""


@dataclass(frozen=True)
class Range:
    """Limits of a number."""

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None

    def problem(self, number: float) -> str | None:
        """Return the violated limit in words, or None."""
        if self.at_least is not None and number < self.at_least:
            words, limit = "at least", self.at_least
        elif self.above is not None and number <= self.above:
            words, limit = "above", self.above
        elif self.at_most is not None and number > self.at_most:
            words, limit = "at most", self.at_most
        elif self.below is not None and number >= self.below:
            words, limit = "below", self.below
        else:
            return None
        return f"{words} {limit if isinstance(limit, int) else f'{limit:g}'}"


@dataclass(frozen=True)
class Length:
    """Limits of the length of a string, a list or a table."""

    at_least: int = 0
    at_most: int | None = None

    def check(self, name: str, value: Any) -> None:  # noqa: ANN401, any sized value
        """Raise a ValueError if a value is too short or too long."""
        limits = Range(at_least=self.at_least, at_most=self.at_most)
        if bound := limits.problem(len(value)):
            unit = "characters" if isinstance(value, str) else "items"
            raise ValueError(f"{name} must have {bound} {unit}, not {len(value)}.")


@dataclass(frozen=True)
class Pattern:
    """A regular expression that a whole string must match, and its description."""

    regex: str
    what: str
    hint: str = ""

    def check(self, name: str, value: str) -> None:
        """Raise a ValueError if a string does not match."""
        if not re.fullmatch(self.regex, value):
            hint = f"; {self.hint}" if self.hint else ""
            raise ValueError(f"{name} {short_repr(value)} is not {self.what}{hint}.")


Share = Annotated[float, Range(at_least=0.0, at_most=1.0)]
# Python decodes bytes that are not UTF-8, in a path, to surrogates; TOML cannot hold them.
Unicode = Annotated[str, Pattern("[^\ud800-\udfff]*", "Unicode", "give it another name")]
Sha256 = Annotated[str, Pattern("[0-9a-f]{64}", "a SHA-256 in hexadecimal digits")]
FileName = Annotated[
    str,
    Length(at_least=1, at_most=255),
    # A line end in a name would break the sentence of an error.
    Pattern(
        r"(?!\.\.?\Z)[^/\x00-\x1f\x7f]*", "the name of a file", "a path cannot leave the folder"
    ),
]


class _ShortRepr(reprlib.Repr):
    """`repr` of bounded length: untrusted files hold values of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80
        self.maxlong = 40
        self.maxlevel = 3

    def repr_int(self, x: int, level: int) -> str:
        if abs(x) < 10**self.maxlong:
            return repr(x)
        # `repr` refuses integers of more than 4,300 digits.
        digits = math.floor(x.bit_length() * math.log10(2)) + 1
        return f"an integer of {digits - (abs(x) < 10 ** (digits - 1))} digits"


short_repr = _ShortRepr().repr
"""The `repr` of a value, truncated for an error message."""


ANY = Range()
POSITIVE = Range(above=0.0)
AT_LEAST_1 = Range(at_least=1)


def check_int(name: str, value: object, limits: Range = AT_LEAST_1) -> int:
    """Validate an integer; NumPy integers are converted to Python's."""
    number = value if type(value) is int else None  # the checks below take 20 times as long
    if number is None and isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with suppress(TypeError):  # most NumPy arrays have the method but no index
            number = operator.index(value)
    if number is None:
        raise ValueError(f"{name} must be a whole number, not {short_repr(value)}.")
    if bound := limits.problem(number):
        raise ValueError(f"{name} must be {bound}, not {short_repr(number)}.")
    return number


def check_float(name: str, value: object, limits: Range = ANY) -> float:
    """Validate a finite number; integers and NumPy floats are converted to float."""
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        raise ValueError(f"{name} must be a number, not {short_repr(value)}.")
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be finite.")
    if bound := limits.problem(number):
        raise ValueError(f"{name} is {number:g}; it must be {bound}.")
    return number


def check_choice(name: str, value: object, choices: Iterable[T]) -> T:
    """Return the choice that equals a value; else raise a ValueError that suggests the nearest."""
    known = list(choices)
    for each in known:
        is_alike = isinstance(value, bool) == isinstance(each, bool)  # in Python, True == 1
        if is_alike and isinstance(value, type(each)) and value == each:
            return each
    names = [str(each) for each in known]
    hint = f"choose one of {', '.join(names)}."
    if len(names) > 8 and isinstance(value, str):  # too many to read
        hint = suggestion(value.lower(), names, hint)
    raise ValueError(f"{name} {short_repr(value)} is unknown; {hint}")


def check_keys(
    kind: type[Any], values: Mapping[Any, object], what: str, extra: Extra = "forbid"
) -> None:
    """Raise a ValueError for unknown keys and for missing required keys of a dataclass."""
    known = _declared(kind)
    for key in values:
        if key not in known and extra == "forbid":
            raise ValueError(f"{short_repr(key)} is not a key of {what}; {suggestion(key, known)}")
    for name, declared in known.items():
        if declared.is_needed and name not in values:
            raise ValueError(f"the key {name} is missing from {what}; add it.")


def derived(function: Callable[[Any], object]) -> Any:  # noqa: ANN401, a field of any type
    """Declare a dataclass field that `check` computes from the other fields if it is None.

    >>> @dataclass(frozen=True)
    ... class Shape:
    ...     width: int
    ...     inner: int = derived(lambda shape: 4 * shape.width)
    ...     def __post_init__(self) -> None:
    ...         check(self)
    >>> Shape(2), Shape(2, 3)
    (Shape(width=2, inner=8), Shape(width=2, inner=3))
    """
    return field(default=None, metadata={derived: function})


def unwritten(default: object) -> Any:  # noqa: ANN401, a field of any type
    """Declare a dataclass field that `plain` omits while it has its default.

    A field that a later version adds: files of the usual kind keep their bytes.

    >>> @dataclass(frozen=True)
    ... class Shape:
    ...     width: int
    ...     bias: bool = unwritten(False)
    >>> plain(Shape(2)), plain(Shape(2, True))
    ({'width': 2}, {'width': 2, 'bias': True})
    """
    return field(default=default, metadata={unwritten: True})


def check(instance: object, table: str = "") -> None:
    """Validate the fields of a dataclass, in its `__post_init__`; `table` prefixes dotted names.

    Converts values to the declared types: NumPy numbers, lists to tuples, tables to dataclasses.
    """
    declared = _declared(type(instance))
    for name, each in declared.items():
        value = each.checker(_dotted(table, name), getattr(instance, name), "forbid")
        object.__setattr__(instance, name, value)  # the class is frozen
    for name, each in declared.items():
        function = each.field.metadata.get(derived)
        if function and getattr(instance, name) is None:
            value = each.checker(_dotted(table, name), function(instance), "forbid")
            object.__setattr__(instance, name, value)


def read(
    kind: type[T], values: object, what: str, *, table: str = "", extra: Extra = "forbid"
) -> T:
    """Create a dataclass from JSON or TOML values.

    `what` names the object in error messages ("a lab"); `table` prefixes the dotted names of its
    fields. Unknown keys are an error with a suggestion, or ignored, at every depth.
    """
    try:
        return _read(kind, values, what, table, extra)
    except RecursionError:
        raise ValueError(f"{what} is nested too deeply.") from None


def _read(kind: type[T], values: object, what: str, table: str, extra: Extra) -> T:
    if not isinstance(values, Mapping):
        raise ValueError(f"{table or what} must be a table, not {short_repr(values)}.")
    check_keys(kind, values, what, extra)
    return kind(
        **{
            name: declared.checker(_dotted(table, name), values[name], extra)
            for name, declared in _declared(kind).items()
            if name in values
        }
    )


def plain(value: Any) -> Any:  # noqa: ANN401, a dataclass or a field of one
    """Convert a dataclass to JSON or TOML values, the inverse of `read`.

    Omits fields that are None by default and None now, and `unwritten` defaults.
    """
    if is_dataclass(value):
        pairs = ((each, getattr(value, each.name)) for each in fields(value) if each.init)
        return {
            each.name: plain(item)
            for each, item in pairs
            if item != each.default or not (item is None or unwritten in each.metadata)
        }
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def table_class(hint: Any) -> type[Any] | None:  # noqa: ANN401, an annotation
    """Return the dataclass of an annotation `X` or `X | None`; None for other annotations."""
    found = [each for each in (get_args(hint) or (hint,)) if each is not NoneType]
    is_table = len(found) == 1 and isinstance(found[0], type) and is_dataclass(found[0])
    return found[0] if is_table else None


def field_names(kind: type[Any], table: str = "") -> list[str]:
    """Return the dotted names of all values of a dataclass, those of its tables included."""
    names: list[str] = []
    for name, declared in _declared(kind).items():
        inner, dotted = table_class(declared.hint), _dotted(table, name)
        names += [dotted] if inner is None else field_names(inner, dotted)
    return names


def flat(values: Mapping[str, Any], table: str = "") -> dict[str, Any]:
    """Flatten nested tables to values by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        dotted = _dotted(table, name)
        found |= flat(value, dotted) if isinstance(value, Mapping) else {dotted: value}
    return found


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nest values by dotted name into tables; the inverse of `flat`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        *tables, field_name = name.split(".")
        inner = found
        for table in tables:
            inner = inner.setdefault(table, {})
        inner[field_name] = value
    return found


def json_schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a dataclass, for editors. None is a missing key."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": kind.__name__, **_schema(kind, ())}


def descriptions(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings of a dataclass's fields: the string literal that follows each field.

    Python discards these strings, so they are parsed from the source, inherited fields included.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        body = _definitions(each.__module__).get(each.__name__, [])
        for statement, after in pairwise(body):
            match statement, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = text
    return {name: found[name] for name in (each.name for each in fields(kind)) if name in found}


@cache  # `inspect.getsource` of each class would parse the whole module again
def _definitions(module: str) -> dict[str, list[Any]]:
    if module == "builtins":
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {each.name: each.body for each in tree.body if isinstance(each, ast.ClassDef)}


# --- from annotations to checkers -----------------------------------------------------------------


@dataclass(frozen=True)
class _Declared:
    checker: Checker
    hint: Any
    is_needed: bool
    field: Field[Any]


_DECLARED: dict[type[Any], dict[str, _Declared]] = {}  # mypy denies that classes are hashable


def _declared(kind: type[Any]) -> dict[str, _Declared]:
    """Return the fields of a dataclass by name, cached by class."""
    if kind in _DECLARED:
        return _DECLARED[kind]
    hints = get_type_hints(kind, include_extras=True)
    hints |= {
        each.name: hints[each.name] | None for each in fields(kind) if derived in each.metadata
    }
    _DECLARED[kind] = {
        each.name: _Declared(
            checker=_checker(hints[each.name], ()),
            hint=hints[each.name],
            is_needed=each.default is MISSING and each.default_factory is MISSING,
            field=each,
        )
        for each in fields(kind)
        if each.init
    }
    return _DECLARED[kind]


def _dotted(table: str, name: str) -> str:
    return f"{table}.{name}" if table else name


def _parts(hint: Any, limits: tuple[Any, ...]) -> tuple[Any, Any, tuple[Any, ...], tuple[Any, ...]]:  # noqa: ANN401
    """Split an annotation into (type, origin, arguments, limits), without `Annotated`."""
    while get_origin(hint) is Annotated:
        limits = (*limits, *hint.__metadata__)
        hint = hint.__origin__
    return hint, get_origin(hint), get_args(hint), limits


def _checker(hint: Any, limits: tuple[Any, ...]) -> Checker:  # noqa: ANN401, an annotation
    hint, origin, arguments, limits = _parts(hint, limits)
    if hint in (Any, object):
        return check_depth
    if origin in (UnionType, Union):
        return _union(arguments, limits)
    if origin is Literal:
        return lambda name, value, _extra: check_choice(name, value, arguments)
    if origin in (tuple, list):
        return _list(origin, arguments, limits)
    if origin is dict:
        return _table(_checker(arguments[1], ()), limits)
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(_check_dataclass, hint)
    if hint in (int, float):
        bounds = next((each for each in limits if isinstance(each, Range)), ANY)
        number = check_int if hint is int else check_float
        return lambda name, value, _extra: number(name, value, bounds)
    if hint in (bool, str, NoneType):
        return partial(_check_instance, hint, limits)
    raise TypeError(f"{hint!r} is not an annotation that tilth.schema supports.")


WORDS = {bool: "true or false", str: "text", NoneType: "null", int: "a whole number"}
WORDS |= {float: "a number", list: "a list", tuple: "a list", dict: "a table"}


def _check_instance(
    kind: type[Any], limits: tuple[Any, ...], name: str, value: object, _extra: Extra
) -> object:
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {WORDS[kind]}, not {short_repr(value)}.")
    for limit in limits:
        limit.check(name, value)
    return value


def check_depth(name: str, value: object, _extra: Extra = "forbid") -> object:
    """Raise a ValueError if a value is nested more than `DEPTH` levels deep."""
    level = [value]
    for _ in range(DEPTH):
        level = [
            item
            for each in level
            if isinstance(each, list | tuple | Mapping)
            for item in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not level:
            return value
    raise ValueError(f"{name} is nested too deeply.")


def _check_dataclass(kind: type[Any], name: str, value: object, extra: Extra) -> object:
    if type(value) is kind:
        return value
    if is_dataclass(value) and (isinstance(value, kind) or issubclass(kind, type(value))):
        value = plain(value)  # convert a subclass or superclass to the declared class
    return _read(kind, value, f"the table {name}", name, extra)


def _union(arguments: tuple[Any, ...], limits: tuple[Any, ...]) -> Checker:
    others = [each for each in arguments if each is not NoneType]
    checkers = [_checker(each, limits) for each in others]
    is_optional = len(others) < len(arguments)

    def checker(name: str, value: object, extra: Extra) -> object:
        if value is None and is_optional:
            return None
        if len(checkers) == 1:
            return checkers[0](name, value, extra)
        for each in checkers:
            try:
                return each(name, value, extra)
            except ValueError:
                continue
        kinds = [_parts(each, ())[:2] for each in others]
        words = " or ".join(WORDS.get(origin or kind, "a table") for kind, origin in kinds)
        raise ValueError(f"{name} must be {words}, not {short_repr(value)}.")

    return checker


def _list(origin: Any, arguments: tuple[Any, ...], limits: tuple[Any, ...]) -> Checker:  # noqa: ANN401
    is_open = origin is list or arguments[1:] == (...,)
    checkers = [_checker(each, ()) for each in arguments if each is not ...]

    def checker(name: str, value: object, extra: Extra) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} must be a list, not {short_repr(value)}.")
        if not is_open and len(value) != len(checkers):
            raise ValueError(f"{name} must have {len(checkers)} items, not {len(value)}.")
        for limit in limits:
            limit.check(name, value)
        each = checkers * len(value) if is_open else checkers
        return origin(
            check_item(f"{name}[{index}]", item, extra)
            for index, (check_item, item) in enumerate(zip(each, value, strict=True))
        )

    return checker


def _table(check_item: Checker, limits: tuple[Any, ...]) -> Checker:
    def checker(name: str, value: object, extra: Extra) -> object:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} must be a table, not {short_repr(value)}.")
        for limit in limits:
            limit.check(name, value)
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{name} has the key {short_repr(key)}, which must be text.")
        return {
            key: check_item(_dotted(name, printable(key[:80])), item, extra)
            for key, item in value.items()
        }

    return checker


# --- from annotations to a JSON schema ------------------------------------------------------------


def _schema(hint: Any, limits: tuple[Any, ...]) -> dict[str, Any]:  # noqa: ANN401, an annotation
    hint, origin, arguments, limits = _parts(hint, limits)
    if origin in (UnionType, Union):
        others = [_schema(each, limits) for each in arguments if each is not NoneType]
        return others[0] if len(others) == 1 else {"anyOf": others}
    if origin is Literal:
        return {"enum": list(arguments)}
    found: dict[str, Any] = {}
    if origin is list or arguments[1:] == (...,):
        found = {"type": "array", "items": _schema(arguments[0], ())}
    elif origin is tuple:
        found = {"type": "array", "prefixItems": [_schema(each, ()) for each in arguments]}
        found |= {"items": False, "minItems": len(arguments)}
    elif origin is dict:
        found = {"type": "object", "additionalProperties": _schema(arguments[1], ())}
    elif isinstance(hint, type) and is_dataclass(hint):
        return _object_schema(hint)
    elif hint in (kinds := {bool: "boolean", int: "integer", float: "number", str: "string"}):
        found = {"type": kinds[hint]}
    for limit in limits:
        found |= _limit_schema(limit, found["type"])
    return found


def _object_schema(kind: type[Any]) -> dict[str, Any]:
    texts = descriptions(kind)
    properties = {}
    for name, declared in _declared(kind).items():
        entry = _schema(declared.hint, ())
        if name in texts:
            entry = {**entry, "description": texts[name]}
        if declared.field.default not in (MISSING, None):
            entry["default"] = plain(declared.field.default)
        properties[name] = entry
    return {
        "type": "object",
        **({"description": kind.__doc__.strip()} if kind.__doc__ else {}),
        "properties": properties,
        "required": [name for name, each in _declared(kind).items() if each.is_needed],
        "additionalProperties": False,
    }


def _limit_schema(limit: Range | Length | Pattern, kind: str) -> dict[str, Any]:
    if isinstance(limit, Pattern):
        return {}  # Python's regular expressions differ from those of JSON schemas
    pairs: dict[str, float | None]
    if isinstance(limit, Length):
        end = {"string": "Length", "array": "Items", "object": "Properties"}[kind]
        pairs = {f"min{end}": limit.at_least or None, f"max{end}": limit.at_most}
    else:
        pairs = {"minimum": limit.at_least, "exclusiveMinimum": limit.above}
        pairs |= {"maximum": limit.at_most, "exclusiveMaximum": limit.below}
    return {name: value for name, value in pairs.items() if value is not None}
