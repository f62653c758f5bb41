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
from typing import BinaryIO

import safetensors.torch
from torch.nn import Module
from torch.optim import Optimizer

from tilth.files import FileError, StrPath, atomic_write, read_bytes
from tilth.runs.packing import pack, unpack
from tilth.runs.state import TensorStore, load_state_dicts
from tilth.runs.tensors import INVALID

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
        name, data = str(src), read_bytes(src)
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
    except INVALID as error:
        problem = f"is truncated or is not a checkpoint ({error})"
        raise FileError(name, problem, "check the path, or take an older one") from error
    if version != VERSION:
        raise FileError(name, f"is of version {version}", "use the tilth that wrote it")
    if optimizer is not None and optimizer_state is None:
        raise FileError(name, "holds no optimizer", "load the model alone")
    load_state_dicts(name, model, model_state, optimizer, optimizer_state)
    return iteration
