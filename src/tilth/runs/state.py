"""Saving and loading the state of a training run as a checkpoint folder.

Training only waits while the tensors are copied; a thread writes them to the disk.
"""

import os
import random
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from tilth.config.parameters import compare_shapes
from tilth.files import FileError, StrPath, checksum, checksum_of, save_manifest
from tilth.model.transformer import TransformerLM, build_model
from tilth.optim.sharding import Shard
from tilth.runs.atomic_folders import atomic_folder
from tilth.runs.checkpoints import (
    CHECKPOINTS,
    HISTORY,
    KIND,
    MODEL,
    OPTIMIZER,
    STATE,
    VERSION,
    Checkpoint,
    CheckpointState,
    folder_name,
    part_names,
    remove,
    remove_old,
)
from tilth.runs.packing import (
    SHAPED_LIKE_PARAMETER,
    check_optimizer_state,
    is_number,
    pack,
    shape_of,
    unpack,
)
from tilth.runs.run import Run
from tilth.runs.tensors import INVALID


@dataclass(frozen=True)
class Writers:
    """The processes that write the checkpoints of a training; by default, one."""

    rank: int = 0
    size: int = 1
    gathered: Callable[[Any], list[Any]] = lambda value: [value]
    """From the JSON value of this process to those of all, by their ranks."""
    in_parts: bool = False
    """Whether each of them writes a part of the tensors; else rank 0 writes all."""


ONE_WRITER = Writers()
FAILURES = (OSError, safetensors.SafetensorError)
"""Errors of writing."""


class CheckpointWriter:
    """Writes the checkpoints of one run, one at a time, and removes old ones.

    An error of the writing thread is raised by the next call, or at the end of the `with` block.

    Args:
        run_folder: The run directory.
        keep: Number of newest checkpoints to keep.
        writers: The processes of the training; all of them must make the same calls. A thread calls
            `gathered`.

    """

    def __init__(self, run_folder: Path, keep: int, writers: Writers = ONE_WRITER) -> None:
        self.run_folder = run_folder
        self.keep = keep
        self.writers = writers
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tilth-checkpoint")
        self._pending: Future[None] | None = None

    def save(
        self,
        step: int,
        model: Module,
        optimizer: Optimizer | None,
        content: dict[str, Any],
        tensors: dict[str, Any],
        shards: Mapping[str, Shard] | None = None,
    ) -> str:
        """Copy the state now and write it later; return the name of the checkpoint.

        `content` are fields of `CheckpointState`, `tensors` are values that contain tensors, and
        `shards` the parameters of which each rank has some rows. Without an optimizer, the
        weights alone are written, into the history.
        """
        self.wait()
        is_first = self.writers.rank == 0
        if not (is_first or shards or self.writers.in_parts):
            return folder_name(step)
        of_optimizer = None if optimizer is None else optimizer.state_dict()
        weights, state = self._own_part(model.state_dict(), of_optimizer, shards or {})
        if not (is_first or self.writers.in_parts):  # it has sent its rows
            return folder_name(step)
        store = TensorStore()

        def name_of(value: object, name: str) -> str | None:
            is_of_another = isinstance(value, Tensor) and value.is_meta
            return name if is_of_another else store.store(value, name)

        packed = None
        if state is not None:
            packed = pack({"optimizer": state, **(tensors if is_first else {})}, "state", name_of)
        shares_memory = not (shards or self.writers.in_parts)  # with the model and the optimizer
        files = {
            file: {
                name: tensor.detach().to("cpu", copy=shares_memory).contiguous()
                for name, tensor in of_file.items()
            }
            for file, of_file in ((MODEL, weights), (OPTIMIZER, store.by_name))
            if file == MODEL or packed is not None
        }
        content = {"step": step, **deepcopy(content), "packed": packed}
        write = self._write_part if self.writers.in_parts else self._write
        try:
            self._pending = self._thread.submit(write, files, content)
        except RuntimeError:  # the interpreter shuts down and starts no more threads
            write(files, content)
        return folder_name(step)

    def _own_part(
        self, weights: dict[str, Any], state: dict[str, Any] | None, shards: Mapping[str, Shard]
    ) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
        """Return the whole tensors that this rank writes; in the state, others are on meta."""
        if not shards and not self.writers.in_parts:
            return weights, state
        sizes = [0] * (self.writers.size if self.writers.in_parts else 1)

        @torch.no_grad()
        def own(tensor: Tensor, shard: Shard | None) -> Tensor:
            whole = tensor.clone() if shard is None else shard.gathered(tensor)
            writer = sizes.index(min(sizes))
            sizes[writer] += whole.nbytes
            return whole if writer == self.writers.rank else whole.to("meta")

        found = {
            name: own(shards[name].parameter if name in shards else weight, shards.get(name))
            for name, weight in weights.items()
        }
        present = {name: weight for name, weight in found.items() if not weight.is_meta}
        if state is None:
            return present, None
        values = {
            number: {
                key: own(value, shards.get(name) if key in SHAPED_LIKE_PARAMETER else None)
                for key, value in state["state"][number].items()
            }
            for group in state["param_groups"]
            for number, name in zip(group["params"], group["param_names"], strict=True)
            if number in state["state"]
        }
        return present, {**state, "state": values}

    def check(self) -> None:
        """Raise the error of the last save, if it has failed already; do not wait.

        Several writers raise it at the next save: all in the same step, and with the same sentence.
        """
        if not self.writers.in_parts and self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the last save; raise its error."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, files: dict[str, dict[str, Tensor]], content: dict[str, Any]) -> None:
        target = self._target(content)
        try:
            with atomic_folder(target, _partial(target).name) as partial:
                self._complete(partial, content, _save_files(partial, files))
        except FAILURES as error:
            raise self._failed(target, _reason(error)) from error
        self._remove_old(content)

    def _write_part(self, files: dict[str, dict[str, Tensor]], content: dict[str, Any]) -> None:
        """Write the files of this rank; rank 0 renames the folder once all ranks are done."""
        target = self._target(content)
        own = {
            part_names(name, self.writers.size)[self.writers.rank]: of_file
            for name, of_file in files.items()
        }
        with ExitStack() as stack:
            partial = _partial(target)

            def create() -> None:
                if self.writers.rank == 0:
                    stack.enter_context(atomic_folder(target, partial.name))

            self._together(target, create)
            checksums = self._together(target, lambda: _save_files(partial, own))

            def complete() -> None:
                if self.writers.rank == 0:
                    merged = {name: each for found in checksums for name, each in found.items()}
                    self._complete(partial, content, merged)
                    stack.close()  # renames the folder
                    self._remove_old(content)

            self._together(target, complete)

    def _together(self, target: Path, work: Callable[[], Any]) -> list[Any]:
        """Work, and return the results of all ranks; raise OSError on all if one of them fails."""
        result, problem = None, ""
        try:
            result = work()
        except FAILURES as error:
            problem = f"{_reason(error)}"
        found = self.writers.gathered([result, problem])
        for rank, (_, text) in enumerate(found):
            if text:
                raise self._failed(target, f"rank {rank}: {text}")
        return [each for each, _ in found]

    def _target(self, content: dict[str, Any]) -> Path:
        folder = HISTORY if content["packed"] is None else CHECKPOINTS
        return self.run_folder / folder / folder_name(content["step"])

    def _remove_old(self, content: dict[str, Any]) -> None:
        if content["packed"] is not None:  # the history stays
            remove_old(self.run_folder, self.keep, content["step"])

    def _complete(self, partial: Path, content: dict[str, Any], checksums: dict[str, str]) -> None:
        state = {**content, "checksums": checksums}
        state["checksum"] = checksum_of(state)
        save_manifest(partial / STATE, state, kind=KIND, version=VERSION)
        target = self._target(content)
        if target.exists():  # a damaged checkpoint, skipped when the run resumed
            remove(target)

    def _failed(self, target: Path, reason: object) -> OSError:
        return OSError(
            f"cannot write the checkpoint {target} ({reason}); earlier checkpoints are intact: "
            f"check the space and permissions of the folder, then `tilth resume {self.run_folder}`"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._thread.shutdown()


def _reason(error: Exception) -> object:
    return getattr(error, "strerror", None) or error


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial")


def _save_files(folder: Path, files: dict[str, dict[str, Tensor]]) -> dict[str, str]:
    """Write files to the disk; return their checksums."""
    checksums = {}
    for name, tensors in files.items():
        safetensors.torch.save_file(tensors, folder / name, {"format": "pt"})
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
            checksums[name] = checksum(file)
    return checksums


def load_state(
    checkpoint: Checkpoint,
    state: CheckpointState,
    model: Module,
    optimizer: Optimizer | None = None,
    shards: Mapping[str, Shard] | None = None,
) -> dict[str, Any]:
    """Load a model and an optimizer from a checkpoint; return the `tensors` given to `save`.

    `state` is `checkpoint.state()`. Of the parameters in `shards`, and of their optimizer state,
    some rows are loaded. Raises FileError, and changes nothing, unless all checksums, names, shapes
    and options agree.
    """
    shards = shards or {}
    weights = _read_tensors(checkpoint, MODEL, state, shards)
    with checkpoint.explained():
        of_state = {} if optimizer is None else _shards_of_state(state, optimizer, shards)
    others = _read_tensors(checkpoint, OPTIMIZER, state, of_state)
    with checkpoint.explained():
        unpacked: dict[str, Any] = unpack(state.packed, others)
        optimizer_state = unpacked.pop("optimizer")
    load_state_dicts(checkpoint.folder, model, weights, optimizer, optimizer_state, shards)
    return unpacked


def _read_tensors(
    checkpoint: Checkpoint, name: str, state: CheckpointState, shards: Mapping[str, Shard]
) -> dict[str, Tensor]:
    """Return the tensors of a file or its parts, file by file; the own rows of those in `shards`.

    The bytes that are checked are those that are loaded: a memory map of a file could change, or
    end the process where the file is cut.
    """
    found: dict[str, Tensor] = {}
    for file in checkpoint.files(name, state):
        data = checkpoint.read(file, state)
        with checkpoint.explained():
            tensors = safetensors.torch.load(data)
            del data
            for key, tensor in tensors.items():
                shard = shards.get(key)
                if shard is not None and tuple(tensor.shape) != shard.shape:
                    raise ValueError(f"{key} has shape {tuple(tensor.shape)}, not {shard.shape}")
                found[key] = tensor if shard is None else shard.of(tensor).clone()
    return found


def _shards_of_state(
    state: CheckpointState, optimizer: Optimizer, shards: Mapping[str, Shard]
) -> dict[str, Shard]:
    """Return the shards of the tensors of an optimizer state, by their names in the file."""
    if not shards:
        return {}
    saved = unpack(state.packed, _Names())["optimizer"]
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    names = [name for group in optimizer.param_groups for name in group["param_names"]]
    return {
        tensor: shards[name]
        for number, name in zip(numbers, names, strict=True)
        if name in shards
        for key, tensor in saved["state"].get(number, {}).items()
        if key in SHAPED_LIKE_PARAMETER
    }


class _Names(dict[str, object]):
    """Tensors by name, for `unpack`: each is its name."""

    def __missing__(self, name: str) -> object:
        return name


def load_model(
    run: Run, step: int | None = None, device: str = "cpu"
) -> tuple[Checkpoint, TransformerLM]:
    """Load the model of a run's best checkpoint, or of that after `step`."""
    checkpoint, weights = run.weights(step)
    with checkpoint.explained():
        return checkpoint, build_model(run.config.model, weights, device)


def load_state_dicts(
    path: StrPath,
    model: Module,
    weights: Mapping[str, Any],
    optimizer: Optimizer | None,
    optimizer_state: Any,  # noqa: ANN401, from a file
    shards: Mapping[str, Shard] | None = None,
) -> None:
    """Load state dicts into a model and an optimizer; raise FileError before either changes.

    Weights must have the names and shapes of the model or its `shards`, the optimizer state those
    of the parameters, and options of the types that the optimizer has.
    """
    own: dict[str, Any] = dict(model.state_dict())
    own |= {name: shard.parameter for name, shard in (shards or {}).items()}
    expected = {key: shape_of(value) for key, value in own.items()}
    # A value that is not a tensor in the model may be anything.
    shapes = {
        key: None if expected.get(key) is None else shape_of(value)
        for key, value in weights.items()
    }
    try:
        compare_shapes(shapes, sorted(expected.items()))
    except ValueError as error:
        hint = "make the model with the config that it was saved with"
        raise FileError(path, f"does not fit the model: {error}", hint) from None
    if optimizer is not None:
        _load_optimizer(path, optimizer, optimizer_state)
    if shards:
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(weights[name])
    else:
        model.load_state_dict(weights)


def _load_optimizer(path: StrPath, optimizer: Optimizer, state: Any) -> None:  # noqa: ANN401, from a file
    hint = "make the optimizer with the parameters and groups that it was saved with"
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    check_optimizer_state(path, state, [p.shape for p in parameters], hint)
    for own, saved in zip(optimizer.param_groups, state["param_groups"], strict=False):
        for name, value in saved.items():
            if name != "params" and name in own and not _is_alike(value, own[name]):
                problem = f"does not fit the optimizer (its {name} is {value!r:.40})"
                raise FileError(path, problem, hint)
    try:  # torch checks the groups before it changes anything
        optimizer.load_state_dict(state)
    except (*INVALID, RuntimeError) as error:
        raise FileError(path, f"does not fit the optimizer ({error})", hint) from error


def _is_alike(value: object, own: object) -> bool:
    """Return whether the value of an option may replace the optimizer's `own`."""
    if isinstance(own, list | tuple):
        return (
            type(value) is type(own) and len(value) == len(own) and all(map(_is_alike, value, own))
        )
    if isinstance(own, bool) or own is None:
        return isinstance(value, bool | None)
    if is_number(own):
        return is_number(value)
    return value == own if isinstance(own, str) else type(value) is type(own)


class TensorStore:
    """Collects the tensors of packed values in `by_name`; a shared tensor is stored once."""

    def __init__(self) -> None:
        self.by_name: dict[str, Tensor] = {}
        # With the tensors: no other one takes the address of a tensor that is alive.
        self._names: dict[tuple[object, ...], tuple[str, Tensor]] = {}
        self._storages: set[int] = set()

    def store(self, tensor: object, name: str) -> str | None:
        """Store a tensor and return its name; None for other values."""
        if not isinstance(tensor, Tensor):
            return None
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(
                f"{name} is sparse or on the meta device; make it a dense tensor with values"
            )
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place in self._names:
            return self._names[place][0]
        while name in self.by_name:  # {"1": ..., 1: ...}
            name += "'"
        self._names[place] = name, tensor
        # Safetensors refuses shared memory: a second view of a storage is copied.
        storage = tensor.untyped_storage().data_ptr()
        plain = tensor.detach().contiguous()
        self.by_name[name] = plain.clone() if storage in self._storages else plain
        self._storages.add(storage)
        return name


# --- random generators ----------------------------------------------------------------------------


def random_state() -> dict[str, Any]:
    """Return the states of the random generators of Python, NumPy and torch."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "mps": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Restore the random generators; raise ValueError if NumPy's state is invalid."""
    name, keys, place, *rest = state["numpy"]
    # NumPy reads at this index without a check.
    if keys.shape != (624,) or type(place) is not int or not 0 <= place <= 624:
        raise ValueError("the state of NumPy's generator is invalid")
    random.setstate(state["python"])
    np.random.set_state((name, keys.numpy().astype(np.uint32), place, *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if torch.backends.mps.is_available() and state["mps"] is not None:
        torch.mps.set_rng_state(state["mps"])
