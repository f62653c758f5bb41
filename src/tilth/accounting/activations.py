"""Tensors that a forward pass saves for the backward pass.

`textbook` is the list that courses count with. `definition_path` and `fast_path` are the tensors
that autograd saves in this implementation; a test compares their bytes. Sizes are those of one
sequence of `context_length` tokens.

In bfloat16 and float16 (autocast), matrix products and their inputs are narrow. The residual
stream, the norms, the softmax and the parameters stay in float32.

>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> total_bytes(textbook(config))
BatchBytes(per_sequence_bytes=15517753344, once_bytes=0)
>>> total_bytes(fast_path(config)).per_sequence_bytes
9147592704
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tilth.accounting.parameters import hidden_matrices, parameter_tensors
from tilth.config.model import ModelConfig

DTYPE_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
"""Bytes per element of the inputs of a product; tf32 is float32 in memory."""
WIDE = DTYPE_BYTES["float32"]
INTEGER = 8  # bytes of a token id in a batch


class BatchBytes(NamedTuple):
    """A size that is linear in the batch size: per_sequence_bytes * batch_size + once_bytes."""

    per_sequence_bytes: int
    once_bytes: int

    def bytes(self, batch_size: int) -> int:
        """Return the bytes of a batch."""
        return self.per_sequence_bytes * batch_size + self.once_bytes


@dataclass(frozen=True)
class SavedActivation:
    """A tensor saved for the backward pass, summed over the layers that have it."""

    name: str
    component: str
    per_sequence_bytes: int
    once_bytes: int = 0
    """The bytes that do not grow with the batch."""


def total_bytes(activations: Sequence[SavedActivation]) -> BatchBytes:
    """Return the sum of a list of activations."""
    return BatchBytes(
        sum(saved.per_sequence_bytes for saved in activations),
        sum(saved.once_bytes for saved in activations),
    )


def textbook(config: ModelConfig, dtype: str = "float32") -> list[SavedActivation]:
    """Return the list of Stanford's CS336, assignment 1: the result of each operation.

    Of the feed-forward it has the products of `w1` and `w2` and the SiLU. The product of `w3` and
    the gated product are not in it.
    """
    size, sequence, block, d_model, d_query, d_kv = _sizes(config, dtype)
    scores = block * config.num_heads * config.context_length
    return _nonempty(
        ("norms", "norms", 2 * block * d_model * (config.norm != "none") * size),
        ("query and key norms", "norms", block * (d_query + d_kv) * config.qk_norm * size),
        ("queries, keys, values", "attention", block * (d_query + 2 * d_kv) * size),
        ("scores", "attention", scores * size),
        ("softmax", "attention", scores * size),
        ("weighted sum", "attention", block * d_query * size),
        ("output projection", "attention", block * d_model * size),
        ("w1 product", "feed-forward", block * config.d_ff * size),
        ("SiLU", "feed-forward", block * config.d_ff * size),
        ("w2 product", "feed-forward", block * d_model * size),
        ("final norm", "norms", sequence * d_model * (config.norm == "pre") * size),
        ("logits", "head and loss", sequence * config.vocab_size * size),
        ("cross-entropy", "head and loss", sequence * config.vocab_size * size),
    )


def definition_path(config: ModelConfig, dtype: str = "float32") -> list[SavedActivation]:
    """Return what the model without its fast path, and `cross_entropy`, save for the backward."""
    narrow, sequence, block, d_model, d_query, _ = _sizes(config, dtype)
    mixed = narrow < WIDE  # then autocast makes a narrow copy for each product
    gated = config.ffn == "swiglu"
    scores = block * config.num_heads * config.context_length
    mask = config.num_layers * config.context_length**2
    tensors = parameter_tensors(replace(config, tie_embeddings=True))
    matrices = sum(each.parameters for each in tensors if len(each.shape) == 2)
    return _nonempty(
        *_norms(config),
        ("input", "attention", (3 if mixed else 1) * block * d_model * narrow),
        *_qk_norms(config, saves_inputs=True),
        ("queries, keys, values", "attention", 3 * block * d_query * narrow),
        ("causal mask", "attention", 0, mask),
        ("exponentials of scores", "attention", scores * WIDE),
        ("their sums, twice", "attention", 2 * block * config.num_heads * WIDE),
        ("softmax", "attention", scores * narrow),
        ("weighted sum", "attention", block * d_query * narrow),
        ("input", "feed-forward", (2 if mixed and gated else 1) * block * d_model * narrow),
        ("w1 product, sigmoid, SiLU", "feed-forward", 3 * block * config.d_ff * narrow),
        ("w3 product, gated product", "feed-forward", 2 * block * config.d_ff * gated * narrow),
        ("input", "head and loss", sequence * d_model * narrow),
        ("logits and their exponentials", "head and loss", 2 * sequence * config.vocab_size * WIDE),
        ("sums", "head and loss", sequence * WIDE),
        ("targets", "head and loss", sequence * INTEGER),
        ("narrow copies", "weights", 0, matrices * mixed * narrow),
    )


def fast_path(config: ModelConfig, dtype: str = "float32") -> list[SavedActivation]:
    """Return the tensors that training saves: fused layers and `chunked_cross_entropy`.

    The attention kernel saves its inputs, its output and one number per query, and recomputes the
    scores. The loss saves gradients instead of logits. This is uncompiled training on a CPU; a
    compiler may save less.
    """
    narrow, sequence, block, d_model, d_query, d_kv = _sizes(config, dtype)
    mixed = narrow < WIDE
    rotated, gated = config.position == "rope", config.ffn == "swiglu"
    grouped = config.num_kv_heads < config.num_heads
    copied = rotated or config.qk_norm  # queries and keys are new tensors
    # Queries, keys and values are views of one product: saving one saves all of it. Keys and
    # values that groups share are repeated into new tensors.
    qkv_width = d_query + 2 * d_kv
    saves_product = not grouped or not copied or (config.qk_norm and not mixed)
    head_weight = config.vocab_size * d_model * WIDE
    # Each block joins several matrices into one; half precision also copies the others.
    joined = {"q_proj", "k_proj", "v_proj", *(("w1", "w3") if gated else ())}
    matrices = [each for each in hidden_matrices(config) if mixed or each.name in joined]
    silu = ("w1 and w3 product", "SiLU, gated product") if gated else ("w1 product, sigmoid, SiLU",)
    silu_width = (2 if gated else 3) * config.d_ff
    return _nonempty(
        *_norms(config),
        ("input", "attention", block * d_model * narrow),
        *_qk_norms(config, saves_inputs=mixed),  # else they are views of the product below
        ("query-key-value product", "attention", block * qkv_width * saves_product * narrow),
        ("queries", "attention", block * d_query * copied * narrow),
        ("keys", "attention", block * d_query * (copied or grouped) * narrow),
        ("values", "attention", block * d_query * grouped * narrow),
        ("log-sum-exp of scores", "attention", block * config.num_heads * WIDE),
        ("weighted sum", "attention", block * d_query * narrow),
        # The kernel's output has the memory order of the queries. Without a rotation that is the
        # order of the product, in which the heads of a token are already adjacent.
        ("weighted sum, heads joined", "attention", block * d_query * rotated * narrow),
        ("input", "feed-forward", block * d_model * narrow),
        *((name, "feed-forward", block * silu_width * narrow) for name in silu),
        ("gradient of the hidden states", "head and loss", sequence * d_model * narrow),
        ("gradient of the output matrix", "head and loss", 0, head_weight),
        ("joined or narrow copies", "weights", 0, sum(m.parameters for m in matrices) * narrow),
    )


def _sizes(config: ModelConfig, dtype: str) -> tuple[int, int, int, int, int, int]:
    """Bytes per element, tokens per sequence, those of all blocks, d_model, d_query and d_kv."""
    tokens, d_kv = config.context_length, config.num_kv_heads * config.d_head
    widths = config.d_model, config.d_query, d_kv
    return DTYPE_BYTES[dtype], tokens, config.num_layers * tokens, *widths


def _norms(config: ModelConfig) -> list[tuple[Any, ...]]:
    """Token ids, and the inputs and results of the norms of the residual stream."""
    _, sequence, block, d_model, _, _ = _sizes(config, "float32")
    has_norms, has_final_norm = config.norm != "none", config.norm == "pre"
    return [
        ("token ids", "embedding", sequence * INTEGER),
        ("inputs and normalised", "norms", 4 * block * d_model * has_norms * WIDE),
        ("root mean squares", "norms", 2 * block * has_norms * WIDE),
        ("of the final norm", "norms", sequence * (2 * d_model + 1) * has_final_norm * WIDE),
    ]


def _qk_norms(config: ModelConfig, *, saves_inputs: bool) -> list[tuple[Any, ...]]:
    _, _, block, _, d_query, d_kv = _sizes(config, "float32")
    size = block * (d_query + d_kv) * config.qk_norm * WIDE
    heads = block * (config.num_heads + config.num_kv_heads) * config.qk_norm
    return [
        ("queries and keys to normalise", "norms", size * saves_inputs),
        ("normalised queries and keys", "norms", size),
        ("root mean squares of queries and keys", "norms", heads * WIDE),
    ]


def _nonempty(*rows: tuple[Any, ...]) -> list[SavedActivation]:
    """Activations from (name, component, per_sequence_bytes, once_bytes), without empty ones."""
    return [SavedActivation(*row) for row in rows if any(row[2:])]
