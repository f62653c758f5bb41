"""Quality of the recipe `small` after a given time, compared with nanoGPT.

    python -m bench.time_to_quality DATA --minutes 8 --seeds 3

Both train on the same batches of the same token files; their numbers of parameters differ by at
most 5%. The number of steps that fit into the time is measured once, interleaved, for each model
uncompiled and compiled; the better is used. A step costs its CPU time: on an idle machine this is
wall-clock time multiplied by the cores, and load changes it less. Compilation costs its wall-clock
time on all cores. From then on a run counts steps, so it can be repeated. Evaluations are not
counted.

nanoGPT gets the best of three learning rates (`--rates`), found with the first seed. Each run is
written to a separate file in `--out`, and existing files are not repeated, so an interrupted
comparison continues. The table is printed from these files; `--picture` draws their curves (needs
matplotlib).

`--dtype bfloat16` trains both under autocast; final values are computed in float32.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.models import NanoGPT
from tilth.config import MachineConfig, ResolvedConfig, WatchConfig
from tilth.data import Batches, Data, open_data
from tilth.files import atomic_write
from tilth.model import TransformerLM
from tilth.optim import clip_gradients, cosine_schedule
from tilth.recipes import small
from tilth.runs.run import open_run
from tilth.training.evaluation import evaluate, evaluate_run
from tilth.training.loop import train
from tilth.training.step import (
    accumulate_gradients,
    autocast_of,
    compiled,
    make_loss,
    make_optimizer,
    make_scaler,
    update,
)

CORES = 2
PEER_RATES = (2.5e-3, 5e-3, 1e-2)
CURVE_POINTS = 10
CURVE_TOKENS = 32_768  # validation tokens per point; the final value uses all of them
CALIBRATION_ROUNDS = 15
PARAMETERS_WITHIN = 0.05

OURS, PEER = "tilth small", "nanoGPT"
Step = Callable[[int], None]
Autocast = Callable[[], AbstractContextManager[object]]


def main() -> int:
    """Calibrate, train the missing runs, print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.time_to_quality", description=str(__doc__).splitlines()[0]
    )
    parser.add_argument("data", help="data folder")
    parser.add_argument(
        "--minutes", type=float, default=8.0, help=f"minutes on {CORES} cores; default 8"
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds per model; default 3")
    parser.add_argument(
        "--threads", type=int, default=CORES, help=f"threads of torch; default {CORES}"
    )
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="of both models"
    )
    parser.add_argument(
        "--rates", type=float, nargs="+", default=PEER_RATES, help="learning rates of nanoGPT"
    )
    parser.add_argument("--eager", action="store_true", help="do not compile")
    parser.add_argument("--only", choices=["tilth", "nanogpt"], help="one of the two models")
    parser.add_argument("--out", type=Path, default=Path("bench/results/time_to_quality"))
    parser.add_argument("--picture", type=Path, help="PNG file for the curves")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    options.out.mkdir(parents=True, exist_ok=True)

    data = open_data(options.data)
    machine = MachineConfig("cpu", options.dtype, compile=False, threads=options.threads)
    config = our_config(data, machine, seed=0, steps=1)
    plans = once(
        options.out / "plans.json", partial(calibrate, config, data, options.minutes, options.eager)
    )
    if plans["of"] != asked(config, data, options.minutes):
        raise ValueError(f"{options.out} has runs of another comparison; choose another --out.")
    runs = []
    if options.only != "nanogpt":
        for seed in range(options.seeds):
            run = partial(train_ours, data, plans[OURS], seed, machine)
            runs.append(once(options.out / f"tilth_seed{seed}.json", run))
    if options.only != "tilth":
        for seed in range(options.seeds):
            for lr in peer_rates(runs, options.rates):
                run = partial(train_peer, data, plans[PEER], seed, machine, lr)
                runs.append(once(options.out / f"nanogpt_lr{lr:g}_seed{seed}.json", run))
    print_table(plans, runs)
    if options.picture is not None:
        draw(runs, options.picture)
    return 0


# --- calibration ----------------------------------------------------------------------------------


def asked(config: ResolvedConfig, data: Data, minutes: float) -> dict[str, Any]:
    """Return the settings that all runs of a folder share."""
    kept = config.to_dict()
    recipe = {name: kept[name] for name in ("model", "optimizer", "batch_size", "order")}
    dtype = config.machine.dtype
    return {"minutes": minutes, "data": data.fingerprint, "dtype": dtype, **recipe}


def calibrate(config: ResolvedConfig, data: Data, minutes: float, eager: bool) -> dict[str, Any]:
    """Measure how many steps of each model fit into the time, compiled or not."""
    all_ways = (False,) if eager else (False, True)  # whether to compile
    parameters = {OURS: count(TransformerLM(config.model)), PEER: count(NanoGPT(config.model))}
    if abs(parameters[PEER] / parameters[OURS] - 1) > PARAMETERS_WITHIN:
        raise ValueError(f"the models differ in size: {parameters}.")
    steppers: dict[tuple[str, bool], Step] = {
        (name, use_compiler): make(config, data, use_compiler)
        for name, make in ((OURS, our_stepper), (PEER, peer_stepper))
        for use_compiler in all_ways
    }
    before: dict[tuple[str, bool], float] = {}  # cost of the first step, which may compile
    for key, step in steppers.items():
        tell(f"first step of {key[0]}{', compiled' if key[1] else ''}")
        then = time.perf_counter()
        step(0)
        before[key] = CORES * (time.perf_counter() - then)
    seconds: dict[tuple[str, bool], list[float]] = {key: [] for key in steppers}
    for number in range(1, CALIBRATION_ROUNDS + 1):
        for key, step in steppers.items():
            then = time.process_time()
            step(number)
            seconds[key].append(time.process_time() - then)
    plans: dict[str, Any] = {"of": asked(config, data, minutes)}
    for name, size in parameters.items():
        ways = []
        for use_compiler in all_ways:
            cost = statistics.median(seconds[name, use_compiler])
            compiling = before[name, use_compiler] if use_compiler else 0.0
            steps = max(1, int((minutes * 60 * CORES - compiling) / cost))
            ways.append({"compile": use_compiler, "steps": steps, "core_seconds_a_step": cost})
        plans[name] = {
            "minutes": minutes,
            "parameters": size,
            "tokens_a_step": config.tokens_per_step,
            **max(ways, key=lambda way: way["steps"]),
            "measured": ways,
        }
    return plans


def our_stepper(config: ResolvedConfig, data: Data, use_compiler: bool) -> Step:
    """Return a function that takes one step of tilth's training."""
    model = TransformerLM(config.model)
    loss_of = make_loss(model, config.machine)
    if use_compiler:
        loss_of = compiled(loss_of, "cpu")
    optimizer = make_optimizer(model, config.optimizer, config.machine.dtype)
    scaler = make_scaler(config.machine)
    batches = batches_of(config, data)

    def step(number: int) -> None:
        x, y = batches[number]
        loss = accumulate_gradients(loss_of, x, y, len(x), scaler)
        update(optimizer, loss, config.optimizer.lr, config.optimizer.max_grad_norm, scaler)

    return step


def peer_stepper(config: ResolvedConfig, data: Data, use_compiler: bool) -> Step:
    """Return a function that takes one step of nanoGPT's training."""
    model = NanoGPT(config.model)
    take = peer_step(model, use_compiler, autocast_of(config.machine))
    batches = batches_of(config, data)
    return lambda number: take(*batches[number], 1e-3)


def count(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


# --- the runs -------------------------------------------------------------------------------------


def our_config(data: Data, machine: MachineConfig, *, seed: int, steps: int) -> ResolvedConfig:
    """Return the recipe with the measured settings."""
    every = max(1, steps // CURVE_POINTS)
    watch = WatchConfig(every, CURVE_TOKENS, save_every=0, norms_every=0, sample_every=0)
    config = small(data, steps=steps)
    return replace(config, seed=seed, machine=machine, watch=watch).resolve()


def batches_of(config: ResolvedConfig, data: Data) -> Batches:
    """Return the batches of both models, in the order of `train`."""
    context = config.model.context_length
    return Batches(data.train, config.batch_size, context, config.seed, config.order)


def train_ours(
    data: Data, plan: dict[str, Any], seed: int, machine: MachineConfig
) -> dict[str, Any]:
    """Train the recipe through the public API."""
    machine = replace(machine, compile=plan["compile"])
    config = our_config(data, machine, seed=seed, steps=plan["steps"])
    curve = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        for record in train(config, out):
            if record.evaluation is not None:
                curve.append((record.step, record.evaluation.bits_per_byte))
                tell(f"{OURS}, seed {seed}: {curve[-1]}")
        _, final = evaluate_run(open_run(out), step=config.steps)
    return finished(OURS, plan, seed, config.optimizer.lr, curve, final.bits_per_byte, final.loss)


def train_peer(
    data: Data, plan: dict[str, Any], seed: int, machine: MachineConfig, lr: float
) -> dict[str, Any]:
    """Train nanoGPT on the same batches."""
    steps = plan["steps"]
    config = our_config(data, machine, seed=seed, steps=steps)
    autocast = autocast_of(config.machine)
    torch.manual_seed(seed)
    model, tokenizer, curve = NanoGPT(config.model), data.tokenizer(), []
    take = peer_step(model, plan["compile"], autocast)
    for number, (x, y) in enumerate(batches_of(config, data).read(0, steps), start=1):
        take(x, y, cosine_schedule(number, lr, lr / 10, max(1, steps // 20), steps))
        if number % config.watch.evaluate_every == 0 or number == steps:
            found = evaluate(
                model,  # type: ignore[arg-type]
                *(data.valid, tokenizer),
                max_tokens=CURVE_TOKENS,
                autocast=autocast,
            )
            curve.append((number, found.bits_per_byte))
            tell(f"{PEER}, lr {lr:g}, seed {seed}: {curve[-1]}")
    final = evaluate(model, data.valid, tokenizer)  # type: ignore[arg-type]
    return finished(PEER, plan, seed, lr, curve, final.bits_per_byte, final.loss)


def peer_step(
    model: NanoGPT, use_compiler: bool, autocast: Autocast
) -> Callable[[Tensor, Tensor, float], None]:
    """Return nanoGPT's update: weight decay for matrices, none for biases and norms."""

    def mean_loss(x: Tensor, y: Tensor) -> Tensor:
        with autocast():
            return model.loss(x, y)

    loss_of = torch.compile(mean_loss) if use_compiler else mean_loss
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def take(x: Tensor, y: Tensor, lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss_of(x, y).backward()  # type: ignore[no-untyped-call]
        clip_gradients([*matrices, *others], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return take


def finished(
    name: str,
    plan: dict[str, Any],
    seed: int,
    lr: float,
    curve: list[tuple[int, float]],
    bits_per_byte: float,
    loss: float,
) -> dict[str, Any]:
    """Return the record of a run; its curve is in minutes of the calibrated cost on CORES cores."""
    minutes_a_step = plan["core_seconds_a_step"] / CORES / 60
    minutes_before = plan["minutes"] - plan["steps"] * minutes_a_step
    return {
        "name": name,
        "seed": seed,
        "lr": lr,
        "steps": plan["steps"],
        "tokens": plan["steps"] * plan["tokens_a_step"],
        "bits_per_byte": bits_per_byte,
        "loss": loss,
        "curve": [
            {
                "minutes": minutes_before + step * minutes_a_step,
                "tokens": step * plan["tokens_a_step"],
                "bits_per_byte": value,
            }
            for step, value in curve
        ],
    }


# --- results --------------------------------------------------------------------------------------


def once(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the content of the file; if it is missing, create it with `make`."""
    if not file.exists():
        content = json.dumps(make(), indent=1)
        with atomic_write(file) as out:
            out.write(content.encode())
    found: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return found


def peer_rates(runs: list[dict[str, Any]], rates: Sequence[float] = PEER_RATES) -> Sequence[float]:
    """Return all learning rates for the first seed, then the best of them."""
    first = {r["lr"]: r["bits_per_byte"] for r in runs if r["name"] == PEER and r["seed"] == 0}
    return (min(first, key=first.__getitem__),) if first else rates


def print_table(plans: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    """Print every run, then the mean over seeds of each model."""
    for name in (OURS, PEER):
        plan = plans[name]
        how = "compiled" if plan["compile"] else "uncompiled"
        cost = f"{plan['core_seconds_a_step']:.3f} core-seconds"
        print(
            f"{name}: {plan['parameters']:,} parameters, {how}, {plan['steps']:,} steps of {cost}"
        )
    for run in runs:
        print(
            f"{run['name']:12} lr {run['lr']:<8g} seed {run['seed']}  {run['tokens']:>10,} tokens  "
            f"loss {run['loss']:.4f}  {run['bits_per_byte']:.4f} bits per byte"
        )
    for name in (OURS, PEER):
        own = [run for run in runs if run["name"] == name]
        if name == PEER:
            own = [run for run in own if run["lr"] in peer_rates(runs)]
        if own:
            values = [run["bits_per_byte"] for run in own]
            spread = f"{min(values):.4f} to {max(values):.4f}"
            print(f"{name:12} mean {statistics.mean(values):.4f} bits per byte ({spread})")


def draw(runs: list[dict[str, Any]], file: Path) -> None:
    """Draw the curves over minutes and over tokens."""
    pyplot = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    rates = peer_rates(runs)
    others = iter(("--", ":"))
    for run in runs:
        is_other = run["name"] == PEER and run["lr"] not in rates
        style = next(others) if is_other else "-"
        label = f"{run['name']}, learning rate {run['lr']:g}" if run["seed"] == 0 else None
        for axis, x, unit in zip(axes, ("minutes", "tokens"), (1, 1_000), strict=True):
            axis.plot(
                [point[x] / unit for point in run["curve"]],
                [point["bits_per_byte"] for point in run["curve"]],
                color="tab:blue" if run["name"] == OURS else "tab:orange",
                linestyle=style,
                label=label,
                linewidth=1.2,
            )
    axes[0].set_xlabel(f"minutes on {CORES} cores")
    axes[1].set_xlabel("thousands of tokens")
    axes[0].set_ylabel("bits per byte of validation text")
    axes[0].legend(frameon=False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)


def tell(line: str) -> None:
    """Print progress to stderr."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
