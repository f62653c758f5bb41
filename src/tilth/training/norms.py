"""How large activations, weights and gradients are, layer by layer: where trouble shows first.

What enters: a model with gradients, and a batch. What leaves: root mean squares, by the name of the
module or parameter. Activations are those of a forward pass of their own, which changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch.nn import Module

    from tilth.model import TransformerLM

Norms = dict[str, dict[str, float | None]]


@torch.no_grad()
def measure_norms(
    model: TransformerLM, x: Int[Tensor, "rows context"], gradient_scale: float = 1.0
) -> Norms:
    """Measure everything at once, before an update clears the gradients.

    Those of float16 are still multiplied by the scaler's `gradient_scale`.
    """
    weights = dict(model.named_parameters())
    gradients = {name: p.grad for name, p in weights.items() if p.grad is not None}
    return {
        "activations": _activations(model, x),
        "weights": {name: _root_mean_square(weight) for name, weight in weights.items()},
        "gradients": {
            name: _root_mean_square(gradient) / gradient_scale
            for name, gradient in gradients.items()
        },
    }


def _activations(model: TransformerLM, x: Tensor) -> dict[str, float | None]:
    """Of what each block, and each part of it, adds or hands on."""
    # Blocks and sublayers alone: the fast path does not call the modules inside of those.
    names = ["token_embeddings"]
    for i in range(len(model.layers)):
        names += [f"layers.{i}", f"layers.{i}.attn", f"layers.{i}.ffn"]
    found: dict[str, float | None] = {}

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def keep(_module: Module, _inputs: object, output: Tensor) -> None:
            found[name] = _root_mean_square(output)

        return model.get_submodule(name).register_forward_hook(keep)

    handles = [watch(name) for name in names]
    try:
        model.hidden(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _root_mean_square(tensor: Tensor) -> float:
    return tensor.float().square().mean().sqrt().item()
