"""Bitwise comparison of two runs."""

import safetensors.torch
import torch

from tilth.runs.metrics import read_log
from tilth.runs.run import open_run


def losses_of(folder):
    """Return the logged records without times, which differ between runs."""
    times = {"seconds", "step_seconds", "tokens_per_second", "utilisation"}
    return [
        {name: value for name, value in record.items() if name not in times}
        for record in read_log(folder / "metrics.jsonl")
    ]


def final_state(folder):
    """Return the tensors of the last checkpoint and its other state."""
    checkpoint = open_run(folder).checkpoints()[-1]
    tensors = {}
    for name in ("model.safetensors", "optimizer.safetensors"):
        tensors |= safetensors.torch.load_file(checkpoint.folder / name)
    state = checkpoint.state()
    kept = {
        name: getattr(state, name) for name in ("step", "tokens", "guard", "valid_loss", "packed")
    }
    return tensors, kept


def difference(folder, other):
    """Return the name of the first difference between two runs; None if all bits are equal."""
    if losses_of(folder) != losses_of(other):
        return "losses"
    if list(read_log(folder / "samples.jsonl")) != list(read_log(other / "samples.jsonl")):
        return "samples"
    (tensors, state), (other_tensors, other_state) = final_state(folder), final_state(other)
    if state != other_state or tensors.keys() != other_tensors.keys():
        return "state"
    for name, tensor in tensors.items():
        if not torch.equal(tensor, other_tensors[name]):
            return name
    return None
