"""A forward pass with its intermediate values, in NumPy. No torch.

`trace` computes the logits after each layer (logit lens), the attention weights of each head, the
norms of the residual stream and the loss of each token. Parts of the model can be switched off.

>>> from tilth.config.model import ModelConfig
>>> from tilth.config.parameters import parameter_shapes
>>> config = ModelConfig(5, context_length=8, d_model=4, num_layers=2, num_heads=2)
>>> weights = {name: np.ones(shape, np.float32) for name, shape in parameter_shapes(config)}
>>> found = trace(config, weights, [0, 3, 1], without=["layer.1.head.0"])
>>> found.logits.shape, found.attention.shape, found.residual_norms.shape
((3, 3, 5), (2, 2, 3, 3), (3, 3))
>>> found.losses.round(3).tolist()  # log(5): all logits are equal
[1.609, 1.609]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilth.accounting.hardware import host_memory_bytes
from tilth.config.model import ModelConfig
from tilth.config.parameters import EMBEDDING, HEAD
from tilth.formatting import format_bytes
from tilth.schema import short_repr

if TYPE_CHECKING:
    from jaxtyping import Float32

    Array = Float32[np.ndarray, "..."]

PART = re.compile(r"layer\.(\d+)(?:\.(attention|feed_forward|head\.(\d+)))?")


@dataclass(frozen=True)
class Trace:
    """The intermediate values of a forward pass over `token_ids`.

    Index 0 of `logits` and `residual_norms` is the embedding, index i the output of layer i - 1.

    Attributes:
        token_ids: The ids that were read.
        logits: Logits of the next token, from each layer's output: (layers + 1, tokens, vocab).
        attention: Attention weights, (layers, heads, queries, keys).
        residual_norms: Euclidean norm of the residual stream, (layers + 1, tokens).
        losses: Negative log-probability of each token but the first, (tokens - 1,).

    """

    token_ids: list[int]
    logits: Float32[np.ndarray, "layers_and_1 tokens vocab"]
    attention: Float32[np.ndarray, "layers heads queries keys"]
    residual_norms: Float32[np.ndarray, "layers_and_1 tokens"]
    losses: np.ndarray


def trace(
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    token_ids: Sequence[int],
    without: Sequence[str] = (),
    *,
    vocab_size: int | None = None,
) -> Trace:
    """Compute the forward pass of `TransformerLM` over ids.

    Args:
        config: Shape of the model.
        weights: Weights in float32, by their names in a checkpoint.
        token_ids: At most `context_length` ids.
        without: Parts whose output is replaced by zeros: "layer.2", "layer.2.attention",
            "layer.2.feed_forward" or "layer.2.head.1", counted from 0.
        vocab_size: Number of logits, if the tokenizer has fewer ids than the model.

    """
    head = weights[EMBEDDING if config.tie_embeddings else HEAD][:vocab_size]
    num_tokens, layers = len(token_ids), config.num_layers
    # No weight bounds these: a small file may have any number of narrow heads and layers.
    each_layer = config.num_heads * num_tokens  # with copies of a layer's scores, and of logits
    needed = 4 * num_tokens * ((layers + 4) * each_layer + 2 * (layers + 1) * len(head))
    if needed > (present := host_memory_bytes()) // 2:
        raise ValueError(
            f"a trace of {num_tokens} tokens takes {format_bytes(needed)}, and this machine has "
            f"{format_bytes(present)}; shorten the text."
        )
    off = _switched_off(config, without)
    x = weights[EMBEDDING][np.asarray(token_ids)]
    attention = np.zeros((layers, config.num_heads, num_tokens, num_tokens), np.float32)
    streams = [x]
    of_layers: list[dict[str, np.ndarray]] = [{} for _ in range(layers)]
    for name, weight in weights.items():
        if name.startswith("layers."):
            _, number, part = name.split(".", 2)
            of_layers[int(number)][part] = weight
    for index, layer in enumerate(of_layers):
        attended, attention[index] = _attend(
            config, layer, _before(config, x, layer, "ln1"), off.heads[index]
        )
        x = _after(config, x + attended * off.attention[index], layer, "ln1")
        fed = _feed_forward(config, layer, _before(config, x, layer, "ln2"))
        x = _after(config, x + fed * off.feed_forward[index], layer, "ln2")
        streams.append(x)
    final = weights.get("ln_final.weight")
    normed = streams if final is None else [_rms_norm(x, final, config.norm_eps) for x in streams]
    logits = np.stack([each @ head.T for each in normed])
    last = logits[-1, :-1].astype(np.float64)
    largest = last.max(-1, keepdims=True, initial=-np.inf)
    log_totals = largest[:, 0] + np.log(np.exp(last - largest).sum(-1))
    losses = log_totals - last[np.arange(num_tokens - 1), np.asarray(token_ids[1:], np.int64)]
    norms = np.stack([np.linalg.norm(each, axis=-1) for each in streams])
    return Trace(list(token_ids), logits, attention, norms, losses)


@dataclass(frozen=True)
class _Factors:
    """1, or 0 for a part that is switched off."""

    attention: Float32[np.ndarray, " layers"]
    feed_forward: Float32[np.ndarray, " layers"]
    heads: Float32[np.ndarray, "layers heads"]


def _switched_off(config: ModelConfig, without: Sequence[str]) -> _Factors:
    if isinstance(without, str):
        raise ValueError('without is a list of parts, such as ["layer.0.head.1"].')
    layers = config.num_layers
    attention, feed_forward = np.ones((2, layers), np.float32)
    heads = np.ones((layers, config.num_heads), np.float32)
    for part in without:
        found = PART.fullmatch(part) if isinstance(part, str) and len(part) < 80 else None
        if found is None:
            raise ValueError(
                f"without has {short_repr(part)}; a part is layer.0, layer.0.attention, "
                "layer.0.feed_forward or layer.0.head.0."
            )
        layer, kind, head = int(found[1]), found[2], found[3]
        if layer >= layers or int(head or 0) >= config.num_heads:
            raise ValueError(
                f"there is no {part}; the model has {layers} layers of {config.num_heads} heads, "
                "counted from 0."
            )
        if head is not None:
            heads[layer, int(head)] = 0
        if kind in (None, "attention"):
            attention[layer] = 0
        if kind in (None, "feed_forward"):
            feed_forward[layer] = 0
    return _Factors(attention, feed_forward, heads)


def _rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    mean = np.square(x).mean(-1, keepdims=True)
    return np.asarray(x / np.sqrt(mean + np.float32(epsilon)) * weight, np.float32)


def _before(config: ModelConfig, x: Array, layer: Mapping[str, Array], name: str) -> Array:
    """Return the input of a sublayer."""
    is_normed = config.norm == "pre"
    return _rms_norm(x, layer[f"{name}.weight"], config.norm_eps) if is_normed else x


def _after(config: ModelConfig, x: Array, layer: Mapping[str, Array], name: str) -> Array:
    """Return the residual stream after a sublayer."""
    is_normed = config.norm == "post"
    return _rms_norm(x, layer[f"{name}.weight"], config.norm_eps) if is_normed else x


def _attend(
    config: ModelConfig, layer: Mapping[str, Array], x: Array, factors: Array
) -> tuple[Array, Array]:
    """Return the output of attention and the weights (heads, queries, keys)."""

    def heads(name: str) -> Array:  # (heads, tokens, d_head)
        y = x @ layer[f"attn.{name}.weight"].T
        if config.qkv_bias:
            y = y + layer[f"attn.{name}.bias"]
        return np.asarray(y.reshape(len(x), -1, config.d_head).transpose(1, 0, 2))

    q, k, v = heads("q_proj"), heads("k_proj"), heads("v_proj")
    if config.qk_norm:
        q = _rms_norm(q, layer["attn.q_norm.weight"], config.norm_eps)
        k = _rms_norm(k, layer["attn.k_norm.weight"], config.norm_eps)
    if config.position == "rope":
        angles = np.outer(np.arange(len(x)), config.rope_frequencies)
        q, k = _rotated(q, angles), _rotated(k, angles)
    group = config.num_heads // config.num_kv_heads
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(config.d_head))
    scores[:, ~np.tri(len(x), dtype=bool)] = -np.inf
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    attention = exponentials / exponentials.sum(-1, keepdims=True)
    mixed = attention @ v * factors[:, None, None]
    output = mixed.transpose(1, 0, 2).reshape(len(x), -1) @ layer["attn.output_proj.weight"].T
    return output, attention


def _rotated(x: Array, angles: np.ndarray) -> Array:
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    even, odd = x[..., ::2], x[..., 1::2]
    rotated = np.stack((even * cosines - odd * sines, even * sines + odd * cosines), axis=-1)
    return rotated.reshape(x.shape)


def _feed_forward(config: ModelConfig, layer: Mapping[str, Array], x: Array) -> Array:
    gate = x @ layer["ffn.w1.weight"].T
    with np.errstate(over="ignore"):  # e^-x may be infinite; x / infinity is right
        hidden = gate / (1 + np.exp(-gate))
    if config.ffn == "swiglu":
        hidden = hidden * (x @ layer["ffn.w3.weight"].T)
    return np.asarray(hidden @ layer["ffn.w2.weight"].T)
