"""Models on disk: a run, a checkpoint folder within one, or a model folder. No torch."""

from pathlib import Path

from tilth.config.model import END_TOKEN
from tilth.files import FileError, StrPath
from tilth.formats.huggingface import CONFIG, ModelFolder, is_model_folder, open_model_folder
from tilth.formats.model_files import ModelFiles
from tilth.runs.checkpoints import CHECKPOINTS, HISTORY, MODEL, STATE
from tilth.runs.run import CONFIG as RUN_CONFIG
from tilth.runs.run import MANIFEST, Run, open_run


def open_source(path: StrPath, step: int | None = None) -> tuple[Run | ModelFolder, int | None]:
    """Open a run or a model folder; of a checkpoint folder, its run and its step.

    A model folder is one that `tilth export --to hf` or `tilth import` wrote, or one of Hugging
    Face.
    """
    path = Path(path)
    if (path / STATE).is_file():
        return _run_of_checkpoint(path, step)
    if is_model_folder(path) and not (path / RUN_CONFIG).is_file():
        if step is not None:
            raise FileError(path / CONFIG, f"is not of a run, so it has no step {step}", "omit it")
        return open_model_folder(path), None
    return open_run(path), step


def _run_of_checkpoint(path: Path, step: int | None) -> tuple[Run, int]:
    folder = path.resolve()
    if folder.parent.name not in (CHECKPOINTS, HISTORY):
        hint = "a checkpoint has no tokenizer: name it within its run"
        raise FileError(path, "is a checkpoint outside of a run directory", hint)
    run = open_run(folder.parent.parent)
    found = next((each for each in run.history() if each.name == folder.name), None)
    if found is None or step not in (None, found.step):
        raise FileError(path, f"is not the checkpoint of step {step}", "name the run directory")
    return run, found.step


def read_model(source: Run | ModelFolder, step: int | None = None) -> tuple[Path, ModelFiles]:
    """Read config, weights and tokenizer; also return the file of the weights."""
    if isinstance(source, ModelFolder):
        return source.weight_files()[0], source.files()
    tokenizer = source.tokenizer()
    if source.end_token not in (END_TOKEN, *tokenizer.special_tokens):
        name = source.end_token[:40]
        problem = f"names the end token {name!r}, which its tokenizer does not have"
        raise FileError(source.folder / MANIFEST, problem, "restore a copy")
    checkpoint, weights = source.weights(step)
    files = ModelFiles(source.config.model, weights, tokenizer, source.end_token)
    return checkpoint.folder / MODEL, files
