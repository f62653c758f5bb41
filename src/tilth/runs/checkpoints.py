"""The checkpoints of a run: folders that appear complete or not at all. No torch.

| file | content |
|---|---|
| `model.safetensors` | the weights under their names, for any safetensors reader |
| `optimizer.safetensors` | all other tensors: optimizer moments, random generators |
| `state.json` | step, tokens, seconds, config, fingerprints, and the checksums of all files |

If no rank can hold all tensors, each writes a part of both: `model-00001-of-00004.safetensors`. A
tensor is whole in one of the parts.

With `watch.weights_per_doubling`, the folder `history` of a run keeps checkpoints of geometrically
spaced steps, without `optimizer.safetensors`: to look back at, not to resume from.
"""

import hashlib
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from tilth.config.model import ModelConfig
from tilth.config.parameters import parameter_shapes
from tilth.config.training import ResolvedConfig
from tilth.errors import is_out_of_memory
from tilth.files import FileError, checked, checksum, checksum_of, load_manifest, read_bytes
from tilth.optim.groups import group_names
from tilth.runs.atomic_folders import delete
from tilth.runs.packing import check_optimizer_state, unpack
from tilth.runs.tensors import INVALID, TensorInfo, check_weights, load_weights, tensor_infos
from tilth.schema import Range

CHECKPOINTS, HISTORY = "checkpoints", "history"
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
KIND, VERSION = "checkpoint", 1
HINT = "choose another checkpoint, or remove this one and resume the run"
LEFTOVER = r"\.step-[0-9]{6,}(?:\.removed)?\.partial"  # of a killed process
_NAME = re.compile(r"step-([0-9]{6}|[1-9][0-9]{6,})")


@dataclass(frozen=True)
class CheckpointState:
    """The content of `state.json`, without its format, version and checksum."""

    step: Annotated[int, Range(at_least=0, at_most=2**63 - 1)]
    checksums: dict[str, str]  # SHA-256 of the other files, by name
    packed: Any = None  # optimizer, gradient scaler and random generators, by `packing.pack`
    tokens: Annotated[int, Range(at_least=0)] = 0
    seconds: Annotated[float, Range(at_least=0.0, at_most=1e12)] = 0.0  # over all sessions
    valid_loss: float | None = None
    guard: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    data_fingerprint: str = ""
    tokenizer_fingerprint: str = ""
    versions: dict[str, str] = field(default_factory=dict)  # of the packages that wrote it


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A checkpoint folder; sorts by step."""

    step: int
    folder: Path

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.folder.name

    @property
    def has_optimizer(self) -> bool:
        """Whether a training can resume from it: those of the history have only weights."""
        return self.folder.parent.name != HISTORY

    def state(self) -> CheckpointState:
        """Read and check `state.json`; raise FileError if it is damaged."""
        path = self.folder / STATE
        content = load_manifest(path, kind=KIND, version=VERSION)
        if content.pop("checksum", None) != checksum_of(content):
            raise FileError(path, "is damaged", HINT)
        state = checked(CheckpointState, content, path)
        if state.step != self.step:
            raise FileError(self.folder, f"has the state of step {state.step}", "restore its name")
        return state

    def check(self) -> CheckpointState:
        """Compare every byte with its checksum; return the state, or raise FileError."""
        state = self.state()
        for name in (*self.files(MODEL, state), *self.files(OPTIMIZER, state)):
            try:
                found = checksum(self.folder / name)
            except OSError as error:  # a disk that fails
                problem = f"cannot be read ({error.strerror})"
                raise FileError(self.folder / name, problem, HINT) from error
            self._compare(name, found, state)
        return state

    def read(self, name: str, state: CheckpointState) -> bytes:
        """Return the bytes of a file of the checkpoint, once their checksum agrees."""
        data = read_bytes(self.folder / name)
        self._compare(name, hashlib.sha256(data).hexdigest(), state)
        return data

    def files(self, name: str, state: CheckpointState) -> list[str]:
        """Return the names of the files with the weights (MODEL) or other tensors (OPTIMIZER)."""
        if name == OPTIMIZER and not self.has_optimizer:
            return []
        stem = name.removesuffix(".safetensors") + "-"
        parts = sorted(each for each in state.checksums if each.startswith(stem))
        if name in state.checksums or not parts:
            return [name]
        if parts != part_names(name, len(parts)):
            raise FileError(self.folder / STATE, f"does not name all parts of {name}", HINT)
        return parts

    def infos(self, name: str, state: CheckpointState) -> dict[str, TensorInfo]:
        """Return types and shapes of the weights (MODEL) or other tensors, from the headers."""
        found: dict[str, TensorInfo] = {}
        for file in self.files(name, state):
            infos = tensor_infos(self.folder / file)
            if twice := found.keys() & infos.keys():
                problem = f"has {min(twice)}, which another part has too"
                raise FileError(self.folder / file, problem, HINT)
            found |= infos
        return found

    def weights(self, config: ModelConfig) -> dict[str, np.ndarray]:
        """Return the weights as float32, once names, shapes and checksums agree."""
        state = self.state()
        self._check_weights(state, config)  # before memory is allocated
        found: dict[str, np.ndarray] = {}
        for file in self.files(MODEL, state):
            found |= load_weights(self.folder / file, self.read(file, state))
        return found

    def _check_weights(self, state: CheckpointState, config: ModelConfig) -> None:
        path = self.folder / self.files(MODEL, state)[0]
        check_weights(path, config, self.infos(MODEL, state))

    def _compare(self, name: str, found: str, state: CheckpointState) -> None:
        if found != state.checksums.get(name):
            raise FileError(self.folder / name, "is damaged", HINT)

    def config(self, state: CheckpointState) -> ResolvedConfig:
        """Return the config that the checkpoint was trained with."""
        with self.explained():
            return ResolvedConfig.from_dict(state.config or {})

    def check_tensors(self, state: CheckpointState, config: ResolvedConfig) -> None:
        """Raise FileError unless weights and optimizer tensors have the shapes of the config.

        Reads only headers; call it before a model is built.
        """
        self._check_weights(state, config.model)
        if not self.has_optimizer:
            return
        infos = self.infos(OPTIMIZER, state)
        with self.explained():
            packed = unpack(state.packed, infos)
        shapes = dict(parameter_shapes(config.model))
        dimensions = {name: len(shape) for name, shape in shapes.items()}
        groups = group_names(dimensions, config.optimizer.name)
        ordered = [shapes[name] for group in groups for name in group.names]
        found = packed.get("optimizer") if isinstance(packed, dict) else None
        check_optimizer_state(self.folder, found, ordered, HINT)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors about the content of the state into FileError."""
        try:
            yield
        except (*INVALID, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            problem = f"has an invalid state ({' '.join(str(error).split())})"
            raise FileError(self.folder, problem, HINT) from error


def folder_name(step: int) -> str:
    """Return the name of the checkpoint after `step`; names sort as steps do."""
    return f"step-{step:06}"


def part_names(name: str, number: int) -> list[str]:
    """Return the names of the parts of a file.

    >>> part_names("model.safetensors", 2)
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    """
    stem = name.removesuffix(".safetensors")
    return [f"{stem}-{part:05}-of-{number:05}.safetensors" for part in range(1, number + 1)]


def is_in_history(step: int, per_doubling: int) -> bool:
    """Return whether a step is the first at or after a power of 2 ** (1 / per_doubling); 0 is.

    >>> [step for step in range(40) if is_in_history(step, 1)]
    [0, 1, 2, 4, 8, 16, 32]
    >>> [step for step in range(40) if is_in_history(step, 2)]
    [0, 1, 2, 3, 4, 6, 8, 12, 16, 23, 32]
    """
    if step < 2 or not per_doubling:
        return per_doubling > 0
    places = [math.floor(per_doubling * math.log2(each)) for each in (step - 1, step)]
    return places[0] < places[1]


def most_in_history(steps: int, per_doubling: int) -> int:
    """Return the largest number of checkpoints in the history after a number of steps."""
    if not per_doubling:
        return 0
    return 1 + min(steps, 1 + math.floor(per_doubling * math.log2(steps)))


def list_checkpoints(run_folder: Path, name: str = CHECKPOINTS) -> list[Checkpoint]:
    """Return the complete checkpoints in a folder of a run, oldest first."""
    folder = run_folder / name
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:  # not iterdir: one that is removed meanwhile still counts
        names = [each.name for each in entries if _NAME.fullmatch(each.name) and each.is_dir()]
    return sorted(Checkpoint(int(name.removeprefix("step-")), folder / name) for name in names)


def best_checkpoint(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint of the lowest validation loss, the newer of equals, or None.

    Checkpoints that were not evaluated or whose state is damaged are skipped.
    """
    losses = []
    for checkpoint in checkpoints:
        with suppress(FileError):
            if (loss := checkpoint.state().valid_loss) is not None:
                losses.append((loss, -checkpoint.step, checkpoint))
    return min(losses)[2] if losses else None


def remove_old(run_folder: Path, keep: int, newest: int) -> None:
    """Remove the checkpoints up to step `newest`, except the last `keep` and the best.

    Later ones are damaged, as the run skipped them when it resumed; they do not count.
    """
    checkpoints = [each for each in list_checkpoints(run_folder) if each.step <= newest]
    kept = {*checkpoints[-keep:], best_checkpoint(checkpoints)}
    for checkpoint in checkpoints:
        if checkpoint not in kept:
            remove(checkpoint.folder)


def remove(folder: Path) -> None:
    """Rename a checkpoint, then delete it: no reader sees a part of one."""
    doomed = folder.with_name(f".{folder.name}.removed.partial")
    delete(doomed)
    folder.rename(doomed)
    delete(doomed)
