"""Numbers that remember the arithmetic they come from, and the lines of source that did it.

`traced_account` computes an account with such numbers: a traced integer is an `int`, so the same
functions compute it, and its operators record what they do.

>>> width, layers = named(64, "d_model"), named(3, "num_layers")
>>> number = 2 * layers * width * (width + 1)
>>> number, expression(number)
(24960, '2 × num_layers × d_model × (d_model + 1)')
>>> expression(number, values=True)
'2 × 3 × 64 × (64 + 1)'
"""

import operator
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import CodeType
from typing import Any, ClassVar, Self, TypeVar

Number = int | float
T = TypeVar("T", int, float)

# Symbol and precedence of each operator.
_SYMBOLS = {"add": ("+", 1), "sub": ("−", 1), "mul": ("×", 2), "floordiv": ("//", 2)}
_SYMBOLS |= {"truediv": ("/", 2), "pow": ("^", 3)}
_LEVELS = dict(_SYMBOLS.values())
_ATOM = 4


@dataclass(frozen=True, eq=False)
class Operation:
    """How a number was computed.

    Attributes:
        symbol: The operator, or "" for a given number.
        operands: The numbers that it took; traced or constant.
        name: The name of a given number.
        code: The code that computed it.
        line: Its line.

    """

    symbol: str
    operands: tuple[Number, ...] = ()
    name: str = ""
    code: CodeType | None = None
    line: int = 0

    @cached_property
    def key(self) -> str:
        """The formula in terms of given numbers; equal for equal formulas."""
        operands = flat_operands(self, lambda _: False)
        return self.name or f"({self.symbol.join(map(key_of, operands))})"


def key_of(number: Number) -> str:
    """Return the key of a traced number, or a constant as text."""
    operation = operation_of(number)
    return repr(number) if operation is None else operation.key


def flat_operands(operation: Operation, is_whole: Callable[[Number], bool]) -> Sequence[Number]:
    """Return the operands of a chain of sums or products; a whole one is not taken apart."""
    if operation.symbol not in ("+", "×"):
        return operation.operands
    found: list[Number] = []
    waiting = list(operation.operands)
    while waiting:
        each = waiting.pop(0)
        inner = operation_of(each)
        if inner is not None and inner.symbol == operation.symbol and not is_whole(each):
            waiting[:0] = inner.operands
        else:
            found.append(each)
    return found


class _Traced:
    """What traced integers and floats share."""

    operation: Operation
    PLAIN: ClassVar[type[Any]]

    def __deepcopy__(self, _memo: object) -> Self:  # dataclasses.asdict copies
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return self.PLAIN, (self.PLAIN(self),)


class TracedInt(_Traced, int):
    """An integer with its arithmetic."""

    PLAIN = int


class TracedFloat(_Traced, float):
    """A float with its arithmetic."""

    PLAIN = float


def _traced(value: Number, operation: Operation) -> Any:  # noqa: ANN401, an int or a float
    made = TracedInt(value) if isinstance(value, int) else TracedFloat(value)
    made.operation = operation
    return made


def named(value: T, name: str) -> T:
    """Return a traced number that is given, such as a field of a config."""
    return _traced(value, Operation("", name=name))  # type: ignore[no-any-return]


def with_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which each number is traced, and named by its key."""
    return {
        name: named(value, name) if _is_number(value) else value for name, value in values.items()
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def operation_of(value: object) -> Operation | None:
    """Return the arithmetic of a traced number; None for other values."""
    return value.operation if isinstance(value, _Traced) else None


def _plain(value: Number) -> Number:
    return value.PLAIN(value) if isinstance(value, _Traced) else value


def _binary(name: str, *, is_reversed: bool) -> Callable[[Any, Any], Any]:
    compute, symbol = getattr(operator, name), _SYMBOLS[name][0]

    def method(self: Any, other: Any) -> Any:  # noqa: ANN401
        if not isinstance(other, int | float):
            return NotImplemented
        pair = (other, self) if is_reversed else (self, other)
        # x + 0, x * 1 and x * True are x: sums begin at 0, and switches multiply by a bool.
        neutral = {"add": (0, 0), "sub": (None, 0), "mul": (1, 1)}.get(name, (None, None))
        for kept, given, number in zip(pair[::-1], pair, neutral, strict=True):
            if isinstance(given, int) and operation_of(given) is None and given == number:
                return kept
        value = compute(*map(_plain, pair))
        if value == 0:
            return value
        frame = sys._getframe(1)
        return _traced(value, Operation(symbol, pair, code=frame.f_code, line=frame.f_lineno))

    return method


for _name in _SYMBOLS:
    for _kind in (TracedInt, TracedFloat):
        setattr(_kind, f"__{_name}__", _binary(_name, is_reversed=False))
        setattr(_kind, f"__r{_name}__", _binary(_name, is_reversed=True))


@dataclass(frozen=True)
class Part:
    """A part of a formula: an operator, a constant, a named number, or another number's label."""

    text: str
    value: str = ""
    """The number, as text; for an operator its symbol."""
    path: str = ""
    """Where the other number is in `Account.to_dict()`."""


@dataclass(frozen=True)
class Line:
    """A line of source that computed a number."""

    file: str
    number: int
    function: str
    code: CodeType


class Formulas:
    """The formulas of an account's numbers, in terms of each other and of the config.

    Args:
        numbers: The numbers that a formula may name, by path.
        labels: Their names, by path.

    """

    def __init__(self, numbers: Mapping[str, Number], labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._paths: dict[str, list[str]] = {}
        for path, number in numbers.items():
            operation = operation_of(number)
            if operation is not None and operation.symbol:
                self._paths.setdefault(operation.key, []).append(path)

    def parts(self, number: Number) -> list[Part]:
        """Return the formula of a number; other numbers in it have their names."""
        return self._parts(number, Counter(), is_root=True)[0]

    def lines(self, number: Number) -> list[Line]:
        """Return the lines that computed a number, the last one first."""
        found: dict[tuple[str, int], Line] = {}
        self._collect(number, found, is_root=True)
        return list(found.values())

    def _parts(
        self, number: Number, used: Counter[str], *, is_root: bool = False
    ) -> tuple[list[Part], int]:
        """Return the formula, and the precedence of its last operator."""
        operation = operation_of(number)
        if operation is None or not operation.symbol:
            text = shown(number)
            return [Part(operation.name if operation else text, text)], _ATOM
        if not is_root and (paths := self._paths.get(operation.key)):
            # Two equal numbers, such as keys and values: each is named once.
            path = paths[min(used[operation.key], len(paths) - 1)]
            used[operation.key] += 1
            return [Part(self._labels[path], shown(number), path)], _ATOM
        symbol, level = operation.symbol, _LEVELS[operation.symbol]
        terms = flat_operands(operation, self._is_labelled)
        counts = Counter(key_of(term) for term in terms if not self._is_labelled(term))
        made: list[Part] = []
        for place, term in enumerate(terms):
            times = counts.pop(key_of(term), 0) if symbol == "+" else 1
            if times == 0 and not self._is_labelled(term):
                continue  # a repeated addend
            parts, inner = self._parts(term, used)
            if times > 1:
                parts = [_part(f"{times} × "), *_grouped(parts, inner < _LEVELS["×"])]
            else:
                needs = place > 0 if symbol not in ("+", "×") else symbol == "×"
                parts = _grouped(parts, inner < level or (inner == level and needs))
            made += [_part(f" {symbol} "), *parts] if made else parts
        return made, level

    def _is_labelled(self, number: Number) -> bool:
        operation = operation_of(number)
        return operation is not None and operation.key in self._paths

    def _collect(
        self, number: Number, found: dict[tuple[str, int], Line], *, is_root: bool = False
    ) -> None:
        operation = operation_of(number)
        if operation is None or operation.code is None:
            return
        if not is_root and self._is_labelled(number):
            return
        code = operation.code
        line = Line(code.co_filename, operation.line, code.co_qualname, code)
        found.setdefault((line.file, line.number), line)
        for each in operation.operands:
            self._collect(each, found)


def _part(text: str) -> Part:
    return Part(text, text)


def _grouped(parts: list[Part], is_needed: bool) -> list[Part]:
    return [_part("("), *parts, _part(")")] if is_needed else parts


def expression(number: Number, *, values: bool = False) -> str:
    """Return the formula of a number in terms of the given numbers, or with their values."""
    parts = Formulas({}, {}).parts(number)
    return "".join(part.value if values else part.text for part in parts)


def shown(number: Number) -> str:
    """Return a number as a formula shows it."""
    if isinstance(number, int):
        return f"{int(number):,}"
    return f"{float(number):,.10g}" if abs(number) < 1e15 else f"{float(number):.6g}"
