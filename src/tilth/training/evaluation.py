"""How well a model predicts text that it was not trained on.

What enters: a model and token ids. What leaves: loss, perplexity and bits per byte. The ids are cut
into windows that do not overlap, the last one perhaps shorter, and each token but the first is
predicted once. No random number is drawn, and the model is left as it was.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from tilth.data import open_data
from tilth.optim import chunked_cross_entropy, perplexity
from tilth.runs.metrics import Evaluation
from tilth.runs.saving import load_model
from tilth.training.machine import machine_settings, resolve_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import ArrayLike

    from tilth.files import Progress, StrPath
    from tilth.model import TransformerLM
    from tilth.runs.checkpoint_folders import Checkpoint
    from tilth.runs.run import Run
    from tilth.tokenizer import Tokenizer


@torch.no_grad()
def evaluate(
    model: TransformerLM,
    tokens: ArrayLike,
    tokenizer: Tokenizer,
    *,
    max_tokens: int = 0,
    batch_size: int = 32,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    progress: Progress | None = None,
) -> Evaluation:
    """Predict `tokens`, or the first `max_tokens` of them, from what stands before each."""
    context = model.config.context_length
    ids = np.asarray(tokens)
    predicted = len(ids) - 1
    if max_tokens:
        predicted = min(predicted, max_tokens)
    if predicted < 1:
        raise ValueError("there is nothing to evaluate on; give at least two tokens.")
    device = model.head_weight.device
    was_training = model.training
    model.eval()
    total = 0.0
    full_windows = predicted // context
    for first in range(0, full_windows, batch_size):
        windows = range(first, min(first + batch_size, full_windows))
        rows = np.stack([ids[w * context : (w + 1) * context + 1] for w in windows])
        total += _sum_of_losses(model, rows, device, autocast)
        if progress is not None:
            progress("evaluate", windows.stop * context, predicted)
    if rest := predicted % context:
        row = ids[predicted - rest : predicted + 1]
        total += _sum_of_losses(model, row[None], device, autocast)
    model.train(was_training)
    loss = total / predicted
    text_bytes = _bytes_of(ids[1 : predicted + 1], tokenizer)
    bits_per_byte = total / math.log(2) / text_bytes if text_bytes else math.inf
    return Evaluation(loss, perplexity(loss), bits_per_byte, predicted)


def evaluate_run(
    run: Run,
    *,
    data: StrPath | None = None,
    step: int | None = None,
    max_tokens: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> tuple[Checkpoint, Evaluation]:
    """Evaluate a run's best checkpoint, or that after `step`, on its own data or other."""
    opened = open_data(run.config.data if data is None else data)
    tokenizer = run.tokenizer()
    opened.check_tokenizer(tokenizer)
    device = resolve_device(device or run.config.machine.device)
    machine = replace(run.config.machine, device=device)
    with machine_settings(machine):
        checkpoint, model = load_model(run, step, machine.device)
        found = evaluate(
            model,
            opened.valid,
            tokenizer,
            max_tokens=max_tokens,
            batch_size=run.config.microbatch_size,
            progress=progress,
        )
    return checkpoint, found


def _sum_of_losses(
    model: TransformerLM,
    rows: np.ndarray[tuple[int, ...], np.dtype[np.integer]],
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[object]],
) -> float:
    ids = torch.from_numpy(rows.astype(np.int64)).to(device)
    with autocast():
        loss = chunked_cross_entropy(model.hidden(ids[:, :-1]), model.head_weight, ids[:, 1:])
    return loss.item() * ids[:, 1:].numel()


def _bytes_of(ids: np.ndarray[tuple[int, ...], np.dtype[np.integer]], tokenizer: Tokenizer) -> int:
    """The bytes of text that ids stand for. Special tokens stand for none: they cost, for free."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    for token_id, text in tokenizer.vocab.items():
        lengths[token_id] = len(text)
    for token_id in tokenizer.special_tokens.values():
        lengths[token_id] = 0
    return int(lengths[ids].sum())
