"""Run scenarios in one edition of tilth; `compare_editions.py` starts this with its Python.

It reads a JSON list of scenarios from stdin. Each command runs in a process forked after torch was
imported, because importing torch for every command would take most of the time. The output of a
command goes to `SCENARIO/stdout-0.txt` and so on.
"""

import importlib
import json
import os
import random
import runpy
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

PRELOADED = (
    *("torch._dynamo", "torch.utils.deterministic", "safetensors.torch", "rich", "cyclopts"),
    *("plotly.graph_objects", "matplotlib.figure", "optuna"),
)
"""Modules that are imported once instead of in every command, if installed."""


def main() -> None:
    """Run the scenarios in the current folder; print a JSON line for each."""
    for module in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    for scenario in json.loads(sys.stdin.read()):
        began = time.monotonic()
        folder = Path(scenario["name"])
        folder.mkdir()
        codes = []
        for number, command in enumerate(scenario["commands"]):
            kill_at_step = scenario["kill_at_step"] if number == 0 else None
            codes.append(_run(command, folder, number, kill_at_step))
            if codes[-1] and kill_at_step is None:
                break
        seconds = round(time.monotonic() - began, 2)
        result = {"name": scenario["name"], "codes": codes, "seconds": seconds}
        print(json.dumps({**result, "torch": torch.__version__}), flush=True)


def _run(command: list[str], folder: Path, number: int, kill_at_step: int | None) -> int:
    """Run one command; return its exit code, or the negative number of a signal."""
    kind = "json" if "--json" in command or command[0] in PROBES else "txt"
    child = os.fork()
    if child == 0:
        _run_in_child(command, folder / f"stdout-{number}.{kind}", folder / f"stderr-{number}.txt")
    if kill_at_step is not None:
        _kill_at(child, Path(command[command.index("--out") + 1], "metrics.jsonl"), kill_at_step)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _kill_at(child: int, metrics: Path, step: int) -> None:
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= step):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return  # it ended earlier
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)


def _run_in_child(command: list[str], stdout: Path, stderr: Path) -> None:
    """Run one command in this process; does not return."""
    code = 1
    try:
        for stream, path in ((1, stdout), (2, stderr)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644), stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Checkpoints include the state of these generators.
        random.seed(0)
        np.random.seed(0)
        if command[0] in PROBES:
            print(json.dumps(PROBES[command[0]](*command[1:])))
        else:
            sys.argv = ["tilth", *command]
            runpy.run_module("tilth", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as Python does at the end of a process
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


# --- the Python API, which differs between editions ----------------------------------------------


def _edition(module: str = "tilth") -> Any:  # noqa: ANN401, a module of that edition
    return importlib.import_module(module)


def _one_of(*modules: str) -> Any:  # noqa: ANN401
    """Return the first of these modules that exists in the edition."""
    for module in modules:
        with suppress(ModuleNotFoundError):
            return _edition(module)
    raise ModuleNotFoundError(f"this edition has none of {', '.join(modules)}")


def _score(run: str, backend: str, text: str) -> list[Any]:
    options = {
        "quantize": "int8" if backend == "int8" else None,
        "device": "cpu:0" if backend == "torch" else "cpu",
    }
    if hasattr(_edition(), "load"):
        scored = _edition().load(run, **options).score(text, alternatives=3)
    else:
        generation = _edition("tilth.generation")
        scored = generation.score(generation.load_decoder(run, **options), text, alternatives=3)
    return [[each.id, each.log_probability, list(each.alternatives)] for each in scored]


def _generate_batch(run: str, temperature: str, *prompts: str) -> list[str]:
    options = {"temperature": float(temperature), "top_p": 0.95, "seed": 3}
    if hasattr(_edition(), "load"):
        model = _edition().load(run, device="cpu:0")
        return list(model.generate_batch(list(prompts), max_tokens=24, **options))
    opened = _edition().open_run(run)
    _, model = _one_of("tilth.runs.saving", "tilth.runs.state").load_model(opened)
    sampling = _edition("tilth.generation.sampling").Sampling(**options)
    generate_batch = _edition("tilth.generation.batch").generate_batch
    return list(
        generate_batch(model, opened.tokenizer(), prompts, max_tokens=24, sampling=sampling)
    )


def _batches(path: str, order: str) -> list[Any]:
    batches = _edition().Batches(np.load(path), 3, 7, 5, order)
    return [[x.tolist(), y.tolist()] for x, y in batches.read(0, 40)]


PROBES: dict[str, Callable[..., list[Any]]] = {
    "score": _score,
    "generate-batch": _generate_batch,
    "batches": _batches,
}


if __name__ == "__main__":
    main()
