"""The floating-point operations of a model: one line for each matrix product.

What enters: a `ModelConfig`, a batch size, a number of tokens. What leaves: the products of a
forward pass, of which an (m, n) matrix times an (n, p) matrix takes 2mnp operations: m p sums of n
products. Softmax, norms and activations are not here; together they are a few hundredths.

Attention is counted whole, although a causal mask makes half of its scores unnecessary: so do the
papers, and so does the hardware unless a kernel skips blocks.

>>> from tilth.model.config import ModelConfig
>>> config = ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=16)
>>> round(training_flops(config) / 256 / 1e6, 1)  # millions a token
111.7
"""

from dataclasses import dataclass

from tilth.model.config import ModelConfig


@dataclass(frozen=True)
class Product:
    """A matrix product of a forward pass: (m, n) times (n, p), done `times` times."""

    name: str
    component: str
    m: int
    n: int
    p: int
    times: int

    @property
    def flops(self) -> int:
        """2mnp, each time."""
        return 2 * self.m * self.n * self.p * self.times


def forward_products(
    config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None
) -> list[Product]:
    """List the products of a forward pass over `batch_size` sequences of `num_tokens`."""
    seq = config.context_length if num_tokens is None else num_tokens
    rows = batch_size * seq
    d_model, d_ff, d_head = config.d_model, config.d_ff, config.d_head
    d_kv = config.num_kv_heads * d_head
    layers, heads = config.num_layers, config.num_layers * batch_size * config.num_heads
    gates = [Product("w3", "feed-forward", rows, d_model, d_ff, layers)]
    return [
        Product("q_proj", "attention", rows, d_model, d_model, layers),
        Product("k_proj", "attention", rows, d_model, d_kv, layers),
        Product("v_proj", "attention", rows, d_model, d_kv, layers),
        Product("scores", "attention", seq, d_head, seq, heads),
        Product("weighted sum", "attention", seq, seq, d_head, heads),
        Product("output_proj", "attention", rows, d_model, d_model, layers),
        Product("w1", "feed-forward", rows, d_model, d_ff, layers),
        *(gates if config.ffn == "swiglu" else []),
        Product("w2", "feed-forward", rows, d_ff, d_model, layers),
        Product("lm_head", "head", rows, d_model, config.vocab_size, 1),
    ]


def forward_flops(config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None) -> int:
    """The operations of a forward pass."""
    return sum(product.flops for product in forward_products(config, batch_size, num_tokens))


def training_flops(config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None) -> int:
    """The operations of a step: forward, and twice as many backward.

    Backward has two products for each of forward's: one for the gradient of either factor.
    """
    return 3 * forward_flops(config, batch_size, num_tokens)
