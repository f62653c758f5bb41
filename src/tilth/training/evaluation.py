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
from numpy.lib.stride_tricks import sliding_window_view

from tilth.config.threads import most_threads
from tilth.data import open_data
from tilth.data.guarding import GuardedTokens
from tilth.model import chunked_cross_entropy, perplexity
from tilth.runs.metrics import Evaluation
from tilth.runs.state import load_model
from tilth.training.machine import machine_settings, resolve_device

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from numpy.typing import ArrayLike, NDArray

    from tilth.files import Progress, StrPath
    from tilth.model import TransformerLM
    from tilth.runs.checkpoints import Checkpoint
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
    predicted = len(np.asarray(tokens)) - 1
    if max_tokens:
        predicted = min(predicted, max_tokens)
    if predicted < 1:
        raise ValueError("there is nothing to evaluate on; give at least two tokens.")
    lengths = _token_lengths(tokenizer)
    total, text_bytes, done = 0.0, 0, 0
    was_training = model.training
    model.eval()
    try:
        guarded = GuardedTokens(tokens, min(len(lengths), len(model.head_weight)))
        for rows in _windows(guarded, predicted, context, batch_size):
            total += _sum_of_losses(model, rows, autocast)
            text_bytes += int(lengths[rows[:, 1:]].sum())
            if progress is not None:
                done += rows[:, 1:].size
                progress("evaluate", done, predicted)
    finally:
        model.train(was_training)
    loss = total / predicted
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
    machine = run.config.machine
    # Of the machine that trained it, or of a stranger: more than this one can start are not asked.
    machine = replace(machine, device=device, threads=min(machine.threads, most_threads()))
    with machine_settings(machine):
        checkpoint, model = load_model(run, step, device)
        found = evaluate(
            model,
            opened.valid,
            tokenizer,
            max_tokens=max_tokens,
            batch_size=run.config.microbatch_size,
            progress=progress,
        )
    return checkpoint, found


def _windows(
    tokens: GuardedTokens, predicted: int, context: int, batch_size: int
) -> Iterator[NDArray[np.integer]]:
    """Batches of windows that do not overlap, each with the token after it; the rest at the end."""
    full = predicted - predicted % context
    for start in range(0, full, batch_size * context):
        part = tokens[start : min(start + batch_size * context, full) + 1]
        yield sliding_window_view(part, context + 1)[::context]
    if full < predicted:
        yield tokens[full : predicted + 1][None]


def _sum_of_losses(
    model: TransformerLM,
    rows: NDArray[np.integer],
    autocast: Callable[[], AbstractContextManager[object]],
) -> float:
    ids = torch.from_numpy(rows.astype(np.int64)).to(model.head_weight.device)
    with autocast():
        loss = chunked_cross_entropy(model.hidden(ids[:, :-1]), model.head_weight, ids[:, 1:])
    return loss.item() * ids[:, 1:].numel()


def _token_lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The bytes of text of each token id. Special tokens count as zero bytes."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    for token_id, text in tokenizer.vocab.items():
        lengths[token_id] = len(text)
    for token_id in tokenizer.special_tokens.values():
        lengths[token_id] = 0
    return lengths
