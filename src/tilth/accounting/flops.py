"""The floating-point operations of a model: one line for each matrix product, and the rest.

What enters: a `ModelConfig`, a batch size, a number of tokens. What leaves: the products of a
forward pass, of which an (m, n) matrix times an (n, p) matrix takes 2mnp operations: m p sums of n
products. What is done element by element (norms, rotations, softmax, SiLU, sums) is a list of its
own, since papers leave it out; so are the operations of an optimizer.

Attention is counted whole, although a causal mask makes half of its scores unnecessary: so do the
papers, and so does the hardware unless a kernel skips blocks.

>>> config = ModelConfig(10_000, context_length=256, d_model=512, num_layers=4, num_heads=16)
>>> round(training_flops(config) / 256 / 1e6, 1)  # millions a token
111.7
>>> round(elementwise_flops(config) / forward_flops(config), 3)
0.005
"""

from dataclasses import dataclass

from tilth.accounting.parameters import count_parameters
from tilth.config.model import ModelConfig
from tilth.schema import check_int

MUON_ITERATIONS = 5  # of `tilth.optim.muon`, which needs torch: a test compares them

# Operations for each element, in the order in which the formulas of `docs/optimizers.md` do them.
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
        """2mnp, each time."""
        return 2 * self.m * self.n * self.p * self.times


@dataclass(frozen=True)
class Elementwise:
    """Operations that are done to each number of a tensor alone, or to sum it up."""

    name: str
    flops: int


def forward_products(
    config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None
) -> list[Product]:
    """List the products of a forward pass over `batch_size` sequences of `num_tokens`."""
    rows, seq = _rows(config, batch_size, num_tokens)
    d_model, d_ff, d_head = config.d_model, config.d_ff, config.d_head
    d_kv = config.num_kv_heads * d_head
    layers, heads = config.num_layers, config.num_layers * batch_size * config.num_heads
    gates = [Product("w3", "feed-forward", rows, d_model, d_ff, layers)]
    return [
        Product("q_proj", "attention projections", rows, d_model, d_model, layers),
        Product("k_proj", "attention projections", rows, d_model, d_kv, layers),
        Product("v_proj", "attention projections", rows, d_model, d_kv, layers),
        Product("scores", "attention scores and values", seq, d_head, seq, heads),
        Product("weighted sum", "attention scores and values", seq, seq, d_head, heads),
        Product("output_proj", "attention projections", rows, d_model, d_model, layers),
        Product("w1", "feed-forward", rows, d_model, d_ff, layers),
        *(gates if config.ffn == "swiglu" else []),
        Product("w2", "feed-forward", rows, d_ff, d_model, layers),
        Product("lm_head", "head", rows, d_model, config.vocab_size, 1),
    ]


def flops_by_component(
    config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None
) -> dict[str, int]:
    """The products of a forward pass, summed up by component."""
    sums: dict[str, int] = {}
    for product in forward_products(config, batch_size, num_tokens):
        sums[product.component] = sums.get(product.component, 0) + product.flops
    return sums


def forward_flops(config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None) -> int:
    """The operations of a forward pass, by its products."""
    return sum(product.flops for product in forward_products(config, batch_size, num_tokens))


def training_flops(
    config: ModelConfig,
    batch_size: int = 1,
    num_tokens: int | None = None,
    *,
    recompute: bool = False,
) -> int:
    """The operations of a step: forward, and twice as many backward.

    Backward has two products for each of forward's: one for the gradient of either factor.
    `recompute` adds a second forward pass, whose activations were thrown away to save memory.
    """
    return (4 if recompute else 3) * forward_flops(config, batch_size, num_tokens)


def forward_elementwise(
    config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None
) -> list[Elementwise]:
    """List what a forward pass with its loss does besides products; exp and a root count as one."""
    rows, seq = _rows(config, batch_size, num_tokens)
    in_layers = rows * config.num_layers
    d_model, d_kv = config.d_model, config.num_kv_heads * config.d_head
    norm = 4  # square, sum, times the inverse root, times the weight
    norms = {"pre": 2 * config.num_layers + 1, "post": 2 * config.num_layers, "none": 0}
    listed = [
        Elementwise("norms", norm * rows * d_model * norms[config.norm]),
        Elementwise(
            "query and key norms", norm * in_layers * (d_model + d_kv) if config.qk_norm else 0
        ),
        # a turned pair: four products and two sums
        Elementwise("rotations", 3 * in_layers * (d_model + d_kv) * (config.position == "rope")),
        Elementwise("scaled queries", in_layers * d_model),
        # maximum, difference, exponential, sum, quotient
        Elementwise("softmax", 5 * in_layers * config.num_heads * seq),
        # the sigmoid has a sign, an exponential, a sum and a quotient; then times x, times the gate
        Elementwise("SiLU", (6 if config.ffn == "swiglu" else 5) * in_layers * config.d_ff),
        Elementwise("residual sums", 2 * in_layers * d_model),
        # maximum, difference, exponential, sum
        Elementwise("cross-entropy", 4 * rows * config.vocab_size),
    ]
    return [entry for entry in listed if entry.flops]


def elementwise_flops(
    config: ModelConfig, batch_size: int = 1, num_tokens: int | None = None
) -> int:
    """The operations of a forward pass that are not products."""
    return sum(entry.flops for entry in forward_elementwise(config, batch_size, num_tokens))


def optimizer_operations(config: ModelConfig, optimizer: str) -> dict[str, int]:
    """The operations of one update, part by part; Muon's are those of the hidden matrices first.

    Muon's iteration X <- a X + (b G + c G G) X with G = X X^T has three products; AdamW takes the
    other parameters.
    """
    parameters = count_parameters(config)
    if optimizer == "sgd":
        return _times(SGD_OPERATIONS, parameters.total)
    if optimizer == "adamw":
        return _times(ADAMW_OPERATIONS, parameters.total)
    assert optimizer == "muon", optimizer
    hidden = parameters.attention + parameters.feed_forward
    rest = {f"{name} (AdamW)": count for name, count in ADAMW_OPERATIONS.items()}
    return (
        _times(MUON_OPERATIONS, hidden)
        | _orthogonalization(config)
        | _times(rest, parameters.total - hidden)
    )


def _orthogonalization(config: ModelConfig) -> dict[str, int]:
    d_model, d_kv, d_ff = config.d_model, config.num_kv_heads * config.d_head, config.d_ff
    matrices = [(d_model, d_model)] * 2 + [(d_model, d_kv)] * 2
    matrices += [(d_model, d_ff)] * (3 if config.ffn == "swiglu" else 2)
    products, sums = 0, 0
    for sides in matrices:
        short, long = sorted(sides)
        products += 2 * short * short * (long + short + long)
        sums += 3 * short * short + 2 * short * long  # b G + c G G, and a X + ...
    times = MUON_ITERATIONS * config.num_layers
    return {"iteration, products": times * products, "iteration, sums": times * sums}


def _times(operations: dict[str, int], elements: int) -> dict[str, int]:
    return {name: count * elements for name, count in operations.items()}


def _rows(config: ModelConfig, batch_size: int, num_tokens: int | None) -> tuple[int, int]:
    """The tokens of all sequences, and those of one."""
    check_int("batch_size", batch_size)
    seq = config.context_length if num_tokens is None else check_int("num_tokens", num_tokens)
    return batch_size * seq, seq
