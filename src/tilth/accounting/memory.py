"""Bytes of training and generation, from a config.

`textbook_memory` adds everything up as courses do; `training_memory` is the peak of a training step
of this implementation. Parameters, gradients and optimizer state are float32 for every dtype: the
dtype is that of matrix products and their inputs (autocast).

>>> config = ModelConfig(50_257, 1024, d_model=1600, num_layers=48, num_heads=25, d_ff=6400)
>>> textbook_memory(config)
BatchBytes(per_sequence_bytes=15517753344, once_bytes=34032921600)
>>> largest_textbook_batch(config, memory_bytes=80 * 10**9)
2
>>> memory = training_memory(config, microbatch_size=2)
>>> memory.activations_bytes, memory.peak_bytes
(24023550208, 49986183628)
"""

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

from tilth.accounting import activations
from tilth.accounting.activations import DTYPE_BYTES, WIDE, BatchBytes, total_bytes
from tilth.accounting.parameters import count_parameters, hidden_matrices, parameter_tensors
from tilth.config.model import ModelConfig
from tilth.schema import check_choice, check_int

OPTIMIZERS = ("adamw", "muon", "sgd")
# Of `tilth.model.loss` and `tilth.optim.muon`, which need torch: a test compares them.
CHUNK_TOKENS = {"cpu": 512, "cuda": 8192}
STACK_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes of a training step of this implementation (fast path, uncompiled), by part.

    Not all parts exist at once: the loss ends before the backward pass of the layers begins, and
    the backward pass frees activations as it allocates gradients. `peak_bytes` is the maximum. The
    Python process with torch, about 300 MB, is not included.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: int
    rotation_tables_bytes: int
    activations_bytes: int
    """Tensors that autograd has saved at the end of the forward pass."""
    loss_bytes: int
    """Temporary tensors of the loss, in addition to the activations."""
    backward_bytes: int
    """Temporary tensors at the start of the backward pass, in addition to the activations."""
    optimizer_step_bytes: int
    """Temporary tensors of the update."""
    accumulates: bool
    """Whether gradients exist during the forward pass: of earlier microbatches, or in buckets."""

    @property
    def always_bytes(self) -> int:
        """Parameters, optimizer state and rotation tables, which exist between steps."""
        return self.parameters_bytes + self.optimizer_state_bytes + self.rotation_tables_bytes

    @property
    def peak_bytes(self) -> int:
        """The maximum over a step: in the loss, in the backward pass, or in the update."""
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
    device: str = "cpu",
) -> TrainingMemory:
    """Return the bytes of a training step with microbatches of `microbatch_size` sequences.

    `device` is the type of the device: the loss has larger chunks on CUDA.
    """
    check_int("microbatch_size", microbatch_size)
    check_int("num_microbatches", num_microbatches)
    check_choice("dtype", dtype, DTYPE_BYTES)
    parameters_bytes = WIDE * count_parameters(config).total
    rotates, tokens = config.position == "rope", microbatch_size * config.context_length
    return TrainingMemory(
        parameters_bytes=parameters_bytes,
        gradients_bytes=parameters_bytes,
        optimizer_state_bytes=optimizer_state_bytes(config, optimizer),
        rotation_tables_bytes=WIDE * config.context_length * config.d_head * rotates,
        activations_bytes=total_bytes(activations.fast_path(config, dtype)).bytes(microbatch_size),
        loss_bytes=_loss_bytes(config, tokens, DTYPE_BYTES[dtype], device),
        backward_bytes=_backward_bytes(config, tokens, DTYPE_BYTES[dtype]),
        optimizer_step_bytes=_optimizer_step_bytes(config, optimizer),
        accumulates=num_microbatches > 1,
    )


def optimizer_state_elements(config: ModelConfig, optimizer: str) -> int:
    """Two moments for AdamW, none for SGD; for Muon one momentum per hidden matrix."""
    check_choice("optimizer", optimizer, OPTIMIZERS)
    if optimizer == "sgd":
        return 0
    matrices = hidden_matrices(config) if optimizer == "muon" else []
    hidden = sum(matrix.parameters for matrix in matrices)
    return hidden + 2 * (count_parameters(config).total - hidden)


def optimizer_state_bytes(config: ModelConfig, optimizer: str) -> int:
    """Return the allocated state; AdamW and SGD also count the steps of each tensor."""
    counters = sum(tensor.number for tensor in parameter_tensors(config))
    if optimizer == "muon":
        counters -= sum(matrix.number for matrix in hidden_matrices(config))
    return WIDE * (optimizer_state_elements(config, optimizer) + counters)


def textbook_memory(
    config: ModelConfig, optimizer: str = "adamw", dtype: str = "float32"
) -> BatchBytes:
    """Parameters, gradients, moments and the textbook's activations, all at once."""
    check_choice("dtype", dtype, DTYPE_BYTES)
    elements = 2 * count_parameters(config).total + optimizer_state_elements(config, optimizer)
    saved = total_bytes(activations.textbook(config, dtype))
    return BatchBytes(saved.per_sequence_bytes, WIDE * elements)


def largest_textbook_batch(
    config: ModelConfig, memory_bytes: float, optimizer: str = "adamw", dtype: str = "float32"
) -> int:
    """Return the largest batch that fits into `memory_bytes` by the textbook; 0 if none does."""
    memory = textbook_memory(config, optimizer, dtype)
    return max(0, int(memory_bytes - memory.once_bytes) // memory.per_sequence_bytes)


def largest_batch(
    config: ModelConfig,
    memory_bytes: float,
    optimizer: str = "adamw",
    dtype: str = "float32",
    *,
    num_microbatches: int = 1,
) -> int:
    """Return the largest microbatch whose peak fits into `memory_bytes`; 0 if none does."""

    def peak_bytes(size: int) -> int:
        memory = training_memory(config, size, optimizer, dtype, num_microbatches=num_microbatches)
        return memory.peak_bytes

    # The peak grows with the size, so the number of sizes from 1 on that fit is the largest one.
    return bisect_right(range(1, 1 << 60), memory_bytes, key=peak_bytes)


def cache_bytes(config: ModelConfig, batch_size: int = 1, dtype: str = "float32") -> int:
    """Return the key/value cache of `batch_size` sequences of `context_length` tokens."""
    check_int("batch_size", batch_size)
    check_choice("dtype", dtype, DTYPE_BYTES)
    width = 2 * config.num_kv_heads * config.d_head
    return batch_size * config.num_layers * config.context_length * width * DTYPE_BYTES[dtype]


def _loss_bytes(config: ModelConfig, tokens: int, narrow: int, device: str) -> int:
    """Return the peak of `chunked_cross_entropy`, in addition to the gradients that it saves."""
    mixed = narrow < WIDE
    matrix = config.vocab_size * config.d_model
    chunk_tokens = CHUNK_TOKENS.get(device, CHUNK_TOKENS["cpu"])
    chunk = min(chunk_tokens, tokens) * config.vocab_size
    hidden = tokens * config.d_model * (WIDE + narrow * mixed)
    # During a chunk's products, its probabilities have replaced its logits in memory. While the
    # next chunk is computed, the probabilities of the last one still exist.
    copies = 2 * narrow * mixed  # of the logits and of their gradient
    products = chunk * (WIDE + copies) + matrix * narrow
    next_chunk = chunk * (2 * WIDE + copies) * (tokens > chunk_tokens)
    return hidden + max(products, next_chunk) + matrix * narrow * mixed


def _backward_bytes(config: ModelConfig, tokens: int, narrow: int) -> int:
    """Return the peak of the last feed-forward, which holds two gradients of width d_ff."""
    stream = tokens * config.d_model * WIDE * (config.norm != "none")
    freed = 2 * stream  # by the norm after it
    in_ffn = 2 * tokens * config.d_ff * narrow + config.d_ff * config.d_model * WIDE - freed
    return max(3 * stream, in_ffn)


def _optimizer_step_bytes(config: ModelConfig, optimizer: str) -> int:
    """Return the bytes of an update: Muon stacks matrices of one shape, others work in place."""
    if optimizer != "muon":
        return 0
    numbers: Counter[tuple[int, ...]] = Counter()
    for matrix in hidden_matrices(config):
        numbers[matrix.shape] += matrix.number
    largest = 0
    for (rows, columns), number in numbers.items():
        stacked = min(number, max(1, STACK_ELEMENTS // (rows * columns)))
        # The momentum, the iterate before and after, and two Gram matrices.
        elements = 3 * rows * columns + 2 * min(rows, columns) ** 2
        largest = max(largest, WIDE * stacked * elements)
    return largest
