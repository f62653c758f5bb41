"""The checkpoints of a run: folders that appear complete or not at all. No torch here.

What enters: a run's `checkpoints` folder. What leaves: which checkpoints it has, what their
`state.json` says, whether their bytes are those that were written, and which may be removed.

| file | what |
|---|---|
| `model.safetensors` | the weights under their names, for any safetensors reader |
| `optimizer.safetensors` | every other tensor: moments of the optimizer, random generators |
| `state.json` | step, tokens, seconds, config, fingerprints, and the checksums of all three |
"""

import hashlib
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tilth.config.model import ModelConfig
from tilth.config.parameters import parameter_shapes
from tilth.files import FileError, checksum, checksum_of, load_manifest, read_bytes
from tilth.optim.groups import group_names
from tilth.runs.packing import check_optimizer_state, unpack
from tilth.runs.tensors import check_model_file, tensor_infos
from tilth.schema import Range, read

CHECKPOINTS = "checkpoints"
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
KIND, VERSION = "checkpoint", 1
HINT = "take another checkpoint, or remove this one and resume the run"
_NAME = re.compile(r"step-([0-9]{6,})")
_LEFTOVER = re.compile(r"\.step-[0-9]{6,}(\.removed)?\.partial")


@dataclass(frozen=True)
class CheckpointState:
    """What `state.json` holds, but for its format and its own checksum."""

    step: Annotated[int, Range(at_least=0, at_most=2**63 - 1)]
    """Steps done."""
    checksums: dict[str, str]
    """SHA-256 of the other files, by name."""
    packed: Any = None
    """The optimizer's state and that of random generators, whose tensors lie in their own file."""
    tokens: Annotated[int, Range(at_least=0)] = 0
    seconds: Annotated[float, Range(at_least=0.0, at_most=1e12)] = 0.0
    """Wall-clock time of training so far, over all its sessions."""
    valid_loss: float | None = None
    guard: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    data_fingerprint: str = ""
    tokenizer_fingerprint: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """The packages that made it, by name."""


@dataclass(frozen=True, order=True)
class Checkpoint:
    """One of them."""

    step: int
    folder: Path

    @property
    def name(self) -> str:
        """Its name within `checkpoints`."""
        return self.folder.name

    def state(self) -> CheckpointState:
        """What `state.json` holds, checked."""
        path = self.folder / STATE
        content = load_manifest(path, kind=KIND, version=VERSION)
        if content.pop("checksum", None) != checksum_of(content):
            raise FileError(path, "is damaged", HINT)
        try:
            state = read(CheckpointState, content, "the state", extra="ignore")
        except ValueError as error:
            raise FileError(path, f"is damaged ({str(error).rstrip('.')})", HINT) from None
        if state.step != self.step:
            raise FileError(self.folder, f"is of step {state.step}", "restore its name")
        return state

    def check(self) -> CheckpointState:
        """Read every byte, refuse what is not as it was written, and return the state."""
        state = self.state()
        for name in (MODEL, OPTIMIZER):
            try:
                found = checksum(self.folder / name)
            except OSError as error:  # a disk that fails
                problem = f"cannot be read ({error.strerror})"
                raise FileError(self.folder / name, problem, HINT) from error
            self._compare(name, found, state)
        return state

    def read(self, name: str, state: CheckpointState) -> bytes:
        """All bytes of one of its files, if they are those that were written."""
        data = read_bytes(self.folder / name)
        self._compare(name, hashlib.sha256(data).hexdigest(), state)
        return data

    def _compare(self, name: str, found: str, state: CheckpointState) -> None:
        if found != state.checksums.get(name):
            raise FileError(self.folder / name, "is damaged", HINT)

    def check_tensors(self, model: ModelConfig, optimizer: str) -> None:
        """Refuse weights and optimizer tensors of other shapes than the config demands."""
        check_model_file(self.folder / MODEL, model)
        infos, packed = tensor_infos(self.folder / OPTIMIZER), self.state().packed
        try:
            packed = unpack(packed, infos)
        except ValueError as error:
            problem = f"holds another state than it should ({error})"
            raise FileError(self.folder, problem, HINT) from error
        shapes = dict(parameter_shapes(model))
        groups = group_names({name: len(shape) for name, shape in shapes.items()}, optimizer)
        ordered = [shapes[name] for group in groups for name in group.names]
        state = packed.get("optimizer") if isinstance(packed, dict) else None
        check_optimizer_state(self.folder, state, ordered, HINT)


def folder_name(step: int) -> str:
    """The name of a checkpoint, so that names sort as steps do."""
    return f"step-{step:06}"


def list_checkpoints(run_folder: Path) -> list[Checkpoint]:
    """The checkpoints of a run, oldest first; what is being written is not among them."""
    folder = run_folder / CHECKPOINTS
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:  # not iterdir: one that is removed meanwhile still counts
        matches = [
            (Path(entry), _NAME.fullmatch(entry.name)) for entry in entries if entry.is_dir()
        ]
    found = sorted(Checkpoint(int(match[1]), path) for path, match in matches if match)
    return [each for each in found if each.name == folder_name(each.step)]  # not step-0000500


def best_checkpoint(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """The one with the lowest validation loss, the newer of equals; None if none was evaluated."""
    losses = []
    for checkpoint in checkpoints:
        try:
            loss = checkpoint.state().valid_loss
        except FileError:  # a damaged one is not the best
            continue
        if loss is not None:
            losses.append((loss, -checkpoint.step, checkpoint))
    return min(losses)[2] if losses else None


def remove_old(run_folder: Path, keep: int, newest: int) -> None:
    """Of those up to the step `newest`, remove all but the last `keep` and the best.

    Later ones are damaged, as they were passed over when the run resumed: they take nobody's place.
    """
    checkpoints = [each for each in list_checkpoints(run_folder) if each.step <= newest]
    kept = {*checkpoints[-keep:], best_checkpoint(checkpoints)}
    for checkpoint in checkpoints:
        if checkpoint not in kept:
            remove(checkpoint.folder)


def remove(folder: Path) -> None:
    """Take a checkpoint away under another name first: half of one is never seen under its own."""
    doomed = folder.with_name(f".{folder.name}.removed.partial")
    _delete(doomed)
    folder.rename(doomed)
    _delete(doomed)


def remove_leftovers(run_folder: Path) -> None:
    """Remove what killed writers left; only the process that holds the run's lock may."""
    for leftover in (run_folder / CHECKPOINTS).glob(".step-*.partial"):
        if _LEFTOVER.fullmatch(leftover.name):  # other hidden files are not ours
            _delete(leftover)


def _delete(path: Path) -> None:
    """Delete a folder that no reader looks at; what cannot be deleted is no reason to stop."""
    if path.is_symlink():  # to a checkpoint on another disk, which stays there
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
