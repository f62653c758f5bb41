"""The native core of tilth.generation; its specification is tilth.model."""

from collections.abc import Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


MAX_THREADS: int = 1024

MAX_DIMENSION: int = 2147483647

def runnable_kernels() -> list[str]:
    """The kinds of arithmetic that this processor has, the quickest last."""

@overload
def draw(scores: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, largest: float, temperature: float, top_k: int, top_p: float, min_p: float, unit: float) -> int: ...

@overload
def draw(scores: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], *, largest: float, temperature: float, top_k: int, top_p: float, min_p: float, unit: float) -> int:
    """The next token; see draw.hpp."""

class Network:
    """Weights, laid out for the processor; see network.hpp."""

    def __init__(self, weights: dict[str, object], *, vocab_size: int, context_length: int, d_model: int, num_layers: int, num_heads: int, num_kv_heads: int, d_ff: int, rope_theta: float, norm_epsilon: float, norm: str, has_rope: bool, is_gated: bool, is_tied: bool, has_qk_norm: bool, is_int8: bool) -> None: ...

class Decoder:
    """Token ids to logits; see decoder.hpp."""

    def __init__(self, network: Network, threads: int, kernels: str = '') -> None: ...

    def extend(self, ids: Sequence[int], every: bool = False) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """Read ids; return the logits behind the last, or behind every one."""

    def truncate(self, length: int) -> None:
        """Forget all ids but the first."""

    @property
    def length(self) -> int:
        """How many ids it has read."""
