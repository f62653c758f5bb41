"""nanoGPT's token files (`train.bin`, `val.bin`): 16-bit little-endian ids without a header.

`load_bin` maps a file into memory, `save_bin` writes one.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     save_bin([15496, 995, 50256], f"{folder}/train.bin")
...     load_bin(f"{folder}/train.bin").tolist()
[15496, 995, 50256]
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from tilth.data.guarding import check_tokens
from tilth.files import FileError, StrPath, atomic_write, open_regular

if TYPE_CHECKING:
    from jaxtyping import Integer
    from numpy.typing import ArrayLike, DTypeLike

LARGEST_ID = 2**16 - 1
BLOCK_TOKENS = 2**20  # converted at once


def load_bin(path: StrPath, dtype: DTypeLike = np.uint16) -> Integer[np.memmap, " tokens"]:
    """Map a file of ids into memory, read-only; the file does not say its `dtype`."""
    dtype = np.dtype(dtype).newbyteorder("<")
    if dtype.kind not in "iu":
        raise ValueError(f"{dtype.name} is not an integer dtype; give the dtype of the ids.")
    with open_regular(path) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        if size_bytes == 0:
            raise FileError(path, "holds no tokens", "make it again, or restore a copy")
        if size_bytes % dtype.itemsize:
            problem = f"has {size_bytes} bytes, not a whole number of {dtype.name} ids"
            raise FileError(path, problem, "restore a copy, or give the dtype of its ids")
        return np.memmap(file, dtype=dtype, mode="r")


def save_bin(tokens: ArrayLike, path: StrPath, *, overwrite: bool = False) -> None:
    """Write ids as 16-bit numbers; a larger id is a ValueError, and no file is written."""
    array = check_tokens(tokens)
    if len(array) == 0:
        raise ValueError(f"There are no tokens to write to {path}; give at least one.")
    with atomic_write(path, overwrite=overwrite) as file:
        for start in range(0, len(array), BLOCK_TOKENS):
            block = array[start : start + BLOCK_TOKENS]
            for token_id in (block.min(), block.max()):
                if not 0 <= token_id <= LARGEST_ID:
                    problem = f"The id {token_id} does not fit in the 16 bits of {path}"
                    raise ValueError(f"{problem}; save the ids as .npy.")
            file.write(block.astype("<u2").tobytes())
