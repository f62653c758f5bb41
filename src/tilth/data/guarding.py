"""Read token ids from a memory map without crashing when its file changes.

A read beyond the end of a mapped file is a SIGBUS, and an embedding has no row for an id outside
the vocabulary. `GuardedTokens` checks the size of the file before each read and the ids after it,
and raises an OSError or a ValueError instead.

>>> tokens = GuardedTokens(range(10))
>>> tokens[2:5]
array([2, 3, 4])
"""

from __future__ import annotations

from mmap import ALLOCATIONGRANULARITY, mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def check_tokens(tokens: ArrayLike) -> NDArray[Any]:
    """Return `tokens` as an array without a copy, if it is a flat array of integers."""
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise ValueError(f"The tokens have the shape {array.shape}; give a flat array of ids.")
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"The tokens are {array.dtype}, not integers; give an array of ids.")
    return array


class GuardedTokens:
    """An array of token ids, checked against `vocab_size` if given; slices are copies."""

    def __init__(self, tokens: ArrayLike, vocab_size: int | None = None) -> None:
        self._vocab_size = vocab_size
        self.array: NDArray[Any] = np.asarray(tokens)
        base: object = tokens
        first_byte = 0  # of the map, in the file
        while isinstance(base, np.ndarray):
            if isinstance(base, np.memmap):
                first_byte = base.offset - base.offset % ALLOCATIONGRANULARITY
            base = base.base
        self._file = base if isinstance(base, mmap) else None
        self._file_bytes = first_byte + len(self._file) if self._file is not None else 0

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, part: slice | NDArray[Any]) -> NDArray[Any]:
        self.check()
        found = np.array(self.array[part])
        self.check_ids(found)
        return found

    def check(self) -> None:
        """Raise OSError if the file of a memory map has become shorter."""
        if self._file is not None and self._file.size() < self._file_bytes:
            sizes = f"had {self._file_bytes} bytes, and now it has {self._file.size()}"
            raise OSError(f"The token file {sizes}; restore it, and resume.")

    def check_ids(self, ids: NDArray[Any]) -> None:
        """Raise ValueError if one of the ids is outside the vocabulary."""
        if self._vocab_size is None or not ids.size:
            return
        for token_id in (int(ids.min()), int(ids.max())):
            if not 0 <= token_id < self._vocab_size:
                problem = f"The token id {token_id} is outside the vocabulary of {self._vocab_size}"
                hint = "check the data folder with `tilth verify`, or tokenize again"
                raise ValueError(f"{problem}; {hint}.")
