"""Read token ids from memory maps without crashing when a file changes.

A read beyond the end of a mapped file is a SIGBUS, and an embedding has no row for an id outside
the vocabulary. `GuardedTokens` checks the size of the file before each read and the ids after it,
and raises an OSError or a ValueError instead. `ShardedTokens` reads several files as one array.

>>> tokens = GuardedTokens(range(10))
>>> tokens[2:5]
array([2, 3, 4])
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from mmap import ALLOCATIONGRANULARITY, mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

OPEN_SHARDS = 64  # memory maps of a ShardedTokens at a time


def check_tokens(tokens: ArrayLike | ShardedTokens) -> NDArray[Any] | ShardedTokens:
    """Return `tokens` as an array without a copy, if it is a flat array of integers."""
    if isinstance(tokens, ShardedTokens):
        return tokens
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise ValueError(f"The tokens have the shape {array.shape}; give a flat array of ids.")
    if array.dtype.kind not in "iu" and array.size:
        raise ValueError(f"The tokens are {array.dtype}, not integers; give an array of ids.")
    return array


class GuardedTokens:
    """An array of token ids, checked against `vocab_size` if given; slices are copies."""

    def __init__(self, tokens: ArrayLike | ShardedTokens, vocab_size: int | None = None) -> None:
        self._vocab_size = vocab_size
        self.array: NDArray[Any] | ShardedTokens = (
            tokens if isinstance(tokens, ShardedTokens) else np.asarray(tokens)
        )
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


class ShardedTokens:
    """Token ids in shards of `shard_tokens` each, the last one shorter, read as one array.

    A shard is opened when it is read, and the `OPEN_SHARDS` that were read last stay open. A read
    is a copy, guarded as by `GuardedTokens`. `np.asarray` joins all shards in memory.

    >>> shards = [np.array([7, 8, 9]), np.array([10])]
    >>> tokens = ShardedTokens(shards.__getitem__, 3, 4, "int64")
    >>> len(tokens), tokens[1:4], tokens[3]
    (4, array([ 8,  9, 10]), np.int64(10))
    """

    ndim = 1

    def __init__(
        self,
        open_shard: Callable[[int], NDArray[Any]],
        shard_tokens: int,
        length: int,
        dtype: DTypeLike,
    ) -> None:
        self._shard = functools.lru_cache(OPEN_SHARDS)(lambda n: GuardedTokens(open_shard(n)))
        self._shard_tokens = shard_tokens
        self.shape = (length,)
        self.dtype = np.dtype(dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice | int | NDArray[Any]) -> NDArray[Any]:
        if not isinstance(part, slice):
            return self._take(np.asarray(part))
        start, stop, step = part.indices(len(self))
        if step != 1:
            return self._take(np.arange(start, stop, step))
        found, size = [np.empty(0, self.dtype)], self._shard_tokens
        while start < stop:
            shard, first = divmod(start, size)
            found.append(self._shard(shard)[first : min(size, first + stop - start)])
            start = (shard + 1) * size
        return found[1] if len(found) == 2 else np.concatenate(found)

    def _take(self, index: NDArray[Any]) -> NDArray[Any]:
        """Return the ids at an index or at each of an array of them."""
        if index.dtype.kind not in "iu" and index.size:
            raise TypeError("Token ids are read by a slice, an integer or an array of integers.")
        place = np.where(index < 0, index + len(self), index).astype(np.int64)
        if ((place < 0) | (place >= len(self))).any():
            raise IndexError(f"an index is outside the {len(self):,} tokens")
        shard, place = np.divmod(place, self._shard_tokens)
        found = np.empty(index.shape, self.dtype)
        for number in np.unique(shard).tolist():
            here = shard == number
            found[here] = self._shard(number)[place[here]]
        return found[()]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("An array of several shards is a copy.")
        return self[:].astype(self.dtype if dtype is None else dtype, copy=False)

    def tolist(self) -> list[int]:
        """Return all ids."""
        ids: list[int] = self[:].tolist()
        return ids
