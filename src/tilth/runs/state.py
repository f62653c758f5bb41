"""Saving and loading the state of a training run as a checkpoint folder.

Training only waits while the tensors are copied; a thread writes them to the disk.
"""

import os
import random
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
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
from tilth.model import TransformerLM
from tilth.runs.atomic_folders import atomic_folder
from tilth.runs.checkpoints import (
    CHECKPOINTS,
    KIND,
    MODEL,
    OPTIMIZER,
    STATE,
    VERSION,
    Checkpoint,
    CheckpointState,
    folder_name,
    remove,
    remove_old,
)
from tilth.runs.packing import check_optimizer_state, is_number, pack, shape_of, unpack
from tilth.runs.run import Run
from tilth.runs.tensors import INVALID


class CheckpointWriter:
    """Writes the checkpoints of one run, one at a time, and removes old ones.

    An error of the writing thread is raised by the next call, or at the end of the `with` block.
    """

    def __init__(self, run_folder: Path, keep: int) -> None:
        self.run_folder = run_folder
        self.keep = keep
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tilth-checkpoint")
        self._pending: Future[None] | None = None

    def save(
        self,
        step: int,
        model: Module,
        optimizer: Optimizer,
        content: dict[str, Any],
        tensors: dict[str, Any],
    ) -> str:
        """Copy the state now and write it later; return the name of the checkpoint.

        `content` are fields of `CheckpointState`, `tensors` are values that contain tensors.
        """
        self.wait()
        store = TensorStore()
        packed = pack({"optimizer": optimizer.state_dict(), **tensors}, "state", store.store)
        files = {
            file: {n: t.detach().to("cpu", copy=True).contiguous() for n, t in of_file.items()}
            for file, of_file in ((MODEL, model.state_dict()), (OPTIMIZER, store.by_name))
        }
        content = {"step": step, **deepcopy(content), "packed": packed}
        try:
            self._pending = self._thread.submit(self._write, files, content)
        except RuntimeError:  # the interpreter shuts down and starts no more threads
            self._write(files, content)
        return folder_name(step)

    def check(self) -> None:
        """Raise the error of the last save, if it has failed already; do not wait."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the last save; raise its error."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(self, files: dict[str, dict[str, Tensor]], content: dict[str, Any]) -> None:
        target = self.run_folder / CHECKPOINTS / folder_name(content["step"])
        try:
            with atomic_folder(target, f".{target.name}.partial") as partial:
                checksums = {}
                for name, tensors in files.items():
                    safetensors.torch.save_file(tensors, partial / name, {"format": "pt"})
                    with (partial / name).open("rb") as file:
                        os.fsync(file.fileno())
                        checksums[name] = checksum(file)
                state = {**content, "checksums": checksums}
                state["checksum"] = checksum_of(state)
                save_manifest(partial / STATE, state, kind=KIND, version=VERSION)
                if target.exists():  # a damaged checkpoint, skipped when the run resumed
                    remove(target)
        except (OSError, safetensors.SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OSError(
                f"cannot write the checkpoint {target} ({reason}); earlier checkpoints are intact: "
                f"check the space and permissions of the folder, then `tilth resume "
                f"{self.run_folder}`"
            ) from error
        remove_old(self.run_folder, self.keep, content["step"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._thread.shutdown()


def load_state(
    checkpoint: Checkpoint,
    state: CheckpointState,
    model: Module,
    optimizer: Optimizer | None = None,
) -> dict[str, Any]:
    """Load a model and an optimizer from a checkpoint; return the `tensors` given to `save`.

    `state` is `checkpoint.state()`. Raises FileError, and changes nothing, unless all checksums,
    names, shapes and options agree.
    """
    # The bytes that are checked are those that are loaded: a memory map of the file could change,
    # or end the process where the file is cut.
    data = {name: checkpoint.read(name, state) for name in (MODEL, OPTIMIZER)}
    with checkpoint.explained():
        weights = safetensors.torch.load(data.pop(MODEL))
        others = safetensors.torch.load(data.pop(OPTIMIZER))
        unpacked: dict[str, Any] = unpack(state.packed, others)
        optimizer_state = unpacked.pop("optimizer")
    load_state_dicts(checkpoint.folder, model, weights, optimizer, optimizer_state)
    return unpacked


def load_model(
    run: Run, step: int | None = None, device: str = "cpu"
) -> tuple[Checkpoint, TransformerLM]:
    """Load the model of a run's best checkpoint, or of that after `step`."""
    checkpoint, weights = run.weights(step)
    model = TransformerLM(run.config.model, device="meta")
    with checkpoint.explained():
        tensors = {name: torch.tensor(weight, device=device) for name, weight in weights.items()}
        model.load_state_dict(tensors, assign=True)
    return checkpoint, model


def load_state_dicts(
    path: StrPath,
    model: Module,
    weights: Mapping[str, Any],
    optimizer: Optimizer | None,
    optimizer_state: Any,  # noqa: ANN401, from a file
) -> None:
    """Load state dicts into a model and an optimizer; raise FileError before either changes.

    Weights must have the names and shapes of the model, the optimizer state those of the
    parameters, and options of the types that the optimizer has.
    """
    expected = {key: shape_of(value) for key, value in model.state_dict().items()}
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
