"""Batches: correct windows, a reproducible order that is independent of ranks, reading ahead.

The order is compared with its definition in plain Python, splitmix64 with its published values.
"""

import gc
import itertools
import math
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilth.data import batches as module
from tilth.data.batches import BATCHES_AHEAD, Batches, get_batch, random_bits, shuffled

INTEGERS = [
    "i1",
    "i2",
    "i4",
    "i8",
    "u1",
    "u2",
    "u4",
    "u8",
    ">i2",
    ">i4",
    ">i8",
    ">u2",
    ">u4",
    ">u8",
]
THREAD_NAME = "tilth-batches"


def array(*numbers):
    return np.array(numbers, np.uint64)


def deviations(counts, degrees_of_freedom):
    """Return how many standard deviations the chi-square of equal counts is off its mean."""
    counts = np.asarray(counts, float)
    expected = counts.mean()
    chi_square = ((counts - expected) ** 2 / expected).sum()
    return (chi_square - degrees_of_freedom) / math.sqrt(2 * degrees_of_freedom)


def assert_windows(x, y, context_length):
    """Check that x and y are windows of np.arange, and return their starts."""
    starts = x[:, :1]
    assert x.dtype == y.dtype == torch.int64
    assert x.is_contiguous()
    assert y.is_contiguous()
    assert torch.equal(x, starts + torch.arange(context_length))
    assert torch.equal(y, x + 1)
    return starts.flatten().tolist()


@pytest.fixture
def batches():
    return Batches(np.arange(1000), 4, 8, seed=0)


# get_batch


@settings(max_examples=50)
@given(
    dtype=st.sampled_from(INTEGERS),
    context_length=st.integers(1, 20),
    num_starts=st.integers(1, 100),
    batch_size=st.integers(1, 40),
    kind=st.sampled_from(["array", "every second", "backwards", "list", "tensor"]),
)
def test_windows_of_any_integer_array(dtype, context_length, num_starts, batch_size, kind):
    num_tokens = num_starts + context_length
    tokens = np.arange(num_tokens).astype(dtype)
    if kind == "every second":
        tokens = np.repeat(tokens, 2)[::2]
    elif kind == "backwards":
        tokens = tokens[::-1].copy()[::-1]
    elif kind == "list":
        tokens = tokens.tolist()
    elif kind == "tensor":
        tokens = torch.from_numpy(tokens.astype(tokens.dtype.newbyteorder("=")))
    x, y = get_batch(tokens, batch_size, context_length, "cpu")
    assert x.shape == y.shape == (batch_size, context_length)
    assert all(0 <= start < num_starts for start in assert_windows(x, y, context_length))


def test_starts_are_uniform_from_the_first_to_the_last():
    torch.manual_seed(0)
    x, _ = get_batch(np.arange(60), 50_000, 10, "cpu")
    counts = np.bincount(x[:, 0])
    assert len(counts) == 50  # 0 to 60 - 10 - 1
    assert abs(deviations(counts, 49)) < 4


def test_a_large_range_is_as_uniform(monkeypatch):
    """32 random bits modulo 3 * 2**26 would take the first third in 22 of 64 cases."""
    drawn = []
    monkeypatch.setattr(module, "_gather", lambda _windows, starts, _device: drawn.append(starts))
    monkeypatch.setattr(module, "_to_device", lambda *_: None)
    torch.manual_seed(0)
    num_starts = 3 * 2**26
    get_batch(np.broadcast_to(np.uint16(7), num_starts + 1), 200_000, 1, "cpu")
    assert abs(deviations(np.bincount(drawn[0] // (num_starts // 3), minlength=3), 2)) < 4


def test_the_seed_of_torch_or_a_generator_reproduces_a_batch():
    def draw(**options):
        return get_batch(np.arange(1000), 8, 4, "cpu", **options)[0]

    torch.manual_seed(5)
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(first, draw())
    assert torch.equal(second, draw())
    state = torch.get_rng_state()
    assert torch.equal(first, draw(generator=torch.Generator().manual_seed(5)))
    assert torch.equal(state, torch.get_rng_state())


def test_a_memory_map_is_not_copied(tmp_path):
    """A sparse file of 2 TB: a copy of it, or of an index of it, would not end."""
    tokens = np.memmap(tmp_path / "tokens", np.uint16, mode="w+", shape=(10**12,))
    tokens[-3:] = 1, 2, 65535
    assert get_batch(tokens, 2, 1024, "cpu")[0].shape == (2, 1024)
    assert Batches(tokens, 4, 10**6, seed=0, order="epoch").num_windows == 999_999
    for order in ("random", "epoch"):
        x, y = Batches(tokens, 4, 1024, seed=0, order=order)[10**6]
        assert x.sum() == y.sum() == 0


@pytest.mark.parametrize(("wrong", "dtype"), [(300, np.uint16), (-1, np.int64)])
def test_an_id_outside_the_vocabulary_is_refused(wrong, dtype):
    tokens = np.arange(100, dtype=dtype)
    assert Batches(tokens, 4, 99, seed=0, vocab_size=100)[0][0].max() == 98
    tokens[50] = wrong
    with pytest.raises(ValueError, match=f"token id {wrong} is outside the vocabulary of 100; che"):
        Batches(tokens, 4, 99, seed=0, vocab_size=100)[0]
    assert wrong in Batches(tokens, 4, 99, seed=0)[0][0]


@pytest.mark.parametrize("draw", [get_batch, lambda *sizes: Batches(*sizes, seed=0)[0]])
def test_large_ids_are_kept(draw):
    x, y = draw(np.full(9, 2**32 - 1, np.uint32), 2, 8)
    assert x.unique().tolist() == y.unique().tolist() == [2**32 - 1]


@pytest.mark.parametrize("draw", [get_batch, lambda *sizes: Batches(*sizes, seed=0)])
@pytest.mark.parametrize(
    ("tokens", "batch_size", "context_length", "message"),
    [
        (np.arange(8), 2, 8, "8 tokens are too few for windows of 8 tokens .* at least 9"),
        ([], 2, 8, "0 tokens are too few for windows of 8 tokens"),
        (np.zeros((3, 9), int), 2, 8, r"shape \(3, 9\); give a flat array"),
        (np.zeros(9), 2, 8, "float64, not integers"),
        (np.zeros(9, bool), 2, 8, "bool, not integers"),
        (np.arange(9), 0, 8, "batch_size must be at least 1, not 0"),
        (np.arange(9), 2, 0, "context_length must be at least 1, not 0"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(draw, tokens, batch_size, context_length, message):
    with pytest.raises(ValueError, match=message):
        draw(tokens, batch_size, context_length)


@pytest.mark.parametrize("device", ["cuda:99", "nowhere"])
def test_a_missing_device_is_an_error_of_torch(device):
    with pytest.raises(RuntimeError, match=r"CUDA|nowhere"):
        get_batch(np.arange(9), 2, 8, device)
    with pytest.raises(RuntimeError, match=r"CUDA|nowhere"):
        Batches(np.arange(9), 2, 8, seed=0, device=device)


# The order


def plain_bits(key, counter):
    """splitmix64, in Python integers."""
    mask = 2**64 - 1
    z = (key + (counter + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def plain_shuffled(place, size, key):
    side = next(side for side in itertools.count(2, 2) if side * side >= size)
    while True:
        row, column = place // side, place % side
        for turn in range(12):
            addend = plain_bits(plain_bits(key, turn), column)
            row, column = column, (row + addend) % side
        place = row * side + column
        if place < size:
            return place


def plain_starts(num_tokens, batch_size, context_length, seed, order, number):
    num_windows = (num_tokens - 1) // context_length
    for position in range(number * batch_size, (number + 1) * batch_size):
        if order == "random":
            yield plain_bits(plain_bits(seed, 0), position) % (num_tokens - context_length)
        else:
            epoch, place = divmod(position, num_windows)
            key = plain_bits(plain_bits(seed, 1), epoch)
            yield context_length * plain_shuffled(place, num_windows, key)


def test_splitmix64_gives_its_published_values():
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert random_bits(array(0), array(0, 1, 2)).tolist() == first
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random_bits(array(1234567), array(0, 1, 2, 3)).tolist() == first


@settings(max_examples=50)
@given(
    num_windows=st.integers(1, 3000),
    more_tokens=st.integers(0, 6),
    context_length=st.integers(1, 7),
    batch_size=st.integers(1, 20),
    seed=st.integers(0, 2**64 - 1),
    order=st.sampled_from(["random", "epoch"]),
    number=st.integers(0, 1000) | st.integers(0, 2**58),
)
def test_the_order_equals_its_definition(
    num_windows, more_tokens, context_length, batch_size, seed, order, number
):
    num_tokens = num_windows * context_length + 1 + more_tokens % context_length
    batches = Batches(np.arange(num_tokens), batch_size, context_length, seed, order)
    assert batches.num_windows == num_windows
    expected = list(plain_starts(num_tokens, batch_size, context_length, seed, order, number))
    assert batches.starts(number).tolist() == expected
    x, y = batches[number]
    assert assert_windows(x, y, context_length) == expected


def test_the_order_never_changes():
    """A resumed run must read the same batches, with any version of tilth."""
    tokens = np.arange(100_001)
    random = Batches(tokens, 5, 10, seed=42, order="random")
    epoch = Batches(tokens, 5, 10, seed=42, order="epoch")
    assert random.starts(3).tolist() == [44147, 23532, 19689, 20362, 31982]
    assert epoch.starts(3).tolist() == [99330, 89160, 54290, 32690, 56360]


def test_random_starts_are_uniform_from_the_first_to_the_last():
    for seed in range(3):
        batches = Batches(np.arange(60), 5_000, 10, seed, "random")
        counts = np.bincount(np.concatenate([batches.starts(number) for number in range(10)]))
        assert len(counts) == 50
        assert abs(deviations(counts, 49)) < 4


def test_random_starts_are_independent():
    """Of the row before, the same row of the batch before, and the same row of the next seed."""
    first, second = (Batches(np.arange(13), 32, 3, seed, "random") for seed in (0, 1))
    rows = np.stack([first.starts(number) for number in range(2_000)])
    others = np.stack([second.starts(number) for number in range(2_000)])
    for before, after in (
        (rows[:, :-1], rows[:, 1:]),
        (rows[:-1], rows[1:]),
        (rows, others),
    ):
        counts = np.bincount((before * 10 + after).ravel(), minlength=100)
        assert abs(deviations(counts, 99)) < 4


SIDES = range(2, 71)
SIZES = sorted(
    {*range(1, 200), *range(200, 5001, 97)}
    | {side**2 + more for side in SIDES for more in (-1, 0, 1)}
)


def test_a_shuffle_is_a_permutation():
    for size in SIZES:
        order = shuffled(np.arange(size, dtype=np.uint64), size, array(size))
        assert np.array_equal(np.sort(order), np.arange(size)), size


def shuffles(size, count, seed=0):
    """Return many shuffles, one a row, with the keys of the epochs of one seed."""
    keys = random_bits(random_bits(array(seed), array(1)), np.arange(count, dtype=np.uint64))
    places = np.tile(np.arange(size, dtype=np.uint64), count)
    return shuffled(places, size, np.repeat(keys, size)).reshape(count, size).astype(np.int64)


@pytest.mark.parametrize("size", range(2, 7))
def test_every_shuffle_of_a_few_is_equally_frequent(size):
    codes = shuffles(size, 20_000) @ size ** np.arange(size)
    _, counts = np.unique(codes, return_counts=True)
    assert len(counts) == math.factorial(size)
    assert abs(deviations(counts, len(counts) - 1)) < 4


@pytest.mark.parametrize(("size", "count"), [(7, 10_000), (16, 60_000), (30, 10_000), (64, 4_000)])
def test_places_and_neighbours_are_uniform(size, count):
    orders = shuffles(size, count)
    pairs = np.arange(size) * size + orders  # (position, value at it)
    counts = np.bincount(pairs.ravel(), minlength=size**2)
    assert abs(deviations(counts, (size - 1) ** 2)) < 4
    steps = np.diff(orders, axis=1) % size
    assert abs(deviations(np.bincount(steps.ravel())[1:], size - 2)) < 4
    side = 2 * math.ceil(math.sqrt(size) / 2)
    for other in (1, min(side, size - 1)):  # the next in the row of the square, and in the column
        counts = np.bincount(orders[:, 0] * size + orders[:, other], minlength=size**2)
        different = counts[~np.eye(size, dtype=bool).ravel()]
        assert abs(deviations(different, len(different) - 1)) < 4


def test_a_large_shuffle_looks_shuffled():
    """Fixed points and kept neighbours come once on average; half of all steps go up."""
    size = 10_007
    orders = shuffles(size, 20)
    assert abs((orders == np.arange(size)).sum() - 20) < 4 * math.sqrt(20)
    assert abs((np.diff(orders) == 1).sum() - 20) < 4 * math.sqrt(20)
    ascents = (np.diff(orders) > 0).sum()
    assert abs(ascents - 20 * (size - 1) / 2) < 4 * math.sqrt(20 * (size + 1) / 12)
    correlations = [np.corrcoef(np.arange(size), order)[0, 1] for order in orders]
    correlations += [np.corrcoef(a, b)[0, 1] for a, b in itertools.pairwise(orders)]
    assert np.abs(correlations).max() < 4.5 / math.sqrt(size)


@pytest.mark.parametrize("size", [2**40, 10**12, 2**63 - 1, 2**63])
def test_a_shuffle_of_a_trillion_needs_no_list(size):
    places = np.concatenate([np.arange(50_000), size - 1 - np.arange(50_000)]).astype(np.uint64)
    found = shuffled(places, size, array(3))
    assert len(np.unique(found)) == len(places)
    assert found.max() < size
    assert abs(deviations(np.bincount((found // (size // 16 + 1)).astype(int)), 15)) < 4
    assert found[:3].tolist() == [plain_shuffled_large(place, size, 3) for place in range(3)]


def plain_shuffled_large(place, size, key):
    """`plain_shuffled`, except for the search of the side."""
    side = math.isqrt(size - 1) + 1
    side += side % 2
    while True:
        row, column = divmod(place, side)
        for turn in range(12):
            row, column = column, (row + plain_bits(plain_bits(key, turn), column)) % side
        place = row * side + column
        if place < size:
            return place


@pytest.mark.parametrize(
    ("num_tokens", "batch_size", "context_length"),
    [(100, 4, 3), (101, 7, 10), (11, 32, 10), (50, 100, 4)],
)
def test_an_epoch_shows_every_window_once(num_tokens, batch_size, context_length):
    batches = Batches(np.arange(num_tokens), batch_size, context_length, seed=3, order="epoch")
    num_windows = (num_tokens - 1) // context_length
    assert batches.num_windows == num_windows
    num_batches = math.ceil(5 * num_windows / batch_size)
    starts = np.concatenate([batches.starts(number) for number in range(num_batches)])
    epochs = starts[: 5 * num_windows].reshape(5, num_windows)
    expected = np.arange(num_windows) * context_length
    assert (np.sort(epochs, axis=1) == expected).all()
    assert expected[-1] + 2 * context_length + 1 > num_tokens  # one more would not fit


def test_epochs_and_seeds_have_different_orders():
    def epochs(seed):
        batches = Batches(np.arange(1001), 100, 10, seed, "epoch")
        return {tuple(batches.starts(number)) for number in range(50)}

    assert len(set.union(*map(epochs, range(10)))) == 500


# Sharing


@settings(max_examples=30)
@given(
    order=st.sampled_from(["random", "epoch"]),
    world_size=st.sampled_from([1, 2, 3, 4, 8]),
    units=st.integers(8, 24),
    unit=st.integers(1, 3),
    number=st.integers(0, 500),
)
def test_ranks_share_the_global_batch(order, world_size, units, unit, number):
    tokens, options = np.arange(1000), {"world_size": world_size, "unit": unit}
    whole = Batches(tokens, units * unit, 7, 11, order)[number]
    parts = [
        Batches(tokens, units * unit, 7, 11, order, rank=rank, **options)[number]
        for rank in range(world_size)
    ]
    for tensor, *shares in zip(whole, *parts, strict=True):
        sizes = [len(share) for share in shares]
        assert all(size % unit == 0 for size in sizes)
        assert max(sizes) - min(sizes) <= unit
        assert max(sizes) == sizes[-1]
        assert torch.equal(tensor, torch.cat(shares))


def test_microbatches_are_slices():
    """Two ranks with microbatches read the same rows as one, in the same order."""
    tokens = np.arange(1000)
    whole, _ = Batches(tokens, 8, 7, 11, "epoch")[5]
    parts = [Batches(tokens, 8, 7, 11, "epoch", rank=rank, world_size=2) for rank in (0, 1)]
    microbatches = [part[5][0].split(2) for part in parts]
    assert torch.equal(whole, torch.cat([x for part in microbatches for x in part]))


def read_in_a_process(file, order, rank, world_size):
    tokens = np.load(file, mmap_mode="r")
    batches = Batches(tokens, 8, 16, 1, order, rank=rank, world_size=world_size)
    return [x[:, 0].tolist() for x, _ in batches.read(start=70, stop=90)]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_processes_share_the_global_batch(tmp_path, batches):
    """Forked in the middle of a loop, whose thread they do not inherit."""
    file = tmp_path / "train.npy"
    np.save(file, np.arange(5000, dtype=np.uint16))
    loop = batches.read()
    next(loop)
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as executor:
        for order in ("random", "epoch"):
            alone = read_in_a_process(file, order, 0, 1)
            assert len(alone) == 20
            for world_size in (1, 2, 4):
                shares = [
                    executor.submit(read_in_a_process, file, order, rank, world_size)
                    for rank in range(world_size)
                ]
                rows = zip(*(share.result(timeout=60) for share in shares), strict=True)
                assert [[*itertools.chain(*parts)] for parts in rows] == alone
    loop.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"world_size": 5},
            "batch_size 4 cannot be divided among 5 processes; make it 5 or more",
        ),
        ({"unit": 3}, "in microbatches of 3, which parallel.exact adds whole; choose a smaller"),
        ({"world_size": 2, "rank": 2}, "rank must be below 2, not 2"),
        ({"world_size": 2, "rank": -1}, "rank must be at least 0, not -1"),
        ({"world_size": 0}, "world_size must be at least 1, not 0"),
        ({"order": "epochs"}, "order 'epochs' is unknown; choose one of epoch, random"),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"seed": 2**64}, f"seed must be below {2**64}, not {2**64}"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        Batches(np.arange(100), 4, 8, **{"seed": 0, **options})


def test_batches_are_numbered_from_zero():
    batches = Batches(np.arange(100), 4, 8, seed=0, order="epoch")
    last = 2**61 - 1
    assert batches[last][0].shape == (4, 8)
    for number, limit in ((-1, "at least 0"), (last + 1, f"below {last + 1}")):
        with pytest.raises(ValueError, match=f"number must be {limit}, not {number}"):
            batches[number]
        with pytest.raises(ValueError, match=f"number must be {limit}, not {number}"):
            batches.read(number)  # now, not when the first batch is asked for


def test_numpy_integers_are_accepted():
    sizes = [np.int64(4), np.int32(8), np.uint64(3)]
    batches = Batches(np.arange(100), *sizes, rank=np.int64(1), world_size=np.int64(2))
    expected = Batches(np.arange(100), 4, 8, 3, rank=1, world_size=2)
    assert torch.equal(batches[np.int64(5)][0], expected[5][0])


# Reading ahead


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


@pytest.fixture(autouse=True)
def _no_reader_is_left():
    """After every test: a loop that has ended, in any way, leaves no thread."""
    yield
    assert wait_until(lambda: not readers())


def wait_until(condition, seconds=10.0):
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.002)
    return True


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 50])
def test_reading_gives_the_batches_in_order(batches, length):
    found = list(batches.read(start=7, stop=7 + length))
    assert len(found) == length
    for number, (x, y) in enumerate(found, 7):
        assert torch.equal(x, batches[number][0])
        assert torch.equal(y, batches[number][1])
    assert list(batches.read(start=9, stop=3)) == []


def test_reading_never_ends(batches):
    for number, (x, _) in enumerate(batches.read()):
        assert torch.equal(x, batches[number][0])
        if number == 300:
            break


def test_the_thread_begins_with_the_first_batch(batches):
    loop = batches.read()
    assert not readers()
    next(loop)
    assert len(readers()) == 1
    loop.close()


def test_two_loops_are_independent(batches):
    for (x, _), (other, _) in zip(batches.read(0, 50), batches.read(1, 51), strict=True):
        assert not torch.equal(x, other)


class Watched(Batches):
    """Records the prepared batches, and fails at batch `fails_at`."""

    fails_at = None

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.prepared = []

    def _on_host(self, number):
        assert threading.current_thread().name.startswith(THREAD_NAME)
        if number == self.fails_at:
            raise OSError("the disk is gone")
        pair = super()._on_host(number)
        self.prepared.append(number)
        return pair


def test_the_thread_reads_ahead_and_not_too_far():
    batches = Watched(np.arange(1000), 4, 8, seed=0)
    loop = batches.read(start=5)
    for number in range(5, 20):
        next(loop)
        expected = list(range(5, number + BATCHES_AHEAD + 1))
        assert wait_until(lambda expected=expected: batches.prepared == expected)
    time.sleep(0.05)
    assert batches.prepared == expected
    loop.close()


@pytest.mark.parametrize("fails_at", [0, 1, 10])
def test_an_error_of_the_thread_is_raised_in_the_loop(fails_at):
    batches = Watched(np.arange(1000), 4, 8, seed=0)
    batches.fails_at = fails_at
    loop = batches.read()
    for _ in range(fails_at):
        next(loop)
    with pytest.raises(OSError, match="the disk is gone"):
        next(loop)
    with pytest.raises(StopIteration):
        next(loop)


@pytest.mark.parametrize("offset_bytes", [0, 128, 2**17])
def test_a_file_that_becomes_shorter_is_an_error(tmp_path, offset_bytes):
    """A read beyond the end of the file would be a SIGBUS."""
    file = tmp_path / "tokens"
    file.write_bytes(bytes(200_000 + offset_bytes))
    tokens = np.memmap(file, np.uint16, mode="r", offset=offset_bytes)
    batches = Watched(tokens[10:], 4, 8, seed=0)
    loop = batches.read()
    next(loop)
    assert wait_until(lambda: len(batches.prepared) == 1 + BATCHES_AHEAD)
    os.truncate(file, 100_000)
    for _ in range(BATCHES_AHEAD):
        next(loop)
    with pytest.raises(OSError, match="and now it has 100000; restore it, and resume"):
        next(loop)


def test_get_batch_from_a_truncated_file_is_an_error(tmp_path):
    """In a subprocess: a read beyond the end of the file is a SIGBUS."""
    program = """
import os, sys
import numpy as np
from tilth.data import get_batch
tokens = np.load(sys.argv[1], mmap_mode="r")
get_batch(tokens, 4, 8)
os.truncate(sys.argv[1], 200)
try:
    get_batch(tokens, 64, 8)
except OSError as error:
    print(error)
"""
    np.save(tmp_path / "tokens.npy", np.zeros(1_000_000, np.uint16))
    command = [sys.executable, "-c", program, str(tmp_path / "tokens.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "had 2000128 bytes, and now it has 200; restore it" in done.stdout


def test_the_thread_ends_when_the_loop_raises(batches):
    def consume():
        for _ in batches.read():
            raise KeyError("of the training step")

    with pytest.raises(KeyError):
        consume()


def test_the_thread_ends_when_the_loop_is_forgotten(batches):
    kept = [batches.read()]
    next(kept[0])
    kept.append(kept)  # a circle, which only the garbage collector undoes
    del kept
    gc.collect()


def test_the_garbage_collector_may_run_in_the_thread_itself():
    """It then closes the loop from the thread that the loop would wait for."""
    forgotten, collected = threading.Event(), []

    class Collecting(Batches):
        def starts(self, number):
            if number == 2:
                forgotten.wait(10)
                collected.append(gc.collect())
            return super().starts(number)

    gc.disable()
    try:
        kept = [Collecting(np.arange(1000), 4, 8, seed=0).read()]
        next(kept[0])
        kept.append(kept)
        del kept
        forgotten.set()
        assert wait_until(lambda: not readers())
    finally:
        gc.enable()
    assert collected[0] > 0


def test_the_interpreter_ends_in_the_middle_of_a_loop():
    program = """
import numpy as np
from tilth.data.batches import Batches
loop = Batches(np.arange(1000), 4, 8, seed=0).read()
kept = [loop, next(loop)]
kept.append(kept)
raise SystemExit(3)
"""
    command = [sys.executable, "-W", "error", "-c", program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (3, "")


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_memory(num_batches, batch_size, context_length):
    for order in ("random", "epoch"):
        batches = Batches(np.arange(100_000, dtype=np.uint16), batch_size, context_length, 0, order)
        for number, _ in enumerate(batches.read(stop=num_batches)):
            if number == num_batches // 10:
                before = resident_bytes()
        assert resident_bytes() - before < 4_000_000


def test_memory_stays_flat():
    check_memory(1_000, 32, 256)  # which are 131 MB


@pytest.mark.slow
def test_memory_stays_flat_over_a_million_batches():
    check_memory(1_000_000, 32, 256)


# CUDA


def test_copies_to_cuda_are_pinned_and_asynchronous(monkeypatch):
    """Without CUDA: checks the calls, not their effects."""
    calls = []
    empty = torch.empty

    def fake_empty(*arguments, pin_memory, **options):
        calls.append(pin_memory)
        return empty(*arguments, **options)

    class Fake:
        def to(self, device, non_blocking):
            calls.append((device.type, non_blocking))
            return "xy"

    monkeypatch.setattr(torch, "empty", fake_empty)
    windows = module._windows(np.arange(9), 8)
    for name in ("cpu", "cuda"):
        module._gather(windows, np.array([0]), torch.device(name))
        assert module._to_device(Fake(), torch.device(name)) == ("x", "y")
    assert calls == [False, ("cpu", False), True, ("cuda", True)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_reading_on_cuda_gives_the_same():
    tokens = np.arange(10_000)
    host, cuda = (Batches(tokens, 32, 256, 0, "epoch", device=name) for name in ("cpu", "cuda"))
    for (x, y), (cuda_x, cuda_y) in zip(host.read(stop=100), cuda.read(stop=100), strict=True):
        assert cuda_x.device.type == "cuda"
        assert torch.equal(x, cuda_x.cpu())
        assert torch.equal(y, cuda_y.cpu())
