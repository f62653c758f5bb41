"""splitmix64: its published values, for integers and arrays."""

import numpy as np

from tilth.data.splitmix64 import INCREMENT, MASK, splitmix64

PUBLISHED = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # of the seed 0


def test_published_values():
    seeds = [number * INCREMENT & MASK for number in range(3)]
    assert [splitmix64(seed) for seed in seeds] == PUBLISHED
    assert splitmix64(np.array(seeds, np.uint64)).tolist() == PUBLISHED


def test_large_integers():
    values = [MASK, MASK - 1, 2**63, 0]
    assert splitmix64(np.array(values, np.uint64)).tolist() == [splitmix64(v) for v in values]
