"""A whole training run as one value: what is trained, on what, how long, and how it is watched.

Two types: a `TrainingConfig` is open, which is to say that what depends on the machine or on the
length of the run may be None; a `ResolvedConfig` says all of it, and is what a run directory keeps:
it is enough to repeat the run. `TrainingConfig.resolve` makes one of the other. Both are checked
when they are made; a ValueError names the value that is impossible. No torch here.

>>> from tilth.config.model import ModelConfig
>>> model = ModelConfig(1000, context_length=64, d_model=96, num_layers=2, num_heads=4)
>>> config = TrainingConfig("data/stories", model, steps=400, optimizer=OptimizerConfig(lr=3e-3))
>>> resolved = config.resolve(device="cpu", dtype="float32", compile=False, threads=2)
>>> resolved.optimizer.warmup_steps, resolved.watch.evaluate_every, resolved.tokens
(20, 40, 819200)
>>> ResolvedConfig.from_dict(resolved.to_dict()) == resolved
True
"""

from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from tilth.config.limits import MAX_CONTEXT_LENGTH, MAX_COUNT, MAX_THREADS
from tilth.config.model import ModelConfig, PlainValues
from tilth.schema import POSITIVE, Range, Share, Unicode, check, flat

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OptimizerName = Literal["adamw", "muon"]
Schedule = Literal["cosine", "warmup-stable-decay", "constant"]
Dtype = Literal["float32", "bfloat16", "float16"]
Order = Literal["epoch", "random"]
Sink = Literal["tensorboard", "trackio", "wandb"]

Count = Annotated[int, Range(at_least=1, at_most=MAX_COUNT)]
CountOrZero = Annotated[int, Range(at_least=0, at_most=MAX_COUNT)]
Seed = Annotated[int, Range(at_least=0, at_most=2**63 - 1)]
Threads = Annotated[int, Range(at_least=1, at_most=MAX_THREADS)]
Positive = Annotated[float, POSITIVE]
NotNegative = Annotated[float, Range(at_least=0.0)]
Decay = Annotated[float, Range(at_least=0.0, below=1.0)]

Table = TypeVar("Table", bound="DataclassInstance")


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become updates; one learning rate serves AdamW and Muon (see optim/muon.py)."""

    name: OptimizerName = "adamw"
    """adamw for all parameters, or muon for the hidden matrices and adamw for the rest."""
    lr: Positive = 1e-3
    """The largest learning rate, which warm-up ends at."""
    min_lr: NotNegative | None = None
    """The learning rate of the last step; default a hundredth of lr."""
    schedule: Schedule = "cosine"
    """The way from lr to min_lr: half a cosine, a line at the end, or none at all."""
    warmup_steps: CountOrZero | None = None
    """Steps in which the learning rate rises from 0 in a line; default 5% of all."""
    decay_steps: CountOrZero | None = None
    """Steps of the line down at the end of warmup-stable-decay; default half of all."""
    begin_step: CountOrZero = 0
    """Where the schedule begins: an extended run warms up and decays again from its old end."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """How much of the mean and of the square of earlier gradients AdamW keeps at each step."""
    eps: Positive = 1e-8
    """Added to AdamW's root mean square, so that it never divides by 0."""
    weight_decay: NotNegative = 0.1
    """How much of every matrix, times the learning rate, a step takes away."""
    momentum: Decay = 0.95
    """How much of earlier gradients Muon keeps at each step."""
    max_grad_norm: Positive = 1.0
    """The length that all gradients together are cut down to."""

    def __post_init__(self) -> None:
        check(self, "optimizer")
        if self.min_lr is not None and self.min_lr > self.lr:
            raise ValueError(
                f"optimizer.min_lr {self.min_lr:g} is above optimizer.lr {self.lr:g}; the "
                "learning rate only falls after its warm-up."
            )


@dataclass(frozen=True)
class MachineConfig:
    """Where and in which precision it runs; None is decided, and written down, at the start."""

    device: Unicode | None = None
    """cpu, cuda, cuda:1, mps; default the best that there is."""
    dtype: Dtype | None = None
    """The type of products; weights stay float32. Default bfloat16 on CUDA, float32 elsewhere."""
    compile: bool | None = None
    """Whether to compile the model; default: if that pays, which is measured."""
    threads: Threads | None = None
    """CPU threads; default all cores. Another number sums in another order."""

    def __post_init__(self) -> None:
        check(self, "machine")


@dataclass(frozen=True)
class WatchConfig:
    """What a run tells about itself, and when. Intervals count steps; 0 means never."""

    evaluate_every: CountOrZero | None = None
    """Steps between two evaluations; default a tenth of the run. The last step is evaluated too."""
    evaluation_tokens: CountOrZero = 65_536
    """How much of the validation set an evaluation reads, from its beginning; 0 is all of it."""
    save_every: CountOrZero | None = None
    """Steps between two checkpoints, each evaluated; default a fifth of the run."""
    keep_checkpoints: Count = 2
    """How many of the newest checkpoints are kept, besides the best."""
    norms_every: CountOrZero | None = None
    """Steps between two measurements of norms, layer by layer; default a fortieth of the run."""
    sample_every: CountOrZero | None = None
    """Steps between two samples of text; default a fifth of the run."""
    sample_prompt: Unicode = "Once upon a time"
    """What samples begin with."""
    sample_tokens: Annotated[int, Range(at_least=1, at_most=MAX_CONTEXT_LENGTH)] = 128
    """How many tokens a sample has at most."""
    temperature: NotNegative = 0.8
    """How much the model's probabilities are flattened (above 1) or sharpened for samples."""
    top_p: Share = 0.95
    """Samples draw from the smallest set of tokens with this much probability."""
    sinks: tuple[Sink, ...] = ()
    """Where else metrics go: tensorboard, trackio, wandb. As a flag, once for each."""

    def __post_init__(self) -> None:
        check(self, "watch")


@dataclass(frozen=True)
class TrainingConfig(PlainValues):
    """A training run. Its fields are the keys of `config.toml` and the flags of `tilth train`."""

    NAME = "a training config"

    data: Unicode
    """The folder of token files."""
    model: ModelConfig
    """The shape of the model."""
    recipe: Unicode = "custom"
    """The recipe that this began as."""
    steps: Count | None = None
    """How many updates; or give budget_seconds."""
    budget_seconds: Positive | None = None
    """How long it may take; becomes steps at the start, by a measurement."""
    batch_size: Count = 32
    """Sequences of context_length tokens in one step."""
    microbatch_size: Count | None = None
    """Sequences that are in memory at a time; the gradient is the same. Default batch_size."""
    order: Order = "epoch"
    """epoch: every window of the data once, then in another order; random: drawn with repeats."""
    seed: Seed = 0
    """What weights and batches are drawn from."""
    max_skipped: Count = 10
    """After how many steps in a row without a finite loss and gradient the run stops."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)

    def __post_init__(self) -> None:
        if isinstance(self.data, PathLike):
            object.__setattr__(self, "data", str(self.data))  # the class is frozen
        check(self)
        if self.microbatch_size is not None and self.microbatch_size > self.batch_size:
            raise ValueError(
                f"microbatch_size {self.microbatch_size} is more than batch_size "
                f"{self.batch_size}; it is a part of it."
            )
        if self.steps is not None:
            self._check_schedule(self.steps)

    def _check_schedule(self, steps: int) -> None:
        optimizer = self.optimizer
        length = steps - optimizer.begin_step
        if length < 1:
            raise ValueError(
                f"optimizer.begin_step {optimizer.begin_step} is not before the last of "
                f"{steps} steps."
            )
        warmup = optimizer.warmup_steps or 0
        decay = (optimizer.decay_steps or 0) if optimizer.schedule == "warmup-stable-decay" else 0
        if warmup + decay > length:
            parts = f"{warmup} steps of warm-up" + (f" and {decay} of decay" if decay else "")
            raise ValueError(
                f"{parts} do not fit into {length} steps; shorten them, or take more steps."
            )

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one update learns from."""
        return self.batch_size * self.model.context_length

    @property
    def known_steps(self) -> int:
        """The number of steps; a ValueError where it is not known yet."""
        if self.steps is None:
            raise ValueError("there is no number of steps; give steps, or a budget of time.")
        return self.steps

    @property
    def tokens(self) -> int:
        """Tokens that the whole run learns from."""
        return self.known_steps * self.tokens_per_step

    def filled(self) -> Self:
        """Fill in what follows from the number of steps, where it is None."""
        optimizer = self.optimizer
        length = self.known_steps - optimizer.begin_step
        warmup = max(1, length // 20) if length > 1 else 0
        if optimizer.schedule == "warmup-stable-decay":  # what was given leaves room for the other
            warmup = min(warmup, length - (optimizer.decay_steps or 0))
        decay = min(length // 2, length - (optimizer.warmup_steps or 0))
        every = {"evaluate_every": 10, "save_every": 5, "norms_every": 40, "sample_every": 5}
        return replace(
            self,
            budget_seconds=None,
            microbatch_size=self.microbatch_size or self.batch_size,
            optimizer=_filled(
                optimizer, min_lr=optimizer.lr / 100, warmup_steps=warmup, decay_steps=decay
            ),
            watch=_filled(
                self.watch,
                **{name: max(1, self.known_steps // part) for name, part in every.items()},
            ),
        )

    def resolve(self, **machine: object) -> "ResolvedConfig":
        """Fill in all that is None: from the number of steps, and from the fields of `machine`."""
        values = self.filled().to_dict()
        values["machine"] = {**machine, **values["machine"]}
        return ResolvedConfig.from_dict(values)


# The resolved tables: the same fields, none of which may be None.


@dataclass(frozen=True)
class ResolvedOptimizer(OptimizerConfig):
    """An `OptimizerConfig` that says all of it."""

    min_lr: NotNegative = field(kw_only=True)
    warmup_steps: CountOrZero = field(kw_only=True)
    decay_steps: CountOrZero = field(kw_only=True)


@dataclass(frozen=True)
class ResolvedMachine(MachineConfig):
    """A `MachineConfig` that says all of it."""

    device: Unicode = field(kw_only=True)
    dtype: Dtype = field(kw_only=True)
    compile: bool = field(kw_only=True)
    threads: Threads = field(kw_only=True)


@dataclass(frozen=True)
class ResolvedWatch(WatchConfig):
    """A `WatchConfig` that says all of it."""

    evaluate_every: CountOrZero = field(kw_only=True)
    save_every: CountOrZero = field(kw_only=True)
    norms_every: CountOrZero = field(kw_only=True)
    sample_every: CountOrZero = field(kw_only=True)


@dataclass(frozen=True)
class ResolvedConfig(TrainingConfig):
    """A `TrainingConfig` that says all of it: what a run directory keeps."""

    steps: Count = field(kw_only=True)
    budget_seconds: None = None
    microbatch_size: Count = field(kw_only=True)
    optimizer: ResolvedOptimizer = field(kw_only=True)
    machine: ResolvedMachine = field(kw_only=True)
    watch: ResolvedWatch = field(kw_only=True)

    def opened(self) -> TrainingConfig:
        """The same values as an open config, of which some can be set to None again."""
        return TrainingConfig.from_dict(self.to_dict())


def differences(old: TrainingConfig, new: TrainingConfig) -> dict[str, tuple[Any, Any]]:
    """The values that two configs have not in common, by dotted name: (old, new)."""
    flat_old, flat_new = flat(old.to_dict()), flat(new.to_dict())
    return {
        name: (flat_old.get(name), flat_new.get(name))
        for name in sorted(flat_old.keys() | flat_new.keys())
        if flat_old.get(name) != flat_new.get(name)
    }


def _filled(table: Table, **defaults: float) -> Table:
    """The table, with these values where it has None."""
    empty = {name: value for name, value in defaults.items() if getattr(table, name) is None}
    return replace(table, **empty)
