"""A model and its optimizer in one file, without pickle: safetensors, with JSON in its header.

What enters: any `Module`, any `Optimizer`, the number of the step. What leaves: a file that any
safetensors reader opens (weights under `model.`, the optimizer's tensors under `optimizer.`), and
the same objects again. A weight that two names share is stored once.

>>> import io
>>> model = torch.nn.Linear(2, 3)
>>> optimizer = torch.optim.AdamW(model.parameters())
>>> file = io.BytesIO()
>>> save_checkpoint(model, optimizer, 1000, file)
>>> file.seek(0)
0
>>> load_checkpoint(file, model, optimizer)
1000
"""

import json
import math
import operator
from collections.abc import Mapping
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from tilth.files import FileError, StrPath, atomic_write, read_bytes

FORMAT = "tilth checkpoint"
VERSION = 1


def save_checkpoint(
    model: Module, optimizer: Optimizer | None, iteration: int, out: StrPath | BinaryIO
) -> None:
    """Write everything that training needs to go on; a path is replaced in one step."""
    packer = Packer()
    content = {
        "version": VERSION,
        "iteration": operator.index(iteration),
        "model": packer.pack(model.state_dict(), "model"),
        "optimizer": packer.pack(optimizer and optimizer.state_dict(), "optimizer"),
    }
    metadata = {"format": "pt", FORMAT: json.dumps(content, allow_nan=False)}
    data = safetensors.torch.save(packer.tensors, metadata)
    if hasattr(out, "write"):
        out.write(data)
        return
    with atomic_write(out, overwrite=True) as file:
        file.write(data)


def load_checkpoint(
    src: StrPath | BinaryIO, model: Module, optimizer: Optimizer | None = None
) -> int:
    """Fill a model and an optimizer that were made alike; return the number of the step."""
    if hasattr(src, "read"):
        name, data = str(getattr(src, "name", "the checkpoint")), src.read()
    else:
        name = str(src)
        data = read_bytes(src)
    iteration, model_state, optimizer_state = _read(name, data)
    check_fits(name, model_state, model.state_dict())
    if optimizer is not None:
        if optimizer_state is None:
            raise FileError(name, "holds no optimizer", "load the model alone")
        try:  # torch checks the groups before it changes anything
            optimizer.load_state_dict(optimizer_state)
        except ValueError as error:
            hint = "make the optimizer of the same parameters and groups"
            raise FileError(name, f"is of another optimizer ({error})", hint) from error
    model.load_state_dict(model_state)
    return iteration


def _read(name: str, data: bytes) -> tuple[int, dict[str, Any], dict[str, Any] | None]:
    """The iteration, and the state dicts of the model and the optimizer."""
    try:
        tensors = safetensors.torch.load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        content = json.loads(header["__metadata__"][FORMAT])
        version = content["version"]
        model_state, optimizer_state = (
            unpack(content[part], tensors) for part in ("model", "optimizer")
        )
        iteration = operator.index(content["iteration"])
        if not isinstance(model_state, dict) or not isinstance(optimizer_state, dict | None):
            raise ValueError("there are no state dicts in it")
    except (
        safetensors.SafetensorError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
    ) as error:
        problem = f"is torn or is not a checkpoint ({error})"
        raise FileError(name, problem, "check the path, or take an older one") from error
    if version != VERSION:
        raise FileError(name, f"is of version {version}", "use the tilth that wrote it")
    return iteration, model_state, optimizer_state


def check_fits(name: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse before anything is changed, where torch would refuse half-way."""
    for key in sorted(found.keys() ^ wanted.keys()):
        whose = "the model" if key in wanted else "the checkpoint"
        hint = "make the model with the config of the run"
        raise FileError(name, f"does not fit the model: only {whose} has {key}", hint)
    for key, value in found.items():
        if isinstance(value, Tensor) and value.shape != wanted[key].shape:
            shapes = f"{tuple(value.shape)}, and in the model {tuple(wanted[key].shape)}"
            hint = "make the model with the config of the run"
            raise FileError(name, f"does not fit the model: {key} has shape {shapes}", hint)


# --- any state dict as JSON and named tensors -----------------------------------------------------

# What JSON cannot say is an object with one key that begins with a dollar.
_TENSOR, _TUPLE, _PAIRS, _FLOAT = "$tensor", "$tuple", "$pairs", "$float"


class Packer:
    """Turns values into JSON; their tensors gather in `tensors`, each once, whatever its names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[tuple[object, ...], str] = {}
        self._originals: list[Tensor] = []  # alive, so that no other tensor takes their place
        self._storages: set[int] = set()

    def pack(self, value: object, name: str) -> object:
        """Return JSON that `unpack` turns into an equal value."""
        if isinstance(value, Tensor):
            return {_TENSOR: self._stored(value, name)}
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {_FLOAT: str(float(value))}
        if isinstance(value, list | tuple):
            items = [self.pack(item, f"{name}.{place}") for place, item in enumerate(value)]
            return items if isinstance(value, list) else {_TUPLE: items}
        if isinstance(value, Mapping):
            packed = [(key, self.pack(item, f"{name}.{key}")) for key, item in value.items()]
            if all(isinstance(key, str) and not key.startswith("$") for key, _ in packed):
                return dict(packed)
            return {_PAIRS: [[self.pack(key, name), item] for key, item in packed]}
        raise ValueError(
            f"{name} is a {type(value).__name__}, which a checkpoint does not hold; keep it "
            "elsewhere, or as numbers, texts, lists, dicts or tensors"
        )

    def _stored(self, tensor: Tensor, name: str) -> str:
        """The name under which a tensor stands in `tensors`."""
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(f"{name} has no plain numbers to save; make it dense and fill it")
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place in self._names:
            return self._names[place]
        while name in self.tensors:  # {"1": ..., 1: ...}
            name += "'"
        self._names[place] = name
        self._originals.append(tensor)
        # Safetensors stores no memory twice: another view of what is there already is copied out.
        storage = tensor.untyped_storage().data_ptr()
        plain = tensor.detach().contiguous()
        self.tensors[name] = plain.clone() if storage in self._storages else plain
        self._storages.add(storage)
        return name


def unpack(value: object, tensors: Mapping[str, Tensor]) -> Any:  # noqa: ANN401, what was packed
    """Return the value that `Packer.pack` was given."""
    if isinstance(value, list):
        return [unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        return tensors[value[_TENSOR]]
    if _TUPLE in value:
        return tuple(unpack(value[_TUPLE], tensors))
    if _FLOAT in value:
        return float(value[_FLOAT])
    if _PAIRS in value:
        return {unpack(key, tensors): unpack(item, tensors) for key, item in value[_PAIRS]}
    return {key: unpack(item, tensors) for key, item in value.items()}
