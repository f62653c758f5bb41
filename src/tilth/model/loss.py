"""Cross-entropy loss and perplexity.

Training uses `chunked_cross_entropy`, which takes hidden states and the output matrix instead of
logits.

>>> logits = torch.tensor([[0.0, 0.0, 0.0, 0.0]])
>>> cross_entropy(logits, torch.tensor([2]))  # log 4: four tokens, all as likely
tensor(1.3863)
>>> perplexity(cross_entropy(logits.double(), torch.tensor([2])))
4.0
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tilth.model.layers import at_least_float32

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch.autograd.function import FunctionCtx

CHUNK_TOKENS = {"cpu": 512, "cuda": 8192}
"""Tokens per chunk by type of device; others as a CPU.

On a CPU, 256 to 1024 took the same time within 5%, 128 about 10% more. On a GPU, a product of 512
rows takes less time than its launch.
"""


def cross_entropy(
    logits: Float[Tensor, "*batch vocab"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """Return the mean over all targets of -log softmax(logits)[target], in nats.

    Half precision is computed in float32. A logit of -inf is a token of probability 0: the loss is
    inf if it is a target.

    Shape:
        - logits: (*, vocab).
        - targets: (*), integers in [0, vocab).
        - Output: a scalar.
    """
    _check(logits.shape[:-1], logits.shape[-1], targets)
    logits = at_least_float32(logits)
    # Subtracting the largest logit of a row does not change its softmax. Then exp cannot overflow,
    # and logits of 1e4 lose no digits. The offset needs no gradient.
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    log_sum = shifted.exp().sum(-1).log()
    chosen = shifted.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)
    return (log_sum - chosen).mean()


def perplexity(loss: Tensor | float) -> float:
    """Return exp(loss): the number of equally likely tokens with the same cross-entropy."""
    return torch.as_tensor(loss, dtype=torch.float64).detach().exp().item()


def chunked_cross_entropy(
    hidden: Float[Tensor, "*batch d_model"],
    output_weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, "*batch"],
    chunk_tokens: int | None = None,
) -> Float[Tensor, ""]:
    """Return `cross_entropy(hidden @ output_weight.T, targets)`, computed in chunks of tokens.

    The form for training: neither the full logits nor their gradient are ever in memory. It can be
    differentiated once. Under autocast its products use the autocast type, the rest float32.
    `chunk_tokens` depends on the device by default.

    Shape:
        - hidden: (*, d_model).
        - output_weight: (vocab, d_model).
        - targets: (*), integers in [0, vocab).
        - Output: a scalar.
    """
    device = hidden.device.type
    if chunk_tokens is None:
        chunk_tokens = CHUNK_TOKENS.get(device, CHUNK_TOKENS["cpu"])
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens is {chunk_tokens}; it must be at least 1.")
    vocab_size, d_model = output_weight.shape
    if hidden.shape[-1] != d_model:
        raise ValueError(
            f"the hidden states are {hidden.shape[-1]} wide and the output matrix {d_model}; "
            "give it as (vocab, d_model)."
        )
    _check(hidden.shape[:-1], vocab_size, targets)
    if torch.is_autocast_enabled(device):  # converts the matrix once, not for every chunk
        dtype = torch.get_autocast_dtype(device)
        hidden, output_weight = hidden.to(dtype), output_weight.to(dtype)
    rows = hidden.reshape(-1, d_model)
    ids = targets.reshape(-1).long()
    if torch.is_grad_enabled() and (hidden.requires_grad or output_weight.requires_grad):
        total: Tensor = _ChunkedLoss.apply(rows, output_weight, ids, chunk_tokens)  # type: ignore[no-untyped-call]
    else:
        losses, wide = [], torch.promote_types(rows.dtype, torch.float32)
        for start in range(0, len(ids), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            scores = torch.log_softmax(rows[chunk] @ output_weight.T, -1, dtype=wide)
            losses.append(-scores.gather(-1, ids[chunk].unsqueeze(-1)).squeeze(-1).sum())
        total = torch.stack(losses).sum()
    return total / len(ids)


class _ChunkedLoss(torch.autograd.Function):
    """The sum of the losses. The forward pass computes the gradients, chunk by chunk.

    The gradient of a token's loss in its logits is softmax(logits) - one_hot(target). So the
    backward pass only multiplies by the gradient of the sum.

    At 32 x 256 tokens, width 512 and a vocabulary of 10,000 this adds 200 MB. The full logits add
    999 MB and take as long; recomputing each chunk in the backward pass took a fifth longer.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden: Tensor, weight: Tensor, targets: Tensor, chunk_tokens: int
    ) -> Tensor:
        # At least float32, as chunks are summed here: bfloat16 would lose the later ones.
        wide = torch.promote_types(weight.dtype, torch.float32)
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=wide)
        losses = []
        for start in range(0, len(targets), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            # In place, with one exp: log_softmax and exp_ took twice as long on a CPU.
            narrow = hidden[chunk] @ weight.T
            logits = narrow.to(wide)
            logits -= logits.amax(-1, keepdim=True)
            chosen = logits.gather(-1, targets[chunk].unsqueeze(-1))
            probabilities = logits.exp_()
            total = probabilities.sum(-1, keepdim=True)
            losses.append((total.log() - chosen).sum())
            probabilities /= total
            probabilities[torch.arange(len(chosen), device=chosen.device), targets[chunk]] -= 1.0
            grad_logits = probabilities.to(narrow.dtype)
            grad_hidden[chunk] = grad_logits @ weight
            grad_weight += grad_logits.T @ hidden[chunk]
        ctx.save_for_backward(grad_hidden, grad_weight)
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("chunked_cross_entropy has no second derivative; use cross_entropy.")
        grad_hidden, grad_weight = ctx.saved_tensors
        # Converted after the product with `grad_output`, which divides by the number of tokens: the
        # sum over all of them may overflow in float16.
        scaled = (grad_weight * grad_output).to(grad_hidden.dtype)
        return grad_hidden * grad_output, scaled, None, None


def _check(batch: torch.Size, vocab_size: int, targets: Tensor) -> None:
    if targets.shape != batch:
        raise ValueError(
            f"the targets have shape {tuple(targets.shape)}, and the tokens have shape "
            f"{tuple(batch)}; give one id for each token."
        )
    if targets.numel() == 0:
        raise ValueError("there are no targets, so there is no mean; give at least one token.")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise ValueError(f"the targets are {targets.dtype}; give token ids, which are integers.")
    # On other devices this check would synchronize; torch checks ids there.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        smallest, largest = (int(end) for end in targets.long().aminmax())
        if smallest < 0 or largest >= vocab_size:
            wrong = smallest if smallest < 0 else largest
            raise ValueError(
                f"the target {wrong} is not in the vocabulary of {vocab_size}; "
                "encode the text with the tokenizer of the model."
            )
