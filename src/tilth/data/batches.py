"""Batches: windows of token ids for the training steps, in a reproducible order.

The tokens are a 1-D array; a memory map is not copied, and shards of a data folder are not joined.
A batch is a pair (x, y) of int64 tensors of
shape (batch, context_length); y holds the token that follows each token of x. Batch n depends only
on the data, the seed and n, on every machine, so the state to resume from is the number of the next
batch.

>>> batches = Batches(range(100), batch_size=2, context_length=4, seed=0, order="epoch")
>>> x, y = batches[7]
>>> x.tolist()
[[52, 53, 54, 55], [16, 17, 18, 19]]
>>> y.tolist()
[[53, 54, 55, 56], [17, 18, 19, 20]]
>>> [x[:, 0].tolist() for x, y in batches.read(start=6, stop=9)]
[[56, 68], [52, 16], [88, 12]]
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from tilth.config.training import Order
from tilth.data.guarding import GuardedTokens, ShardedTokens, check_tokens
from tilth.data.splitmix64 import INCREMENT, splitmix64
from tilth.schema import Range, check_choice, check_int

if TYPE_CHECKING:
    from jaxtyping import Int64, Integer
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    Numbers = NDArray[np.uint64]
    Pair = tuple[Int64[Tensor, "rows context"], Int64[Tensor, "rows context"]]

BATCHES_AHEAD = 2  # one ready and one in preparation
STREAMS: dict[Order, int] = {"random": 0, "epoch": 1}  # of random numbers: one for each order
POSITIONS = 2**63  # rows of an order: more than a training can read
# Feistel rounds of a shuffle. After 10, the neighbours in 60,000 shuffles of 16 numbers still fail
# a chi-square test (4.3 deviations off); 12 pass every test, at sizes from 2 to 100.
ROUNDS = 12


def get_batch(
    tokens: ArrayLike | ShardedTokens,
    batch_size: int,
    context_length: int,
    device: torch.device | str | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Pair:
    """Return (x, y): windows drawn uniformly from `tokens`, and the windows shifted by one token.

    Of n tokens, a window of m begins at 0 to n - m - 1. The starts come from `generator`, by
    default torch's global CPU generator, so `torch.manual_seed` reproduces them. A memory map whose
    file has become shorter is an OSError.
    """
    batch_size = check_int("batch_size", batch_size)
    device = _check_device(device)
    windows = _windows(tokens, context_length)
    GuardedTokens(tokens).check()
    # 63 bits: torch.randint takes 32 for a small range, and prefers some of 10**8 starts by 2%.
    bits = torch.empty(batch_size, dtype=torch.int64, device="cpu").random_(generator=generator)
    return _to_device(_gather(windows, (bits % len(windows)).numpy(), device), device)


class Batches:
    """Batches by number; with `rank` and `world_size`, the part of one process.

    `order="random"` draws every row from all windows of the data, with replacement. `order="epoch"`
    cuts the data into windows that do not overlap: window k begins at token k * context_length, and
    fewer than context_length tokens after the last window are left out. Each window is visited once
    an epoch, in another order every epoch; a batch may end one epoch and begin the next.

    `batch_size` is the global batch size: rank r of w takes the r-th of w parts, of which some have
    `unit` rows more than others if they cannot be equal. So neither the number of processes nor the
    number of microbatches changes the rows of a step. With a `vocab_size`, a token id outside the
    vocabulary is a ValueError.
    """

    def __init__(
        self,
        data: ArrayLike | ShardedTokens,
        batch_size: int,
        context_length: int,
        seed: int,
        order: Order = "random",
        *,
        rank: int = 0,
        world_size: int = 1,
        unit: int = 1,
        device: torch.device | str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        self.batch_size = check_int("batch_size", batch_size)
        self.context_length = check_int("context_length", context_length)
        self.seed = check_int("seed", seed, Range(at_least=0, below=2**64))
        self.order = check_choice("order", order, get_args(Order))
        self.world_size = check_int("world_size", world_size)
        self.rank = check_int("rank", rank, Range(at_least=0, below=self.world_size))
        self._rows = rows_of_rank(self.batch_size, self.rank, self.world_size, unit)
        self.device = _check_device(device)
        self._windows = _windows(data, self.context_length)
        self.num_tokens = len(self._windows) + self.context_length
        self._tokens = GuardedTokens(data, vocab_size)
        stream = np.array([STREAMS[order]], np.uint64)
        self._key = random_bits(np.array([self.seed], np.uint64), stream)

    @property
    def num_windows(self) -> int:
        """The number of windows of an epoch, which do not overlap."""
        return (self.num_tokens - 1) // self.context_length  # the last token is only a target

    def starts(self, number: int) -> Int64[np.ndarray, " rows"]:
        """Return the index of the first token of each row of batch `number`."""
        number = self._checked(number)
        first = number * self.batch_size
        position = np.arange(first + self._rows.start, first + self._rows.stop, dtype=np.uint64)
        if self.order == "random":
            # The bias of the modulo is at most 2**-64.
            start = random_bits(self._key, position) % len(self._windows)
        else:
            epoch, place = np.divmod(position, self.num_windows)
            window = shuffled(place, self.num_windows, random_bits(self._key, epoch))
            start = window * self.context_length
        return start.astype(np.int64)

    def __getitem__(self, number: int) -> Pair:
        return _to_device(self._on_host(number), self.device)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Pair]:
        """Yield the batches from `start` up to, not including, `stop`, or without end.

        A thread prepares the next two batches while the caller works. It starts with the first
        batch and ends with the loop, however that ends; its errors are raised here. A forked
        process does not inherit it, and must call `read` again.
        """
        start = self._checked(start)
        return self._read(itertools.count(start) if stop is None else range(start, stop))

    def _read(self, numbers: Iterable[int]) -> Iterator[Pair]:
        # The loop submits every task, so the thread can neither run ahead of it nor outlive it.
        reader = ThreadPoolExecutor(1, thread_name_prefix="tilth-batches")
        pending: deque[Future[Tensor]] = deque()
        try:
            for number in numbers:
                pending.append(reader.submit(self._on_host, number))
                if len(pending) > BATCHES_AHEAD:
                    yield _to_device(pending.popleft().result(), self.device)
            while pending:
                yield _to_device(pending.popleft().result(), self.device)
        finally:
            # Without waiting: an abandoned loop is closed by the garbage collector, which may run
            # in the reader thread.
            reader.shutdown(wait=False, cancel_futures=True)

    def _on_host(self, number: int) -> Int64[Tensor, "2 rows context"]:
        self._tokens.check()
        pair = _gather(self._windows, self.starts(number), self.device)
        self._tokens.check_ids(pair.numpy())
        return pair

    def _checked(self, number: int) -> int:
        return check_int("number", number, Range(at_least=0, below=POSITIONS // self.batch_size))


def random_bits(key: Numbers, counter: Numbers) -> Numbers:
    """Return output number `counter` (from 0) of the generator splitmix64 seeded with `key`.

    A counter-based generator: any output is computed alone. Both are arrays: NumPy warns of the
    overflow of a scalar, and here the overflow is intended.
    """
    return splitmix64(key + counter * INCREMENT)


def shuffled(place: Numbers, size: int, key: Numbers) -> Numbers:
    """Return the number at each place of range(size), shuffled by `key`; any place alone.

    A Feistel network on a square: write the numbers below `size` into it row by row. A round adds
    to a number's row a random number that depends on its column only, modulo the side, then swaps
    row and column.

    Lemma: a round is a permutation. Proof: the result contains the old column, which determines the
    added number; subtract it to get the old row.

    If the square is larger than `size`, a number that lands outside goes through the network again
    until it is inside (cycle walking). Lemma: the result is a permutation of range(size). Proof:
    each number moves along its cycle of the network to the next member inside, and no two numbers
    inside have the same next member.
    """
    assert 0 < size <= POSITIONS
    # The smallest even side. An odd side gives permutations of one parity only: of the orders of 5
    # numbers, every second came 1.8 times as often as the others.
    side = 2 * (math.isqrt((size - 1) // 4) + 1)
    found = _permuted(place, side, key)
    while (outside := found >= size).any():
        found = np.where(outside, _permuted(found, side, key), found)
    return found


def _permuted(number: Numbers, side: int, key: Numbers) -> Numbers:
    """Permute the numbers of a square."""
    row, column = np.divmod(number, side)
    for round_key in random_bits(key, np.arange(ROUNDS, dtype=np.uint64)[:, None]):
        addend = random_bits(round_key, column) % side  # before it is added: no sum overflows
        row, column = column, (row + addend) % side
    return row * side + column


def rows_of_rank(batch_size: int, rank: int, world_size: int, unit: int = 1) -> range:
    """Return the rows of a batch that a rank takes: a multiple of `unit`, and at least one unit.

    The last rank has the most rows.

    >>> [rows_of_rank(8, rank, 3) for rank in range(3)]
    [range(0, 2), range(2, 5), range(5, 8)]
    """
    parts, rest = divmod(batch_size, unit)
    if rest or parts < world_size:
        problem = f"batch_size {batch_size} cannot be divided among {world_size} processes"
        hint = f"; make it {world_size} or more."
        if unit > 1:
            hint = (
                f" in microbatches of {unit}, which parallel.exact adds whole; choose a smaller "
                "microbatch_size that divides it, and keep it for any number of processes."
            )
        raise ValueError(problem + hint)
    first, stop = (unit * (parts * number // world_size) for number in (rank, rank + 1))
    return range(first, stop)


class _ShardedWindows:
    """Every window of a number of tokens; a window may cross shards."""

    def __init__(self, tokens: ShardedTokens, length: int) -> None:
        self._tokens = tokens
        self.shape = (len(tokens) - length + 1, length)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, starts: Int64[np.ndarray, " rows"]) -> Integer[np.ndarray, "rows length"]:
        rows = np.empty((len(starts), self.shape[1]), self._tokens.dtype)
        for row, start in zip(rows, starts.tolist(), strict=True):
            row[:] = self._tokens[start : start + len(row)]
        return rows


def _windows(
    tokens: ArrayLike | ShardedTokens, context_length: int
) -> Integer[np.ndarray, "starts context+1"] | _ShardedWindows:
    """Return a view of every window of context_length tokens and the next one; no copy."""
    array = check_tokens(tokens)
    context_length = check_int("context_length", context_length)
    if len(array) <= context_length:
        raise ValueError(
            f"{len(array)} tokens are too few for windows of {context_length} tokens and the next "
            f"one; give at least {context_length + 1}, or a smaller context_length."
        )
    if isinstance(array, ShardedTokens):
        return _ShardedWindows(array, context_length + 1)
    return sliding_window_view(array, context_length + 1)


def _gather(
    windows: Integer[np.ndarray, "starts context+1"] | _ShardedWindows,
    starts: Int64[np.ndarray, " rows"],
    device: torch.device,
) -> Int64[Tensor, "2 rows context"]:
    """Copy x and y into one CPU tensor, pinned if its destination is CUDA."""
    # Gathered first, then cast: 32 x 256 of uint16 take 37 µs. An index of every token takes 51 µs,
    # slices row by row into the result 69 to 85 µs, a stack of small tensors 245 µs.
    chosen = windows[starts]
    shape = (2, len(starts), windows.shape[1] - 1)
    pin = device.type == "cuda"
    pair = torch.empty(shape, dtype=torch.int64, device="cpu", pin_memory=pin)
    x, y = pair.numpy()
    x[:] = chosen[:, :-1]
    y[:] = chosen[:, 1:]
    return pair


def _to_device(pair: Int64[Tensor, "2 rows context"], device: torch.device) -> Pair:
    # In the caller's thread: the copy is in the caller's CUDA stream, before the kernels that use
    # it. torch keeps pinned memory, and no other, until such a copy is over.
    x, y = pair.to(device, non_blocking=device.type == "cuda")
    return x, y


def _check_device(device: torch.device | str | None) -> torch.device:
    try:
        return torch.empty(0, device="cpu").to("cpu" if device is None else device).device
    except AssertionError as error:  # torch without CUDA; with CUDA, it is a RuntimeError
        raise RuntimeError(str(error)) from error
