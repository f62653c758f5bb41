"""How many numbers a model learns, by component.

What enters: a `ModelConfig`. What leaves: counts that a test holds equal to the model's own, for
every variant.

>>> from tilth.config.model import ModelConfig
>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> count_parameters(config).total
2127057600
"""

from dataclasses import astuple, dataclass

from tilth.config.model import ModelConfig


@dataclass(frozen=True)
class Parameters:
    """The parameters of a model; a tied output matrix counts as the embedding that it is."""

    embedding: int
    attention: int
    feed_forward: int
    norms: int
    head: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(astuple(self))

    @property
    def without_embedding(self) -> int:
        """Without the input embedding, which is looked up and not multiplied by."""
        return self.total - self.embedding

    @property
    def without_embedding_and_head(self) -> int:
        """Those of the blocks and the final norm alone."""
        return self.total - self.embedding - self.head


@dataclass(frozen=True)
class Tensors:
    """How many tensors the parameters are."""

    hidden: int
    """The matrices of attention and feed-forward."""
    total: int


def count_parameters(config: ModelConfig) -> Parameters:
    """Count by hand what `TransformerLM(config)` would allocate."""
    d_model, d_head = config.d_model, config.d_head
    d_kv = config.num_kv_heads * d_head
    norms_of_block = 2 * d_model if config.norm != "none" else 0
    if config.qk_norm:
        norms_of_block += 2 * d_head
    matrices_of_ffn = 3 if config.ffn == "swiglu" else 2
    return Parameters(
        embedding=config.vocab_size * d_model,
        # q and output are square; k and v are as wide as their heads
        attention=config.num_layers * (2 * d_model * d_model + 2 * d_model * d_kv),
        feed_forward=config.num_layers * matrices_of_ffn * d_model * config.d_ff,
        norms=config.num_layers * norms_of_block + (d_model if config.norm == "pre" else 0),
        head=0 if config.tie_embeddings else config.vocab_size * d_model,
    )


def count_tensors(config: ModelConfig) -> Tensors:
    """Count the tensors in which those parameters lie."""
    hidden = config.num_layers * (4 + (3 if config.ffn == "swiglu" else 2))
    norms_of_block = (2 if config.norm != "none" else 0) + (2 if config.qk_norm else 0)
    norms = config.num_layers * norms_of_block + (1 if config.norm == "pre" else 0)
    return Tensors(hidden, hidden + norms + (1 if config.tie_embeddings else 2))
