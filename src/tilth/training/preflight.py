"""Preflight checks: data fits config, device, threads, disk space, libraries of sinks.

A resumed run must also have the data that it was trained on.
"""

import shutil
from pathlib import Path

from tilth.accounting import count_parameters
from tilth.config.threads import checked_threads
from tilth.config.training import TrainingConfig
from tilth.data import Data, open_data
from tilth.files import FileError, StrPath
from tilth.formatting import format_bytes
from tilth.runs.checkpoints import most_in_history
from tilth.runs.run import Run
from tilth.tokenizer import Tokenizer
from tilth.training.machine import resolve_device, resolve_dtype
from tilth.training.sinks import check_sinks

MOST_STEPS = 1 << 20
"""Of a run whose number of steps a time budget decides later."""


def check_new_run(
    config: TrainingConfig,
    data: Data,
    tokenizer: Tokenizer,
    folder: Path,
    *,
    may_pad: bool = False,
) -> None:
    """Run the preflight checks of a new run; with `may_pad`, ids without a token are allowed."""
    if config.optimizer.begin_step:
        raise ValueError(
            f"optimizer.begin_step is {config.optimizer.begin_step}: this is the config of a run "
            "that was extended; train the part before it first, then extend that run."
        )
    if config.parallel.exact and config.machine.compile:
        raise ValueError(
            "parallel.exact repeats the bits of uncompiled steps, and machine.compile is true; "
            "leave one of them out."
        )
    check_data(config, data, tokenizer, may_pad=may_pad)
    check_machine(config)
    check_space(folder, config)


def check_data(
    config: TrainingConfig, data: Data, tokenizer: Tokenizer, *, may_pad: bool = False
) -> None:
    """Raise ValueError unless data and tokenizer fit the config."""
    surplus = config.model.vocab_size - data.vocab_size
    if surplus < 0 or (surplus and not may_pad):
        raise ValueError(
            f"model.vocab_size is {config.model.vocab_size:,}, and the tokenizer of {data.folder} "
            f"has {data.vocab_size:,} tokens; leave model.vocab_size out to use that."
        )
    prompt = tokenizer.encode_ordinary(config.watch.sample_prompt)  # as samples do
    if config.watch.sample_every != 0 and len(prompt) > config.model.context_length:
        raise ValueError(
            f"watch.sample_prompt has {len(prompt)} tokens, and the context length is "
            f"{config.model.context_length}; give a shorter one, or set watch.sample_every to 0."
        )
    for name, tokens in (("train", data.train), ("valid", data.valid)):
        needed = config.model.context_length + 1 if name == "train" else 2
        if len(tokens) < needed:
            raise ValueError(
                f"{data.folder} has {len(tokens):,} tokens in its {name} split, and {needed:,} are "
                "needed; tokenize more text."
            )


def check_machine(config: TrainingConfig) -> None:
    """Raise ValueError unless sinks, device, precision and threads are available here."""
    check_sinks(config.watch.sinks)
    resolve_dtype(config.machine.dtype, resolve_device(config.machine.device))
    checked_threads(config.machine.threads, "machine.threads")


def check_space(folder: Path, config: TrainingConfig) -> None:
    """Raise OSError unless the checkpoints fit on the disk.

    Each has the weights and two moments; those of the history have the weights.
    """
    weight_bytes, watch = 4 * count_parameters(config.model).total, config.watch
    # The newest checkpoints, the best, and the one that is being written.
    needed = (watch.keep_checkpoints + 2) * 3 * weight_bytes + (16 << 20)
    steps = config.steps or MOST_STEPS
    needed += most_in_history(steps, watch.weights_per_doubling) * weight_bytes
    folder = folder.resolve()  # a symlink may lead to another disk
    parent = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise OSError(
            f"the checkpoints of {folder} need {format_bytes(needed)}, and the disk has "
            f"{format_bytes(free)} left; free some space, or lower watch.keep_checkpoints"
            f"{' or watch.weights_per_doubling' if watch.weights_per_doubling else ''}."
        )


def open_same_data(run: Run, folder: StrPath | None) -> Data:
    """Open the data of a run, by default in its original folder; compare the fingerprints."""
    data = open_data(run.config.data if folder is None else folder)
    for what, now, then in (
        ("tokenizer", data.tokenizer_fingerprint, run.manifest.tokenizer_fingerprint),
        ("data", data.fingerprint, run.manifest.data_fingerprint),
    ):
        if now != then:
            raise FileError(
                data.folder,
                f"is not what {run.folder} was trained on: its {what} has the fingerprint "
                f"{now[:12]} instead of {then[:12]}",
                "name the right folder (--data), or start a new run",
            )
    return data
