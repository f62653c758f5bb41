"""The model card of an exported folder: README.md with the metadata that hubs read, and curves."""

import json
import logging
import re
from pathlib import Path

import tomli_w

from tilth.accounting.flops import training_flops
from tilth.accounting.parameters import count_parameters
from tilth.data.token_files import load_data_manifest
from tilth.files import FileError, atomic_write, write_text_atomically
from tilth.formats.huggingface import ModelFolder, model_type_of
from tilth.formats.model_files import ModelFiles
from tilth.formats.safetensors_files import Dtype
from tilth.formatting import format_bytes, format_duration, printable, scientific
from tilth.report.pictures import curves_png
from tilth.report.reading import read_report
from tilth.runs.metrics import Evaluation
from tilth.runs.run import Run
from tilth.schema import plain

log = logging.getLogger(__name__)

CARD, CURVES, TRAINING = "README.md", "curves.png", "training_config.toml"


def write_card(
    folder: Path,
    name: str,
    source: Run | ModelFolder,
    weights_path: Path,
    model: ModelFiles,
    dtype: Dtype,
) -> None:
    """Write the card; for a run also its loss curves and its training config."""
    parts = [_metadata(model), f"# {_text(name)}", _summary(model, dtype)]
    if isinstance(source, Run):
        parts += _training(folder, source, weights_path)
    else:
        parts.append("## Training\n\nThis model was not trained by tilth from the start.")
    parts += [Path(__file__).with_suffix(".md").read_text("utf-8"), _config_table(model)]
    write_text_atomically(folder / CARD, "\n\n".join(parts) + "\n")


def _text(value: object) -> str:
    """Escape a value for a line of Markdown: names may come from untrusted files."""
    text = printable(str(value))[:300]
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", text)


def _metadata(model: ModelFiles) -> str:
    lines = ["library_name: transformers", "pipeline_tag: text-generation"]
    lines += ["tags:", "- tilth", f"- {model_type_of(model.config)}"]
    return "\n".join(["---", *lines, "---"])


def _summary(model: ModelFiles, dtype: Dtype) -> str:
    config = model.config
    parameters = count_parameters(config).total
    return (
        f"A language model of {parameters:,} parameters: {config.num_layers} layers of width "
        f"{config.d_model}, a context of {config.context_length:,} tokens, a vocabulary of "
        f"{config.vocab_size:,}, weights in {dtype}. It was made with tilth and opens in "
        f"`transformers` as {model_type_of(config).capitalize()}."
    )


def _training(folder: Path, run: Run, weights_path: Path) -> list[str]:
    records = run.metrics()
    step = int(weights_path.parent.name.removeprefix("step-"))
    done = [record for record in records if record.step <= step]
    rows = [("steps", f"{step:,}")]
    if done:
        flops = training_flops(run.config.model, run.config.batch_size) * step
        rows += [
            ("tokens", f"{done[-1].tokens:,}"),
            ("FLOPs", scientific(flops)),
            ("time", format_duration(done[-1].seconds)),
        ]
    losses = [record.loss for record in done if record.loss is not None]
    if losses:
        rows.append(("last training loss", f"{losses[-1]:.4f} nats per token"))
    found = [record.evaluation for record in done if record.evaluation is not None]
    rows += _evaluation_rows(found[-1]) if found else []
    # The path of the data on this computer is private: only its name is written.
    values = run.config.to_dict() | {"data": Path(run.config.data).name or "data"}
    write_text_atomically(folder / TRAINING, tomli_w.dumps(values))
    command = f"tilth train --config {TRAINING} --data DATA --out RUN"
    begin = "This command trains it again, on the same data"
    if initial := run.manifest.initial:
        command += " --init MODEL"
        begin += f", from the weights of `{_text(initial)}` (MODEL)"
    parts = ["## Training data\n\n" + _data_text(run), "## Training\n\n" + _table(rows)]
    if _write_curves(folder, run):
        parts.append(f"![Loss over steps and time]({CURVES})")
        if step < records[-1].step:
            parts.append(f"The curves are of the whole run, of {records[-1].step:,} steps.")
    parts.append(f"{begin}:\n\n```sh\n{command}\n```")
    return parts


def _evaluation_rows(found: Evaluation) -> list[tuple[str, str]]:
    return [
        ("validation loss", f"{found.loss:.4f} nats per token"),
        ("validation perplexity", f"{found.perplexity:.2f}"),
        ("validation bits per byte", f"{found.bits_per_byte:.4f}"),
    ]


def _data_text(run: Run) -> str:
    fingerprint = run.manifest.data_fingerprint
    try:
        manifest = load_data_manifest(Path(run.config.data))
        is_same = manifest.fingerprint == fingerprint
    except (FileError, OSError):
        is_same = False
    if not is_same:
        return f"The data folder was not at hand; its fingerprint is `{_text(fingerprint)}`."
    rows = [
        (
            _text(Path(each.path).name),
            f"{each.documents:,} documents",
            format_bytes(each.size_bytes),
        )
        for each in manifest.sources[:100]
    ]
    tokens = manifest.splits["train"].tokens
    lines = [f"{tokens:,} training tokens; fingerprint `{fingerprint}`.", ""]
    return "\n".join([*lines, "| source | documents | size |", "|---|---|---|", *map(_row, rows)])


def _write_curves(folder: Path, run: Run) -> bool:
    try:
        picture = curves_png(read_report([run.folder]).sections[0])
    except ValueError as error:  # matplotlib is an extra
        log.warning("The model card has no curves: %s", error)
        return False
    if picture is None:
        return False
    with atomic_write(folder / CURVES) as file:
        file.write(picture)
    return True


def _config_table(model: ModelFiles) -> str:
    values = plain(model.config)
    values |= {"tokenizer pattern": model.tokenizer.pattern, "end token": model.end_token}
    rows = [(_text(name), _text(json.dumps(value))) for name, value in values.items()]
    return "## Config\n\n" + _table(rows)


def _table(rows: list[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *map(_row, rows)])


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
