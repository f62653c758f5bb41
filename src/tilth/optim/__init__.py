"""Gradients to updates: the loss, the optimizers, schedules and clipping, from scratch.

What enters: logits or hidden states, and the gradients that follow from them. What leaves: a loss,
and parameters that are one step further. Names are loaded when first used: a schedule alone needs
no torch.

>>> import torch
>>> from tilth.optim import AdamW, clip_gradients, cosine_schedule
>>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
>>> optimizer = AdamW([weight], lr=cosine_schedule(0, 0.5, 0.05, warmup_steps=0, cosine_steps=100))
>>> (weight**2).sum().backward()
>>> clip_gradients([weight], max_norm=1.0)
tensor(10.)
>>> optimizer.step()
>>> weight.data
tensor([2.4850, 3.4800])
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilth.optim.adamw import AdamW, decay_groups
    from tilth.optim.clipping import clip_gradients
    from tilth.optim.loss import chunked_cross_entropy, cross_entropy, perplexity
    from tilth.optim.muon import Muon, muon_groups
    from tilth.optim.schedule import (
        constant_schedule,
        cosine_schedule,
        warmup_stable_decay_schedule,
    )
    from tilth.optim.sgd import SGD

__all__ = [
    "SGD",
    "AdamW",
    "Muon",
    "chunked_cross_entropy",
    "clip_gradients",
    "constant_schedule",
    "cosine_schedule",
    "cross_entropy",
    "decay_groups",
    "muon_groups",
    "perplexity",
    "warmup_stable_decay_schedule",
]

# Where each name lives.
_HOME = {
    "SGD": "tilth.optim.sgd",
    "AdamW": "tilth.optim.adamw",
    "Muon": "tilth.optim.muon",
    "chunked_cross_entropy": "tilth.optim.loss",
    "clip_gradients": "tilth.optim.clipping",
    "constant_schedule": "tilth.optim.schedule",
    "cosine_schedule": "tilth.optim.schedule",
    "cross_entropy": "tilth.optim.loss",
    "decay_groups": "tilth.optim.adamw",
    "muon_groups": "tilth.optim.muon",
    "perplexity": "tilth.optim.loss",
    "warmup_stable_decay_schedule": "tilth.optim.schedule",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tilth.optim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
