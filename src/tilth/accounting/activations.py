"""What a forward pass keeps for its backward pass: three lists of tensors.

What enters: a `ModelConfig` and the dtype of the products. What leaves: one `Kept` for each tensor,
with its bytes for one sequence of `context_length` tokens, and those that do not grow with the
batch. `textbook` is the list that courses count with; `definition_path` and `fast_path` are what
this implementation keeps, and a test holds them equal to what autograd saves.

In bfloat16 and float16 the products, and what they read, are narrow (autocast); the residual
stream, the norms and the softmax stay in float32, and so do the parameters.

>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> sum(kept.per_sequence_bytes for kept in textbook(config))
15517753344
>>> sum(kept.per_sequence_bytes for kept in fast_path(config))
9147592704
"""

from dataclasses import dataclass

from tilth.config.model import ModelConfig

DTYPE_BYTES = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
"""Of what a product reads; tf32 is float32 in memory and shorter inside the product."""
WIDE = 4
INTEGER = 8  # a token id, as the model is given it


@dataclass(frozen=True)
class Kept:
    """A tensor that waits for the backward pass, summed over the layers that have it."""

    name: str
    component: str
    per_sequence_bytes: int
    once_bytes: int = 0
    """However many sequences there are."""

    def bytes(self, batch_size: int) -> int:
        """For a whole batch."""
        return self.per_sequence_bytes * batch_size + self.once_bytes


class _Notes:
    """A list of `Kept` in the making: widths in elements a token become bytes a sequence."""

    def __init__(self, config: ModelConfig) -> None:
        self.tokens, self.layers = config.context_length, config.num_layers
        self.kept: list[Kept] = []

    def block(self, component: str, name: str, width: int, size: int) -> None:
        """Note `width` elements of `size` bytes, for each token in each block."""
        if width:
            per_sequence_bytes = self.layers * self.tokens * width * size
            self.kept.append(Kept(name, component, per_sequence_bytes))

    def ends(self, component: str, name: str, width: int, size: int) -> None:
        """Note what stands before the first block or after the last one."""
        if width:
            self.kept.append(Kept(name, component, self.tokens * width * size))

    def once(self, component: str, name: str, elements: int, size: int) -> None:
        """Note what does not grow with the batch."""
        if elements:
            self.kept.append(Kept(name, component, 0, elements * size))


def textbook(config: ModelConfig, dtype: str = "float32") -> list[Kept]:
    """The list of Stanford's CS336, assignment 1: the result of each step, all in one dtype.

    Of the feed-forward it names the two products around SiLU and SiLU itself: the product of the
    gate `w3`, and what the gate lets pass, are not in it.
    """
    notes, size = _Notes(config), DTYPE_BYTES[dtype]
    d_model, d_kv = config.d_model, config.num_kv_heads * config.d_head
    scores = config.num_heads * config.context_length  # for each token
    notes.block("norms", "norms", 2 * d_model if config.norm != "none" else 0, size)
    notes.block("norms", "query and key norms", d_model + d_kv if config.qk_norm else 0, size)
    notes.block("attention", "queries, keys, values", d_model + 2 * d_kv, size)
    notes.block("attention", "scores", scores, size)
    notes.block("attention", "softmax", scores, size)
    notes.block("attention", "weighted sum", d_model, size)
    notes.block("attention", "output projection", d_model, size)
    notes.block("feed-forward", "w1 product", config.d_ff, size)
    notes.block("feed-forward", "SiLU", config.d_ff, size)
    notes.block("feed-forward", "w2 product", d_model, size)
    notes.ends("norms", "final norm", d_model if config.norm == "pre" else 0, size)
    notes.ends("head and loss", "logits", config.vocab_size, size)
    notes.ends("head and loss", "cross-entropy", config.vocab_size, size)
    return notes.kept


def definition_path(config: ModelConfig, dtype: str = "float32") -> list[Kept]:
    """What `TransformerLM(config).use_fast_path(False)` and `cross_entropy` keep."""
    notes, narrow = _Notes(config), DTYPE_BYTES[dtype]
    mixed = narrow < WIDE  # then autocast makes a narrow copy for each product
    d_model, d_kv, d_ff = config.d_model, config.num_kv_heads * config.d_head, config.d_ff
    heads, scores = config.num_heads, config.num_heads * config.context_length
    products_of_ffn = 2 if config.ffn == "swiglu" else 1  # that read the same input
    _note_norms(notes, config)
    notes.block("attention", "input", (3 if mixed else 1) * d_model, narrow)
    _note_qk_norm_inputs(notes, config)
    notes.block("attention", "queries, keys, values", 3 * d_model, narrow)
    notes.once("attention", "causal mask", config.num_layers * config.context_length**2, 1)
    notes.block("attention", "exponentials of scores", scores, WIDE)
    notes.block("attention", "their sums, twice", 2 * heads, WIDE)
    notes.block("attention", "softmax", scores, narrow)
    notes.block("attention", "weighted sum", d_model, narrow)
    inputs = products_of_ffn if mixed else 1
    notes.block("feed-forward", "input", inputs * d_model, narrow)
    notes.block("feed-forward", "w1 product, sigmoid, SiLU", 3 * d_ff, narrow)
    if config.ffn == "swiglu":
        notes.block("feed-forward", "w3 product, gated product", 2 * d_ff, narrow)
    notes.ends("head and loss", "input", d_model, narrow)
    notes.ends("head and loss", "logits and their exponentials", 2 * config.vocab_size, WIDE)
    notes.ends("head and loss", "sums", 1, WIDE)
    notes.ends("head and loss", "targets", 1, INTEGER)
    if mixed:
        of_attention = 2 * d_model * (d_model + d_kv)
        of_ffn = (1 + products_of_ffn) * d_model * d_ff
        elements = config.num_layers * (of_attention + of_ffn) + config.vocab_size * d_model
        notes.once("weights", "narrow copies", elements, narrow)
    return notes.kept


def fast_path(config: ModelConfig, dtype: str = "float32") -> list[Kept]:
    """What training keeps: fused products, fused attention and `chunked_cross_entropy`.

    The attention kernel keeps its inputs, its output and one number for each query, from which it
    makes the scores again. The loss keeps gradients instead of logits. Uncompiled, on a CPU: a
    compiler may decide to keep less.
    """
    notes, narrow = _Notes(config), DTYPE_BYTES[dtype]
    mixed = narrow < WIDE
    d_model, d_kv, d_ff = config.d_model, config.num_kv_heads * config.d_head, config.d_ff
    grouped = config.num_kv_heads < config.num_heads
    copied = config.position == "rope" or config.qk_norm  # into queries and keys of their own
    gated = config.ffn == "swiglu"
    _note_norms(notes, config)
    notes.block("attention", "input", d_model, narrow)
    if mixed:
        _note_qk_norm_inputs(notes, config)
    elif config.qk_norm:  # the inputs are parts of the one product below
        _note_qk_norm_results(notes, config)
    # Queries, keys and values come from one product: who keeps one of them keeps it whole. Keys and
    # values that groups share are repeated into tensors of their own.
    if not grouped or not copied or (config.qk_norm and not mixed):
        notes.block("attention", "query-key-value product", d_model + 2 * d_kv, narrow)
    notes.block("attention", "queries", d_model if copied else 0, narrow)
    notes.block("attention", "keys", d_model if copied or grouped else 0, narrow)
    notes.block("attention", "values", d_model if grouped else 0, narrow)
    notes.block("attention", "log-sum-exp of scores", config.num_heads, WIDE)
    notes.block("attention", "weighted sum", d_model, narrow)
    # The kernel writes its output in the order of the queries, which is a rotation's own or that of
    # the product, where the heads of a token are already side by side.
    rotated = config.position == "rope"
    notes.block("attention", "weighted sum, heads joined", d_model if rotated else 0, narrow)
    notes.block("feed-forward", "input", d_model, narrow)
    if gated:
        notes.block("feed-forward", "w1 and w3 product", 2 * d_ff, narrow)
        notes.block("feed-forward", "SiLU, gated product", 2 * d_ff, narrow)
    else:
        notes.block("feed-forward", "w1 product, sigmoid, SiLU", 3 * d_ff, narrow)
    notes.ends("head and loss", "gradient of the hidden states", d_model, narrow)
    notes.once("head and loss", "gradient of the output matrix", config.vocab_size * d_model, WIDE)
    # One matrix of several, in each block; in half precision also copies of the others.
    joined = d_model * (d_model + 2 * d_kv) + (2 * d_model * d_ff if gated else 0)
    others = d_model * d_model + d_model * d_ff * (1 if gated else 2)
    elements = config.num_layers * (joined + (others if mixed else 0))
    notes.once("weights", "joined or narrow copies", elements, narrow)
    return notes.kept


def _note_norms(notes: _Notes, config: ModelConfig) -> None:
    """Ids, and the norms of the stream: what they read, that divided by its root mean square."""
    notes.ends("embedding", "token ids", 1, INTEGER)
    if config.norm != "none":
        notes.block("norms", "inputs and normalised", 4 * config.d_model, WIDE)
        notes.block("norms", "root mean squares", 2, WIDE)
    if config.norm == "pre":
        notes.ends("norms", "of the final norm", 2 * config.d_model + 1, WIDE)


def _note_qk_norm_inputs(notes: _Notes, config: ModelConfig) -> None:
    if config.qk_norm:
        width = config.d_model + config.num_kv_heads * config.d_head
        notes.block("norms", "queries and keys to normalise", width, WIDE)
        _note_qk_norm_results(notes, config)


def _note_qk_norm_results(notes: _Notes, config: ModelConfig) -> None:
    width = config.d_model + config.num_kv_heads * config.d_head
    notes.block("norms", "normalised queries and keys", width, WIDE)
    rows = config.num_heads + config.num_kv_heads
    notes.block("norms", "root mean squares of queries and keys", rows, WIDE)
