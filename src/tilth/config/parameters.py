"""Names and shapes of a model's parameters, as in every checkpoint. No torch.

A checkpoint is compared with its config before a model is built: see `check_parameters`.

>>> from tilth.config.model import ModelConfig
>>> config = ModelConfig(100, context_length=16, d_model=32, num_layers=2, num_heads=4)
>>> dict(parameter_shapes(config))["layers.1.ffn.w2.weight"]
(32, 64)
>>> check_parameters(config, {"token_embeddings.weight": (100, 31)})
Traceback (most recent call last):
ValueError: token_embeddings.weight has shape (100, 31), and in the model (100, 32)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilth.config.model import ModelConfig

EMBEDDING, HEAD = "token_embeddings.weight", "lm_head.weight"


def parameter_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of each parameter of `TransformerLM(config)`, in state-dict order.

    An iterator, as `config` may be untrusted: millions of layers take no memory.
    """
    d_model, d_head, d_ff = config.d_model, config.d_head, config.d_ff
    d_query, d_kv = config.d_query, config.num_kv_heads * d_head
    norm = None if config.norm == "none" else (d_model,)
    qk_norm = (d_head,) if config.qk_norm else None
    query_bias, kv_bias = ((d_query,), (d_kv,)) if config.qkv_bias else (None, None)
    block: dict[str, tuple[int, ...] | None] = {  # None: this variant lacks the parameter
        "ln1.weight": norm,
        "attn.q_proj.weight": (d_query, d_model),
        "attn.q_proj.bias": query_bias,
        "attn.k_proj.weight": (d_kv, d_model),
        "attn.k_proj.bias": kv_bias,
        "attn.v_proj.weight": (d_kv, d_model),
        "attn.v_proj.bias": kv_bias,
        "attn.output_proj.weight": (d_model, d_query),
        "attn.q_norm.weight": qk_norm,
        "attn.k_norm.weight": qk_norm,
        "ln2.weight": norm,
        "ffn.w1.weight": (d_ff, d_model),
        "ffn.w2.weight": (d_model, d_ff),
        "ffn.w3.weight": (d_ff, d_model) if config.ffn == "swiglu" else None,
    }
    yield EMBEDDING, (config.vocab_size, d_model)
    for layer in range(config.num_layers):
        for name, shape in block.items():
            if shape is not None:
                yield f"layers.{layer}.{name}", shape
    if config.norm == "pre":
        yield "ln_final.weight", (d_model,)
    if not config.tie_embeddings:
        yield HEAD, (config.vocab_size, d_model)


def check_parameters(config: ModelConfig, found: Mapping[str, Sequence[int]]) -> None:
    """Raise ValueError unless `found`, shapes by name, are the parameters of `config`.

    With tied embeddings the output matrix is optional. Time and memory are proportional to `found`,
    whatever `config` says.
    """
    shapes = {name: tuple(shape) for name, shape in found.items()}
    if config.tie_embeddings and shapes.get(HEAD) == shapes.get(EMBEDDING):
        shapes.pop(HEAD, None)
    compare_shapes(shapes, parameter_shapes(config))


def compare_shapes(found: Mapping[str, object], wanted: Iterable[tuple[str, object]]) -> None:
    """Raise ValueError unless the shapes of a checkpoint, by name, equal those of a model."""
    extra = set(found)
    for name, shape in wanted:
        if name not in found:
            raise ValueError(f"only the model has {name}")
        if found[name] != shape:
            raise ValueError(f"{name} has shape {found[name]}, and in the model {shape}")
        extra.remove(name)
    if extra:
        raise ValueError(f"only the checkpoint has {min(extra, key=str)}")


def drop_tied_head(tensors: dict[str, Any], prefix: str = "") -> None:
    """Remove the output matrix if it equals the embedding; other tools write both names."""
    head, embedding = tensors.get(prefix + HEAD), tensors.get(prefix + EMBEDDING)
    if head is None or embedding is None or head.shape != embedding.shape:
        return
    if bool((head == embedding).all()):
        del tensors[prefix + HEAD]
