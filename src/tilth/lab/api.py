"""The questions as functions: plan, run and read them in Python.

    lab = tilth.lab.learning_rate("data/stories", budget="20m", out="lab/lr")
    print(lab.answer)

    plan = tilth.lab.plan("learning-rate", "data/stories", budget="20m", out="lab/lr")
    print(plan)                 # the trials and their cost; nothing is trained
    for event in plan.run():    # the same, step by step
        ...
    lab = tilth.lab.load("lab/lr")

A call on the folder of an unfinished question continues it. `tilth.report.read_report` and
`save_report` write a report of the folder.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from tilth.files import StrPath
from tilth.formatting import parse_duration
from tilth.lab.asking import SHAPE, DataFolder, folders_of, plan
from tilth.lab.planning import BUDGET, Options, Plan, quiet
from tilth.lab.question import Tell
from tilth.lab.questions import sgd as sgd_question
from tilth.lab.questions.tokenizers import compare_tokenizers
from tilth.lab.texts import MOST_BYTES
from tilth.report.lab_file import Lab, check_folder, load_lab, new_lab, save_lab


def plan_shape(data: DataFolder, **options: Unpack[Options]) -> Iterator[Plan]:
    """Plan depth, context and vocabulary one after the other, with a third of the budget each."""
    folder = Path(options.get("out", "lab/shape"))
    check_folder(folder, "shape", SHAPE)
    third = f"{parse_duration(options.get('budget', BUDGET)) / 3:.6f}s"
    for name in SHAPE:
        options.get("tell", quiet)(f"{name}:")
        part: Options = {**options, "budget": third, "out": folder / name}
        yield plan(name, data, **part)


def load(folder: StrPath) -> Lab:
    """Load the question, trials and answer of a lab folder."""
    return load_lab(folder)


# --- one function a question ----------------------------------------------------------------------


def learning_rate(data: DataFolder, **options: Unpack[Options]) -> Lab:
    """Sweep the learning rate, from far too small to divergent, then finer around the best."""
    return plan("learning-rate", data, **options).answer()


def batch_size(data: DataFolder, **options: Unpack[Options]) -> Lab:
    """Sweep the batch size, from 1 to the largest that fits, at equal tokens and equal time."""
    return plan("batch-size", data, **options).answer()


def ablations(data: DataFolder, **options: Unpack[Options]) -> Lab:
    """Remove the parts of the model one by one, over three seeds by default."""
    return plan("ablations", data, **options).answer()


def corpora(data: Sequence[DataFolder], **options: Unpack[Options]) -> Lab:
    """Train one model on each of several texts, and score each on the others' texts."""
    return plan("corpora", data, **options).answer()


def shape(data: DataFolder, **options: Unpack[Options]) -> dict[str, Lab]:
    """Depth against width, context length, vocabulary size: a lab each, a third of the budget."""
    return {part.question.name: part.answer() for part in plan_shape(data, **options)}


def scaling(data: DataFolder, **options: Unpack[Options]) -> Lab:
    """Fit the loss as a function of model size and training tokens, and predict recipes."""
    return plan("scaling", data, **options).answer()


def custom(question: StrPath, data: DataFolder, **options: Unpack[Options]) -> Lab:
    """Answer the question of a TOML file."""
    return plan(question, data, **options).answer()


def tokenizers(
    data: Sequence[DataFolder],
    *,
    out: StrPath = "lab/tokenizers",
    max_bytes: int = MOST_BYTES,
    seed: int = 0,
    command: Sequence[str] = (),
    tell: Tell = quiet,
) -> Lab:
    """Compare the tokenizers of data folders, each on its own text and on the others'."""
    check_folder(out, "tokenizers")
    lab = compare_tokenizers(folders_of(data), max_bytes=max_bytes, seed=seed, tell=tell)
    return _saved(lab, out, command)


def sgd(
    rates: Sequence[float] = sgd_question.RATES,
    *,
    steps: int = 10,
    seed: int = 0,
    out: StrPath | None = None,
    command: Sequence[str] = (),
) -> Lab:
    """Minimise mean(w**2) by SGD at several learning rates; saved only with `out`."""
    if out is not None:
        check_folder(out, "sgd")
    lab = sgd_question.as_lab({rate: sgd_question.descend(rate, steps, seed) for rate in rates})
    return lab if out is None else _saved(lab, out, command)


def _saved(lab: Lab, out: StrPath, command: Sequence[str]) -> Lab:
    lab = replace(lab, command=tuple(command))
    save_lab(new_lab(out, lab.name), lab)
    return lab
