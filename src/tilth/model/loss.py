"""Cross-entropy: how surprised a model is by the token that came.

What enters: logits of shape (..., vocab) and the target ids (...), or, for training, the hidden
states and the output matrix that would make the logits. What leaves: one number, the mean over all
targets of -log softmax(logits)[target], in nats.

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

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# 256 to 1024 took the same time within 5%, 128 some 10% more.
CHUNK_TOKENS = 512


def cross_entropy(
    logits: Float[Tensor, "*batch vocab"], targets: Int[Tensor, "*batch"]
) -> Float[Tensor, ""]:
    """The mean of -log softmax(logits)[target]; half precision is widened to float32 first.

    A logit of -inf is a token that cannot come: the loss is inf where it is the target.
    """
    _check(logits.shape[:-1], logits.shape[-1], targets)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # The same offset on all logits of a row leaves their softmax as it is. With the largest at 0,
    # exp cannot overflow, and logits of 1e4 lose no digits to it; no gradient passes through it.
    shifted = logits - logits.detach().amax(-1, keepdim=True)
    log_sum = shifted.exp().sum(-1).log()
    chosen = shifted.gather(-1, targets.long().unsqueeze(-1)).squeeze(-1)
    return (log_sum - chosen).mean()


def perplexity(loss: Tensor | float) -> float:
    """exp(loss): among how many equally likely tokens the model would be as surprised."""
    return torch.as_tensor(loss, dtype=torch.float64).detach().exp().item()


def chunked_cross_entropy(
    hidden: Float[Tensor, "*batch d_model"],
    output_weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, "*batch"],
    chunk_tokens: int = CHUNK_TOKENS,
) -> Float[Tensor, ""]:
    """`cross_entropy(hidden @ output_weight.T, targets)`, `chunk_tokens` rows of logits at a time.

    The form for training: the full logits never exist, nor their gradient. It can be differentiated
    once; in autocast its products are taken in the type that autocast says, the rest in float32.
    """
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens is {chunk_tokens}; take at least one token at a time.")
    vocab_size, d_model = output_weight.shape
    if hidden.shape[-1] != d_model:
        raise ValueError(
            f"the hidden states are {hidden.shape[-1]} wide and the output matrix {d_model}; "
            "give it as (vocab, d_model)."
        )
    _check(hidden.shape[:-1], vocab_size, targets)
    device = hidden.device.type
    if torch.is_autocast_enabled(device):  # here, so that the matrix is converted once for all
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
    """The sum over all targets. Its gradients are taken on the way, while a chunk's logits exist.

    The gradient of a token's loss in its logits is softmax(logits) - one_hot(target), so forward
    needs nothing from backward but the factor that it multiplies by in the end.

    At 32 x 256 tokens, width 512 and vocabulary 10,000 this adds 200 MB, the full logits add 999 MB
    and take as long; recomputing each chunk in the backward pass took a fifth longer.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401, torch gives it no type
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        chunk_tokens: int,
    ) -> Tensor:
        grad_hidden = torch.empty_like(hidden)
        # Wide, as chunks add up here: in bfloat16 the later ones would be lost in the sum.
        grad_weight = torch.zeros_like(
            weight, dtype=torch.promote_types(weight.dtype, torch.float32)
        )
        losses = []
        for start in range(0, len(targets), chunk_tokens):
            chunk = slice(start, start + chunk_tokens)
            # In place, with one exp: log_softmax and exp_ took twice as long on a CPU.
            narrow = hidden[chunk] @ weight.T
            logits = narrow.to(grad_weight.dtype)
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
            raise RuntimeError(
                "chunked_cross_entropy can be differentiated once; take cross_entropy instead."
            )
        grad_hidden, grad_weight = ctx.saved_tensors
        # Narrowed after the factor, which divides by the number of tokens: the sum over all of them
        # may be more than float16 holds.
        scaled = (grad_weight * grad_output).to(grad_hidden.dtype)
        return grad_hidden * grad_output, scaled, None, None


def _check(batch: torch.Size, vocab_size: int, targets: Tensor) -> None:
    if targets.shape != batch:
        raise ValueError(
            f"the targets have shape {tuple(targets.shape)} and what they are compared with has "
            f"{tuple(batch)} without its last axis; give one id a token."
        )
    if targets.numel() == 0:
        raise ValueError("there are no targets, so there is no mean; give at least one token.")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise ValueError(f"the targets are {targets.dtype}; give token ids, which are integers.")
    # Elsewhere than on the CPU this look would wait for the device; there torch's own check stands.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        smallest, largest = (int(end) for end in targets.long().aminmax())
        if smallest < 0 or largest >= vocab_size:
            wrong = smallest if smallest < 0 else largest
            raise ValueError(
                f"the target {wrong} is not in the vocabulary of {vocab_size}; "
                "was the text encoded with another tokenizer?"
            )
