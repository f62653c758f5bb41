"""Plan a question by its name, or one of a TOML file."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Unpack

from tilth.data import Data
from tilth.files import StrPath
from tilth.lab.planning import Make, Options, Plan, plan_question
from tilth.lab.question import Question
from tilth.lab.questions.ablations import Ablations
from tilth.lab.questions.batch_size import BatchSize
from tilth.lab.questions.corpora import Corpora
from tilth.lab.questions.custom import Custom, read_custom
from tilth.lab.questions.learning_rate import LearningRate
from tilth.lab.questions.scaling import PREDICTED, Scaling
from tilth.lab.questions.shape import Context, Depth, Vocabulary
from tilth.lab.texts import MOST_BYTES

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
    folders, seeds = folders_of(data), options.get("seeds")
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
    elif kind in (LearningRate, BatchSize):
        make = partial(kind, seeds=seeds, close_seeds=options.get("close_seeds", 1))
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


def folders_of(data: DataFolder | Sequence[DataFolder]) -> list[StrPath]:
    """Return the paths of one data folder or several."""
    several = [data] if isinstance(data, str | os.PathLike | Data) else data
    return [each.folder if isinstance(each, Data) else each for each in several]


def _one(folders: list[StrPath]) -> StrPath:
    if len(folders) != 1:
        raise ValueError(f"{len(folders)} data folders are given; give one.")
    return folders[0]
