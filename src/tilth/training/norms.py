"""Root mean squares of activations, weights and gradients, by module or parameter.

They show instability before the loss does. Activations take an extra forward pass.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Int

    from tilth.model import TransformerLM

Norms = dict[str, dict[str, float | None]]


@torch.no_grad()
def measure_norms(
    model: TransformerLM, x: Int[Tensor, "rows context"], gradient_scale: float = 1.0
) -> Norms:
    """Measure activations of the batch `x`, weights, and gradients, before an update clears them.

    `gradient_scale` is the factor of the gradient scaler, which float16 gradients still contain.
    """
    weights = dict(model.named_parameters())
    return {
        "activations": _activations(model, x),
        "weights": {name: _root_mean_square(weight) for name, weight in weights.items()},
        "gradients": {
            name: _root_mean_square(weight.grad) / gradient_scale
            for name, weight in weights.items()
            if weight.grad is not None
        },
    }


def _activations(model: TransformerLM, x: Tensor) -> dict[str, float | None]:
    """Measure the outputs of the embedding, of each block and of each sublayer."""
    # Not of inner modules: the fast path does not call them.
    names = ["token_embeddings"]
    for i in range(len(model.layers)):
        names += [f"layers.{i}", f"layers.{i}.attn", f"layers.{i}.ffn"]
    found: dict[str, float | None] = {}

    def measure(name: str, _module: object, _inputs: object, output: Tensor) -> None:
        found[name] = _root_mean_square(output)

    with ExitStack() as hooks:
        for name in names:
            module = model.get_submodule(name)
            hooks.enter_context(module.register_forward_hook(partial(measure, name)))
        model.hidden(x)
    return found


def _root_mean_square(tensor: Tensor) -> float:
    return tensor.float().square().mean().sqrt().item()
