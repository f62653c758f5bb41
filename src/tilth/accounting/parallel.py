"""The memory and the traffic of training in several processes.

>>> from tilth.config.model import ModelConfig
>>> model = ModelConfig(1000, context_length=64, d_model=96, num_layers=2, num_heads=4)
>>> gradient_traffic(model, 1), gradient_traffic(model, 2), gradient_traffic(model, 4)
(0, 1654656, 2481984)
>>> training_memory(model, 8).parameters_bytes, sharded_memory(model, 2, 8).parameters_bytes
(1654656, 827328)
"""

from dataclasses import replace

from tilth.accounting.activations import DTYPE_BYTES
from tilth.accounting.memory import TrainingMemory, optimizer_state_bytes, training_memory
from tilth.accounting.parameters import count_parameters, hidden_matrices
from tilth.config.model import ModelConfig

GRADIENT_BYTES = 4  # gradients are float32
# On a CPU, from the import to a step: code of kernels (22 MB), the process group and its threads.
STEP_BYTES = 40_000_000


def gradient_traffic(model: ModelConfig, ranks: int, *, exact: bool = False) -> int:
    """Return the bytes that each of `ranks` sends in a step, at most, to add up gradients.

    A ring all-reduce of n bytes sends 2 (ranks - 1) / ranks * n. In exact sums, a rank passes the
    sum on once, and its result again in a broadcast.
    """
    size = GRADIENT_BYTES * count_parameters(model).total
    if ranks == 1:
        return 0
    return 2 * size if exact else round(2 * (ranks - 1) / ranks * size)


def whole_memory(
    model: ModelConfig,
    ranks: int,
    microbatch_size: int,
    optimizer: str = "adamw",
    dtype: str = "float32",
    *,
    num_microbatches: int = 1,
    device: str = "cpu",
) -> TrainingMemory:
    """Return the bytes of a training step of a rank that has the whole model: of DDP, or alone.

    Gradients of DDP are views of buckets, which live to the end. It accumulates the gradients of
    microbatches beside them.
    """
    memory = training_memory(
        model,
        microbatch_size,
        optimizer,
        dtype,
        num_microbatches=num_microbatches,
        device=device,
    )
    if ranks == 1:
        return memory
    copies = 2 if memory.accumulates else 1
    return replace(memory, gradients_bytes=copies * memory.gradients_bytes, accumulates=True)


def rank_peak_bytes(memory: TrainingMemory, device: str, *, is_sharded: bool = False) -> int:
    """Return the peak of a rank on a type of device, beyond Python with torch.

    On a CPU, malloc keeps freed memory (`training.allocator`), so the gradients have memory of
    their own, and the matrices that Muon stacks do not fit into the gaps of activations. FSDP
    (`is_sharded`) returns what it frees.
    """
    if device != "cpu":
        return memory.peak_bytes
    if is_sharded:
        return memory.peak_bytes + STEP_BYTES
    kept = replace(memory, accumulates=True)
    return kept.peak_bytes + memory.optimizer_step_bytes + STEP_BYTES


def sharded_traffic(
    model: ModelConfig,
    ranks: int,
    shards: int,
    optimizer: str = "adamw",
    dtype: str = "float32",
    *,
    num_microbatches: int = 1,
) -> int:
    """Return the bytes that each rank sends in a step of FSDP with `shards` ranks a copy.

    A ring all-gather or reduce-scatter of n bytes among s ranks sends (s - 1) / s * n. Each
    microbatch gathers the blocks twice, for the forward and the backward pass, and embedding and
    head once. Gradients are scattered once, and added up among the copies. Muon gathers matrices.
    """
    size = DTYPE_BYTES[dtype]
    total = count_parameters(model).total
    blocks = sum(matrix.parameters for matrix in hidden_matrices(model))
    gathered = num_microbatches * (2 * size * blocks + 4 * (total - blocks))
    if optimizer == "muon":
        gathered += size * blocks
    among_shards = (shards - 1) / shards * (gathered + GRADIENT_BYTES * total)
    copies = ranks // shards
    return round(among_shards + 2 * (copies - 1) / copies * GRADIENT_BYTES * total / shards)


def sharded_memory(
    model: ModelConfig,
    shards: int,
    microbatch_size: int,
    optimizer: str = "adamw",
    dtype: str = "float32",
    *,
    num_microbatches: int = 1,
    device: str = "cpu",
) -> TrainingMemory:
    """Return the bytes of a training step of a rank under FSDP with `shards` ranks a copy.

    A rank has its share of parameters, moments and gradients. Beside them it has the whole
    embedding and head during a step, and the block that it computes: gathered, as parameters, as
    gradients, and as these in one buffer. Until the last microbatch, gradients stay whole.
    """
    whole = training_memory(
        model,
        microbatch_size,
        optimizer,
        dtype,
        num_microbatches=num_microbatches,
        device=device,
    )
    matrices = sum(matrix.parameters for matrix in hidden_matrices(model))
    block = matrices // model.num_layers
    root = 4 * (count_parameters(model).total - matrices)
    return replace(
        whole,
        parameters_bytes=whole.parameters_bytes // shards,
        gradients_bytes=whole.gradients_bytes // (1 if num_microbatches > 1 else shards),
        optimizer_state_bytes=optimizer_state_bytes(model, optimizer) // shards,
        activations_bytes=whole.activations_bytes + root,
        backward_bytes=whole.backward_bytes + root + 2 * block * (DTYPE_BYTES[dtype] + 4),
    )
