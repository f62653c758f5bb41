"""The function `account` and its result: everything that a model costs, as one value.

>>> result = account("gpt2-xl", batch_size=1024, steps=400_000, hardware="a100")
>>> result.parameters.total, result.forward_flops
(2127057600, 4513336524800)
>>> round(result.cost.seconds / 86400)
6584
>>> account("gpt2-xl", batch_size=0)
Traceback (most recent call last):
ValueError: batch_size must be at least 1, not 0.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

from tilth.accounting import activations, flops, memory
from tilth.accounting.activations import BatchBytes, SavedActivation
from tilth.accounting.budget import Optimum, compute_optimal
from tilth.accounting.hardware import AMOUNT, Cost, Hardware, cost_of, cost_of_steps, find_hardware
from tilth.accounting.memory import TrainingMemory
from tilth.accounting.parameters import Parameters, count_parameters
from tilth.accounting.report import render
from tilth.accounting.subjects import Subject, find_subject
from tilth.accounting.tracing import named, with_names
from tilth.config import TrainingConfig
from tilth.config.model import ModelConfig
from tilth.files import StrPath
from tilth.schema import check, check_float, check_int


@dataclass(frozen=True, kw_only=True)
class Account(Subject):
    """The cost of a model; `forward_flops` and its parts are those of one sequence."""

    parameters: Parameters
    products: list[flops.Product]
    elementwise: dict[str, int]
    """Operations that are not products, by name."""
    optimizer_operations: dict[str, int]
    textbook_activations: list[SavedActivation]
    textbook_memory: BatchBytes
    activations: list[SavedActivation]
    memory: TrainingMemory
    cache_bytes: int
    """The key/value cache of one sequence of context_length tokens."""
    memory_limit_bytes: float | None = None
    largest_textbook_batch: int | None = None
    largest_batch: int | None = None
    hardware: Hardware | None = None
    cost: Cost | None = None
    """Of all steps, or of one step if their number is unknown."""
    optimum: Optimum | None = None
    """The compute-optimal model for the given hours on the hardware."""

    @property
    def forward_flops(self) -> int:
        """The products of a forward pass over one sequence."""
        return sum(product.flops for product in self.products)

    @property
    def flops_per_step(self) -> int:
        """The products of a step, forward and backward."""
        return self.batch_size * flops.training_flops(self.config, recompute=self.recompute)

    @property
    def flops_per_token(self) -> int:
        """The products of training, per token."""
        return self.flops_per_step // (self.batch_size * self.config.context_length)

    @property
    def run_flops(self) -> int | None:
        """The products of all steps, if their number is known."""
        return self.steps and self.steps * self.flops_per_step

    @property
    def run_tokens(self) -> int | None:
        """The tokens of all steps, if their number is known."""
        return self.steps and self.steps * self.batch_size * self.config.context_length

    def __str__(self) -> str:
        return render(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and for the tables of `str`."""
        return {
            "name": self.name,
            "notes": list(self.notes),
            "model": self.config.to_dict(),
            "training": {
                "batch_size": self.batch_size,
                "microbatch_size": self.microbatch_size,
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
                "products": [asdict(each) | {"flops": each.flops} for each in self.products],
                "by_component": flops.flops_by_component(self.config),
                "forward": self.forward_flops,
                "backward": 2 * self.forward_flops,
                "elementwise": self.elementwise,
                "elementwise_total": sum(self.elementwise.values()),
                "optimizer": self.optimizer_operations,
                "optimizer_total": sum(self.optimizer_operations.values()),
                "per_token": self.flops_per_token,
                "per_step": self.flops_per_step,
                "per_run": self.run_flops,
            },
            "memory": {
                "textbook": {
                    **self.textbook_memory._asdict(),
                    "bytes": self.textbook_memory.bytes(self.microbatch_size),
                    "activations": [asdict(saved) for saved in self.textbook_activations],
                    "largest_batch": self.largest_textbook_batch,
                },
                "implementation": {
                    **asdict(self.memory),
                    **activations.total_bytes(self.activations)._asdict(),
                    "peak_bytes": self.memory.peak_bytes,
                    "activations": [asdict(saved) for saved in self.activations],
                    "largest_batch": self.largest_batch,
                },
                "limit_bytes": self.memory_limit_bytes,
                "cache_bytes": self.cache_bytes,
            },
            "hardware": self.hardware and asdict(self.hardware),
            "cost": self.cost and asdict(self.cost),
            "optimum": self.optimum and asdict(self.optimum),
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
    traced: bool = False,
    **changes: Any,  # noqa: ANN401, fields of a ModelConfig
) -> Account:
    """Account for a model; `changes` replace fields of its `ModelConfig`.

    `subject` is the name of a shape or a recipe, the path of a run or a config file, or a config.
    `hardware` is a name in `HARDWARE`, or "this" to measure this machine. `mfu` is the model FLOPs
    utilization; default 0.5, or an estimate from the measurement. `hours` on the hardware give the
    compute-optimal size. `memory_bytes`, by default that of the hardware, gives the largest batch.
    `traced` numbers remember their arithmetic, for `tilth.accounting.tracing`.
    """
    found = find_subject(subject)
    config = found.config.changed(changes)
    given: dict[str, Any] = {"steps": steps, "optimizer": optimizer, "dtype": dtype}
    given = {name: value for name, value in given.items() if value is not None}
    if batch_size is not None or num_microbatches is not None:  # else split as the config says
        rows = check_int("batch_size", found.batch_size if batch_size is None else batch_size)
        parts = found.num_microbatches if num_microbatches is None else num_microbatches
        if check_int("num_microbatches", parts) > rows:
            problem = f"num_microbatches is {parts}, above batch_size {rows}"
            raise ValueError(f"{problem}; a microbatch needs a sequence.")
        given |= {"batch_size": rows, "microbatch_size": -(-rows // parts)}
    setup = replace(found, config=config, notes=_notes(found, config), recompute=recompute, **given)
    check(setup)
    device = find_hardware(hardware) if isinstance(hardware, str) else hardware
    if traced:
        config = _TracedConfig(**with_names(vars(config)))
        setup = Subject(**with_names(vars(setup)) | {"config": config})
        device = device and _traced_hardware(device)
        given = {"mfu": mfu, "hours": hours, "price": price_per_hour, "memory": memory_bytes}
        mfu, hours, price_per_hour, memory_bytes = with_names(given).values()
    kind = (setup.optimizer, setup.dtype)
    microbatches: dict[str, Any] = {"num_microbatches": setup.num_microbatches}
    if memory_bytes is not None:
        check_float("memory", memory_bytes, AMOUNT)
    elif device is not None:
        memory_bytes = device.memory_bytes
    largest: dict[str, Any] = {"memory_limit_bytes": memory_bytes}
    if memory_bytes is not None:
        largest |= {
            "largest_textbook_batch": memory.largest_textbook_batch(config, memory_bytes, *kind),
            "largest_batch": memory.largest_batch(config, memory_bytes, *kind, **microbatches),
        }
    cost = optimum = None
    if device is not None:
        cost = _cost(setup, device, mfu, price_per_hour)
        if hours is not None:
            check_float("hours", hours, AMOUNT)
            budget = hours * 3600 * device.peak(setup.dtype) * cost.mfu
            optimum = replace(compute_optimal(budget), flops=budget)  # traced, if that is asked for
    for name, value in {
        "hours need": hours,
        "mfu needs": mfu,
        "price needs": price_per_hour,
    }.items():
        if device is None and value is not None:
            raise ValueError(f"{name} hardware; name it, or give `this` for this machine.")
    return Account(
        **vars(setup),
        parameters=count_parameters(config),
        products=flops.forward_products(config),
        elementwise=flops.forward_elementwise(config),
        optimizer_operations=flops.optimizer_operations(config, setup.optimizer),
        textbook_activations=activations.textbook(config, setup.dtype),
        textbook_memory=memory.textbook_memory(config, *kind),
        activations=activations.fast_path(config, setup.dtype),
        memory=memory.training_memory(config, setup.microbatch_size, *kind, **microbatches),
        cache_bytes=memory.cache_bytes(config, 1, setup.dtype),
        **largest,
        hardware=device,
        cost=cost,
        optimum=optimum,
    )


class _TracedConfig(ModelConfig):
    """A valid config with traced numbers, which validation would make plain."""

    def __post_init__(self) -> None: ...


def _traced_hardware(device: Hardware) -> Hardware:
    peaks = {f"peak in {dtype}": peak for dtype, peak in device.flops_per_second.items()}
    return replace(
        device,
        flops_per_second=dict(
            zip(device.flops_per_second, with_names(peaks).values(), strict=True)
        ),
        memory_bytes=named(device.memory_bytes, "memory"),
        watts=device.watts and named(device.watts, "watts"),
        bytes_per_second=device.bytes_per_second
        and named(device.bytes_per_second, "bytes per second"),
    )


def _notes(found: Subject, config: ModelConfig) -> tuple[str, ...]:
    """Return the notes of a named shape, unless more than its context length was changed."""
    named, given = found.config.to_dict(), config.to_dict()
    changed = [n for n in named if n != "context_length" and named[n] != given[n]]
    if changed:
        return (f"Not {found.name} itself: changed are {', '.join(changed)}.",)
    return found.notes


def _cost(
    setup: Subject, device: Hardware, mfu: float | None, price_per_hour: float | None
) -> Cost:
    steps = setup.steps or 1
    if mfu is None and device.bytes_per_second is not None:
        device.peak(setup.dtype)  # raises if the device does not have it
        run = (setup.config, setup.batch_size, steps, device, setup.optimizer, price_per_hour)
        return cost_of_steps(*run, recompute=setup.recompute)
    of_sequence = flops.training_flops(setup.config, recompute=setup.recompute)
    run_flops = steps * (setup.batch_size * of_sequence)
    return cost_of(run_flops, device, setup.dtype, mfu, price_per_hour)
