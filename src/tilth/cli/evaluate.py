"""`tilth evaluate`: loss, perplexity and bits per byte of a run."""

from dataclasses import asdict
from pathlib import Path

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
    json: Json = False,
) -> None:
    """Evaluate a run on its validation set: loss, perplexity, bits per byte.

    Bits per byte are comparable between tokenizers.

    Args:
        step: Step of the checkpoint; default: the best one.
        data: Other data folder, made with the run's tokenizer.
        max_tokens: Number of validation tokens, from the start of the set; 0 is all of it.
        device: cpu, cuda or mps; default: the device of the run.

    Examples:
        tilth evaluate runs/first
        tilth evaluate runs/first --step 500 --json
    """
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
