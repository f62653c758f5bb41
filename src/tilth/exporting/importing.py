"""Import a model of other tools as a model folder, which every verb takes as it takes a run.

No torch, no pickle. Everything is read and checked before the folder appears.
"""

from pathlib import Path

from tilth.config.model import END_TOKEN
from tilth.exporting.exporting import manifest_content
from tilth.exporting.model_card import write_card
from tilth.files import FileError, StrPath
from tilth.formats import huggingface, llama2c
from tilth.formats.huggingface import ModelFolder, open_model_folder
from tilth.formats.llama2c import TOKENIZER_BIN
from tilth.formats.model_files import ModelFiles
from tilth.formats.safetensors_files import Dtype, merged_headers
from tilth.runs.atomic_folders import check_new_folder, new_folder
from tilth.tokenizer import Tokenizer

_DTYPES: dict[str, Dtype] = {"BF16": "bfloat16", "F16": "float16"}


def import_model(
    source: StrPath, out: StrPath, *, tokenizer: StrPath | None = None, end_token: str | None = None
) -> ModelFolder:
    """Import a Hugging Face folder (Llama, Qwen2, Qwen3) or a model file of llama2.c.

    Args:
        source: The folder, or the `.bin` file.
        out: Model folder to create.
        tokenizer: Tokenizer of a model file: a `tokenizer.json` or a `tokenizer.bin`. Default: the
            one beside it.
        end_token: Special token that ends a text. Default: the one that the files name.

    The weights keep their type, float32 for a mixture; their bits do not change.

    """
    path, target = Path(source), Path(out)
    check_new_folder(target)
    if path.is_dir():
        if tokenizer is not None:
            raise ValueError("a folder has its own tokenizer; omit --tokenizer.")
        opened = open_model_folder(path)
        model, dtype = opened.files(), _dtype_of(opened)
    else:
        config, weights = llama2c.read_model(path)
        found = _beside(path) if tokenizer is None else Path(tokenizer)
        loaded = (
            llama2c.load_tokenizer(found, config.vocab_size)
            if found.suffix == ".bin"
            else Tokenizer.load(found)
        )
        model, dtype = ModelFiles(config, weights, loaded, _end_token(loaded)), "float32"
    if end_token is not None:
        model = ModelFiles(model.config, model.weights, model.tokenizer, end_token)
    _ = model.end_id
    if model.tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer has {model.tokenizer.vocab_size:,} ids, and the model "
            f"{model.config.vocab_size:,}; name the tokenizer of the model."
        )
    with new_folder(target) as folder:
        huggingface.write_folder(folder, model, dtype=dtype)
        write_card(
            folder,
            target.resolve().name,
            ModelFolder(target, model.config, {}),
            target,
            model,
            dtype,
        )
        huggingface.write_manifest(folder, manifest_content(path.resolve().name))
    return open_model_folder(target)


def _dtype_of(folder: ModelFolder) -> Dtype:
    """Return the type of all weights; float32 holds every mixture."""
    kinds = {entry.dtype for entry in merged_headers(folder.weight_files()).values()}
    return _DTYPES.get(kinds.pop(), "float32") if len(kinds) == 1 else "float32"


def _beside(path: Path) -> Path:
    for name in (huggingface.TOKENIZER, TOKENIZER_BIN):
        if (path.parent / name).is_file():
            return path.parent / name
    hint = "name it with --tokenizer"
    raise FileError(path, f"has no {huggingface.TOKENIZER} or {TOKENIZER_BIN} beside it", hint)


def _end_token(tokenizer: Tokenizer) -> str:
    """Return the only special token, or the usual one."""
    names = list(tokenizer.special_tokens)
    return names[0] if len(names) == 1 else END_TOKEN
