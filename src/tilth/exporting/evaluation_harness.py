"""Evaluation on tasks: the built-in ones, and those of lm-eval with its own runner.

`lm_eval_model.TilthLM` lets lm-eval score and generate with a `LanguageModel`. It is the entry
point `tilth` of the group `lm_eval.models`, which releases of lm-eval after 0.4.13 read. lm-eval
0.4.13 has no plugins, so its command line is started here, with the model registered:

    python -m tilth.exporting.evaluation_harness --model tilth --model_args path=runs/first \
        --tasks task.yaml
"""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from tilth.errors import first_line, import_extra
from tilth.exporting.tasks import TASKS, TaskName, run_task
from tilth.files import FileError, Progress, StrPath
from tilth.formatting import suggestion
from tilth.generation import LanguageModel, load
from tilth.runs.run import Run
from tilth.schema import Range, check_int

MODEL = "tilth"  # its name in lm-eval
MAX_ITEMS = 1_000_000  # of a task: the built-in ones have any number

# Task files and data sets are local; without these, datasets asks the hub first. Set before the
# libraries are imported.
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


def evaluate_tasks(
    model: LanguageModel | StrPath | Run,
    tasks: str | Sequence[str] = "all",
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Evaluate a model on tasks; return a row for each metric.

    Args:
        model: A model, or what `tilth.load` takes.
        tasks: Built-in tasks (`continuation`, `agreement`, `cloze`; `all` for the three) and paths
            of task files of lm-eval (YAML). A task file may name Python functions, which are run:
            use files that you trust.
        limit: Evaluate on this many items of each task, from its start. Default: all.
        progress: Called with the name of a built-in task, the items done and their number.

    """
    check_int("limit", 1 if limit is None else limit, Range(at_least=1, at_most=MAX_ITEMS))
    tasks = [tasks] if isinstance(tasks, str) else tasks
    model = model if isinstance(model, LanguageModel) else load(model)
    rows: list[dict[str, Any]] = []
    files: list[Path] = []
    for task in tasks:
        if task == "all":
            names: Sequence[str] = TASKS
        elif task in TASKS:
            names = [task]
        elif Path(task).suffix in (".yaml", ".yml"):
            if not Path(task).is_file():
                raise FileError(task, "does not exist or is not a file", "check the path")
            files.append(Path(task))
            continue
        else:
            hint = suggestion(task, ["all", *TASKS], "name a built-in task or a YAML file.")
            raise ValueError(f"there is no built-in task {task!r}; {hint}")
        for name in names:
            found = run_task(model, cast("TaskName", name), limit=limit, progress=progress)
            rows.append({**asdict(found), "metric": "acc"})
    if files:
        rows += _run_files(model, files, limit)
    return rows


def _run_files(
    model: LanguageModel, files: Sequence[Path], limit: int | None
) -> list[dict[str, Any]]:
    """Run task files with lm-eval; its standard error gives the interval."""
    for name in OFFLINE:
        os.environ.setdefault(name, "1")
    evaluator = import_extra("lm_eval.evaluator", "Evaluating a task file")
    manager = import_extra("lm_eval.tasks", "Evaluating a task file")
    loader = import_extra("lm_eval.tasks._yaml_loader", "Evaluating a task file")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    try:
        configs = [loader.load_yaml(path, resolve_func=True) for path in files]
        with redirect_stdout(sys.stderr):  # it prints progress
            found = evaluator.simple_evaluate(
                model=harness_model(model),
                tasks=configs,
                limit=limit,
                task_manager=manager.TaskManager(include_defaults=False),
                bootstrap_iters=1000,
            )
    except (ValueError, OSError, ImportError) as error:
        if isinstance(error, FileError):
            raise
        raise ValueError(f"lm-eval cannot run {files[0]} ({first_line(error)[:300]})") from error
    except Exception as error:  # of YAML, of a template, of a function of the task file
        reason = f"{type(error).__name__}: {first_line(error)[:300]}"
        raise ValueError(f"lm-eval cannot run {files[0]} ({reason}); correct the file") from error
    return list(_rows(found))


def _rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of lm-eval as rows, with 95% intervals from its standard errors."""
    rows = []
    for task, values in found["results"].items():
        counts = found.get("n-samples", {}).get(task, {})
        samples = found.get("samples", {}).get(task, [])
        choices = {len(each.get("arguments", ())) for each in samples}
        chance = 1 / choices.pop() if len(choices) == 1 and "acc,none" in values else None
        for key, value in values.items():
            metric, _, filtered = key.partition(",")
            if not filtered or metric.endswith("_stderr") or not isinstance(value, float | int):
                continue
            error = values.get(f"{metric}_stderr,{filtered}")
            row = {"task": task, "metric": metric, "items": counts.get("effective")}
            row["accuracy" if metric.startswith("acc") else "value"] = float(value)
            if isinstance(error, float):
                row |= {"low": value - 1.96 * error, "high": value + 1.96 * error}
            if metric.startswith("acc"):
                row["chance"] = chance
            rows.append(row)
    return rows


def harness_model(model: LanguageModel) -> Any:  # noqa: ANN401, a class of lm-eval
    """Return a model of lm-eval that scores and generates with a `LanguageModel`."""
    return _harness_class()(model=model)


def _harness_class() -> Any:  # noqa: ANN401, a class of lm-eval
    import_extra("lm_eval.api.model", "lm-eval")
    from tilth.exporting.lm_eval_model import TilthLM  # noqa: PLC0415, of an extra

    return TilthLM


def main() -> None:
    """Run the command line of lm-eval with the model `tilth` registered."""
    found = _harness_class()
    import_extra("lm_eval.models", "lm-eval")  # its own models register themselves
    registry = import_extra("lm_eval.api.registry", "lm-eval").model_registry
    if MODEL not in registry:
        registry.register(MODEL, target=found)
    import_extra("lm_eval.__main__", "lm-eval").cli_evaluate()


if __name__ == "__main__":
    main()
