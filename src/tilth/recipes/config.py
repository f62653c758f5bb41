"""A whole training run as one value: what is trained, on what, how long, and how it is watched.

What enters: numbers, from a recipe, a TOML file or flags. What leaves: a frozen `TrainingConfig`,
checked when it is made, or a ValueError that names the value that is impossible. What depends on
the machine or on the length of the run may be left at None; `resolved` fills all of it in, and the
resolved config is what a run directory keeps: it is enough to repeat the run. No torch here.

>>> from tilth.model.config import ModelConfig
>>> model = ModelConfig(1000, context_length=64, d_model=96, num_layers=2, num_heads=4)
>>> config = TrainingConfig("data/stories", model, steps=400, optimizer=OptimizerConfig(lr=3e-3))
>>> config = config.resolved(device="cpu", dtype="float32", compile=False, threads=2)
>>> config.optimizer.warmup_steps, config.watch.evaluate_every, config.tokens
(20, 40, 819200)
>>> TrainingConfig.from_dict(config.to_dict()) == config
True
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from numbers import Real
from os import PathLike
from typing import Any, Literal, Self, get_args

from tilth.model.config import ModelConfig, check_count, check_keys

OptimizerName = Literal["adamw", "muon"]
Schedule = Literal["cosine", "warmup-stable-decay", "constant"]
Dtype = Literal["float32", "bfloat16", "float16"]
Order = Literal["epoch", "random"]
Sink = Literal["tensorboard", "trackio", "wandb"]


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients become updates; one learning rate serves AdamW and Muon (see optim/muon.py)."""

    name: OptimizerName = "adamw"
    """adamw for all parameters, or muon for the hidden matrices and adamw for the rest."""
    lr: float = 1e-3
    """The largest learning rate, which warm-up ends at."""
    min_lr: float = None  # type: ignore[assignment]  # never None once resolved
    """The learning rate of the last step; default a hundredth of lr."""
    schedule: Schedule = "cosine"
    """The way from lr to min_lr: half a cosine, a line at the end, or none at all."""
    warmup_steps: int = None  # type: ignore[assignment]
    """Steps in which the learning rate rises from 0 in a line; default 5% of all."""
    decay_steps: int = None  # type: ignore[assignment]
    """Steps of the line down at the end of warmup-stable-decay; default half of all."""
    begin_step: int = 0
    """Where the schedule begins: an extended run warms up and decays again from its old end."""
    betas: tuple[float, float] = (0.9, 0.95)
    """How much of the mean and of the square of earlier gradients AdamW keeps at each step."""
    eps: float = 1e-8
    """Added to AdamW's root mean square, so that it never divides by 0."""
    weight_decay: float = 0.1
    """How much of every matrix, times the learning rate, a step takes away."""
    momentum: float = 0.95
    """How much of earlier gradients Muon keeps at each step."""
    max_grad_norm: float = 1.0
    """The length that all gradients together are cut down to."""

    def __post_init__(self) -> None:
        _check_choice("optimizer.name", self.name, OptimizerName)
        _check_choice("optimizer.schedule", self.schedule, Schedule)
        betas = [_number("optimizer.betas", beta) for beta in _items("optimizer.betas", self.betas)]
        if len(betas) != 2 or not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"optimizer.betas are {betas}; give two numbers in [0, 1).")
        _set(self, "betas", tuple(betas))
        _check_numbers(self, "optimizer", above=0.0, names=("lr", "eps", "max_grad_norm"))
        _check_numbers(
            self, "optimizer", at_least=0.0, names=("min_lr", "weight_decay", "momentum")
        )
        if self.momentum >= 1.0:
            raise ValueError(f"optimizer.momentum is {self.momentum}; it must be below 1.")
        if self.min_lr is not None and self.min_lr > self.lr:
            raise ValueError(
                f"optimizer.min_lr {self.min_lr:g} is above optimizer.lr {self.lr:g}; the "
                "learning rate only falls after its warm-up."
            )
        counts = ("warmup_steps", "decay_steps", "begin_step")
        _check_counts(self, "optimizer", at_least=0, names=counts)


@dataclass(frozen=True)
class MachineConfig:
    """Where and in which precision it runs; None is decided, and written down, at the start."""

    device: str = None  # type: ignore[assignment]
    """cpu, cuda, cuda:1, mps; default the best that there is."""
    dtype: Dtype = None  # type: ignore[assignment]
    """The type of products; weights stay float32. Default bfloat16 on CUDA, float32 elsewhere."""
    compile: bool = None  # type: ignore[assignment]
    """Whether to compile the model; default: if that pays, which is measured."""
    threads: int = None  # type: ignore[assignment]
    """CPU threads; default all cores. Another number sums in another order."""

    def __post_init__(self) -> None:
        if self.device is not None:
            _check_text("machine.device", self.device)
        if self.dtype is not None:
            _check_choice("machine.dtype", self.dtype, Dtype)
        if not isinstance(self.compile, bool | None):
            raise ValueError(f"machine.compile must be true or false, not {self.compile!r}.")
        _check_counts(self, "machine", at_least=1, names=("threads",))


@dataclass(frozen=True)
class WatchConfig:
    """What a run tells about itself, and when. Intervals count steps; 0 means never."""

    evaluate_every: int = None  # type: ignore[assignment]
    """Steps between two evaluations; default a tenth of the run. The last step is evaluated too."""
    evaluation_tokens: int = 65_536
    """How much of the validation set an evaluation reads, from its beginning; 0 is all of it."""
    save_every: int = None  # type: ignore[assignment]
    """Steps between two checkpoints, each evaluated; default a fifth of the run."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept, besides the best."""
    norms_every: int = None  # type: ignore[assignment]
    """Steps between two measurements of norms, layer by layer; default a fortieth of the run."""
    sample_every: int = None  # type: ignore[assignment]
    """Steps between two samples of text; default a fifth of the run."""
    sample_prompt: str = "Once upon a time"
    """What samples begin with."""
    sample_tokens: int = 128
    """How many tokens a sample has at most."""
    temperature: float = 0.8
    """How much the model's probabilities are flattened (above 1) or sharpened for samples."""
    top_p: float = 0.95
    """Samples draw from the smallest set of tokens with this much probability."""
    sinks: tuple[Sink, ...] = ()
    """Where else metrics go: tensorboard, trackio, wandb. As a flag, once for each."""

    def __post_init__(self) -> None:
        _set(self, "sinks", tuple(_items("watch.sinks", self.sinks)))
        for sink in self.sinks:
            _check_choice("watch.sinks", sink, Sink)
        _check_text("watch.sample_prompt", self.sample_prompt)
        intervals = ("evaluate_every", "save_every", "norms_every", "sample_every")
        _check_counts(self, "watch", at_least=0, names=(*intervals, "evaluation_tokens"))
        _check_counts(self, "watch", at_least=1, names=("keep_checkpoints", "sample_tokens"))
        _check_numbers(self, "watch", at_least=0.0, names=("temperature", "top_p"))
        if self.top_p > 1.0:
            raise ValueError(f"watch.top_p is {self.top_p}; a probability is at most 1.")


@dataclass(frozen=True)
class TrainingConfig:
    """A training run. Its fields are the keys of `config.toml` and the flags of `tilth train`."""

    data: str
    """The folder of token files."""
    model: ModelConfig
    """The shape of the model."""
    recipe: str = "custom"
    """The recipe that this began as."""
    steps: int = None  # type: ignore[assignment]
    """How many updates; or give budget_seconds."""
    budget_seconds: float | None = None
    """How long it may take; becomes steps at the start, by a measurement."""
    batch_size: int = 32
    """Sequences of context_length tokens in one step."""
    microbatch_size: int = None  # type: ignore[assignment]
    """Sequences that are in memory at a time; the gradient is the same. Default batch_size."""
    order: Order = "epoch"
    """epoch: every window of the data once, then in another order; random: drawn with repeats."""
    seed: int = 0
    """What weights and batches are drawn from."""
    max_skipped: int = 10
    """After how many steps in a row without a finite loss and gradient the run stops."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)

    def __post_init__(self) -> None:
        _set(self, "data", str(self.data) if isinstance(self.data, PathLike) else self.data)
        for name in ("data", "recipe"):
            _check_text(name, getattr(self, name))
        _check_choice("order", self.order, Order)
        counts = ("steps", "batch_size", "microbatch_size", "max_skipped")
        _check_counts(self, "", at_least=1, names=counts)
        _check_counts(self, "", at_least=0, names=("seed",))
        if self.seed >= 2**63:
            raise ValueError(f"seed is {self.seed}; give one below 2**63.")
        _check_numbers(self, "", above=0.0, names=("budget_seconds",))
        if self.microbatch_size is not None and self.microbatch_size > self.batch_size:
            raise ValueError(
                f"microbatch_size {self.microbatch_size} is more than batch_size "
                f"{self.batch_size}; it is a part of it."
            )
        if self.steps is not None:
            self._check_schedule()

    def _check_schedule(self) -> None:
        optimizer = self.optimizer
        length = self.steps - optimizer.begin_step
        if length < 1:
            raise ValueError(
                f"optimizer.begin_step {optimizer.begin_step} is not before the last of "
                f"{self.steps} steps."
            )
        warmup, decay = optimizer.warmup_steps or 0, optimizer.decay_steps or 0
        if optimizer.schedule != "warmup-stable-decay":
            decay = 0
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
    def tokens(self) -> int:
        """Tokens that the whole run learns from."""
        return self.steps * self.tokens_per_step

    def resolved(self, **machine: Any) -> Self:  # noqa: ANN401, the fields of MachineConfig
        """Fill in all that was left at None, from the number of steps and what the machine is."""
        if self.steps is None:
            raise ValueError("there is no number of steps; give steps, or a budget of time.")
        optimizer = self.optimizer
        length = self.steps - optimizer.begin_step
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
            machine=_filled(self.machine, **machine),
            watch=_filled(
                self.watch, **{name: max(1, self.steps // part) for name, part in every.items()}
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as tables of plain values, for TOML and JSON; None is left out."""
        values: dict[str, Any] = _plain(asdict(self))
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make one of what `to_dict` gave; the rest takes its default."""
        check_keys(cls, values, "a training config")
        tables = {"optimizer": OptimizerConfig, "machine": MachineConfig, "watch": WatchConfig}
        made: dict[str, Any] = dict(values)
        for name, table in (("model", ModelConfig), *tables.items()):
            if name in made and not is_dataclass(made[name]):
                if not isinstance(made[name], Mapping):
                    raise ValueError(f"{name} must be a table, not {made[name]!r}.")
                if name == "model":
                    made[name] = ModelConfig.from_dict(made[name])
                else:
                    check_keys(table, made[name], f"the table {name}")
                    made[name] = table(**made[name])
        return cls(**made)


def differences(old: TrainingConfig, new: TrainingConfig) -> dict[str, tuple[Any, Any]]:
    """The values that two configs have not in common, by dotted name: (old, new)."""
    flat_old, flat_new = flattened(old.to_dict()), flattened(new.to_dict())
    return {
        name: (flat_old.get(name), flat_new.get(name))
        for name in sorted(flat_old.keys() | flat_new.keys())
        if flat_old.get(name) != flat_new.get(name)
    }


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of tables within tables, by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _plain(value: Any) -> Any:  # noqa: ANN401, anything that a config holds
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    return list(value) if isinstance(value, tuple) else value


def _filled(config: Any, **defaults: Any) -> Any:  # noqa: ANN401, one of the tables above
    """The table, with these values where it has None."""
    assert defaults.keys() <= {each.name for each in fields(config)}, defaults
    empty = {name for name in defaults if getattr(config, name) is None}
    return replace(config, **{name: v for name, v in defaults.items() if name in empty})


def _check_choice(name: str, value: object, choices: Any) -> None:  # noqa: ANN401, a Literal
    if value not in get_args(choices):
        known = ", ".join(get_args(choices))
        raise ValueError(f"{name} {value!r} is unknown; choose one of {known}.")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {value!r}.")
    if any("\ud800" <= character <= "\udfff" for character in value):
        # What Python makes of bytes that are no UTF-8, in a path: TOML could not hold it.
        raise ValueError(f"{name} {value!r} is not Unicode; give it another name.")


def _items(name: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list, not {value!r}.")
    return value


def _number(name: str, value: object) -> float:
    """Any finite number as Python's float, which every file format takes."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a number, not {value!r}.")
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be finite.")
    return number


def _check_numbers(
    config: Any,  # noqa: ANN401, one of the tables above
    table: str,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    names: tuple[str, ...],
) -> None:
    for name in names:
        if not _is_open(config, name):
            full_name = f"{table}.{name}".lstrip(".")
            number = _number(full_name, getattr(config, name))
            if not (number > above and number >= at_least):
                bound = f"above {above:g}" if math.isfinite(above) else f"at least {at_least:g}"
                raise ValueError(f"{full_name} is {number:g}; it must be {bound}.")
            _set(config, name, number)


def _check_counts(config: Any, table: str, *, at_least: int, names: tuple[str, ...]) -> None:  # noqa: ANN401
    for name in names:
        if not _is_open(config, name):
            full_name = f"{table}.{name}".lstrip(".")
            _set(config, name, check_count(full_name, getattr(config, name), at_least=at_least))


def _is_open(config: Any, name: str) -> bool:  # noqa: ANN401
    """Whether a value is decided later, which only one that is None by default can be."""
    return getattr(config, name) is None and getattr(type(config), name) is None


def _set(config: Any, name: str, value: object) -> None:  # noqa: ANN401
    object.__setattr__(config, name, value)  # frozen from here on
