"""Weights in safetensors files, checked against a config before they are read. No torch.

>>> import tempfile
>>> from safetensors.numpy import save_file
>>> with tempfile.TemporaryDirectory() as folder:
...     save_file({"w": np.ones((2, 3), np.float16)}, f"{folder}/w.safetensors")
...     tensor_infos(f"{folder}/w.safetensors")
...     load_weights(f"{folder}/w.safetensors")["w"].dtype
{'w': TensorInfo(dtype='F16', shape=(2, 3))}
dtype('float32')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import safetensors

from tilth.config.parameters import check_parameters
from tilth.files import FileError, StrPath, read_bytes

if TYPE_CHECKING:
    from jaxtyping import Float32

    from tilth.config.model import ModelConfig

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
INVALID = (
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError),
    safetensors.SafetensorError,
)
"""Errors of reading a damaged or untrusted state."""
HINT = "choose another checkpoint with --step"


@dataclass(frozen=True)
class TensorInfo:
    """The header entry of a tensor in a safetensors file."""

    dtype: str
    shape: tuple[int, ...]


def tensor_infos(path: StrPath) -> dict[str, TensorInfo]:
    """Return type and shape of each tensor of a safetensors file, from its header alone."""
    if not Path(path).is_file():  # to open a pipe would block
        raise FileError(path, "does not exist or is not a regular file", HINT)
    with _explained(path), safetensors.safe_open(path, "numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {
            name: TensorInfo(part.get_dtype(), tuple(part.get_shape()))
            for name, part in slices.items()
        }


def check_weights(path: StrPath, config: ModelConfig, infos: Mapping[str, TensorInfo]) -> None:
    """Raise FileError unless the tensors of `path` are the parameters of `config`.

    Call it before a model is built: an untrusted config may demand any amount of memory.
    """
    try:
        check_parameters(config, {name: info.shape for name, info in infos.items()})
    except ValueError as error:
        raise FileError(path, f"does not fit the config of the run ({error})", HINT) from error


def load_weights(
    path: StrPath, data: bytes | None = None
) -> dict[str, Float32[np.ndarray, "*shape"]]:
    """Read a safetensors file, or its bytes `data`: any floating-point numbers as float32."""
    weights = {}
    with _explained(path):
        tensors = safetensors.deserialize(read_bytes(path) if data is None else data)  # type: ignore[no-untyped-call]
    for name, tensor in tensors:
        dtype = tensor["dtype"]
        if dtype == "BF16":  # not in NumPy: the upper half of a float32
            numbers = (np.frombuffer(tensor["data"], "<u2").astype("<u4") << 16).view("<f4")
        elif dtype in FLOATS:
            numbers = np.frombuffer(tensor["data"], FLOATS[dtype])
        else:
            raise FileError(path, f"has {name} as {dtype}", "save it as float32")
        weights[name] = numbers.astype(np.float32, copy=False).reshape(tensor["shape"])
    return weights


@contextmanager
def _explained(path: StrPath) -> Iterator[None]:
    try:
        yield
    except safetensors.SafetensorError as error:
        problem = f"is truncated or is not a safetensors file ({error})"
        raise FileError(path, problem, HINT) from error
