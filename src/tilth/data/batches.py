"""Batches: an array of token ids to the windows that a training step reads, in a known order.

What enters: a 1-D array of token ids (a memory map is not copied), sizes and a seed. What leaves:
pairs (x, y) of int64 tensors of shape (batch, context_length), where y holds the token that follows
each token of x. Batch number n depends on the data, the seed and n alone, on every machine, so the
state to resume from is a value: the number of the next batch.

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
import operator
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

from tilth.config.training import Order
from tilth.data.guarding import GuardedTokens

if TYPE_CHECKING:
    from jaxtyping import Int64, Integer
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    Numbers = NDArray[np.uint64]
    Pair = tuple[Int64[Tensor, "rows context"], Int64[Tensor, "rows context"]]

BATCHES_AHEAD = 2  # one ready and one in the making, and little to hold
STREAMS: dict[Order, int] = {"random": 0, "epoch": 1}  # the orders draw on different ones
POSITIONS = 2**63  # rows that an order has, which is more than anyone reads
# Of a shuffle. After 10, the neighbours in 60,000 shuffles of 16 numbers still fail a chi-square
# test (4.3 deviations off); 12 pass every test that we have, at sizes from 2 to 100.
ROUNDS = 12


def get_batch(
    tokens: ArrayLike,
    batch_size: int,
    context_length: int,
    device: torch.device | str | None = None,
    *,
    generator: torch.Generator | None = None,
) -> Pair:
    """Draw windows uniformly from all of `tokens`, and the tokens that follow theirs.

    Of n tokens, a window of m begins at 0 to n - m - 1. torch's generator of the CPU draws (or
    `generator`), so `torch.manual_seed` repeats it; `Batches` needs no such hidden state.
    """
    batch_size, context_length = _counts(batch_size=batch_size, context_length=context_length)
    device = _existing(device)
    windows = _windows(tokens, context_length)
    # 63 bits: torch.randint takes 32 for a small range, and prefers some of 10**8 starts by 2%.
    bits = torch.empty(batch_size, dtype=torch.int64, device="cpu").random_(generator=generator)
    return _deliver(_gather(windows, (bits % len(windows)).numpy(), device), device)


class Batches:
    """Batches by number; with `rank` and `world_size`, one process's part of each.

    `order="random"` draws every row from all windows of the data, with replacement. `order="epoch"`
    cuts the data into windows that do not overlap: number k reads the tokens from k *
    context_length on, and the fewer than context_length tokens after the last are left out. Each is
    visited once an epoch, every epoch in another order; a batch may end one and begin the next.

    `batch_size` counts the rows of all processes together: rank r of w takes the r-th of w equal
    parts. So neither the number of processes nor a cut into microbatches changes what a step reads.
    With a `vocab_size`, a batch that holds another id is a ValueError.
    """

    def __init__(
        self,
        data: ArrayLike,
        batch_size: int,
        context_length: int,
        seed: int,
        order: Order = "random",
        *,
        rank: int = 0,
        world_size: int = 1,
        device: torch.device | str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        batch_size, context_length, world_size = _counts(
            batch_size=batch_size, context_length=context_length, world_size=world_size
        )
        seed, rank = operator.index(seed), operator.index(rank)
        if not 0 <= seed < 2**64:
            raise ValueError(f"The seed is {seed}; give one from 0 to 2**64 - 1.")
        if order not in get_args(Order):
            raise ValueError(f"There is no order {order!r}; choose 'random' or 'epoch'.")
        if not 0 <= rank < world_size:
            raise ValueError(
                f"There is no rank {rank} among {world_size} processes; count from 0 to "
                f"{world_size - 1}."
            )
        if batch_size % world_size:
            raise ValueError(
                f"A batch of {batch_size} rows has no {world_size} equal parts; make batch_size a "
                f"multiple of the {world_size} processes."
            )
        self.batch_size = batch_size
        self.context_length = context_length
        self.seed = seed
        self.order = order
        self.rank = rank
        self.world_size = world_size
        self.device = _existing(device)
        self._windows = _windows(data, context_length)
        self.num_tokens = len(self._windows) + context_length
        self._tokens = GuardedTokens(data, vocab_size)
        stream = np.array([STREAMS[order]], np.uint64)
        self._key = random_bits(np.array([seed], np.uint64), stream)

    @property
    def num_windows(self) -> int:
        """The windows that do not overlap: those of an epoch."""
        return (self.num_tokens - 1) // self.context_length  # the last token is only a target

    @property
    def batches_per_epoch(self) -> int:
        """The batches that show every window of an epoch, the last of them perhaps with some more.

        In random order, those that read as many tokens.
        """
        return -(-self.num_windows // self.batch_size)

    def starts(self, number: int) -> Int64[np.ndarray, " rows"]:
        """Where in the data the rows of batch `number` begin."""
        number = self._checked(number)
        num_rows = self.batch_size // self.world_size
        first = number * self.batch_size + self.rank * num_rows
        position = np.arange(first, first + num_rows, dtype=np.uint64)
        if self.order == "random":
            # Of 2**64 values each start has as many as another, or one more: no probability is off
            # by more than 2**-64.
            start = random_bits(self._key, position) % len(self._windows)
        else:
            epoch, place = np.divmod(position, self.num_windows)
            window = shuffled(place, self.num_windows, random_bits(self._key, epoch))
            start = window * self.context_length
        return start.astype(np.int64)

    def __getitem__(self, number: int) -> Pair:
        return _deliver(self._on_host(number), self.device)

    def read(self, start: int = 0, stop: int | None = None) -> Iterator[Pair]:
        """Yield batch `start` and those that follow, up to `stop` (without it) or without end.

        A thread prepares the next two while the caller works. It begins with the first batch and
        ends with the loop, however that ends; an error in it is raised here. A forked process does
        not have it, and begins a loop of its own.
        """
        start = self._checked(start)
        return self._read(itertools.count(start) if stop is None else range(start, stop))

    def _read(self, numbers: Iterable[int]) -> Iterator[Pair]:
        # The loop hands out every task, so the thread can neither run ahead of it nor outlive it:
        # there is no queue that fills up and nobody who waits for room in it.
        reader = ThreadPoolExecutor(1, thread_name_prefix="tilth-batches")
        pending: deque[Future[Tensor]] = deque()
        try:
            for number in numbers:
                pending.append(reader.submit(self._on_host, number))
                if len(pending) > BATCHES_AHEAD:
                    yield _deliver(pending.popleft().result(), self.device)
            while pending:
                yield _deliver(pending.popleft().result(), self.device)
        finally:
            # Without waiting: an abandoned loop is closed by the garbage collector, which may run
            # in the reader's own thread.
            reader.shutdown(wait=False, cancel_futures=True)

    def _on_host(self, number: int) -> Int64[Tensor, "2 rows context"]:
        self._tokens.check()
        pair = _gather(self._windows, self.starts(number), self.device)
        self._tokens.check_ids(pair.numpy())
        return pair

    def _checked(self, number: int) -> int:
        number = operator.index(number)
        end = POSITIONS // self.batch_size
        if not 0 <= number < end:
            raise ValueError(f"There is no batch {number}; count from 0 to {end - 1}.")
        return number


def random_bits(key: Numbers, counter: Numbers) -> Numbers:
    """Return output number `counter` (from 0) of splitmix64 started at `key`.

    A generator without a state: any output is computed alone, and the same everywhere. Both are
    arrays, as NumPy warns of the overflow of a scalar, and here the overflow is meant.
    """
    bits: Numbers = key + (counter + 1) * 0x9E3779B97F4A7C15
    bits ^= bits >> 30
    bits *= 0xBF58476D1CE4E5B9
    bits ^= bits >> 27
    bits *= 0x94D049BB133111EB
    bits ^= bits >> 31
    return bits


def shuffled(place: Numbers, size: int, key: Numbers) -> Numbers:
    """Return what stands at each place of range(size) once it is shuffled by `key`.

    A shuffle without a list: any place is computed alone. Write the numbers below `size` into a
    square, row by row. A round of a Feistel network adds to a number's row something that depends
    on its column only, modulo the side, then swaps row and column. Whoever sees the result knows
    the column, so can take off what was added: no two numbers ever meet, whatever that is. Rounds
    of random additions scatter them over the square.

    The square may be larger than `size`. A number that lands outside goes through the network again
    until it is inside. It follows its cycle to the next member that is inside, and no other number
    inside has the same next: again no two meet.
    """
    assert 0 < size <= POSITIONS
    # The smallest even side. An odd one shuffles its square only in ways of one parity: of the
    # orders of 5 numbers, every second came 1.8 times as often as the others.
    side = 2 * (math.isqrt((size - 1) // 4) + 1)
    found = _scattered(place, side, key)
    while (outside := found >= size).any():
        found = np.where(outside, _scattered(found, side, key), found)
    return found


def _scattered(number: Numbers, side: int, key: Numbers) -> Numbers:
    """Send the numbers of a square to each other, one to one."""
    row, column = np.divmod(number, side)
    for round_key in random_bits(key, np.arange(ROUNDS, dtype=np.uint64)[:, None]):
        addend = random_bits(round_key, column) % side  # before it is added: no sum overflows
        row, column = column, (row + addend) % side
    return row * side + column


def _windows(tokens: ArrayLike, context_length: int) -> Integer[np.ndarray, "starts context+1"]:
    """View every window of context_length tokens and the one after; nothing is copied."""
    array = np.asarray(tokens)
    if array.ndim != 1:
        raise ValueError(f"The tokens have the shape {array.shape}; give a flat array of ids.")
    if len(array) <= context_length:
        raise ValueError(
            f"{len(array)} tokens are too few for windows of {context_length} tokens and the one "
            f"after; give at least {context_length + 1}, or a smaller context_length."
        )
    if array.dtype.kind not in "iu":
        raise ValueError(f"The tokens are {array.dtype}, not integers; give an array of ids.")
    return sliding_window_view(array, context_length + 1)


def _gather(
    windows: Integer[np.ndarray, "starts context+1"],
    starts: Int64[np.ndarray, " rows"],
    device: torch.device,
) -> Int64[Tensor, "2 rows context"]:
    """Copy x and y into one tensor of the host, pinned if it goes on to CUDA."""
    # Gathered first, then cast: 32 x 256 of uint16 take 37 µs. An index of every token takes 51,
    # slices row by row into the result 69 to 85, a stack of small tensors 245.
    chosen = windows[starts]
    shape = (2, len(starts), windows.shape[1] - 1)
    pin = device.type == "cuda"
    pair = torch.empty(shape, dtype=torch.int64, device="cpu", pin_memory=pin)
    x, y = pair.numpy()
    x[:] = chosen[:, :-1]
    y[:] = chosen[:, 1:]
    return pair


def _deliver(pair: Int64[Tensor, "2 rows context"], device: torch.device) -> Pair:
    # In the caller's thread, so that the copy stands in the caller's stream, before what uses it.
    # torch keeps pinned memory, and no other, until such a copy is over.
    x, y = pair.to(device, non_blocking=device.type == "cuda")
    return x, y


def _existing(device: torch.device | str | None) -> torch.device:
    try:
        return torch.empty(0, device="cpu").to("cpu" if device is None else device).device
    except AssertionError as error:  # of a torch without CUDA; with it, this is a RuntimeError
        raise RuntimeError(str(error)) from error


def _counts(**values: int) -> list[int]:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; make it 1 or more.")
    return [operator.index(value) for value in values.values()]
