"""Any state dict as JSON and named tensors, and back. No torch.

`pack` calls a function that stores each tensor under a name; `unpack` takes the tensors by name.
For `check_optimizer_state`, an object with the tensor's dtype and shape is enough.

>>> packed = pack({"lr": (0.1, float("inf")), 3: None}, "state", store=lambda value, name: None)
>>> packed
{'$pairs': [['lr', {'$tuple': [0.1, {'$float': 'inf'}]}], [3, None]]}
>>> unpack(packed, {})
{'lr': (0.1, inf), 3: None}
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilth.files import FileError, StrPath

# A value that JSON does not have is an object with one key that begins with a dollar.
_TENSOR, _TUPLE, _PAIRS, _FLOAT = "$tensor", "$tuple", "$pairs", "$float"

# State tensors with the shape of their parameter, here and in torch.optim: of the Adam family and
# SGD, then of RMSprop, Adadelta, Adagrad, ASGD and Rprop.
SHAPED_LIKE_PARAMETER = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "exp_inf", "momentum_buffer"}
SHAPED_LIKE_PARAMETER |= {"square_avg", "grad_avg", "acc_delta", "sum", "ax", "prev", "step_size"}
# Options of parameter groups that are a number, or for betas two; torch also takes tensors.
OPTIONS = {"lr", "eps", "weight_decay", "momentum", "betas"}
FLOATS = {"F64", "F32", "F16", "BF16"}  # in safetensors, then in torch
FLOATS |= {"torch.float64", "torch.float32", "torch.float16", "torch.bfloat16"}


def pack(value: object, name: str, store: Callable[[object, str], str | None]) -> object:
    """Return JSON that `unpack` turns into an equal value.

    `store` returns the name under which it keeps a tensor, None for anything else.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: str(float(value))}
    if isinstance(value, list | tuple):
        items = [pack(item, f"{name}.{place}", store) for place, item in enumerate(value)]
        return items if isinstance(value, list) else {_TUPLE: items}
    if isinstance(value, Mapping):
        packed = [(key, pack(item, f"{name}.{key}", store)) for key, item in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in packed):
            return dict(packed)
        return {_PAIRS: [[pack(key, name, store), item] for key, item in packed]}
    if (stored := store(value, name)) is not None:
        return {_TENSOR: stored}
    raise ValueError(
        f"{name} is a {type(value).__name__}, which a checkpoint cannot hold; use numbers, "
        "strings, lists, dicts or tensors"
    )


def unpack(value: object, tensors: Mapping[str, object]) -> Any:  # noqa: ANN401, any value
    """Return the value that `pack` was given; raise ValueError for other JSON."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    try:
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        if _TUPLE in value:
            return tuple(unpack(value[_TUPLE], tensors))
        if _FLOAT in value:
            return float(value[_FLOAT])
        if _PAIRS in value:
            return {unpack(key, tensors): unpack(item, tensors) for key, item in value[_PAIRS]}
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"it cannot be unpacked: {error!r}") from error
    return {key: unpack(item, tensors) for key, item in value.items()}


def check_optimizer_state(
    path: StrPath, state: object, shapes: Sequence[Sequence[int]], hint: str
) -> None:
    """Raise FileError if state tensors do not have the shapes of their parameters.

    `shapes` are those of the parameters, in the order of the groups. Without the check, a fused
    kernel would read and write beyond a smaller state tensor.
    """

    def refuse(problem: str) -> FileError:
        return FileError(path, f"does not fit the optimizer ({problem})", hint)

    if not isinstance(state, dict):
        raise refuse("its state is not a table")
    groups, values = state.get("param_groups"), state.get("state")
    if not isinstance(groups, list) or not isinstance(values, dict):
        raise refuse("it has no parameter groups or no state")
    ids: list[object] = []
    for group in groups:
        members = group.get("params") if isinstance(group, dict) else None
        if not isinstance(members, list) or not all(type(member) is int for member in members):
            raise refuse("a parameter group does not list its parameters")
        ids += members
        for name in OPTIONS & group.keys():
            value, is_pair = group[name], isinstance(group[name], list | tuple)
            numbers = value if is_pair else [value]
            if is_pair != (name == "betas") or not all(map(is_number, numbers)):
                raise refuse(f"its {name} is {value!r:.40}")
    if len(ids) != len(shapes) or len(set(ids)) != len(ids):
        raise refuse(f"it has {len(set(ids))} parameters instead of {len(shapes)}")
    own_shapes = dict(zip(ids, shapes, strict=True))
    for number, own in values.items():
        if number not in own_shapes or not isinstance(own, dict):
            raise refuse(f"it has a state of parameter {number!r}")
        shape = tuple(own_shapes[number])
        for name, value in own.items():
            if name == "step":
                is_fitting = is_number(value)
            elif name in SHAPED_LIKE_PARAMETER and value is not None:
                is_fitting = shape_of(value) == shape and str(getattr(value, "dtype", "")) in FLOATS
            else:
                continue
            if not is_fitting:
                found = shape_of(value)
                what = f"shape {found}" if found is not None else "no tensor"
                raise refuse(f"{name} of parameter {number} of shape {shape} has {what}")


def is_number(value: object) -> bool:
    """Return whether a value is a float, an int of 64 bits or a tensor of one number."""
    if type(value) is int:
        return abs(value) < 2**63  # a longer one overflows in torch
    return type(value) is float or shape_of(value) in ((), (1,))


def shape_of(value: object) -> tuple[int, ...] | None:
    """Return the shape of a tensor, or of an object that describes one; None for other values."""
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(shape)
