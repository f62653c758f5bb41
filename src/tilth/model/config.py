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

import difflib
import math
import numbers
import operator
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

Norm = Literal["pre", "post", "none"]
Position = Literal["rope", "none"]
FeedForward = Literal["swiglu", "silu"]


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only Transformer; the defaults are those of Llama.

    The widths that are left out are filled in, so a config that was made is complete. To derive
    them again for a changed copy, hand None back: `replace(config, ffn="silu", d_ff=None)`.
    """

    vocab_size: int
    """How many token ids there are: 0 to vocab_size - 1."""
    context_length: int
    """The longest sequence, in tokens, that the model takes."""
    d_model: int
    """The width of the residual stream."""
    num_layers: int
    """How many blocks of attention and feed-forward follow each other."""
    num_heads: int
    """How many query heads share d_model; each is d_model / num_heads wide."""
    d_ff: int = None  # type: ignore[assignment]  # never None once made
    """The feed-forward's inner width; default 8/3 d_model to the nearest 64, for silu 4 d_model."""
    rope_theta: float = 10_000.0
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
    num_kv_heads: int = None  # type: ignore[assignment]  # never None once made
    """How many key and value heads the query heads share in equal groups; default num_heads."""

    def __post_init__(self) -> None:
        for name in ("vocab_size", "context_length", "d_model", "num_layers", "num_heads"):
            self._set(name, check_count(name, getattr(self, name)))
        for name, names in (("norm", Norm), ("position", Position), ("ffn", FeedForward)):
            value, known = getattr(self, name), get_args(names)
            if value not in known:
                raise ValueError(f"{name} {value!r} is unknown; choose one of {', '.join(known)}.")
        for name in ("tie_embeddings", "qk_norm"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {value!r}.")
        default = self.num_heads if self.num_kv_heads is None else self.num_kv_heads
        self._set("num_kv_heads", check_count("num_kv_heads", default))
        default = default_d_ff(self.d_model, self.ffn) if self.d_ff is None else self.d_ff
        self._set("d_ff", check_count("d_ff", default))
        self._set("rope_theta", _positive("rope_theta", self.rope_theta))
        self._check_heads()

    def _set(self, name: str, value: float) -> None:
        object.__setattr__(self, name, value)  # frozen from here on

    def _check_heads(self) -> None:
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

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain numbers, strings and booleans, for TOML and JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make one of what `to_dict` gave, or of a part of it: the rest takes its default."""
        check_keys(cls, values, "a model config")
        return cls(**values)


def default_d_ff(d_model: int, ffn: FeedForward) -> int:
    """The inner width at which both kinds of feed-forward have about 8 d_model^2 parameters.

    SwiGLU has three matrices instead of two, so it gets 2/3 of the usual 4 d_model (Shazeer 2020),
    here to the nearest multiple of 64, which matrix kernels like.
    """
    if ffn == "silu":
        return 4 * d_model
    # floor(x + 1/2) of x = 8 d_model / (3 * 64) in whole numbers: exact at any width.
    return max(64, (d_model + 12) // 24 * 64)


def check_keys(config: type[Any], values: Mapping[str, Any], what: str) -> None:
    """Refuse keys that a config class does not have, and the lack of those that it needs."""
    names = [field.name for field in fields(config)]
    for key in values:
        if key not in names:
            close = difflib.get_close_matches(str(key), names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}."
            raise ValueError(f"{key!r} is no value of {what}; {hint}")
    for field in fields(config):
        is_needed = field.default is MISSING and field.default_factory is MISSING
        if is_needed and field.name not in values:
            raise ValueError(f"there is no {field.name} in {what}; add it.")


def check_count(name: str, value: Any, at_least: int = 1) -> int:  # noqa: ANN401, whatever came in
    """Check a count; NumPy's integers pass and become Python's, which every file format takes."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):  # True is an int to Python: a slip, here
        raise ValueError(f"{name} must be a whole number, not {value!r}.")
    if number < at_least:
        raise ValueError(f"{name} must be at least {at_least}, not {number}.")
    return number


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, not {value!r}.")
    try:
        number = float(value)
    except OverflowError:  # an integer of hundreds of digits
        number = math.inf
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be positive and finite, not {value!r}.")
    return number
