"""A model and its optimizer in one safetensors file, without pickle.

Weights are under `model.`, the optimizer's tensors under `optimizer.`, all other values are JSON in
the header. A weight that two names share is stored once.

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

from tilth.files import FileError, StrPath, read_bytes, write_atomically
from tilth.runs.packing import pack, unpack
from tilth.runs.state import TensorStore, load_state_dicts
from tilth.runs.tensors import INVALID

FORMAT = "tilth checkpoint"
VERSION = 1


def save_checkpoint(
    model: Module, optimizer: Optimizer | None, iteration: int, out: StrPath | BinaryIO
) -> None:
    """Save the state dicts of a model and an optimizer; a file at the path is replaced at once."""
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
    else:
        write_atomically(out, data, overwrite=True)


def load_checkpoint(
    src: StrPath | BinaryIO, model: Module, optimizer: Optimizer | None = None
) -> int:
    """Load a checkpoint into a model and an optimizer of the same shapes; return the iteration.

    Raises FileError, and changes nothing, if the file is damaged or does not fit.
    """
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
            raise ValueError("it has no state dicts")
    except INVALID as error:
        problem = f"is truncated or is not a checkpoint ({error})"
        raise FileError(name, problem, "check the path, or use an older checkpoint") from error
    if version != VERSION:
        raise FileError(name, f"has version {version}", "use the tilth that wrote it")
    if optimizer is not None and optimizer_state is None:
        raise FileError(name, "has no optimizer state", "load the model alone")
    load_state_dicts(name, model, model_state, optimizer, optimizer_state)
    return iteration
