"""The config of a training run: model, data, optimizer, machine and monitoring. No torch.

In a `TrainingConfig`, values that depend on the machine or on the length of the run may be None.
`TrainingConfig.resolve` fills them in and returns a `ResolvedConfig`, which a run directory stores
and which is enough to repeat the run. Both are validated at construction.

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
from tilth.schema import POSITIVE, Range, Share, Unicode, check, flat, plain, unwritten

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OptimizerName = Literal["adamw", "muon"]
Schedule = Literal["cosine", "warmup-stable-decay", "constant"]
Dtype = Literal["float32", "bfloat16", "float16"]
CompileMode = Literal["default", "reduce-overhead", "max-autotune"]
Order = Literal["epoch", "random"]
MuonCoefficients = Literal["fixed", "optimal"]
Sink = Literal["tensorboard", "trackio", "wandb"]
Strategy = Literal["auto", "ddp", "fsdp"]

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
    """Optimizer and schedule; one learning rate serves AdamW and Muon (see optim/muon.py)."""

    name: OptimizerName = "adamw"
    """AdamW for all parameters, or Muon for hidden matrices and AdamW for the rest."""
    lr: Positive = 1e-3
    """Peak learning rate, reached after warm-up."""
    min_lr: NotNegative | None = None
    """Learning rate of the last step; default lr / 100."""
    schedule: Schedule = "cosine"
    """Decay from lr to min_lr: half a cosine, linear at the end, or none."""
    warmup_steps: CountOrZero | None = None
    """Steps of linear warm-up from 0; default 5% of the run."""
    decay_steps: CountOrZero | None = None
    """Steps of linear decay at the end of warmup-stable-decay; default half of the run."""
    begin_step: CountOrZero = 0
    """First step of the schedule; an extended run has its old end here."""
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    """Decay rates of AdamW's first and second moments."""
    eps: Positive = 1e-8
    """Added to the denominator of AdamW's update."""
    weight_decay: NotNegative = 0.1
    """Decoupled weight decay, applied to matrices only."""
    momentum: Decay = 0.95
    """Momentum of Muon."""
    momentum_warmup_steps: CountOrZero = unwritten(0)  # noqa: RUF009
    """Steps over which Muon's momentum rises from 0.85 to its value; 0: it is constant."""
    muon_coefficients: MuonCoefficients = "fixed"
    """Coefficients of Muon's iteration: five times the same, or four optimal ones."""
    embedding_lr_factor: Positive = unwritten(1.0)  # noqa: RUF009
    """Learning rate of the token embedding, over that of the other parameters."""
    max_grad_norm: Positive = 1.0
    """Clip the global gradient norm to this value."""

    def __post_init__(self) -> None:
        check(self, "optimizer")
        if self.min_lr is not None and self.min_lr > self.lr:
            raise ValueError(
                f"optimizer.min_lr {self.min_lr:g} is above optimizer.lr {self.lr:g}; the "
                "learning rate decays from lr to min_lr."
            )


@dataclass(frozen=True)
class MachineConfig:
    """Device, precision and threads; None is decided at the start and stored."""

    device: Unicode | None = None
    """cpu, cuda, cuda:1 or mps; default the best available."""
    dtype: Dtype | None = None
    """Autocast dtype; weights stay float32. Default bfloat16 on CUDA, measured on a CPU."""
    compile: bool | None = None
    """Compile the model with torch.compile; default: only if a measurement shows a gain."""
    threads: Threads | None = None
    """CPU threads; default all cores. Another number changes the rounding of sums."""
    deterministic: bool = True
    """Repeat every bit. False allows faster kernels of a GPU; then resume is not exact."""
    compile_mode: CompileMode = "default"
    """Mode of torch.compile: reduce-overhead uses CUDA graphs, max-autotune times kernels too."""

    def __post_init__(self) -> None:
        check(self, "machine")


@dataclass(frozen=True)
class WatchConfig:
    """Evaluations, checkpoints, samples and metrics. Intervals are in steps; 0 means never."""

    evaluate_every: CountOrZero | None = None
    """Steps between evaluations; default 1/10 of the run. The last step is evaluated too."""
    evaluation_tokens: CountOrZero = 65_536
    """Validation tokens per evaluation, from the start of the set; 0 is all of it."""
    save_every: CountOrZero | None = None
    """Steps between checkpoints, each evaluated; default 1/5 of the run."""
    keep_checkpoints: Count = 2
    """Number of newest checkpoints to keep, besides the best one."""
    weights_per_doubling: Annotated[int, Range(at_least=0, at_most=64)] = unwritten(0)
    """Checkpoints of the weights alone, kept for each doubling of the step; 0 keeps none."""
    norms_every: CountOrZero | None = None
    """Steps between measurements of the norms per layer; default 1/40 of the run."""
    sample_every: CountOrZero | None = None
    """Steps between text samples; default 1/5 of the run."""
    sample_prompt: Unicode = "Once upon a time"
    """Prompt of the samples."""
    sample_tokens: Annotated[int, Range(at_least=1, at_most=MAX_CONTEXT_LENGTH)] = 128
    """Maximum number of new tokens per sample."""
    temperature: NotNegative = 0.8
    """Sampling temperature: above 1 flattens the distribution, 0 is greedy."""
    top_p: Share = 0.95
    """Nucleus sampling: draw from the smallest set of tokens with this probability."""
    sinks: tuple[Sink, ...] = ()
    """Additional metric sinks; as a flag, once for each."""

    def __post_init__(self) -> None:
        check(self, "watch")


@dataclass(frozen=True)
class ParallelConfig:
    """Training in several processes that torchrun started."""

    exact: bool = unwritten(False)
    """Repeat every bit at any number of ranks: add gradients of whole microbatches in order."""
    strategy: Strategy = unwritten("auto")  # noqa: RUF009
    """ddp: each rank has the whole model; fsdp: a shard of it. auto: ddp if that fits."""
    shards: Count | None = None
    """Ranks that share one copy of the model under fsdp; default as few as fit."""
    memory_gb: Positive | None = None
    """Memory of a rank; default that of its GPU, or its share of the host's."""

    def __post_init__(self) -> None:
        check(self, "parallel")
        if self.exact and (self.strategy == "fsdp" or self.shards is not None):
            raise ValueError(
                "parallel.exact adds whole gradients in order, and fsdp has parts of them; use "
                "parallel.strategy ddp without shards, or leave exact out."
            )
        if self.strategy == "ddp" and self.shards is not None:
            raise ValueError(
                "parallel.shards divides the model, and with parallel.strategy ddp each rank has "
                "all of it; use strategy fsdp, or leave shards out."
            )


PARALLEL = ParallelConfig()


@dataclass(frozen=True)
class TrainingConfig(PlainValues):
    """A training run. Its fields are the keys of `config.toml` and the flags of `tilth train`."""

    NAME = "a training config"

    data: Unicode
    """Data folder that `tilth tokenize` wrote."""
    model: ModelConfig
    """Shape of the model."""
    recipe: Unicode = "custom"
    """Name of the recipe that the config was made from."""
    steps: Count | None = None
    """Number of optimizer steps; or give a time budget."""
    budget_seconds: Positive | None = None
    """Time budget, in seconds; converted to steps by a measurement at the start."""
    batch_size: Count = 32
    """Sequences of context_length tokens per step."""
    microbatch_size: Count | None = None
    """Sequences per forward pass (gradient accumulation); default batch_size."""
    order: Order = "epoch"
    """epoch: every window once, then reshuffled; random: drawn with replacement."""
    seed: Seed = 0
    """Random seed of weights and batches."""
    max_skipped: Count = 10
    """Stop after this many consecutive steps with a non-finite loss or gradient."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    parallel: ParallelConfig = field(default=PARALLEL, metadata={unwritten: True})

    def __post_init__(self) -> None:
        if isinstance(self.data, PathLike):
            object.__setattr__(self, "data", str(self.data))  # the class is frozen
        check(self)
        if self.microbatch_size is not None and self.microbatch_size > self.batch_size:
            raise ValueError(
                f"microbatch_size {self.microbatch_size} is above batch_size {self.batch_size}; "
                "it is a part of a batch."
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
        """Training tokens per step."""
        return self.batch_size * self.model.context_length

    @property
    def rows_together(self) -> int:
        """Rows of a batch that one rank takes together: exact sums have whole microbatches."""
        return self.microbatch_size or self.batch_size if self.parallel.exact else 1

    @property
    def known_steps(self) -> int:
        """The number of steps. Raises ValueError if it is not known yet."""
        if self.steps is None:
            raise ValueError("the number of steps is unknown; give steps or a time budget.")
        return self.steps

    @property
    def tokens(self) -> int:
        """Training tokens of the whole run."""
        return self.known_steps * self.tokens_per_step

    def filled(self) -> Self:
        """Return the config with the values that follow from the number of steps, where None."""
        optimizer = self.optimizer
        length = self.known_steps - optimizer.begin_step
        warmup = max(1, length // 20) if length > 1 else 0
        if optimizer.schedule == "warmup-stable-decay":  # given decay steps limit the warm-up
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
        """Return the complete config; `machine` has the values of `MachineConfig` to fill in."""
        values = self.filled().to_dict()
        values["machine"] = {**machine, **values["machine"]}
        return ResolvedConfig.from_dict(values)


# The complete tables: the same fields, without None.


@dataclass(frozen=True)
class ResolvedOptimizer(OptimizerConfig):
    """A complete `OptimizerConfig`."""

    min_lr: NotNegative = field(kw_only=True)
    warmup_steps: CountOrZero = field(kw_only=True)
    decay_steps: CountOrZero = field(kw_only=True)


@dataclass(frozen=True)
class ResolvedMachine(MachineConfig):
    """A complete `MachineConfig`."""

    device: Unicode = field(kw_only=True)
    dtype: Dtype = field(kw_only=True)
    compile: bool = field(kw_only=True)
    threads: Threads = field(kw_only=True)


@dataclass(frozen=True)
class ResolvedWatch(WatchConfig):
    """A complete `WatchConfig`."""

    evaluate_every: CountOrZero = field(kw_only=True)
    save_every: CountOrZero = field(kw_only=True)
    norms_every: CountOrZero = field(kw_only=True)
    sample_every: CountOrZero = field(kw_only=True)


@dataclass(frozen=True)
class ResolvedConfig(TrainingConfig):
    """A complete `TrainingConfig`, as a run directory stores it."""

    steps: Count = field(kw_only=True)
    budget_seconds: None = None
    microbatch_size: Count = field(kw_only=True)
    optimizer: ResolvedOptimizer = field(kw_only=True)
    machine: ResolvedMachine = field(kw_only=True)
    watch: ResolvedWatch = field(kw_only=True)

    def opened(self) -> TrainingConfig:
        """Return the values as a `TrainingConfig`, in which they may be None again."""
        return TrainingConfig.from_dict(self.to_dict())


def differences(old: TrainingConfig, new: TrainingConfig) -> dict[str, tuple[Any, Any]]:
    """Return the values that differ between two configs, by dotted name: (old, new)."""
    names = sorted(flat(old.to_dict()).keys() | flat(new.to_dict()).keys())
    pairs = {name: (_value(old, name), _value(new, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _value(config: TrainingConfig, name: str) -> Any:  # noqa: ANN401, a field of any type
    """Return the value of a dotted name; None within a table that is None."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part, None)
    return plain(value)


def _filled(table: Table, **defaults: float) -> Table:
    """Return the table with `defaults` where it has None."""
    empty = {name: value for name, value in defaults.items() if getattr(table, name) is None}
    return replace(table, **empty)
