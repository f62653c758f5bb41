"""Synthetic runs and labs, written like those of a training."""

import math
import random
from dataclasses import replace

from tilth.config.model import ModelConfig
from tilth.config.training import OptimizerConfig, TrainingConfig
from tilth.report.lab_file import Chart, Lab, Line, Table, Trial, save_lab, trial_folder
from tilth.runs.metrics import METRICS, SAMPLES, Evaluation, Log, StepRecord
from tilth.runs.run import create_run
from tilth.tokenizer import train_tokenizer

TOKENIZER = train_tokenizer(texts=["the cat and the hat"], vocab_size=260)
MODEL = ModelConfig(260, context_length=8, d_model=16, num_layers=1, num_heads=2)
HOSTILE = (
    "</script><script>document.title = 'taken'</script><img src=x onerror=alert(1)> \x1b[2J ``` |"
)
MACHINE = {"device": "cpu", "dtype": "float32", "compile": False, "threads": 1}


def config_of(lr=1e-3, seed=0, steps=40, **changes):
    config = TrainingConfig("data", MODEL, steps=steps, seed=seed, optimizer=OptimizerConfig(lr=lr))
    return replace(config, **changes).resolve(**MACHINE)


def record(step, loss, bits=None, **more):
    """A step of 256 tokens and 0.5 s; `bits` adds an evaluation."""
    if bits is not None:
        valid_loss = bits * math.log(2) * 2  # two bytes per token
        more["evaluation"] = Evaluation(valid_loss, math.exp(valid_loss), bits, 1024)
    return StepRecord(step, 256 * step, 0.5 * step, loss, 1e-3, 0.5, 512.0, 0.7, **more)


def make_run(folder, records, config=None, *, samples=(), data="d" * 64, is_finished=True):
    config = config or config_of()
    run = create_run(folder, config, TOKENIZER, data)
    with Log(folder / METRICS) as log:
        for each in records:
            log.append(each.to_dict())
    with Log(folder / SAMPLES) as log:
        for step, text in samples:
            options = {"prompt": "Once", "max_tokens": 20, "temperature": 0.8, "top_p": 0.95}
            log.append({"step": step, **options, "text": text})
    if is_finished:
        (folder / "checkpoints" / f"step-{config.steps:06}").mkdir()
    return run


def falling(steps, final_bits, seed=0, evaluations=10):
    """A noisy loss that falls until validation reaches `final_bits`."""
    noise = random.Random(seed)
    every = max(1, steps // evaluations)
    records = []
    for step in range(1, steps + 1):
        bits = final_bits + 3.0 * math.exp(-5 * step / steps) - 3.0 * math.exp(-5)
        loss = bits * math.log(2) * 2 + noise.gauss(0, 0.1)
        is_evaluated = step % every == 0 or step == steps
        records.append(record(step, loss, bits if is_evaluated else None))
    return records


def make_lab(folder, steps=40, answer="0.01 is best."):
    """A sweep of five learning rates, two seeds of one; one diverged, one not started."""
    trials = []
    for lr, seed, bits in (
        *((1e-4, 0, 3.0), (1e-3, 0, 2.5), (1e-2, 0, 2.0), (1e-2, 1, 2.1)),
        *((1e-1, 0, None), (1.0, 0, None)),
    ):
        state = "finished" if bits else "diverged" if lr < 1 else "planned"
        trial = Trial(f"lr-{lr:g}-{seed}", f"{lr:g}, seed {seed}", f"lr {lr:g}", lr, state)
        trials.append(trial)
        if state == "planned":
            continue
        records = falling(steps, bits or 2.0, seed)
        if state == "diverged":
            half = steps // 2
            records = records[:half]
            records += [record(half + i, 10.0**i, is_diverging=True) for i in range(1, 6)]
        trial_folder(folder, trial).parent.mkdir(parents=True, exist_ok=True)
        samples = [(steps // 2, "Once it was"), (steps, f"Once {HOSTILE}")]
        config = config_of(lr, seed, steps)
        is_finished = state == "finished"
        make_run(
            *(trial_folder(folder, trial), records, config),
            **{"samples": samples, "is_finished": is_finished},
        )
    lab = Lab(
        "lr",
        "Which learning rate is best?",
        answer,
        ("tilth", "lab", "lr", "--out", "lab/lr"),
        "learning rate",
        tuple(trials),
        (Table("Edge", ("learning rate", "what"), ((1e-2, "best"), (0.1, HOSTILE))),),
        ("A note with <b>tags</b>.",),
    )
    save_lab(folder, lab)
    return lab


def make_toy(folder):
    """A lab without trials: charts on log and linear scales, and a table."""
    rates = (1.0, 10.0, 100.0, 1000.0)
    factors = [[1 - lr / (50 * math.sqrt(step)) for step in range(1, 11)] for lr in rates]
    lines = tuple(
        Line(f"lr {lr:g}", tuple((t, math.prod(each[:t]) ** 2 + 1e-9) for t in range(1, 11)))
        for lr, each in zip(rates, factors, strict=True)
    )
    charts = (
        Chart(
            *("The loss by step", "step", "loss", lines, "linear", "log"),
            text=f"Lower is better. {HOSTILE}",
        ),
        Chart(
            *(f"By rate {HOSTILE}", "learning rate <i>", "$loss$ & more"),
            (Line("after ten steps", ((1, 0.5), (10, 0.25), (100, 0.125))),),
            x_scale="log",
        ),
        Chart("Nothing yet", "x", "y", (Line("none", ()),)),
    )
    rows = ((1.0, 0.51234), (10.0, 0.25), (100.0, 0.125))
    lab = Lab(
        *("sgd", "How large may a step be?", "10 is best.", ("tilth", "lab", "sgd")),
        tables=(Table("Losses", ("lr", "loss"), rows), Table("Nothing yet", ("a", "b"), ())),
        charts=charts,
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_lab(folder, lab)
    return lab
