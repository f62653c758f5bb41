"""Floating-point operations (FLOPs) of a model, from its config.

The product of an (m, n) and an (n, p) matrix takes 2mnp operations. Elementwise operations (norms,
rotations, softmax, SiLU, sums) are counted separately, because papers leave them out; so are the
operations of an optimizer.

Attention is counted in full, although a causal mask makes half of the scores unnecessary: papers do
the same, and so does the hardware unless a kernel skips blocks.

>>> config = ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=16)
>>> round(training_flops(config) / 256 / 1e6, 1)  # millions per token
111.7
>>> round(elementwise_flops(config) / forward_flops(config), 3)
0.005
"""

from collections import Counter
from dataclasses import dataclass

from tilth.accounting.parameters import count_parameters, hidden_matrices
from tilth.config.model import ModelConfig
from tilth.schema import check_int

MUON_ITERATIONS = 5  # of `tilth.optim.muon`, which needs torch: a test compares them

# Operations per element, in the order of the formulas in `docs/optimizers.md`.
ADAMW_OPERATIONS = {"first moment": 3, "second moment": 4, "update": 5, "decay": 2}
SGD_OPERATIONS = {"update": 2}
MUON_OPERATIONS = {"momentum": 3, "look ahead": 3, "norm": 3, "update": 2, "decay": 2}


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
        """2mnp, for each time."""
        return 2 * self.m * self.n * self.p * self.times


def forward_products(config: ModelConfig, batch_size: int = 1) -> list[Product]:
    """List the products of a forward pass over `batch_size` sequences of `context_length`."""
    seq = config.context_length
    rows = check_int("batch_size", batch_size) * seq
    heads, d_head = config.num_layers * batch_size * config.num_heads, config.d_head
    components = {"attention": "attention projections", "feed_forward": "feed-forward"}
    weights = [
        Product(name, components[component], rows, shape[1], shape[0], number)
        for name, component, shape, number in hidden_matrices(config)
    ]
    return [
        *weights[:3],
        Product("scores", "attention scores and values", seq, d_head, seq, heads),
        Product("weighted sum", "attention scores and values", seq, seq, d_head, heads),
        *sorted(weights[3:], key=lambda product: product.name == "w2"),  # the last one
        Product("lm_head", "head", rows, config.d_model, config.vocab_size, 1),
    ]


def flops_by_component(config: ModelConfig) -> dict[str, int]:
    """Return the operations of the products of a forward pass, by component."""
    sums: Counter[str] = Counter()
    for product in forward_products(config):
        sums[product.component] += product.flops
    return dict(sums)


def forward_flops(config: ModelConfig, batch_size: int = 1) -> int:
    """Return the operations of the products of a forward pass."""
    return sum(product.flops for product in forward_products(config, batch_size))


def training_flops(config: ModelConfig, batch_size: int = 1, *, recompute: bool = False) -> int:
    """Return the FLOPs of the products of a training step: three times the forward pass.

    The backward pass has two products for each of the forward pass: the gradient of either factor.
    `recompute` adds a second forward pass (activation checkpointing).
    """
    return (4 if recompute else 3) * forward_flops(config, batch_size)


def training_flops_per_token(config: ModelConfig) -> float:
    """Return the FLOPs of the products of training, per token."""
    return training_flops(config) / config.context_length


def forward_elementwise(config: ModelConfig, batch_size: int = 1) -> dict[str, int]:
    """Return the elementwise operations of a forward pass and its loss; exp counts as one."""
    rows = check_int("batch_size", batch_size) * config.context_length
    in_layers = rows * config.num_layers
    d_model, d_query = config.d_model, config.d_query
    d_kv = config.num_kv_heads * config.d_head
    norm = 4  # square, sum, times the inverse root, times the weight
    norms = {"pre": 2 * config.num_layers + 1, "post": 2 * config.num_layers, "none": 0}
    operations = {
        "norms": norm * rows * d_model * norms[config.norm],
        "biases": in_layers * (d_query + 2 * d_kv) * config.qkv_bias,
        "query and key norms": norm * in_layers * (d_query + d_kv) * config.qk_norm,
        # a rotated pair: four products and two sums
        "rotations": 3 * in_layers * (d_query + d_kv) * (config.position == "rope"),
        "scaled queries": in_layers * d_query,
        # maximum, difference, exponential, sum, quotient
        "softmax": 5 * in_layers * config.num_heads * config.context_length,
        # the sigmoid has a sign, an exponential, a sum and a quotient; then times x, times the gate
        "SiLU": (6 if config.ffn == "swiglu" else 5) * in_layers * config.d_ff,
        "residual sums": 2 * in_layers * d_model,
        # maximum, difference, exponential, sum
        "cross-entropy": 4 * rows * config.vocab_size,
    }
    return {name: number for name, number in operations.items() if number}


def elementwise_flops(config: ModelConfig, batch_size: int = 1) -> int:
    """Return the sum of `forward_elementwise`."""
    return sum(forward_elementwise(config, batch_size).values())


def optimizer_operations(config: ModelConfig, optimizer: str) -> dict[str, int]:
    """Return the operations of one update, by part: Muon's matrices, then AdamW's parameters.

    Muon's iteration X <- a X + (b G + c G G) X with G = X X^T has three products.
    """
    parameters = count_parameters(config)
    if optimizer != "muon":
        operations = {"adamw": ADAMW_OPERATIONS, "sgd": SGD_OPERATIONS}[optimizer]
        return {name: count * parameters.total for name, count in operations.items()}
    hidden = sum(matrix.parameters for matrix in hidden_matrices(config))
    rest = parameters.total - hidden
    products, sums = 0, 0
    for matrix in hidden_matrices(config):
        times, (short, long) = MUON_ITERATIONS * matrix.number, sorted(matrix.shape)
        products += times * 2 * short * short * (long + short + long)
        sums += times * (3 * short * short + 2 * short * long)  # b G + c G G, and a X + ...
    return {
        **{name: count * hidden for name, count in MUON_OPERATIONS.items()},
        **{"iteration, products": products, "iteration, sums": sums},
        **{f"{name} (AdamW)": count * rest for name, count in ADAMW_OPERATIONS.items()},
    }
