"""`tilth export` and `tilth import`: models to and from the files of other tools."""

from pathlib import Path
from typing import Literal

from tilth.cli.options import Json, ModelPath
from tilth.cli.output import print_result


def export(
    run: ModelPath,
    /,
    *,
    to: Literal["hf", "gguf", "llama2c"],
    out: Path,
    step: int | None = None,
    dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    quantize: Literal["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"] | None = None,
    push: str | None = None,
    json: Json = False,
) -> None:
    """Export a run for other tools. What a format cannot express is refused before writing.

    hf writes a folder for transformers, with a model card; gguf a file for llama.cpp, with a
    Modelfile for Ollama beside it; llama2c a file for run.c or, with --quantize q8_0, for runq.c,
    with its tokenizer beside it.

    Args:
        to: Format: hf, gguf or llama2c.
        out: Folder (hf) or file to create.
        step: Step of the checkpoint; default: the best one.
        dtype: Type of the weights.
        quantize: Quantization of the matrices (gguf; q8_0 for llama2c).
        push: Upload the folder to USER/NAME on the Hugging Face Hub.

    Examples:
        tilth export runs/first --to hf --out first-hf
        tilth export runs/first --to gguf --out first.gguf --quantize q8_0
        tilth export runs/first --to llama2c --out first.bin
    """
    from tilth.exporting.exporting import check_repository
    from tilth.exporting.exporting import export as export_model
    from tilth.exporting.exporting import push as push_folder

    if push is not None and to != "hf":
        raise ValueError("--push uploads a Hugging Face folder; add --to hf.")
    if push is not None:
        check_repository(push)
    written = export_model(run, out, to=to, step=step, dtype=dtype, quantize=quantize)
    address = None if push is None else push_folder(out, push)
    lines = [f"Wrote {path}" for path in written]
    lines += [] if address is None else [f"Pushed to {address}"]
    values = {"wrote": [str(path) for path in written], "pushed": address}
    print_result(values, lines, as_json=json)


def import_model(
    path: Path,
    /,
    *,
    out: Path,
    tokenizer: Path | None = None,
    end_token: str | None = None,
    json: Json = False,
) -> None:
    """Import a model of other tools: a Llama, Qwen2 or Qwen3 folder, or a file of llama2.c.

    Other verbs take the imported folder as they take a run. Pickle files are never opened.

    Args:
        path: Hugging Face folder, or .bin file of llama2.c.
        out: Model folder to create.
        tokenizer: Tokenizer of a .bin file; default: tokenizer.json or tokenizer.bin beside it.
        end_token: Special token that ends a text; default: the one that the files name.

    Examples:
        tilth import Qwen3-0.6B --out runs/qwen
        tilth import stories15M.bin --out runs/stories15M
    """
    from tilth.exporting.importing import import_model as import_folder

    opened = import_folder(path, out, tokenizer=tokenizer, end_token=end_token)
    print_result(
        {"wrote": str(out), "model": opened.config.to_dict()}, [f"Wrote {out}"], as_json=json
    )
