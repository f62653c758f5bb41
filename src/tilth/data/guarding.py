"""Token ids from a memory map, read without the risk that a changed file ends the process.

The system answers a read behind the end of a mapped file with SIGBUS, and an embedding has no row
for an id outside the vocabulary. `GuardedTokens` compares the size of the file before each read and
the ids after it, and raises an OSError or a ValueError instead.

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


class GuardedTokens:
    """An array of token ids, of a vocabulary of `vocab_size` if given; slices of it are copies."""

    def __init__(self, tokens: ArrayLike, vocab_size: int | None = None) -> None:
        self._vocab_size = vocab_size
        self.array: NDArray[Any] = np.asarray(tokens)
        base: object = tokens
        first_byte = 0  # of the file that is mapped
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
        """Raise OSError if the file behind a memory map has become shorter."""
        if self._file is not None and self._file.size() < self._file_bytes:
            raise OSError(
                f"The file of the tokens had {self._file_bytes} bytes, and now it has "
                f"{self._file.size()}; restore it, and resume."
            )

    def check_ids(self, ids: NDArray[Any]) -> None:
        """Raise ValueError if one of the ids is outside the vocabulary."""
        if self._vocab_size is None or not ids.size:
            return
        for token_id in (int(ids.min()), int(ids.max())):
            if not 0 <= token_id < self._vocab_size:
                raise ValueError(
                    f"The token id {token_id} is outside the vocabulary of {self._vocab_size}; "
                    "check the data folder with `tilth verify`, or tokenize again."
                )
