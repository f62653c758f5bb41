r"""Weights in safetensors files: read as float32, written as float32, bfloat16 or float16.

No torch.

A file is read tensor by tensor, so that memory holds the float32 result and one tensor more. The
header is untrusted: lengths, offsets and shapes are checked before anything is allocated.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     weights = {"w": np.array([[1.0, 0.1]], np.float32)}
...     with open(f"{folder}/w.safetensors", "wb") as file:
...         write_weights(file, weights, "bfloat16")
...     read_header(f"{folder}/w.safetensors")["w"].shape
...     load_weights(f"{folder}/w.safetensors")["w"].tolist()
(1, 2)
[[1.0, 0.10009765625]]
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, BinaryIO, Literal, get_args

import numpy as np

from tilth.files import FileError, StrPath, open_regular, unique_keys
from tilth.schema import short_repr

Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES = get_args(Dtype)

MAX_HEADER_BYTES = 100_000_000
"""The limit of the `safetensors` package."""
HINT = "download or export it again"

_NAMES: dict[str, str] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_READ = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # bfloat16 is not in NumPy
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_WIDTHS = {dtype: np.dtype(kind).itemsize for dtype, kind in _READ.items()}
_WIDTHS |= {"I64": 8, "U64": 8, "I32": 4, "U32": 4, "I16": 2, "U16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class TensorInfo:
    """The header entry of a tensor: type and shape, and its file and its first byte there."""

    dtype: str
    shape: tuple[int, ...]
    path: StrPath = field(default="", compare=False)
    start: int = field(default=0, compare=False)

    def read(self, file: BinaryIO) -> np.ndarray:
        """Read the tensor from its open file, as float32."""
        kind = np.dtype(_READ[self.dtype])
        file.seek(self.start)
        size_bytes = math.prod(self.shape) * kind.itemsize
        data = file.read(size_bytes)
        if len(data) != size_bytes:
            raise FileError(self.path, "was truncated while it was read", HINT)
        numbers = np.frombuffer(data, kind)
        if self.dtype == "BF16":  # the upper half of a float32
            wide = numbers.astype("<u4")
            wide <<= 16
            numbers = wide.view("<f4")
        return numbers.astype(np.float32, copy=False).reshape(self.shape)


def read_header(
    path: StrPath, content: BinaryIO | None = None, *, any_type: bool = False
) -> dict[str, TensorInfo]:
    """Return the tensors of a file by name, once their places and sizes fit the file.

    `content` is the open file, if it is open already. Only floating-point numbers are allowed,
    unless `any_type`.
    """
    with open_regular(path) if content is None else nullcontext(content) as file:
        file_bytes = file.seek(0, os.SEEK_END)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        if file_bytes < 8 or length > min(file_bytes - 8, MAX_HEADER_BYTES):
            problem = "is truncated or is not a safetensors file (its header does not fit into it)"
            raise FileError(path, problem, HINT)
        # Parsed JSON takes up to 20 times the memory of its text.
        if length > max(1 << 20, file_bytes // 8):
            raise FileError(path, f"has a header of {length:,} bytes for few weights", HINT)
        data = file.read(length)
    try:
        header = json.loads(data.decode("utf-8"), object_pairs_hook=unique_keys)
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        header.pop("__metadata__", None)
        places = sorted((_places(name, entry) for name, entry in header.items()), key=_by_place)
        begin = 0
        for name, _, _, first, last in places:
            if first != begin:
                raise ValueError(f"{short_repr(name)} overlaps another tensor or leaves a gap")
            begin = last
        if 8 + length + begin != file_bytes:
            raise ValueError(f"its tensors end at byte {8 + length + begin:,} of {file_bytes:,}")
    except (ValueError, RecursionError) as error:
        problem = f"is truncated or is not a safetensors file ({error})"
        raise FileError(path, problem, HINT) from None
    for name, dtype, *_ in places:
        if dtype not in _READ and not any_type:
            raise FileError(path, f"has {short_repr(name)} as {dtype}", "save it as float32")
    return {
        name: TensorInfo(dtype, shape, path, 8 + length + first)
        for name, dtype, shape, first, _ in places
    }


def _by_place(place: tuple[str, str, tuple[int, ...], int, int]) -> tuple[int, int]:
    return place[3], place[4]


def _places(name: str, entry: Any) -> tuple[str, str, tuple[int, ...], int, int]:  # noqa: ANN401, JSON
    """Return name, type, shape and offsets of a header entry; raise ValueError for others."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [first, last]}:
            numbers = [*shape, first, last]
        case _:
            raise ValueError(f"{short_repr(name)} has no type, shape and offsets")
    if any(type(each) is not int or not 0 <= each < 2**48 for each in numbers) or len(shape) > 8:
        raise ValueError(f"{short_repr(name)} has an impossible shape or offset")
    if dtype not in _WIDTHS:
        raise ValueError(f"{short_repr(name)} is of the unknown type {short_repr(dtype)}")
    # Python's integers do not overflow.
    if math.prod(shape) * _WIDTHS[dtype] != last - first:
        raise ValueError(f"{short_repr(name)} has a shape that differs from its size")
    return name, dtype, tuple(shape), first, last


def merged_headers(paths: Sequence[StrPath]) -> dict[str, TensorInfo]:
    """Return the tensors of all files by name; a name in two files is an error."""
    found: dict[str, TensorInfo] = {}
    for path in paths:
        for name, entry in read_header(path).items():
            if name in found:
                problem = f"has {short_repr(name)}, which {found[name].path} has too"
                raise FileError(path, problem, HINT)
            found[name] = entry
    return found


def load_weights(path: StrPath, data: bytes | None = None) -> dict[str, np.ndarray]:
    """Read all tensors of a file, or of its bytes `data`, as float32."""
    with open_regular(path) if data is None else BytesIO(data) as file:
        return {name: info.read(file) for name, info in read_header(path, file).items()}


def write_weights(file: BinaryIO, weights: Mapping[str, np.ndarray], dtype: Dtype) -> None:
    """Write float32 tensors as a safetensors file of one type.

    Values beyond the range of float16 are a ValueError: they would become infinite.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, array in weights.items():
        end = place + array.size * _BYTES[dtype]
        offsets = [place, end]
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(array.shape),
            "data_offsets": offsets,
        }
        place = end
    data = json.dumps(header, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)  # tensors begin at a multiple of 8
    file.write(len(data).to_bytes(8, "little") + data)
    for name, array in weights.items():
        file.write(rounded(name, array, dtype).tobytes())


def rounded(name: str, array: np.ndarray, dtype: Dtype) -> np.ndarray:
    """Round float32 numbers to a type, to nearest even; bfloat16 numbers are returned as uint16."""
    array = np.ascontiguousarray(array, "<f4")
    if dtype == "float32":
        return array
    if dtype == "float16":
        with np.errstate(over="ignore"):
            half = array.astype("<f2")
        if np.isinf(half).any() and not np.isinf(array).any():
            largest = np.abs(array).max()
            raise ValueError(
                f"{name} has the value {largest:g}, beyond the range of float16 (65,504); choose "
                "bfloat16 or float32."
            )
        return half
    bits = array.view("<u4")
    # Half of the last kept place, minus one if the last kept bit is 0: ties go to even. A NaN could
    # round to infinity, so it keeps its upper bits and becomes quiet.
    up = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
    up = np.where(np.isnan(array), bits | np.uint32(0x0040_0000), up)
    return (up >> 16).astype("<u2")
