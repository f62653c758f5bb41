"""Parameter counts of a model, by component, from its config.

>>> from tilth.config.model import ModelConfig
>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> count_parameters(config).total
2127057600
"""

import math
from dataclasses import astuple, dataclass, replace
from typing import NamedTuple

from tilth.config.model import ModelConfig
from tilth.config.parameters import parameter_shapes

# The component of a matrix or bias, by the module that has it; other vectors are norms.
COMPONENTS = {"token_embeddings": "embedding", "attn": "attention"}
COMPONENTS |= {"ffn": "feed_forward", "lm_head": "head"}


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
    """List every parameter tensor of `TransformerLM(config)`; those of all layers are one entry."""
    tensors = []
    for path, shape in parameter_shapes(replace(config, num_layers=1)):
        *parents, name, kind = path.split(".")  # layers.0.attn.q_proj.weight
        is_norm = len(shape) == 1 and kind == "weight"
        component = "norms" if is_norm else COMPONENTS[parents[-1] if parents else name]
        tensors.append(ParameterTensor(name, component, shape, config.num_layers if parents else 1))
    return tensors


def hidden_matrices(config: ModelConfig) -> list[ParameterTensor]:
    """Return the matrices of attention and feed-forward, which Muon updates."""
    components = ("attention", "feed_forward")
    tensors = parameter_tensors(config)
    return [t for t in tensors if t.component in components and len(t.shape) == 2]


def count_parameters(config: ModelConfig) -> Parameters:
    """Count the parameters of `TransformerLM(config)` by component."""
    counts = dict.fromkeys(Parameters.__annotations__, 0)
    for tensor in parameter_tensors(config):
        counts[tensor.component] += tensor.parameters
    return Parameters(**counts)
