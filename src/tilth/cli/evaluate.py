"""`tilth evaluate`: loss, perplexity and bits per byte of a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from tilth.cli.options import Json, ModelPath
from tilth.cli.output import print_result


def evaluate(
    run: ModelPath,
    /,
    *,
    step: int | None = None,
    data: Path | None = None,
    max_tokens: int = 0,
    device: str | None = None,
    tasks: Annotated[list[str], Parameter(consume_multiple=True)] = [],  # noqa: B006
    limit: int | None = None,
    json: Json = False,
) -> None:
    """Evaluate a run on its validation set: loss, perplexity, bits per byte.

    Bits per byte are comparable between tokenizers.

    Args:
        step: Step of the checkpoint; default: the best one.
        data: Other data folder, made with the run's tokenizer.
        max_tokens: Number of validation tokens, from the start of the set; 0 is all of it.
        device: cpu, cuda or mps; default: the device of the run.
        tasks: Evaluate on tasks instead: all, continuation, agreement, cloze, or YAML files of
            lm-eval, whose functions are run.
        limit: Number of items of each task, from its start.

    Examples:
        tilth evaluate runs/first
        tilth evaluate runs/first --step 500 --json
        tilth evaluate runs/first --tasks all
    """
    if tasks:
        if data is not None or max_tokens:
            raise ValueError("--tasks has its own texts; omit --data and --max-tokens.")
        _evaluate_tasks(run, tasks, step, device, limit, json)
        return
    from tilth.cli.progress import progress
    from tilth.generation.sources import open_source
    from tilth.runs import Run
    from tilth.runs.metrics import finite_or_none
    from tilth.training.evaluation import evaluate_folder, evaluate_run

    opened, step = open_source(run, step)
    with progress() as report:
        if isinstance(opened, Run):
            checkpoint, found = evaluate_run(
                opened, data=data, step=step, max_tokens=max_tokens, device=device, progress=report
            )
            name, step = checkpoint.name, checkpoint.step
        elif data is None:
            raise ValueError(f"{run} is not a run, so it names no data; give --data.")
        else:
            name = str(run)
            found = evaluate_folder(
                opened, data, max_tokens=max_tokens, device=device, progress=report
            )
    # Non-finite values become null: the loss of damaged weights, bits per byte of no text.
    values = {name: finite_or_none(value) for name, value in asdict(found).items()}
    lines = [
        f"{name}, {found.tokens:,} validation tokens",
        f"loss           {found.loss:.4f} nats per token",
        f"perplexity     {found.perplexity:.2f}",
        f"bits per byte  {found.bits_per_byte:.4f}",
    ]
    print_result({"run": str(run), "step": step, **values}, lines, as_json=json)


def _evaluate_tasks(
    run: Path,
    tasks: list[str],
    step: int | None,
    device: str | None,
    limit: int | None,
    json: bool,
) -> None:
    from tilth.cli.progress import progress
    from tilth.exporting.evaluation_harness import evaluate_tasks
    from tilth.generation import load

    if limit is not None and limit < 1:
        raise ValueError(f"--limit is {limit}; it must be at least 1.")
    model = load(run, step=step, device=device or "cpu")
    with progress() as report:
        rows = evaluate_tasks(model, tasks, limit=limit, progress=report)
    lines = [
        f"{'task':<24} {'metric':<16} {'value':>9}  {'95% interval':<16} {'chance':>7} {'items':>6}"
    ]
    lines += map(_task_line, rows)
    print_result({"run": str(run), "tasks": rows}, lines, as_json=json)


def _task_line(row: dict[str, Any]) -> str:
    is_share = "accuracy" in row

    def show(value: float | None) -> str:
        return "" if value is None else f"{value:.1%}" if is_share else f"{value:.4f}"

    interval = f"{show(row['low'])} to {show(row['high'])}" if "low" in row else ""
    value = show(row["accuracy"] if is_share else row["value"])
    chance, items = show(row.get("chance")), row.get("items")
    start = f"{row['task']:<24} {row['metric']:<16} {value:>9}"
    return f"{start}  {interval:<16} {chance:>7} {items if items is not None else '':>6}"
