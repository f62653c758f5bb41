"""Sections 7, 8, 10, 11 and 12: the questions of the lab, with the shares of time they take."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tilth.accounting import HARDWARE, count_parameters, training_flops
from tilth.config.recipes import D_HEAD, RECIPES
from tilth.config.training import TrainingConfig
from tilth.data import get_batch
from tilth.formatting import join_words
from tilth.lab.asking import plan
from tilth.lab.planning import base_config
from tilth.lab.questions.scaling import PREDICTED
from tilth.lab.sections.section import Made, Setting, command_of, own_command
from tilth.model import TransformerLM, cross_entropy
from tilth.report.lab_file import Chart, Lab, Line, Table, trial_folder
from tilth.runs.run import open_run

SHARES = {
    "learning-rate": 0.15,
    "batch-size": 0.2,
    "ablations-adamw": 0.15,
    "ablations-muon": 0.15,
    "ablations": 0.1,
    "corpora": 0.15,
    "scaling": 0.1,
}
"""Of the time for all trials."""
LONG_SECONDS = 3600.0  # from here, the norm ablations have NORM_STEPS, as a write-up did
NORM_LAYERS, NORM_WIDTH, NORM_STEPS, NORM_SEEDS = 4, 128, 1000, 3
CLOSE_SEEDS = 3  # of learning rates and batch sizes whose results are close
END_STEPS = 50
NORM_LR = {"adamw": 3e-3, "muon": 1e-2}
NORM_VARIANTS = ("no-norm", "no-norm-tuned", "post-norm")
OTHER_VARIANTS = ("no-position", "silu", "swiglu", "tied", "untied", "qk-norm", "no-qk-norm")
MFU = 0.3  # of the recipe leaderboard on a GPU, a usual value
DEPTHS, WIDTHS = (1, 2, 3, 4, 5, 6), (64, 128, 256, 512)
DEPTH_ROWS, DEPTH_TOKENS = 4, 64


def size_text(setting: Setting, part: str, lab: Lab) -> str:
    """Return the sizes at which a conclusion holds, from the trials of a lab."""
    configs = [
        open_run(trial_folder(setting.folder / part, trial)).config.opened()
        for trial in lab.trials
        if trial.state in ("finished", "diverged")
    ] or [TrainingConfig.from_dict(dict(lab.base))]

    def span(value: Callable[[TrainingConfig], int]) -> str:
        low, high = min(map(value, configs)), max(map(value, configs))
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"

    layers = span(lambda each: each.model.num_layers)
    return (
        f"Holds at this size: {layers} layer{'' if layers == '1' else 's'} of width "
        f"{span(lambda each: each.model.d_model)}, "
        f"{span(lambda each: count_parameters(each.model).total)} parameters, vocabulary "
        f"{span(lambda each: each.model.vocab_size)}, context "
        f"{span(lambda each: each.model.context_length)}, batch "
        f"{span(lambda each: each.batch_size)}, {span(lambda each: each.known_steps)} steps, "
        f"{join_words(sorted({each.optimizer.name for each in configs}))}."
    )


def answered(
    setting: Setting,
    part: str,
    question: str = "",
    figure: str = "",
    **own: Any,  # noqa: ANN401, options of a question
) -> Made:
    """Ask a question of the lab in its own folder; finished trials are read.

    The question has the name of the part, unless it is given. `figure` is the key of the figure
    that the answer is.
    """
    question = question or part
    options = setting.options_of(part, SHARES[part], **own)
    folders = [data.folder for data in setting.corpora][: None if question == "corpora" else 1]
    options["command"] = command_of(question, folders, options)
    lab = plan(question, [os.fspath(folder) for folder in folders], **options).answer()
    found = replace(lab, answer=f"{lab.answer} {size_text(setting, part, lab)}")
    return Made.of(found, part, {figure: str(lab.answer)} if figure and lab.answer else {})


def learning_rate(setting: Setting) -> Made:
    """Ask for the best learning rate."""
    made = answered(setting, "learning-rate", figure="learning_rate", close_seeds=CLOSE_SEEDS)
    here = {**made.here, "valid_loss": _best_loss(setting, made.lab)} if made.here else {}
    return replace(made, here=here)


def norms(optimizer: str) -> Callable[[Setting], Made]:
    """Return the part that ablates norms with an optimizer."""

    def part(setting: Setting) -> Made:
        changes = {
            "model.num_layers": NORM_LAYERS,
            "model.d_model": NORM_WIDTH,
            "model.num_heads": NORM_WIDTH // D_HEAD,
            "model.context_length": 128,
            "optimizer.name": optimizer,
            "optimizer.lr": NORM_LR[optimizer],
        }
        own: dict[str, Any] = {"changes": changes, "variants": NORM_VARIANTS, "seeds": 1}
        if setting.steps is None and setting.seconds >= LONG_SECONDS:
            own |= {"steps": NORM_STEPS, "seeds": NORM_SEEDS}
        name = f"ablations-{optimizer}"
        made = answered(setting, name, "ablations", **own)
        return replace(made, here={"no_norm": _end_losses(setting.folder / name, made.lab)})

    return part


def _end_losses(folder: Path, lab: Lab) -> str:
    """Return the training loss at the end, with norms and without, at the same rate."""
    said = []
    for name, group in (
        ("with norms", "base"),
        ("without at the same rate", "without RMSNorm, same rate"),
        ("without at its best rate", "without RMSNorm, its best rate"),
    ):
        trials = [trial for trial in lab.trials if trial.group == group]
        ends = [
            loss
            for trial in trials
            for record in open_run(trial_folder(folder, trial)).metrics()[-END_STEPS:]
            if (loss := record.loss) is not None
        ]
        if any(trial.state == "diverged" for trial in trials):
            said.append(f"{name} diverged")
        elif ends:
            said.append(f"{name} {fmean(ends):.2f}")
    config = TrainingConfig.from_dict(dict(lab.base))
    return (
        f"mean training loss of the last {END_STEPS} of {config.steps:,} steps of "
        f"{config.tokens_per_step:,} tokens: {', '.join(said)}"
    )


def depth(setting: Setting) -> Made:
    """Measure the loss before the first update, by depth, width and norm."""
    data = setting.corpora[0]
    generator = torch.Generator().manual_seed(setting.options["seed"])
    context = min(DEPTH_TOKENS, len(data.train) - 1)
    x, y = get_batch(data.train, DEPTH_ROWS, context, generator=generator)
    base = base_config(data.folder, setting.options).model
    rows, lines = [], []
    for width in WIDTHS:
        losses = {
            norm: [_first_loss(base, depth, width, norm, x, y) for depth in DEPTHS]
            for norm in ("pre", "none")
        }
        rows += [
            (width, depth, f"{pre:.2f}", f"{none:,.1f}")
            for depth, pre, none in zip(DEPTHS, losses["pre"], losses["none"], strict=True)
        ]
        points = [(n, min(loss, 1e30)) for n, loss in zip(DEPTHS, losses["none"], strict=True)]
        lines.append(Line(f"width {width}, no norm", tuple(points)))
        if width == WIDTHS[0]:
            lines.append(
                Line("with norms", tuple(zip(DEPTHS, losses["pre"], strict=True))),
            )
    low = [float(row[3].replace(",", "")) for row in rows if row[1] == NORM_LAYERS]
    high = [float(row[3].replace(",", "")) for row in rows if row[1] == NORM_LAYERS + 1]
    answer = (
        f"Without norms, the loss before the first update is {min(low):,.0f} to {max(low):,.0f} at "
        f"{NORM_LAYERS} layers and {min(high):,.0f} to {max(high):,.0f} at {NORM_LAYERS + 1}; "
        f"log(vocabulary size) is {math.log(base.vocab_size):.1f}."
    )
    lab = Lab(
        "depth-without-norms",
        "",
        answer,
        own_command(setting, "ablations"),
        tables=(Table("First losses", ("width", "layers", "with norms", "no norm"), tuple(rows)),),
        charts=(
            Chart(
                "Loss before the first update",
                "layers",
                "nats per token",
                tuple(lines),
                y_scale="log",
                text="Each sublayer adds to a residual stream that nothing rescales.",
            ),
        ),
    )
    return Made.of(lab, "depth-without-norms", rows=DEPTH_ROWS, context=context)


def _first_loss(
    base: Any,  # noqa: ANN401, a ModelConfig
    depth: int,
    width: int,
    norm: str,
    x: torch.Tensor,
    y: torch.Tensor,
) -> float:
    config = base.changed(
        {
            **{"num_layers": depth, "d_model": width, "num_heads": max(1, width // D_HEAD)},
            **{"norm": norm, "d_ff": None, "num_kv_heads": None},
            "context_length": max(base.context_length, x.shape[-1]),
        }
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        return float(cross_entropy(TransformerLM(config)(x), y))


def _leaderboard_tokens(setting: Setting) -> int:
    """Return the tokens that the recipe leaderboard trains on in its time, on an H100."""
    recipe = RECIPES["leaderboard"]
    config = recipe(setting.corpora[0].vocab_size, "")
    assert recipe.budget_seconds is not None
    flops = recipe.budget_seconds * HARDWARE["h100"].peak("bfloat16") * MFU
    return round(flops / training_flops(config.model)) * config.model.context_length


def scaling(setting: Setting) -> Made:
    """Fit the law of the loss; predict a leaderboard run too."""
    predict = (*PREDICTED, f"leaderboard:{_leaderboard_tokens(setting)}")
    return answered(setting, "scaling", predict=predict)


def _best_loss(setting: Setting, lab: Lab) -> str:
    """Return the lowest validation loss of the trials of a lab."""
    folder = setting.folder / "learning-rate" / "runs"
    losses = [
        (record.evaluation.loss, trial.label)
        for trial in lab.trials
        if trial.state == "finished"
        for record in open_run(folder / trial.name).metrics()
        if record.evaluation is not None
    ]
    loss, label = min(losses)
    return f"{loss:.3f} at learning rate {label}"


batch_size = partial(answered, part="batch-size", figure="batch_size", close_seeds=CLOSE_SEEDS)
ablations = partial(answered, part="ablations", variants=OTHER_VARIANTS)
# One model on each corpus; the section on generation uses the model of the first.
corpora_lab = partial(answered, part="corpora")
