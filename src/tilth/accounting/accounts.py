"""The whole account of a model: everything that this room can say, as one value.

What enters: a model (by name, as a config, or with its whole training config) and, if wanted, a
batch size, a length, an optimizer, a dtype, a piece of hardware. What leaves: an `Account`, which
prints as tables and converts to plain values for JSON.

>>> result = account("gpt2-xl", batch_size=1024, steps=400_000, hardware="a100")
>>> result.parameters.total, result.forward_flops
(2127057600, 4513336524800)
>>> round(result.cost.seconds / 86400)
6584
>>> account("gpt2-xl", batch_size=0)
Traceback (most recent call last):
ValueError: batch_size must be at least 1, not 0.
"""

from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from tilth.accounting.activations import Kept, fast_path, textbook
from tilth.accounting.budget import Optimum, compute_optimal
from tilth.accounting.flops import (
    Elementwise,
    Product,
    flops_by_component,
    forward_elementwise,
    forward_products,
    optimizer_operations,
    training_flops,
)
from tilth.accounting.hardware import (
    AMOUNT,
    DEFAULT_MFU,
    Cost,
    Hardware,
    cost_of,
    cost_of_steps,
    find_hardware,
)
from tilth.accounting.memory import (
    Line,
    TrainingMemory,
    cache_bytes,
    largest_batch,
    largest_textbook_batch,
    textbook_memory,
    training_memory,
)
from tilth.accounting.parameters import Parameters, count_parameters
from tilth.accounting.report import render
from tilth.accounting.subjects import Subject, find_subject, subject_of
from tilth.config import TrainingConfig
from tilth.config.limits import MAX_COUNT
from tilth.config.model import ModelConfig
from tilth.files import StrPath
from tilth.schema import Range, check_float, check_int

COUNT = Range(at_least=1, at_most=MAX_COUNT)


@dataclass(frozen=True)
class Account:
    """What a model costs; `forward_flops` and its parts are those of one sequence."""

    name: str
    notes: tuple[str, ...]
    config: ModelConfig
    batch_size: int
    num_microbatches: int
    steps: int | None
    optimizer: str
    dtype: str
    recompute: bool
    parameters: Parameters
    products: list[Product]
    elementwise: list[Elementwise]
    optimizer_operations: dict[str, int]
    textbook_activations: list[Kept]
    textbook_memory: Line
    activations: list[Kept]
    memory: TrainingMemory
    cache_bytes: int
    """The key/value cache of one sequence of context_length tokens."""
    memory_limit_bytes: float | None
    largest_textbook_batch: int | None
    largest_batch: int | None
    hardware: Hardware | None
    cost: Cost | None
    """Of all steps; of one, where their number is unknown."""
    optimum: Optimum | None
    """What the hours on the hardware would be best spent on."""

    @property
    def forward_flops(self) -> int:
        """The products of a forward pass over one sequence."""
        return sum(product.flops for product in self.products)

    @property
    def flops_per_step(self) -> int:
        """The products of a step, forward and backward."""
        return training_flops(self.config, self.batch_size, recompute=self.recompute)

    @property
    def flops_per_token(self) -> int:
        """The products of training, for each token."""
        return self.flops_per_step // (self.batch_size * self.config.context_length)

    @property
    def run_flops(self) -> int | None:
        """The products of all steps, if their number is known."""
        return None if self.steps is None else self.steps * self.flops_per_step

    @property
    def run_tokens(self) -> int | None:
        """The tokens of all steps, if their number is known."""
        tokens_per_step = self.batch_size * self.config.context_length
        return None if self.steps is None else self.steps * tokens_per_step

    def __str__(self) -> str:
        return render(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; it is also what is printed."""
        microbatch_size = -(-self.batch_size // self.num_microbatches)
        implementation = Line(
            sum(kept.per_sequence_bytes for kept in self.activations),
            sum(kept.once_bytes for kept in self.activations),
        )
        return {
            "name": self.name,
            "notes": list(self.notes),
            "model": self.config.to_dict(),
            "training": {
                "batch_size": self.batch_size,
                "microbatch_size": microbatch_size,
                "steps": self.steps,
                "tokens": self.run_tokens,
                "optimizer": self.optimizer,
                "dtype": self.dtype,
                "recompute": self.recompute,
            },
            "parameters": {
                **asdict(self.parameters),
                "total": self.parameters.total,
                "without_embedding": self.parameters.without_embedding,
                "without_embedding_and_head": self.parameters.without_embedding_and_head,
                "bytes": self.memory.parameters_bytes,
            },
            "flops": {
                "products": [
                    {**asdict(product), "flops": product.flops} for product in self.products
                ],
                "by_component": flops_by_component(self.config),
                "forward": self.forward_flops,
                "backward": 2 * self.forward_flops,
                "elementwise": {entry.name: entry.flops for entry in self.elementwise},
                "elementwise_total": sum(entry.flops for entry in self.elementwise),
                "optimizer": self.optimizer_operations,
                "optimizer_total": sum(self.optimizer_operations.values()),
                "per_token": self.flops_per_token,
                "per_step": self.flops_per_step,
                "per_run": self.run_flops,
            },
            "memory": {
                "textbook": {
                    **self.textbook_memory._asdict(),
                    "bytes": self.textbook_memory.bytes(microbatch_size),
                    "activations": [asdict(kept) for kept in self.textbook_activations],
                    "largest_batch": self.largest_textbook_batch,
                },
                "implementation": {
                    **asdict(self.memory),
                    **implementation._asdict(),
                    "peak_bytes": self.memory.peak_bytes,
                    "activations": [asdict(kept) for kept in self.activations],
                    "largest_batch": self.largest_batch,
                },
                "limit_bytes": self.memory_limit_bytes,
                "cache_bytes": self.cache_bytes,
            },
            "hardware": None if self.hardware is None else asdict(self.hardware),
            "cost": None if self.cost is None else asdict(self.cost),
            "optimum": None if self.optimum is None else asdict(self.optimum),
        }


def account(
    subject: StrPath | ModelConfig | TrainingConfig,
    *,
    batch_size: int | None = None,
    num_microbatches: int | None = None,
    steps: int | None = None,
    optimizer: str | None = None,
    dtype: str | None = None,
    hardware: str | Hardware | None = None,
    mfu: float | None = None,
    hours: float | None = None,
    price_per_hour: float | None = None,
    memory_bytes: float | None = None,
    recompute: bool = False,
    **changes: Any,  # noqa: ANN401, fields of a ModelConfig
) -> Account:
    """Account for a model; `changes` are fields of its config to be taken instead.

    `subject` is the name of a shape or a recipe, the path of a run or a config file, or a config.
    `hardware` is a name of `HARDWARE`, or "this" for a measurement. `mfu` is the share of the peak
    that is reached: half of it, or what follows from the measurement. `hours` on the hardware give
    the compute-optimal size. `memory_bytes`, or else that of the hardware, gives the largest batch.
    """
    found = _subject(subject)
    config = found.config.changed(changes)
    batch_size = check_int("batch_size", _first(batch_size, found.batch_size, 1), COUNT)
    num_microbatches = check_int(
        "num_microbatches", _first(num_microbatches, found.num_microbatches), COUNT
    )
    if num_microbatches > batch_size:
        raise ValueError(f"a batch of {batch_size} cannot be cut into {num_microbatches}.")
    steps = _first(steps, found.steps)
    if steps is not None:
        steps = check_int("steps", steps, COUNT)
    optimizer = _first(optimizer, found.optimizer, "adamw")
    dtype = _first(dtype, found.dtype, "float32")
    memory = training_memory(
        config,
        -(-batch_size // num_microbatches),
        optimizer,
        dtype,
        num_microbatches=num_microbatches,
    )
    device = find_hardware(hardware) if isinstance(hardware, str) else hardware
    if memory_bytes is not None:
        check_float("memory", memory_bytes, AMOUNT)
    elif device is not None:
        memory_bytes = device.memory_bytes
    textbook_batch, batch = None, None
    if memory_bytes is not None:
        textbook_batch = largest_textbook_batch(config, memory_bytes, optimizer, dtype)
        batch = largest_batch(
            config, memory_bytes, optimizer, dtype, num_microbatches=num_microbatches
        )
    cost = None
    if device is not None:
        if mfu is None and device.bytes_per_second is not None:
            device.peak(dtype)  # it may have none
            cost = cost_of_steps(
                *(config, batch_size, steps or 1, device, optimizer, price_per_hour),
                recompute=recompute,
            )
        else:
            run_flops = (steps or 1) * training_flops(config, batch_size, recompute=recompute)
            cost = cost_of(run_flops, device, dtype, _first(mfu, DEFAULT_MFU), price_per_hour)
    return Account(
        name=found.name,
        notes=_notes(found, config),
        config=config,
        batch_size=batch_size,
        num_microbatches=num_microbatches,
        steps=steps,
        optimizer=optimizer,
        dtype=dtype,
        recompute=recompute,
        parameters=count_parameters(config),
        products=forward_products(config),
        elementwise=forward_elementwise(config),
        optimizer_operations=optimizer_operations(config, optimizer),
        textbook_activations=textbook(config, dtype),
        textbook_memory=textbook_memory(config, optimizer, dtype),
        activations=fast_path(config, dtype),
        memory=memory,
        cache_bytes=cache_bytes(config, 1, dtype),
        memory_limit_bytes=memory_bytes,
        largest_textbook_batch=textbook_batch,
        largest_batch=batch,
        hardware=device,
        cost=cost,
        optimum=_optimum(hours, device, cost, dtype),
    )


def _subject(subject: StrPath | ModelConfig | TrainingConfig) -> Subject:
    if isinstance(subject, str | PathLike):
        return find_subject(str(subject))
    if isinstance(subject, ModelConfig):
        return Subject("a model", subject)
    return subject_of(subject.recipe, subject)


def _notes(found: Subject, config: ModelConfig) -> tuple[str, ...]:
    """What is said of a shape by name, which holds at any length but for no other shape."""
    named, given = found.config.to_dict(), config.to_dict()
    changed = [n for n in named if n != "context_length" and named[n] != given[n]]
    if changed:
        return (f"Not {found.name} itself: changed are {', '.join(changed)}.",)
    return found.notes


def _optimum(
    hours: float | None, device: Hardware | None, cost: Cost | None, dtype: str
) -> Optimum | None:
    if hours is None:
        return None
    check_float("hours", hours, AMOUNT)
    if device is None or cost is None:
        raise ValueError("hours need a hardware to be spent on; name one, or this.")
    return compute_optimal(hours * 3600 * device.peak(dtype) * cost.mfu)


def _first(*values: Any) -> Any:  # noqa: ANN401, of whatever type they are
    """The first value that is there; None if none is."""
    return next((value for value in values if value is not None), None)
