"""
The native decoder of tilth.generation; its specification is tilth.model.
"""

from collections.abc import Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


MAX_THREADS: int = 1024

MAX_DIMENSION: int = 2147483647

MAX_ROWS: int = 4096

def runnable_kernels() -> list[str]:
    """The names of the kernels that this processor can run, fastest last."""

@overload
def draw(scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, largest: float, temperature: float, top_k: int, top_p: float, min_p: float, unit: float) -> int: ...

@overload
def draw(scores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, largest: float, temperature: float, top_k: int, top_p: float, min_p: float, unit: float) -> int:
    """Sample the next token; see draw.hpp."""

class Network:
    """Weights packed for the processor; see network.hpp."""

    def __init__(self, weights: dict[str, object], *, vocab_size: int, context_length: int, d_model: int, num_layers: int, num_heads: int, num_kv_heads: int, d_head: int, d_ff: int, rope_frequencies: Sequence[float], norm_epsilon: float, norm: str, is_gated: bool, is_tied: bool, has_qk_norm: bool, has_qkv_bias: bool, precision: str) -> None: ...

class Decoder:
    """Computes logits of several rows, with caches; see decoder.hpp."""

    def __init__(self, network: Network, threads: int, rows: int = 1, kernels: str = '', cache: str = 'float32') -> None: ...

    def extend(self, ids: Sequence[Sequence[int]], every: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None, None))]:
        """
        Append ids to each row; return the logits after the last id, or after every id.
        """

    def score(self, ids: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], vocab_size: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None, None))]:
        """
        Append ids to each row; return the log-probabilities of targets after its last ids.
        """

    def choose(self, scores: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], choices: Sequence[tuple[float, int, float, float, float] | None]) -> list[int]:
        """
        Choose a token for each row of scores that has a choice; -1 without a finite score.
        """

    def truncate(self, row: int, length: int) -> None:
        """Keep the first `length` ids of a row only."""

    def share(self, source: int, row: int, length: int) -> None:
        """
        Replace a row by the first `length` ids of another, without reading them.
        """

    def length(self, row: int = 0) -> int:
        """Number of ids in the cache of a row."""
