"""splitmix64 (Steele et al. 2014): a hash of 64-bit numbers, the same on every machine.

>>> hex(splitmix64(0))
'0xe220a8397b1dcdaf'
>>> splitmix64(np.array([0], np.uint64)).tolist() == [splitmix64(0)]
True
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

INCREMENT = 0x9E3779B97F4A7C15
MASK = 2**64 - 1

Bits = TypeVar("Bits", int, NDArray[np.uint64])


def splitmix64(bits: Bits) -> Bits:
    """Return the hash of an int below 2**64, or of each number of an array of uint64."""
    mixed: Any = (bits + INCREMENT) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    result: Bits = mixed ^ (mixed >> 31)
    return result
