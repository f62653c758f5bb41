"""The shape of a model, checked when it is made. No torch here: it is also what is accounted for.

What enters: a few numbers and the names of the variants. What leaves: a frozen `ModelConfig` that a
model can be built from, or a ValueError whose one sentence says which value is impossible and why.

>>> config = ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=16)
>>> config.d_ff, config.num_kv_heads, config.d_head
(1344, 16, 32)
>>> ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=15)
Traceback (most recent call last):
ValueError: d_model 512 is not a multiple of num_heads 15; every head gets an equal part of it.
>>> ModelConfig.from_dict(config.to_dict()) == config
True
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from tilth.config import limits
from tilth.schema import POSITIVE, Range, check, check_int, check_keys, derived, plain, read

Norm = Literal["pre", "post", "none"]
Position = Literal["rope", "none"]
FeedForward = Literal["swiglu", "silu"]
Heads = Annotated[int, Range(at_least=1, at_most=limits.MAX_HEADS)]

END_TOKEN = "<|endoftext|>"  # noqa: S105, no password
"""The special token that ends a document, unless the data names another."""
NORM_EPSILON = 1e-5
"""The epsilon of every RMSNorm, in torch and in the native decoder."""


class PlainValues:
    """A dataclass that becomes plain values (TOML, JSON) and can be made of them."""

    NAME: ClassVar[str]
    """The words for it in an error."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain numbers, strings, booleans and tables; None is left out."""
        values: dict[str, Any] = plain(self)
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make one of what `to_dict` gave, or of a part of it: the rest takes its default."""
        return read(cls, values, cls.NAME)


@dataclass(frozen=True)
class ModelConfig(PlainValues):
    """A decoder-only Transformer; the defaults are those of Llama.

    The widths that are left out are filled in, so a config that was made is complete. To derive
    them again for a changed copy, hand None back: `replace(config, ffn="silu", d_ff=None)`.
    """

    NAME = "a model config"

    vocab_size: Annotated[int, Range(at_least=1, at_most=limits.MAX_VOCAB_SIZE)]
    """How many token ids there are: 0 to vocab_size - 1."""
    context_length: Annotated[int, Range(at_least=1, at_most=limits.MAX_CONTEXT_LENGTH)]
    """The longest sequence, in tokens, that the model takes."""
    d_model: Annotated[int, Range(at_least=1, at_most=limits.MAX_WIDTH)]
    """The width of the residual stream."""
    num_layers: Annotated[int, Range(at_least=1, at_most=limits.MAX_LAYERS)]
    """How many blocks of attention and feed-forward follow each other."""
    num_heads: Heads
    """How many query heads share d_model; each is d_model / num_heads wide."""
    d_ff: Annotated[int, Range(at_least=1, at_most=4 * limits.MAX_WIDTH)] = derived(
        lambda config: default_d_ff(config.d_model, config.ffn)
    )
    """The feed-forward's inner width; default 8/3 d_model to the nearest 64, for silu 4 d_model."""
    rope_theta: Annotated[float, POSITIVE] = 10_000.0
    """The base of the rotation angles: position i turns pair k by i * theta^(-2k/d_head)."""
    norm: Norm = "pre"
    """Where RMSNorm stands: before each sublayer, after each sum, or nowhere."""
    position: Position = "rope"
    """How a token knows its position: rotated queries and keys, or only by the causal mask."""
    ffn: FeedForward = "swiglu"
    """The feed-forward: w2(silu(w1 x) * w3 x), or w2(silu(w1 x)) with about as many parameters."""
    tie_embeddings: bool = False
    """Whether the output matrix is the token embedding itself."""
    qk_norm: bool = False
    """Whether queries and keys pass an RMSNorm of their own, head by head, before the rotation."""
    num_kv_heads: Heads = derived(lambda config: config.num_heads)  # noqa: RUF009
    """How many key and value heads the query heads share in equal groups; default num_heads."""

    def __post_init__(self) -> None:
        check(self)
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}; "
                "every head gets an equal part of it."
            )
        if self.position == "rope" and self.d_head % 2:
            raise ValueError(
                f"a head of width {self.d_head} (d_model {self.d_model} / num_heads "
                f"{self.num_heads}) has no pairs to rotate; make it even, or set position to none."
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads {self.num_heads} is not a multiple of num_kv_heads "
                f"{self.num_kv_heads}; query heads share key/value heads in equal groups."
            )

    @property
    def d_head(self) -> int:
        """The width of one head."""
        return self.d_model // self.num_heads

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """Change a shape: the one derivation, for recipes, overrides, accounting and labs.

        A changed width keeps the width of a head, where it is a multiple of it, and so changes the
        number of heads. The widths that follow from a changed value are derived again. A value that
        is given stays as it is.

        >>> model = ModelConfig(1000, context_length=64, d_model=512, num_layers=4, num_heads=16)
        >>> narrow = model.changed({"d_model": 256})
        >>> narrow.num_heads, narrow.num_kv_heads, narrow.d_ff
        (8, 8, 704)
        """
        check_keys(type(self), {**plain(self), **changes}, self.NAME)
        follows: dict[str, Any] = {}
        d_model = check_int("d_model", changes.get("d_model", self.d_model))
        if d_model != self.d_model and d_model % self.d_head == 0:
            follows["num_heads"] = d_model // self.d_head
        if changes.keys() & {"d_model", "ffn"}:
            follows["d_ff"] = None
        if changes.keys() & {"d_model", "num_heads"}:
            follows["num_kv_heads"] = None
        return replace(self, **{**follows, **changes})


def default_d_ff(d_model: int, ffn: FeedForward) -> int:
    """The inner width at which both kinds of feed-forward have about 8 d_model^2 parameters.

    SwiGLU has three matrices instead of two, so it gets 2/3 of the usual 4 d_model (Shazeer 2020),
    here to the nearest multiple of 64, which matrix kernels like.
    """
    if ffn == "silu":
        return 4 * d_model
    # floor(x + 1/2) of x = 8 d_model / (3 * 64) in whole numbers: exact at any width.
    return max(64, (d_model + 12) // 24 * 64)
