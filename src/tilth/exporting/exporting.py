"""Export a run to the files of other tools. No torch.

Checks run before anything is written; a folder appears complete or not at all.
"""

import re
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from tilth.errors import import_extra
from tilth.files import FileError, StrPath, atomic_write, check_target, write_text_atomically
from tilth.formats import gguf, huggingface, llama2c
from tilth.formats.gguf import Quantization
from tilth.formats.huggingface import TOKENIZER, ModelFolder
from tilth.formats.llama2c import TOKENIZER_BIN, DecodingTokenizer
from tilth.formats.model_files import ModelFiles
from tilth.formats.safetensors_files import Dtype
from tilth.generation.sources import open_source, read_model
from tilth.runs.atomic_folders import check_new_folder, new_folder
from tilth.runs.run import Run, versions
from tilth.schema import check_choice

Format = Literal["hf", "gguf", "llama2c"]
MODELFILE = "Modelfile"
DEFAULT_SAMPLING = {"temperature": 0.8, "top_p": 0.95}


def export(
    source: StrPath | Run,
    out: StrPath,
    *,
    to: Format = "hf",
    step: int | None = None,
    dtype: Dtype = "float32",
    quantize: Quantization | None = None,
) -> list[Path]:
    """Export a model for other tools; return the paths that were written.

    Args:
        source: A run, a run directory, a checkpoint folder or a model folder.
        out: For "hf" a new folder, else a new file.
        to: "hf" (a folder for transformers), "gguf" (a file for llama.cpp, and a Modelfile for
            Ollama beside it) or "llama2c" (a file for `run.c`, and its tokenizer beside it).
        step: The checkpoint of this step. Default: the best one.
        dtype: Type of the weights.
        quantize: Quantize the matrices: of GGUF, or as int8 for `runq.c` (q8_0).

    Raises:
        ValueError: The format cannot express the model. Nothing was written.

    """
    check_choice("to", to, get_args(Format))
    check_choice("dtype", dtype, get_args(Dtype))
    _check_quantize(to, dtype, quantize)
    opened, step = (source, step) if isinstance(source, Run) else open_source(source, step)
    path = Path(out)
    _check_shape(to, opened)
    if to == "hf":
        check_new_folder(path)
    else:
        _check_new_files(_targets(path, to))
    if to == "gguf":
        import_extra("gguf", "Exporting to GGUF")
    weights_path, model = read_model(opened, step)
    _check_model(to, model, quantize)
    if to == "hf":
        from tilth.exporting.model_card import write_card  # noqa: PLC0415, imports report

        with new_folder(path) as folder:
            huggingface.write_folder(folder, model, dtype=dtype, sampling=_sampling(opened))
            write_card(folder, path.resolve().name, opened, weights_path, model, dtype)
            huggingface.write_manifest(folder, manifest_content(opened.folder.resolve().name))
        return [path]
    if to == "gguf":
        return _export_gguf(path, opened, model, dtype, quantize)
    return _export_llama2c(path, model, quantize)


def _check_new_files(targets: list[Path]) -> None:
    for target in targets:
        if target.exists():
            raise FileExistsError(f"{target} exists already; name a file in a new folder.")
        if target.parent.is_dir():
            check_target(target)


def _check_quantize(to: Format, dtype: Dtype, quantize: Quantization | None) -> None:
    check_choice("quantize", quantize, (None, *gguf.QUANTIZATIONS))
    if quantize is not None and dtype != "float32":
        raise ValueError(f"--quantize {quantize} and --dtype {dtype} are both types; give one.")
    if to == "hf" and quantize is not None:
        raise ValueError(
            "a Hugging Face folder holds unquantized weights; export to gguf to quantize them."
        )
    if to == "llama2c" and quantize not in (None, "q8_0"):
        raise ValueError(f"runq.c of llama2.c reads q8_0, not {quantize}; choose q8_0.")
    if to == "llama2c" and dtype != "float32":
        raise ValueError(f"run.c of llama2.c reads float32, not {dtype}; omit --dtype.")


def _check_shape(to: Format, opened: Run | ModelFolder) -> None:
    """Refuse a shape before weights are read."""
    config = opened.config.model if isinstance(opened, Run) else opened.config
    if to == "llama2c":
        llama2c.check_config(config)
    else:
        huggingface.model_type_of(config, "llama.cpp" if to == "gguf" else "transformers")


def _check_model(to: Format, model: ModelFiles, quantize: Quantization | None) -> None:
    """Refuse, before anything is written, what the format cannot express."""
    if isinstance(model.tokenizer, DecodingTokenizer) and to == "gguf":
        raise ValueError(
            "the tokenizer.bin of llama2.c holds no merges, so llama.cpp could not encode; export "
            "to llama2c or hf instead."
        )
    if to == "gguf":
        gguf.check_model(model.config, model.tokenizer, quantize)
    elif to == "llama2c" and quantize:
        llama2c.quantized_group_size(model.config)
    _ = model.end_id


def _sampling(opened: Run | ModelFolder) -> dict[str, float]:
    if not isinstance(opened, Run):
        return DEFAULT_SAMPLING
    watch = opened.config.watch
    return {"temperature": watch.temperature or 1.0, "top_p": watch.top_p or 1.0}


def _targets(path: Path, to: Format) -> list[Path]:
    """Return the files that an export to a file writes."""
    beside = [MODELFILE] if to == "gguf" else [TOKENIZER_BIN, TOKENIZER]
    return [path, *(path.with_name(name) for name in beside)]


def _export_gguf(
    path: Path,
    opened: Run | ModelFolder,
    model: ModelFiles,
    dtype: Dtype,
    quantize: Quantization | None,
) -> list[Path]:
    name = opened.folder.resolve().name
    text = gguf.modelfile(path.name, end_token=model.end_token, **_sampling(opened))
    targets = _targets(path, "gguf")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        gguf.write_gguf(file, model, name=name, dtype=dtype, quantize=quantize)
    write_text_atomically(targets[1], text)
    return targets


def _export_llama2c(path: Path, model: ModelFiles, quantize: Quantization | None) -> list[Path]:
    targets = _targets(path, "llama2c")
    write = llama2c.write_quantized if quantize else llama2c.write_model
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = stack.enter_context(atomic_write(path))
        write(file, model)
        if isinstance(model.tokenizer, DecodingTokenizer):
            model.tokenizer.save(path.parent)
            return targets[:2]
        tokenizer_file = stack.enter_context(atomic_write(targets[1]))
        llama2c.write_tokenizer(tokenizer_file, model.tokenizer, model.config.vocab_size)
        model.tokenizer.save(targets[2])
    return targets


def manifest_content(source: str) -> dict[str, Any]:
    """Return what the manifest of a model folder says beside checksums."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"source": source, "created": created, "versions": versions()}


# --- push -----------------------------------------------------------------------------------------


def check_repository(name: str) -> None:
    """Raise ValueError unless a name is USER/NAME."""
    if not re.fullmatch(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", name, re.ASCII):
        raise ValueError(f"{name[:200]!r} is not USER/NAME; write the user and the model.")


def push(folder: StrPath, name: str) -> str:
    """Upload an exported folder to USER/NAME on the Hugging Face Hub; return its address.

    The token is the one of `hf auth login` or of the variable HF_TOKEN.
    """
    check_repository(name)
    if not huggingface.is_model_folder(folder):
        raise FileError(folder, "is not an exported folder", "export the run with --to hf first")
    hub = import_extra("huggingface_hub", "--push")
    api = hub.HfApi()
    try:
        address = api.create_repo(name, exist_ok=True)
        api.upload_folder(
            repo_id=name, folder_path=str(folder), commit_message="Upload a model of tilth"
        )
    except Exception as error:  # of the HTTP library, of the hub, of the disk
        reason = " ".join(str(error).split())[:200]
        raise OSError(
            f"cannot push {folder} to {name} ({type(error).__name__}: {reason}); check the name, "
            "the network, and the token (`hf auth login`), then upload the folder, which is "
            f"complete, with `hf upload {name} {folder}`"
        ) from error
    return str(address)
