"""A model and its optimizer in one file, without pickle: safetensors, with JSON in its header.

What enters: any `Module`, any `Optimizer`, the number of the step. What leaves: a file that any
safetensors reader opens (weights under `model.`, the optimizer's tensors under `optimizer.`), and
the same objects again. A weight that two names share is stored once.

>>> import io
>>> import torch
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
import operator
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
from torch.nn import Module
from torch.optim import Optimizer

from tilth.files import FileError, StrPath, atomic_write, read_bytes
from tilth.runs.packing import pack, unpack
from tilth.runs.state import TensorStore, check_weights, load_optimizer

FORMAT = "tilth checkpoint"
VERSION = 1


def save_checkpoint(
    model: Module, optimizer: Optimizer | None, iteration: int, out: StrPath | BinaryIO
) -> None:
    """Write everything that training needs to go on; a path is replaced in one step."""
    tensors = TensorStore()
    content = {
        "version": VERSION,
        "iteration": operator.index(iteration),
        "model": pack(model.state_dict(), "model", tensors.store),
        "optimizer": pack(optimizer and optimizer.state_dict(), "optimizer", tensors.store),
    }
    metadata = {"format": "pt", FORMAT: json.dumps(content, allow_nan=False)}
    data = safetensors.torch.save(tensors.by_name, metadata)
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
    check_weights(name, model_state, model.state_dict())
    if optimizer is not None:
        if optimizer_state is None:
            raise FileError(name, "holds no optimizer", "load the model alone")
        hint = "make the optimizer of the same parameters and groups"
        load_optimizer(name, optimizer, optimizer_state, hint)
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
        AttributeError,
        RecursionError,
    ) as error:
        problem = f"is truncated or is not a checkpoint ({error})"
        raise FileError(name, problem, "check the path, or take an older one") from error
    if version != VERSION:
        raise FileError(name, f"is of version {version}", "use the tilth that wrote it")
    return iteration, model_state, optimizer_state
