"""`tilth evaluate`: how well a run predicts text."""

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tilth.cli.options import Json


def evaluate(
    run: Annotated[Path, Parameter(help="The run directory.")],
    /,
    *,
    data: Annotated[
        Path | None, Parameter(help="Other token files, made by the run's tokenizer.")
    ] = None,
    step: Annotated[
        int | None, Parameter(help="The checkpoint after this step; default: the best.")
    ] = None,
    max_tokens: Annotated[
        int, Parameter(help="Read only the beginning of the validation set; 0 is all of it.")
    ] = 0,
    device: Annotated[str | None, Parameter(help="cpu, cuda or mps; default: the run's.")] = None,
    json: Json = False,
) -> None:
    """Predict the validation set: loss, perplexity, and bits per byte, which compare tokenizers."""
    from tilth.cli.progress import progress
    from tilth.runs import open_run
    from tilth.runs.metrics import finite_or_none
    from tilth.training.evaluation import evaluate_run

    opened = open_run(run)
    with progress() as report:
        checkpoint, found = evaluate_run(
            opened, data=data, step=step, max_tokens=max_tokens, device=device, progress=report
        )
    if json:
        # Null for what is not finite: a loss of damaged weights, or no byte of text at all.
        values = {name: finite_or_none(value) for name, value in asdict(found).items()}
        print(json_module.dumps({"run": str(run), "step": checkpoint.step, **values}))
        return
    print(f"{checkpoint.name}, {found.tokens:,} tokens of validation")
    print(f"loss           {found.loss:.4f} nats per token")
    print(f"perplexity     {found.perplexity:.2f}")
    print(f"bits per byte  {found.bits_per_byte:.4f}")
