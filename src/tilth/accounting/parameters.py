"""Parameter counts of a model, by component, from its config.

>>> from tilth.config.model import ModelConfig
>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> count_parameters(config).total
2127057600
"""

import math
from dataclasses import astuple, dataclass
from typing import NamedTuple

from tilth.config.model import ModelConfig


@dataclass(frozen=True)
class Parameters:
    """Parameters by component; a tied output matrix counts as part of the embedding."""

    embedding: int
    attention: int
    feed_forward: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(astuple(self))

    @property
    def without_embedding(self) -> int:
        """All but the input embedding, which is a lookup and not a matrix product."""
        return self.total - self.embedding

    @property
    def without_embedding_and_head(self) -> int:
        """The parameters of the blocks and the final norm."""
        return self.total - self.embedding - self.head


class ParameterTensor(NamedTuple):
    """`number` equally shaped parameters of a model, each (outputs, inputs) or (width,)."""

    name: str
    component: str
    """A field of `Parameters`."""
    shape: tuple[int, ...]
    number: int

    @property
    def parameters(self) -> int:
        """The elements of all of them."""
        return self.number * math.prod(self.shape)


def parameter_tensors(config: ModelConfig) -> list[ParameterTensor]:
    """List every parameter tensor of `TransformerLM(config)`; a test compares them."""
    d_model, d_ff, layers = config.d_model, config.d_ff, config.num_layers
    d_kv = config.num_kv_heads * config.d_head
    ends = (config.vocab_size, d_model)
    tensors = [
        ParameterTensor("token_embeddings", "embedding", ends, 1),
        ParameterTensor("q_proj", "attention", (d_model, d_model), layers),
        ParameterTensor("k_proj", "attention", (d_kv, d_model), layers),
        ParameterTensor("v_proj", "attention", (d_kv, d_model), layers),
        ParameterTensor("output_proj", "attention", (d_model, d_model), layers),
        ParameterTensor("w1", "feed_forward", (d_ff, d_model), layers),
        ParameterTensor("w3", "feed_forward", (d_ff, d_model), layers * (config.ffn == "swiglu")),
        ParameterTensor("w2", "feed_forward", (d_model, d_ff), layers),
        ParameterTensor("norms", "norms", (d_model,), 2 * layers * (config.norm != "none")),
        ParameterTensor("qk_norms", "norms", (config.d_head,), 2 * layers * config.qk_norm),
        ParameterTensor("ln_final", "norms", (d_model,), int(config.norm == "pre")),
        ParameterTensor("lm_head", "head", ends, int(not config.tie_embeddings)),
    ]
    return [tensor for tensor in tensors if tensor.number]


def hidden_matrices(config: ModelConfig) -> list[ParameterTensor]:
    """The matrices of attention and feed-forward, which Muon updates."""
    return [t for t in parameter_tensors(config) if t.component in ("attention", "feed_forward")]


def count_parameters(config: ModelConfig) -> Parameters:
    """Count the parameters of `TransformerLM(config)` by component."""
    counts = dict.fromkeys(Parameters.__annotations__, 0)
    for tensor in parameter_tensors(config):
        counts[tensor.component] += tensor.parameters
    return Parameters(**counts)
