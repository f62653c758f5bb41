"""The checkpoints of a run: folders that appear complete or not at all. No torch here.

What enters: a run's `checkpoints` folder. What leaves: which checkpoints it has, what their
`state.json` says, whether their bytes are those that were written, and which may be removed.

| file | what |
|---|---|
| `model.safetensors` | the weights under their names, for any safetensors reader |
| `optimizer.safetensors` | every other tensor: moments of the optimizer, random generators |
| `state.json` | step, tokens, seconds, config, fingerprints, and the checksums of the two |
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilth.data.token_files import checksum_of
from tilth.files import FileError, checksum, load_manifest

CHECKPOINTS = "checkpoints"
MODEL, OPTIMIZER, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
KIND, VERSION = "checkpoint", 1
_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True, order=True)
class Checkpoint:
    """One of them."""

    step: int
    folder: Path

    @property
    def name(self) -> str:
        """Its name within `checkpoints`."""
        return self.folder.name

    def state(self) -> dict[str, Any]:
        """What `state.json` holds."""
        path = self.folder / STATE
        content = load_manifest(path, kind=KIND, version=VERSION)
        if content.pop("checksum", None) != checksum_of(content):
            raise FileError(path, "is damaged", "take another checkpoint")
        return content

    def check(self) -> dict[str, Any]:
        """Read every byte, refuse what is not as it was written, and return the state."""
        state = self.state()
        if state.get("step") != self.step:
            problem = f"is of step {state.get('step')}"
            raise FileError(self.folder, problem, "restore its name")
        for name in (MODEL, OPTIMIZER):
            if checksum(self.folder / name) != state["checksums"].get(name):
                raise FileError(self.folder / name, "is damaged", "take another checkpoint")
        return state


def folder_name(step: int) -> str:
    """The name of a checkpoint, so that names sort as steps do."""
    return f"step-{step:06}"


def list_checkpoints(run_folder: Path) -> list[Checkpoint]:
    """The checkpoints of a run, oldest first; what is being written is not among them."""
    folder = run_folder / CHECKPOINTS
    if not folder.is_dir():
        return []
    matches = ((path, _NAME.fullmatch(path.name)) for path in folder.iterdir())
    return sorted(Checkpoint(int(match[1]), path) for path, match in matches if match)


def best_checkpoint(run_folder: Path) -> Checkpoint | None:
    """The one with the lowest validation loss, the newer of equals; None if none was evaluated."""
    losses = []
    for checkpoint in list_checkpoints(run_folder):
        try:
            loss = checkpoint.state().get("valid_loss")
        except FileError:  # a damaged one is not the best
            continue
        if loss is not None:
            losses.append((loss, -checkpoint.step, checkpoint))
    return min(losses)[2] if losses else None


def remove_old(run_folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` and the best."""
    checkpoints = list_checkpoints(run_folder)
    kept = {*checkpoints[-keep:], best_checkpoint(run_folder)}
    for checkpoint in checkpoints:
        if checkpoint not in kept:
            remove(checkpoint.folder)


def remove(folder: Path) -> None:
    """Take a checkpoint away under another name first: half of one is never seen under its own."""
    doomed = folder.with_name(f".{folder.name}.removed.partial")
    shutil.rmtree(doomed, ignore_errors=True)
    folder.rename(doomed)
    shutil.rmtree(doomed)


def remove_leftovers(run_folder: Path) -> None:
    """Remove what killed writers left; only the process that holds the run's lock may."""
    for leftover in (run_folder / CHECKPOINTS).glob(".*.partial"):
        shutil.rmtree(leftover)
