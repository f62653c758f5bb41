"""Llama models with random weights, in the formats of the contenders of `generating`.

All layers of a large model have the same weights: drawing and quantizing them takes a second, and
speed does not depend on the values. A decoder copies them, so each layer is in memory once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

GGUF_NAMES = {
    "token_embeddings": "token_embd",
    "layers.": "blk.",
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "ln_final": "output_norm",
    "lm_head": "output",
    "attn.q_proj": "attn_q",
    "attn.k_proj": "attn_k",
    "attn.v_proj": "attn_v",
    "attn.output_proj": "attn_output",
    "ffn.w1": "ffn_gate",
    "ffn.w2": "ffn_down",
    "ffn.w3": "ffn_up",
}


@dataclass(frozen=True)
class Shape:
    """A shape of Llama."""

    d_model: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    d_ff: int
    vocab_size: int
    tie_embeddings: bool

    def config(self, context_length: int) -> Any:  # noqa: ANN401
        """Return the `ModelConfig`."""
        from tilth.config.model import ModelConfig

        return ModelConfig(context_length=context_length, **vars(self))


SHAPES = {
    "22.7M": Shape(512, 4, 16, 16, 1344, 10_000, tie_embeddings=False),
    "100M": Shape(768, 12, 12, 12, 2048, 32_000, tie_embeddings=True),
    "1B": Shape(2048, 16, 32, 8, 8192, 32_000, tie_embeddings=True),
}


def draw_weights(name: str) -> dict[str, Any]:
    """Return the weights in float32, by the names of a checkpoint; the same on every call."""
    import numpy as np

    shape = SHAPES[name]
    random = np.random.default_rng(0)

    def drawn(rows: int, columns: int) -> Any:  # noqa: ANN401
        scale = np.float32(0.7 / columns**0.5)
        return random.standard_normal((rows, columns), np.float32) * scale

    d_model, d_head = shape.d_model, shape.d_model // shape.num_heads
    d_kv, ones = shape.num_kv_heads * d_head, np.ones(d_model, np.float32)
    # Larger embeddings: their norm is that of a trained model's.
    weights = {"token_embeddings.weight": drawn(shape.vocab_size, d_model) * np.float32(5)}
    if not shape.tie_embeddings:
        weights["lm_head.weight"] = drawn(shape.vocab_size, d_model) * np.float32(5)
    weights["ln_final.weight"] = ones

    def layer() -> dict[str, Any]:
        sizes = {
            "attn.q_proj": (d_model, d_model),
            "attn.k_proj": (d_kv, d_model),
            "attn.v_proj": (d_kv, d_model),
            "attn.output_proj": (d_model, d_model),
            "ffn.w1": (shape.d_ff, d_model),
            "ffn.w2": (d_model, shape.d_ff),
            "ffn.w3": (shape.d_ff, d_model),
        }
        return {"ln1": ones, "ln2": ones} | {name: drawn(*size) for name, size in sizes.items()}

    one = layer()
    for i in range(shape.num_layers):
        weights |= {f"layers.{i}.{name}.weight": weight for name, weight in one.items()}
    return weights


def write_gguf(path: Path, name: str, kind: str, context_length: int) -> None:
    """Write the file for llama.cpp, which rotates the pairs (2k, 2k + 1) as tilth does.

    F32 or Q8_0, or Q4_0 for the feed-forwards with Q8_0 for other matrices: tilth's int4.
    """
    import gguf

    from bench.models import renamed

    shape = SHAPES[name]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context_length)
    writer.add_embedding_length(shape.d_model)
    writer.add_block_count(shape.num_layers)
    writer.add_feed_forward_length(shape.d_ff)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_rope_dimension_count(shape.d_model // shape.num_heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab_size)
    # The server needs a vocabulary, although prompts are ids.
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(shape.vocab_size)])
    writer.add_token_types([gguf.TokenType.NORMAL] * shape.vocab_size)
    writer.add_token_merges(["t 1"])
    quantized: dict[int, Any] = {}  # by the identity of an array, which layers share
    for ours, weight in draw_weights(name).items():
        theirs = renamed(ours, GGUF_NAMES)
        if kind == "F32" or weight.ndim == 1:
            writer.add_tensor(theirs, weight)
            continue
        precision = "Q4_0" if kind == "Q4_0" and ".ffn." in ours else "Q8_0"
        chosen = gguf.GGMLQuantizationType[precision]
        if id(weight) not in quantized:
            quantized[id(weight)] = gguf.quants.quantize(weight, chosen)
        writer.add_tensor(theirs, quantized[id(weight)], raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def language_model(name: str, context_length: int, precision: str) -> Any:  # noqa: ANN401
    """Return tilth's model, without an end token: all texts have full length."""
    from tilth.generation import LanguageModel
    from tilth.tokenizer import Tokenizer

    config = SHAPES[name].config(context_length)
    # Each token is one letter.
    letters = {i: chr(0x4E00 + i).encode() for i in range(256, config.vocab_size)}
    tokenizer = Tokenizer(letters | {i: bytes([i]) for i in range(256)}, [])
    quantize: Any = None if precision == "float32" else precision
    return LanguageModel.from_weights(
        config, draw_weights(name), tokenizer, quantize=quantize, threads=2
    )


def weight_bytes(name: str, precision: str) -> int:
    """Return the bytes of the matrices that a token reads, in float32 or int8."""
    shape = SHAPES[name]
    d_kv = shape.d_model // shape.num_heads * shape.num_kv_heads
    layer = 2 * shape.d_model * (shape.d_model + d_kv) + 3 * shape.d_model * shape.d_ff
    numbers = shape.num_layers * layer + shape.vocab_size * shape.d_model
    return numbers * (4 if precision == "float32" else 1)
