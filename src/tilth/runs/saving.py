"""The state of a training as a checkpoint folder, written while training goes on, and back.

What enters: a model, its optimizer, and values that JSON or tensors can hold. What leaves: a folder
that appears by a rename, and the same state again. Training waits for a copy of the tensors alone;
a thread writes them.
"""

import os
import random
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from tilth.data.token_files import checksum_of
from tilth.files import FileError, checksum, save_manifest, sync_folder
from tilth.model import TransformerLM
from tilth.runs.checkpoint import Packer, check_fits, unpack
from tilth.runs.checkpoint_folders import (
    CHECKPOINTS,
    HINT,
    KIND,
    MODEL,
    OPTIMIZER,
    STATE,
    VERSION,
    Checkpoint,
    folder_name,
    remove,
    remove_old,
)
from tilth.runs.run import Run


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
        """Copy the state now, write it later; `tensors` are values with tensors in them."""
        self.wait()
        weights = {name: _copy(weight) for name, weight in model.state_dict().items()}
        packer = Packer()
        packed = packer.pack({"optimizer": optimizer.state_dict(), **tensors}, "state")
        others = {name: _copy(tensor) for name, tensor in packer.tensors.items()}
        content = {"step": step, **deepcopy(content), "packed": packed}
        try:
            self._pending = self._thread.submit(self._write, step, weights, others, content)
        except RuntimeError:  # the program ends, and threads are gone already
            self._write(step, weights, others, content)
        return folder_name(step)

    def check(self) -> None:
        """Raise what went wrong so far, without waiting."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait for the last save, and raise what went wrong."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def _write(
        self,
        step: int,
        weights: dict[str, Tensor],
        others: dict[str, Tensor],
        content: dict[str, Any],
    ) -> None:
        target = self.run_folder / CHECKPOINTS / folder_name(step)
        partial = target.with_name(f".{target.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir()
            checksums = {}
            for name, tensors in ((MODEL, weights), (OPTIMIZER, others)):
                safetensors.torch.save_file(tensors, partial / name, {"format": "pt"})
                with (partial / name).open("rb") as file:
                    os.fsync(file.fileno())
                    checksums[name] = checksum(file)
            state = {**content, "checksums": checksums}
            state["checksum"] = checksum_of(state)
            save_manifest(partial / STATE, state, kind=KIND, version=VERSION)
            sync_folder(partial)
            if target.exists():  # a damaged one, which was passed over
                remove(target)
            partial.rename(target)
            sync_folder(target.parent)
        except (OSError, safetensors.SafetensorError) as error:
            reason = getattr(error, "strerror", None) or error
            raise OSError(
                f"cannot write the checkpoint {target} ({reason}); the ones before it are whole: "
                f"check the space and permissions of the folder, then `tilth resume "
                f"{self.run_folder}`"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        remove_old(self.run_folder, self.keep, step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            self._thread.shutdown()


def load_state(
    checkpoint: Checkpoint, model: Module, optimizer: Optimizer | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check a checkpoint, fill a model and an optimizer; return what else `save` was given."""
    content = checkpoint.check()
    try:
        weights = safetensors.torch.load_file(checkpoint.folder / MODEL)
        others = safetensors.torch.load_file(checkpoint.folder / OPTIMIZER)
        unpacked: dict[str, Any] = unpack(content.pop("packed"), others)
        optimizer_state = unpacked.pop("optimizer")
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        problem = f"holds another state than it should ({error})"
        raise FileError(checkpoint.folder, problem, HINT) from error
    check_fits(str(checkpoint.folder), weights, model.state_dict())
    if optimizer is not None:
        try:  # torch checks the groups before it changes anything
            optimizer.load_state_dict(optimizer_state)
        except ValueError as error:
            hint = "make the optimizer with the config of the run"
            problem = f"is of another optimizer ({error})"
            raise FileError(checkpoint.folder, problem, hint) from error
    model.load_state_dict(weights)
    return content, unpacked


def load_model(
    run: Run, step: int | None = None, device: str = "cpu"
) -> tuple[Checkpoint, TransformerLM]:
    """The model of a run, with the weights of its best checkpoint, or of that after `step`."""
    with torch.random.fork_rng(devices=[]):  # to look at a run moves no training's chance
        model = TransformerLM(run.config.model)

    def load(checkpoint: Checkpoint) -> Checkpoint:
        load_state(checkpoint, model)
        return checkpoint

    return run.read_checkpoint(load, step), model.to(device)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


# --- random generators ----------------------------------------------------------------------------


def random_state() -> dict[str, Any]:
    """The state of every random generator that code in a training may draw from."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (str(name), torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "mps": torch.mps.get_rng_state() if torch.backends.mps.is_available() else None,
    }


def set_random_state(state: Mapping[str, Any]) -> None:
    """Put every random generator back where it was."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if torch.backends.mps.is_available() and state["mps"] is not None:
        torch.mps.set_rng_state(state["mps"])
