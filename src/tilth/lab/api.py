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

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from tilth.data import Data
from tilth.files import StrPath
from tilth.formatting import parse_duration
from tilth.lab.planning import BUDGET, Make, Options, Plan, plan_question, quiet
from tilth.lab.question import Question, Tell
from tilth.lab.questions import sgd as sgd_question
from tilth.lab.questions.ablations import Ablations
from tilth.lab.questions.batch_size import BatchSize
from tilth.lab.questions.corpora import Corpora
from tilth.lab.questions.custom import Custom, read_custom
from tilth.lab.questions.learning_rate import LearningRate
from tilth.lab.questions.scaling import PREDICTED, Scaling
from tilth.lab.questions.shape import Context, Depth, Vocabulary
from tilth.lab.questions.tokenizers import compare_tokenizers
from tilth.lab.sections import runner
from tilth.lab.texts import MOST_BYTES
from tilth.report.lab_file import Lab, check_folder, load_lab, new_lab, save_lab

KINDS = (LearningRate, BatchSize, Ablations, Corpora, Depth, Context, Vocabulary, Scaling)
QUESTIONS: dict[str, type[Question]] = {"learning-rate": LearningRate}
QUESTIONS |= {kind.name: kind for kind in KINDS}
SHAPE = ("depth", "context", "vocabulary")

DataFolder = StrPath | Data
"""A data folder, by its path or opened."""


def plan(
    question: StrPath, data: DataFolder | Sequence[DataFolder], **options: Unpack[Options]
) -> Plan:
    """Plan a built-in question, or one of a TOML file, without training anything."""
    folders, seeds = _folders(data), options.get("seeds")
    if Path(question).suffix == ".toml":
        return _plan_custom(Path(question), _one(folders), options)
    kind = QUESTIONS.get(str(question))
    if kind is None:
        raise ValueError(
            f"There is no question {str(question)!r}; give {', '.join(QUESTIONS)}, or the path of "
            "a TOML file."
        )
    out = Path(options.get("out", Path("lab") / kind.name))
    make: Make = partial(kind, seeds=seeds)
    if kind is Corpora:
        make = partial(Corpora, seeds=seeds, corpora=folders, folder=out)
        folders = folders[:1]
    elif kind is Vocabulary:
        max_bytes = options.get("max_bytes", MOST_BYTES)
        make = partial(Vocabulary, seeds=seeds, folder=out, max_bytes=max_bytes)
    elif kind is Ablations:
        make = partial(Ablations, seeds=seeds, variants=options.get("variants", ()))
    elif kind is Scaling:
        make = partial(Scaling, seeds=seeds, predict=options.get("predict", PREDICTED))
    return plan_question(make, kind.name, _one(folders), options, by_clock=kind.by_clock)


def _plan_custom(path: Path, data: StrPath, options: Options) -> Plan:
    asked = read_custom(path)
    if "steps" in asked.base:
        raise ValueError(f"{path} gives steps in [base]; leave them out, and give --steps.")
    if asked.varies("steps") and "steps" not in options:
        raise ValueError(
            f"{path} varies steps, which a budget of time would decide; give --steps as well, "
            "or leave steps out of it."
        )
    make = partial(Custom, asked, seeds=options.get("seeds"))
    options = {"recipe": asked.recipe, **options}
    return plan_question(make, path.stem, data, options, base_changes=asked.base)


def plan_shape(data: DataFolder, **options: Unpack[Options]) -> Iterator[Plan]:
    """Plan depth, context and vocabulary one after the other, with a third of the budget each."""
    folder = Path(options.get("out", "lab/shape"))
    check_folder(folder, "shape", SHAPE)
    third = f"{parse_duration(options.get('budget', BUDGET)) / 3:.6f}s"
    for name in SHAPE:
        options.get("tell", quiet)(f"{name}:")
        part: Options = {**options, "budget": third, "out": folder / name}
        yield plan(name, data, **part)


def _folders(data: DataFolder | Sequence[DataFolder]) -> list[StrPath]:
    several = [data] if isinstance(data, str | os.PathLike | Data) else data
    return [each.folder if isinstance(each, Data) else each for each in several]


def _one(folders: list[StrPath]) -> StrPath:
    if len(folders) != 1:
        raise ValueError(f"{len(folders)} data folders are given; give one.")
    return folders[0]


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
    lab = compare_tokenizers(_folders(data), max_bytes=max_bytes, seed=seed, tell=tell)
    return _saved(lab, out, command)


def writeup(
    data: Sequence[DataFolder] = (),
    *,
    out: StrPath = "writeup",
    budget: str = "2h",
    only: Sequence[str] = (),
    steps: int | None = None,
    max_bytes: int | None = None,
    tell: Tell = quiet,
    **options: Any,  # noqa: ANN401, of every question
) -> list[Path]:
    """Write one document with every experiment of the write-ups; return the paths of its files.

    `data` are two folders, stories and another text; without them the built-in corpora are made.
    `budget` is the time for all trials, `steps` their length instead. `only` names sections.
    `options` are recipe, batch_size, seed, workers and changes, as of every question. A call on the
    folder of an unfinished write-up continues it.
    """
    return runner.write(
        data,
        out=out,
        budget=budget,
        only=only,
        steps=steps,
        max_bytes=max_bytes,
        tell=tell,
        **options,
    )


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
