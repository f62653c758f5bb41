"""Evaluation of a model on held-out text: loss, perplexity and bits per byte.

The token ids are cut into windows that do not overlap; the last one may be shorter. Each token but
the first is predicted once. No random number is drawn, and the model does not change.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from tilth.config.threads import most_threads
from tilth.data import open_data
from tilth.data.guarding import GuardedTokens, ShardedTokens, check_tokens
from tilth.files import Progress, StrPath
from tilth.formats.huggingface import ModelFolder
from tilth.model import TransformerLM, chunked_cross_entropy, perplexity
from tilth.model.transformer import build_model
from tilth.runs.checkpoints import Checkpoint
from tilth.runs.metrics import Evaluation
from tilth.runs.run import Run
from tilth.runs.state import load_model
from tilth.tokenizer import Tokenizer
from tilth.training.distributed import Ranks
from tilth.training.machine import machine_settings, resolve_device
from tilth.training.sharding import ShardedModel

ONE_RANK = Ranks()


@torch.no_grad()
def evaluate(
    model: TransformerLM,
    tokens: ArrayLike | ShardedTokens,
    tokenizer: Tokenizer,
    *,
    max_tokens: int = 0,
    batch_size: int = 32,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    progress: Progress | None = None,
    ranks: Ranks = ONE_RANK,
    sharded: ShardedModel | None = None,
) -> Evaluation:
    """Evaluate a model on `tokens`, or on the first `max_tokens` predictions of them.

    With `ranks`, each evaluates a share; all get the same result, which one process gets too. They
    compute the loss together if the model is `sharded`.
    """
    predicted = len(check_tokens(tokens)) - 1
    if max_tokens:
        predicted = min(predicted, max_tokens)
    if predicted < 1:
        raise ValueError("there is nothing to evaluate on; give at least two tokens.")
    lengths = _token_lengths(tokenizer)
    done = 0
    found: list[tuple[float, int]] = []  # the summed loss and the bytes of each batch
    was_training = model.training
    model.eval()
    try:
        guarded = GuardedTokens(tokens, min(len(lengths), len(model.head_weight)))
        windows = _windows(guarded, predicted, model.config.context_length, batch_size)

        def loss_of(rows: NDArray[np.integer]) -> float:
            ids = torch.from_numpy(rows.astype(np.int64)).to(model.head_weight.device)
            x, y = ids[:, :-1], ids[:, 1:]
            if sharded is not None:
                return sharded.loss(x, y).item()
            with autocast():
                return chunked_cross_entropy(model.hidden(x), model.head_weight, y).item()

        for number, rows in enumerate(windows):
            if number % ranks.size != ranks.rank:
                found.append((0.0, 0))
                continue
            y = rows[:, 1:]
            found.append((loss_of(rows) * y.size, int(lengths[y].sum())))
            done += y.size
            if progress is not None:
                progress("evaluate", done, predicted)
        if sharded is not None and 0 < len(found) % ranks.size <= ranks.rank:
            loss_of(rows)  # it has no batch, and the others need its shard
    finally:
        model.train(was_training)
    losses, sizes = ranks.total(torch.tensor(found, dtype=torch.float64)).T.tolist()
    total, text_bytes = sum(losses), int(sum(sizes))
    mean = total / predicted
    bits_per_byte = total / math.log(2) / text_bytes if text_bytes else math.inf
    return Evaluation(mean, perplexity(mean), bits_per_byte, predicted)


def evaluate_run(
    run: Run,
    *,
    data: StrPath | None = None,
    step: int | None = None,
    max_tokens: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> tuple[Checkpoint, Evaluation]:
    """Evaluate a run's best checkpoint, or that of `step`, on the run's validation set.

    `data` is another data folder that was made with the same tokenizer.
    """
    opened = open_data(run.config.data if data is None else data)
    tokenizer = run.tokenizer()
    opened.check_tokenizer(tokenizer)
    machine = run.config.machine
    device = resolve_device(device or machine.device)
    # The config may come from another machine, or be untrusted.
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


def evaluate_folder(
    folder: ModelFolder,
    data: StrPath,
    *,
    max_tokens: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a model folder on the validation set of a data folder with the same tokenizer."""
    opened, model = open_data(data), folder.files()
    opened.check_tokenizer(model.tokenizer)
    device = resolve_device(device)
    transformer = build_model(model.config, model.weights, device)
    # As many tokens at once as a batch of 32 contexts of 256.
    batch_size = max(1, 8192 // model.config.context_length)
    return evaluate(
        transformer,
        opened.valid,
        model.tokenizer,
        max_tokens=max_tokens,
        batch_size=batch_size,
        progress=progress,
    )


def _windows(
    tokens: GuardedTokens, predicted: int, context: int, batch_size: int
) -> Iterator[NDArray[np.integer]]:
    """Yield batches of windows, each with the token after it; a shorter one at the end."""
    full = predicted - predicted % context
    for start in range(0, full, batch_size * context):
        part = tokens[start : min(start + batch_size * context, full) + 1]
        yield sliding_window_view(part, context + 1)[::context]
    if full < predicted:
        yield tokens[full : predicted + 1][None]


def _token_lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Return the bytes of each token id. Special tokens count as zero bytes."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    for token_id, text in tokenizer.vocab.items():
        lengths[token_id] = len(text)
    lengths[list(tokenizer.special_tokens.values())] = 0
    return lengths
