"""The page Cost: the account of a model, its form, and the arithmetic of each number."""

import math
import shlex
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tilth.accounting import HARDWARE, account
from tilth.accounting.accounts import Account
from tilth.accounting.activations import DTYPE_BYTES
from tilth.accounting.hardware import Hardware, measure_machine
from tilth.accounting.memory import OPTIMIZERS
from tilth.accounting.subjects import SHAPE_NAMES
from tilth.config.model import ModelConfig
from tilth.files import FileError
from tilth.formatting import parse_bytes, suggestion
from tilth.schema import Length, descriptions
from tilth.studio.completions import read_asked
from tilth.studio.cost_tables import charts, explain, tables
from tilth.studio.errors import RequestError, invalid, unreadable
from tilth.studio.folder import Folder

Word = Annotated[str, Length(at_most=200)]
POWERS = [1 << power for power in range(25)]


@dataclass(frozen=True)
class CostRequest:
    """The body of `/api/cost`: the arguments of `account`; None is its default."""

    subject: Annotated[str, Length(at_most=4096)] = "tinystories"
    shape: Annotated[dict[str, Any], Length(at_most=40)] = field(default_factory=dict)
    batch_size: int | None = None
    """Sequences per optimizer step."""
    num_microbatches: int | None = None
    """Parts of a batch, one after the other: less memory, the same FLOPs."""
    steps: int | None = None
    """Optimizer steps of the run."""
    optimizer: Word | None = None
    """Optimizer whose state and update are counted."""
    dtype: Word | None = None
    """Dtype of matrix products and their inputs; weights stay float32."""
    recompute: bool | None = None
    """Activation checkpointing: a second forward pass instead of saved activations."""
    hardware: Word | None = None
    """Device to estimate hours for; `this` measures this machine."""
    mfu: float | None = None
    """Share of the peak that products reach (model FLOPs utilization); default 0.5."""
    hours: float | None = None
    """Hours on the hardware, for the compute-optimal model."""
    price: float | None = None
    """Price of an hour on the hardware."""
    memory: Word | None = None
    """Memory for the largest batch, as 80GB or 24GiB; default that of the hardware."""

    def given(self) -> dict[str, Any]:
        """Return the given options by name, those of the shape first."""
        own = {each.name: getattr(self, each.name) for each in fields(CostRequest)[2:]}
        return {**self.shape, **{name: value for name, value in own.items() if value is not None}}

    def command(self) -> str:
        """Return the command that prints the same numbers."""
        words = ["tilth", "account", self.subject]
        for name, value in self.given().items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                words += [f"--{flag}", str(value)]
        return shlex.join(words)


@dataclass(frozen=True)
class NumberRequest(CostRequest):
    """The body of `/api/cost/number`."""

    number: Word = ""
    """The path of the number in `Account.to_dict()`."""


@dataclass(frozen=True)
class Costs:
    """The handlers of the page.

    Attributes:
        folder: The folder whose runs and models can be accounted for, besides the named shapes.

    """

    folder: Folder

    def handlers(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """Return the handlers by path; all take POST."""
        return {"/api/cost": self._tables, "/api/cost/number": self._number}

    async def _tables(self, request: Request) -> Response:
        asked = await read_asked(request, CostRequest)
        return JSONResponse(await run_in_threadpool(self._answer, asked))

    async def _number(self, request: Request) -> Response:
        asked = await read_asked(request, NumberRequest)

        def answer() -> dict[str, Any]:
            with invalid():
                return explain(asked.number, self.account(asked, traced=True))

        return JSONResponse(await run_in_threadpool(answer))

    def _answer(self, asked: CostRequest) -> dict[str, Any]:
        with invalid():
            found = self.account(asked)
            values = found.to_dict()
            return {
                "name": values["name"],
                "notes": values["notes"],
                "command": asked.command(),
                "subjects": self._subjects(),
                "fields": list(form(found, asked)),
                "tables": tables(values),
                "charts": charts(found),
            }

    def account(self, asked: CostRequest, *, traced: bool = False) -> Account:
        """Return the account that a request asks for."""
        options = asked.given()
        for name in asked.shape:
            if name not in _SHAPE:
                raise ValueError(
                    f"{name[:40]!r} is not a key of a model; {suggestion(name, _SHAPE)}"
                )
        price, memory = options.pop("price", None), options.pop("memory", None)
        if options.get("hardware") == "this":
            options["hardware"] = _this_machine()
        memory_bytes = None if memory is None else parse_bytes(memory)
        try:
            found = account(
                self._subject(asked.subject),
                price_per_hour=price,
                memory_bytes=memory_bytes,
                traced=traced,
                **options,
            )
        except (FileError, OSError) as error:
            raise unreadable(f"the config of {asked.subject} cannot be read", error) from error
        return replace(found, name=asked.subject)

    def _subject(self, name: str) -> str | Path:
        if name in SHAPE_NAMES:
            return name
        try:
            return self.folder.find(name, "run", "model").path
        except KeyError:
            hint = suggestion(
                name.lower(), [each["id"] for each in self._subjects()], "choose one."
            )
            raise RequestError(404, f"there is no shape or run of this name; {hint}") from None

    def _subjects(self) -> list[dict[str, str]]:
        runs = [entry for entry in self.folder.entries() if entry.kind in ("run", "model")]
        return [
            *({"id": name, "group": "Shapes and recipes"} for name in SHAPE_NAMES),
            *({"id": entry.id, "group": "This folder"} for entry in runs),
        ]


@lru_cache(maxsize=1)
def _this_machine() -> Hardware:
    return measure_machine()


# --- the form ------------------------------------------------------------------------------------

_SHAPE = {**descriptions(ModelConfig)}
_LADDERS: dict[str, list[Any]] = {
    "vocab_size": [256, *range(1000, 10_000, 1000), *range(10_000, 260_000, 2000)],
    "context_length": POWERS[5:18],
    "d_model": [*range(32, 512, 32), *range(512, 2048, 64), *range(2048, 16_385, 256)],
    "num_layers": list(range(1, 129)),
    "num_heads": list(range(1, 129)),
    "num_kv_heads": list(range(1, 129)),
    "d_ff": [*range(64, 2048, 64), *range(2048, 65_537, 256)],
    "batch_size": POWERS[:14],
    "num_microbatches": POWERS[:9],
    "steps": [a * 10**power for power in range(1, 7) for a in (1, 2, 5)],
    "mfu": [round(0.01 * i, 2) for i in range(1, 101)],
}
"""The values at which the slider of a field stops; its number field takes any other."""
_CHOICES = {
    "norm": ["pre", "post", "none"],
    "position": ["rope", "none"],
    "ffn": ["swiglu", "silu"],
    "optimizer": list(OPTIMIZERS),
    "dtype": list(DTYPE_BYTES),
    "hardware": ["", "this", *HARDWARE],
}
_GROUPS = {
    "Model": [
        *("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads"),
        *("d_ff", "ffn", "norm", "position", "tie_embeddings", "qk_norm"),
    ],
    "Training": ["batch_size", "num_microbatches", "steps", "optimizer", "dtype", "recompute"],
    "Hardware": ["hardware", "mfu", "price", "hours", "memory"],
}


def _nearest(ladder: list[Any] | None, value: Any) -> int | None:  # noqa: ANN401
    """Return the place of a slider: that of the value nearest in proportion."""
    if ladder is None or not isinstance(value, int | float) or value <= 0:
        return None
    return min(range(len(ladder)), key=lambda place: abs(math.log(ladder[place] / value)))


def form(found: Account, asked: CostRequest) -> Iterator[dict[str, Any]]:
    """Yield the fields of the form with their values; the given ones are marked."""
    given, explained = asked.given(), {**_SHAPE, **descriptions(CostRequest)}
    values = found.config.to_dict()
    for name in ("batch_size", "num_microbatches", "steps", "optimizer", "dtype", "recompute"):
        values[name] = getattr(found, name)
    values["mfu"] = found.cost and found.cost.mfu
    for group, names in _GROUPS.items():
        for name in names:
            value = given.get(name, values.get(name))
            kind = "choice" if name in _CHOICES else "number"
            kind = "switch" if isinstance(value, bool) else "text" if name == "memory" else kind
            yield {
                "name": name,
                "group": group,
                "kind": kind,
                "value": value,
                "is_given": name in given,
                "is_shape": name in _SHAPE,
                "ladder": _LADDERS.get(name),
                "nearest": _nearest(_LADDERS.get(name), value),
                "choices": _CHOICES.get(name),
                "what": explained[name],
            }
