"""`tilth evaluate`: how well a run predicts text."""

from dataclasses import asdict
from pathlib import Path

from tilth.cli.options import Json, RunFolder
from tilth.cli.output import print_result


def evaluate(
    run: RunFolder,
    /,
    *,
    data: Path | None = None,
    step: int | None = None,
    max_tokens: int = 0,
    device: str | None = None,
    json: Json = False,
) -> None:
    """Predict the validation set: loss, perplexity, and bits per byte, which compare tokenizers.

    Args:
        data: Other token files, made by the run's tokenizer.
        step: The checkpoint after this step; default: the best.
        max_tokens: Read only the beginning of the validation set; 0 is all of it.
        device: cpu, cuda or mps; default: the run's.
    """
    from tilth.cli.progress import progress
    from tilth.runs import open_run
    from tilth.runs.metrics import finite_or_none
    from tilth.training.evaluation import evaluate_run

    opened = open_run(run)
    with progress() as report:
        checkpoint, found = evaluate_run(
            opened, data=data, step=step, max_tokens=max_tokens, device=device, progress=report
        )
    # Null for what is not finite: a loss of damaged weights, or no byte of text at all.
    values = {name: finite_or_none(value) for name, value in asdict(found).items()}
    lines = [
        f"{checkpoint.name}, {found.tokens:,} tokens of validation",
        f"loss           {found.loss:.4f} nats per token",
        f"perplexity     {found.perplexity:.2f}",
        f"bits per byte  {found.bits_per_byte:.4f}",
    ]
    print_result({"run": str(run), "step": checkpoint.step, **values}, lines, as_json=json)
