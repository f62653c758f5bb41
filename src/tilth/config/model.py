"""The shape of a model, validated at construction. No torch.

A `ModelConfig` describes a model to build or to account for. Impossible values raise ValueError,
with one sentence on which value and why.

>>> config = ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=16)
>>> config.d_ff, config.num_kv_heads, config.d_head
(1344, 16, 32)
>>> ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=15)
Traceback (most recent call last):
ValueError: d_model 512 is not a multiple of num_heads 15; all heads have the same width.
>>> ModelConfig.from_dict(config.to_dict()) == config
True
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import pi
from typing import Annotated, Any, ClassVar, Literal, Self

from tilth.config import limits
from tilth.schema import (
    POSITIVE,
    Range,
    check,
    check_int,
    check_keys,
    derived,
    plain,
    read,
    unwritten,
)

Norm = Literal["pre", "post", "none"]
Position = Literal["rope", "none"]
FeedForward = Literal["swiglu", "silu"]
Heads = Annotated[int, Range(at_least=1, at_most=limits.MAX_HEADS)]

END_TOKEN = "<|endoftext|>"  # noqa: S105, not a password
"""The special token that ends a document, unless the data names another."""
NORM_EPSILON = 1e-5
"""Default epsilon of every RMSNorm."""


class PlainValues:
    """Conversion of a dataclass to and from plain values, for TOML and JSON."""

    NAME: ClassVar[str]
    """Description in errors."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as numbers, strings, booleans and tables, without None."""
        values: dict[str, Any] = plain(self)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make an instance from the values of `to_dict`; missing keys take their defaults."""
        return read(cls, values, cls.NAME)


@dataclass(frozen=True)
class RopeScaling:
    """RoPE scaling of Llama 3: slow rotations are slowed further, for a longer context.

    >>> scaling = RopeScaling(factor=8.0, original_context_length=8192)
    >>> [scaling.scaled(frequency) for frequency in (1.0, 1e-4)]
    [1.0, 1.25e-05]
    """

    factor: Annotated[float, Range(at_least=1.0)]
    """Divide the lowest frequencies by this."""
    original_context_length: Annotated[int, Range(at_least=1, at_most=limits.MAX_CONTEXT_LENGTH)]
    """Context length before the extension, in tokens."""
    low_freq_factor: Annotated[float, POSITIVE] = 1.0
    """Scale frequencies of fewer rotations in the original context fully."""
    high_freq_factor: Annotated[float, POSITIVE] = 4.0
    """Keep frequencies of more rotations in the original context."""

    def __post_init__(self) -> None:
        check(self, "rope_scaling")
        if self.high_freq_factor <= self.low_freq_factor:
            raise ValueError(
                f"rope_scaling.high_freq_factor {self.high_freq_factor:g} must be above "
                f"low_freq_factor {self.low_freq_factor:g}."
            )

    def scaled(self, frequency: float) -> float:
        """Return the scaled frequency, in radians per position."""
        rotations = self.original_context_length * frequency / (2 * pi)
        if rotations < self.low_freq_factor:
            return frequency / self.factor
        if rotations > self.high_freq_factor:
            return frequency
        kept = (rotations - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (1 - kept) * frequency / self.factor + kept * frequency


@dataclass(frozen=True)
class ModelConfig(PlainValues):
    """A decoder-only Transformer; the defaults are those of Llama.

    Omitted widths are derived, so an instance is complete. To derive one again in a changed copy,
    set it to None: `replace(config, ffn="silu", d_ff=None)`.
    """

    NAME = "a model config"

    vocab_size: Annotated[int, Range(at_least=1, at_most=limits.MAX_VOCAB_SIZE)]
    """Vocabulary size; token ids are 0 to vocab_size - 1."""
    context_length: Annotated[int, Range(at_least=1, at_most=limits.MAX_CONTEXT_LENGTH)]
    """Maximum sequence length, in tokens."""
    d_model: Annotated[int, Range(at_least=1, at_most=limits.MAX_WIDTH)]
    """Width of the residual stream."""
    num_layers: Annotated[int, Range(at_least=1, at_most=limits.MAX_LAYERS)]
    """Number of Transformer blocks."""
    num_heads: Heads
    """Number of query heads, each d_model / num_heads or head_dim wide."""
    d_ff: Annotated[int, Range(at_least=1, at_most=4 * limits.MAX_WIDTH)] = derived(
        lambda config: default_d_ff(config.d_model, config.ffn)
    )
    """Inner width of the feed-forward; default 8/3 d_model to the nearest 64 (silu: 4 d_model)."""
    rope_theta: Annotated[float, POSITIVE] = 10_000.0
    """Base of the RoPE angles: position i rotates pair k by i * theta^(-2k/d_head)."""
    norm: Norm = "pre"
    """Placement of RMSNorm: before each sublayer, after each residual sum, or none."""
    position: Position = "rope"
    """Position encoding: RoPE, or none but the causal mask."""
    ffn: FeedForward = "swiglu"
    """Feed-forward: w2(silu(w1 x) * w3 x), or w2(silu(w1 x)) with about as many parameters."""
    tie_embeddings: bool = False
    """Use the token embedding as the output matrix."""
    qk_norm: bool = False
    """Apply RMSNorm to the queries and keys of each head, before RoPE."""
    num_kv_heads: Heads = derived(lambda config: config.num_heads)  # noqa: RUF009
    """Number of key/value heads, shared by equal groups of query heads; default num_heads."""
    head_dim: Annotated[int, Range(at_least=1, at_most=limits.MAX_WIDTH)] | None = None
    """Width of one head; default d_model / num_heads."""
    norm_eps: Annotated[float, POSITIVE] = unwritten(NORM_EPSILON)
    """Epsilon of every RMSNorm, added to the mean square."""
    qkv_bias: bool = unwritten(False)
    """Add a bias to queries, keys and values."""
    rope_scaling: RopeScaling | None = None
    """RoPE scaling of Llama 3; default none."""

    def __post_init__(self) -> None:
        check(self)
        if self.head_dim is None and self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}; "
                "all heads have the same width."
            )
        if self.position == "rope" and self.d_head % 2:
            origin = f" (d_model {self.d_model} / num_heads {self.num_heads})"
            raise ValueError(
                f"the head width {self.d_head}{origin if self.head_dim is None else ''} is odd; "
                "make it even for RoPE, or set position to none."
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads "
                f"{self.num_kv_heads}; query heads share key/value heads in equal groups."
            )

    @property
    def d_head(self) -> int:
        """Width of one head."""
        return self.d_model // self.num_heads if self.head_dim is None else self.head_dim

    @property
    def d_query(self) -> int:
        """Width of the queries of all heads; d_model unless `head_dim` is given."""
        return self.num_heads * self.d_head

    @property
    def rope_frequencies(self) -> list[float]:
        """Radians per position of each pair of a head; empty without RoPE."""
        if self.position != "rope":
            return []
        width, scaling = self.d_head, self.rope_scaling
        found = [self.rope_theta ** (-(2 * pair) / width) for pair in range(width // 2)]
        return found if scaling is None else [scaling.scaled(frequency) for frequency in found]

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Return a changed shape. Recipes, overrides, accounting and labs all derive shapes here.

        A changed `d_model` keeps the width of a head, if it is a multiple of it, and changes the
        number of heads, unless `head_dim` is given. Widths that depend on a changed value are
        derived again, unless given.

        >>> model = ModelConfig(1000, context_length=64, d_model=512, num_layers=4, num_heads=16)
        >>> narrow = model.changed({"d_model": 256})
        >>> narrow.num_heads, narrow.num_kv_heads, narrow.d_ff
        (8, 8, 704)
        """
        check_keys(type(self), {**plain(self), **changes}, self.NAME)
        follows: dict[str, Any] = {}
        d_model = check_int("d_model", changes.get("d_model", self.d_model))
        own_width = changes.get("head_dim", self.head_dim)
        if d_model != self.d_model and own_width is None and d_model % self.d_head == 0:
            follows["num_heads"] = d_model // self.d_head
        if changes.keys() & {"d_model", "ffn"}:
            follows["d_ff"] = None
        if changes.keys() & {"d_model", "num_heads"}:
            follows["num_kv_heads"] = None
        return replace(self, **{**follows, **changes})


def default_d_ff(d_model: int, ffn: FeedForward) -> int:
    """Return the inner width at which both feed-forwards have about 8 d_model^2 parameters.

    SwiGLU has three matrices instead of two, so it gets 2/3 of the usual 4 d_model (Shazeer 2020),
    rounded to a multiple of 64, which suits matrix kernels.
    """
    if ffn == "silu":
        return 4 * d_model
    # floor(x + 1/2) of x = 8 d_model / (3 * 64), in integers: exact at any width.
    return max(64, (d_model + 12) // 24 * 64)
