"""The bytes of training and of generating, before anything is allocated.

What enters: a `ModelConfig`, a batch size, the name of an optimizer, a dtype. What leaves: the
bytes of parameters, gradients, optimizer state and activations; as the textbook adds them up, and
as they lie in memory at the worst moment of a step of this implementation.

Parameters, gradients and optimizer state are in float32 whatever the dtype: that is the dtype of
the products and of what they read (autocast).

>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> textbook_memory(config)  # bytes = per_sequence * batch + once
Line(per_sequence_bytes=15517753344, once_bytes=34032921600)
>>> largest_textbook_batch(config, memory_bytes=80 * 10**9)
2
>>> memory = training_memory(config, microbatch_size=2)
>>> memory.activations_bytes, memory.peak_bytes
(24023550208, 49986183628)
"""

from dataclasses import dataclass
from typing import NamedTuple

from tilth.accounting.activations import DTYPE_BYTES, WIDE, fast_path, textbook
from tilth.accounting.parameters import count_parameters, count_tensors
from tilth.config.model import ModelConfig
from tilth.schema import check_choice, check_int

OPTIMIZERS = ("adamw", "muon", "sgd")
# Of `tilth.optim`, which needs torch: a test compares them.
CHUNK_TOKENS = 512
STACK_ELEMENTS = 1 << 24


class Line(NamedTuple):
    """per_sequence_bytes * batch + once_bytes."""

    per_sequence_bytes: int
    once_bytes: int

    def bytes(self, batch_size: int) -> int:
        """For a batch."""
        return self.per_sequence_bytes * batch_size + self.once_bytes


@dataclass(frozen=True)
class TrainingMemory:
    """What a step of this implementation holds (fast path, uncompiled), part by part.

    Not all of it at once: the loss is done before the gradients of the layers begin, and as these
    come the activations go. `peak_bytes` is the worst moment. The Python process and torch itself,
    some 300 MB, are not in it.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    rotation_tables_bytes: int
    activations_bytes: int
    """What autograd keeps, at the end of the forward pass."""
    loss_bytes: int
    """A chunk of logits and what is made of it, beside the activations."""
    backward_bytes: int
    """What the first steps back need for a while, beside the activations."""
    optimizer_step_bytes: int
    """What the update needs for a while."""
    accumulates: bool
    """Whether gradients of earlier microbatches lie there from the start."""

    @property
    def always_bytes(self) -> int:
        """Parameters, optimizer state and tables, which outlast a step."""
        return self.parameters_bytes + self.optimizer_state_bytes + self.rotation_tables_bytes

    @property
    def peak_bytes(self) -> int:
        """The worst moment of a step: in the loss, on the way back, or in the update."""
        working = self.activations_bytes + max(self.loss_bytes, self.backward_bytes)
        if self.accumulates:
            working += self.gradients_bytes
        return self.always_bytes + max(working, self.gradients_bytes + self.optimizer_step_bytes)


def training_memory(
    config: ModelConfig,
    microbatch_size: int,
    optimizer: str = "adamw",
    dtype: str = "float32",
    *,
    num_microbatches: int = 1,
) -> TrainingMemory:
    """Add up what training holds with this many sequences at a time."""
    check_int("microbatch_size", microbatch_size)
    check_int("num_microbatches", num_microbatches)
    check_choice("dtype", dtype, DTYPE_BYTES)
    total = count_parameters(config).total
    is_rotated = config.position == "rope"
    return TrainingMemory(
        parameters_bytes=WIDE * total,
        gradients_bytes=WIDE * total,
        optimizer_state_bytes=optimizer_state_bytes(config, optimizer),
        rotation_tables_bytes=WIDE * config.context_length * config.d_head if is_rotated else 0,
        activations_bytes=sum(kept.bytes(microbatch_size) for kept in fast_path(config, dtype)),
        loss_bytes=_loss_bytes(config, microbatch_size * config.context_length, dtype),
        backward_bytes=_backward_bytes(config, microbatch_size * config.context_length, dtype),
        optimizer_step_bytes=_optimizer_step_bytes(config, optimizer),
        accumulates=num_microbatches > 1,
    )


def optimizer_state_elements(config: ModelConfig, optimizer: str) -> int:
    """Two moments for AdamW, none for SGD; for Muon one momentum for each hidden matrix."""
    check_choice("optimizer", optimizer, OPTIMIZERS)
    parameters = count_parameters(config)
    if optimizer == "sgd":
        return 0
    hidden = parameters.attention + parameters.feed_forward if optimizer == "muon" else 0
    return hidden + 2 * (parameters.total - hidden)


def optimizer_state_bytes(config: ModelConfig, optimizer: str) -> int:
    """The state as it is allocated: AdamW and SGD also count the steps of each tensor."""
    tensors = count_tensors(config)
    counters = tensors.total - (tensors.hidden if optimizer == "muon" else 0)
    return WIDE * (optimizer_state_elements(config, optimizer) + counters)


def textbook_memory(config: ModelConfig, optimizer: str = "adamw", dtype: str = "float32") -> Line:
    """Everything at once: parameters, gradients, moments, and the result of each step."""
    check_choice("dtype", dtype, DTYPE_BYTES)
    total = count_parameters(config).total
    always = WIDE * (2 * total + optimizer_state_elements(config, optimizer))
    return Line(sum(kept.per_sequence_bytes for kept in textbook(config, dtype)), always)


def largest_textbook_batch(
    config: ModelConfig, memory_bytes: float, optimizer: str = "adamw", dtype: str = "float32"
) -> int:
    """The most sequences that fit by the textbook; 0 if not even one does."""
    line = textbook_memory(config, optimizer, dtype)
    return max(0, int(memory_bytes - line.once_bytes) // line.per_sequence_bytes)


def largest_batch(
    config: ModelConfig,
    memory_bytes: float,
    optimizer: str = "adamw",
    dtype: str = "float32",
    *,
    num_microbatches: int = 1,
) -> int:
    """The most sequences at a time that fit in this implementation; 0 if not even one does."""

    def fits(size: int) -> bool:
        memory = training_memory(config, size, optimizer, dtype, num_microbatches=num_microbatches)
        return memory.peak_bytes <= memory_bytes

    if not fits(1):
        return 0
    low, high = 1, 2  # the first fits, the second will not
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cache_bytes(config: ModelConfig, batch_size: int = 1, dtype: str = "float32") -> int:
    """The keys and values of `context_length` tokens, which generation keeps in every layer."""
    check_int("batch_size", batch_size)
    check_choice("dtype", dtype, DTYPE_BYTES)
    width = 2 * config.num_kv_heads * config.d_head
    return batch_size * config.num_layers * config.context_length * width * DTYPE_BYTES[dtype]


def _loss_bytes(config: ModelConfig, tokens: int, dtype: str) -> int:
    """`chunked_cross_entropy` at its widest, beside the gradients that it keeps."""
    narrow = DTYPE_BYTES[dtype]
    mixed = narrow < WIDE
    matrix = config.vocab_size * config.d_model
    chunk = min(CHUNK_TOKENS, tokens) * config.vocab_size
    hidden = tokens * config.d_model * (WIDE + narrow if mixed else WIDE)
    # While a chunk's products are taken, its probabilities are there, where its logits were; while
    # the next chunk is made, those of the last one are there too.
    copies = 2 * narrow if mixed else 0  # of the logits and of their gradient
    products = chunk * (WIDE + copies) + matrix * narrow
    next_chunk = chunk * (2 * WIDE + copies)
    widest = max(products, next_chunk if tokens > CHUNK_TOKENS else 0)
    return hidden + widest + (matrix * narrow if mixed else 0)


def _backward_bytes(config: ModelConfig, tokens: int, dtype: str) -> int:
    """The last feed-forward, where two gradients as wide as d_ff come before anything goes."""
    narrow = DTYPE_BYTES[dtype]
    stream = tokens * config.d_model * WIDE
    gone = 2 * stream if config.norm != "none" else 0  # of the norm that comes after it
    in_norm = 3 * stream if config.norm != "none" else 0
    in_ffn = 2 * tokens * config.d_ff * narrow + config.d_ff * config.d_model * WIDE - gone
    return max(in_norm, in_ffn)


def _optimizer_step_bytes(config: ModelConfig, optimizer: str) -> int:
    """Muon takes matrices of one shape as a stack; the other updates are done in place."""
    if optimizer != "muon":
        return 0
    d_model, d_kv, d_ff = config.d_model, config.num_kv_heads * config.d_head, config.d_ff
    matrices = [(d_model, d_model)] * 2 + [(d_kv, d_model)] * 2 + [(d_model, d_ff)]
    matrices += [(d_ff, d_model)] * (2 if config.ffn == "swiglu" else 1)
    largest = 0
    for rows, columns in set(matrices):
        count = config.num_layers * matrices.count((rows, columns))
        count = min(count, max(1, STACK_ELEMENTS // (rows * columns)))
        gram = min(rows, columns) ** 2
        # The momentum, the iterate before and after, and two Gram matrices.
        largest = max(largest, WIDE * count * (3 * rows * columns + 2 * gram))
    return largest
