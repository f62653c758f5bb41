"""A lab folder: a question, the runs that answer it, and the answer.

What enters: a `Lab`, which says what is asked and which trials there are. What leaves: `lab.json`,
beside `runs/NAME/` for each trial, and the same `Lab` again.

>>> import tempfile
>>> trial = Trial("lr-1e-3", label="1e-3", group="lr 1e-3", x=1e-3, state="finished")
>>> lab = Lab("lr", "Which learning rate is best?", axis="learning rate", trials=(trial,))
>>> with tempfile.TemporaryDirectory() as folder:
...     save_lab(folder, lab)
...     load_lab(folder) == lab
True
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tilth.files import FileError, StrPath, load_manifest, save_manifest
from tilth.model.config import check_keys

LAB, RUNS = "lab.json", "runs"
KIND, VERSION = "lab", 1
State = Literal["planned", "running", "finished", "diverged", "failed"]
Cell = str | int | float | None


@dataclass(frozen=True)
class Trial:
    """One run of a lab."""

    name: str
    """Of its run directory, in `runs/`."""
    label: str
    """What it is called in a report."""
    group: str
    """Trials that differ in the seed alone have the same."""
    x: float | None = None
    """Its place on the lab's axis."""
    state: State = "planned"

    def __post_init__(self) -> None:
        _check_texts(self, "name", "label", "group")
        if self.name in ("", ".", "..") or {"/", "\\", "\0"} & set(self.name):
            raise ValueError(f"the trial name {self.name!r} is no name of a folder.")
        if self.state not in get_args(State):
            states = ", ".join(get_args(State))
            raise ValueError(f"the state {self.state!r} of {self.name} is unknown; say {states}.")
        if self.x is not None and (type(self.x) not in (int, float) or not math.isfinite(self.x)):
            raise ValueError(f"x of the trial {self.name} is {self.x!r}; give a finite number.")


@dataclass(frozen=True)
class Table:
    """What a lab or a report shows in rows."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        _check_texts(self, "title")
        _check_all_texts("the columns of a table", self.columns)
        for row in self.rows:
            if len(row) != len(self.columns) or not all(isinstance(each, Cell) for each in row):
                raise ValueError(
                    f"the table {self.title!r} has {len(self.columns)} columns, and a row that is "
                    f"{row!r}; give a text, a number or None for each."
                )


@dataclass(frozen=True)
class Lab:
    """A question, its trials, and the answer once there is one."""

    name: str
    asks: str
    """The question, a sentence."""
    answer: str | None = None
    """A sentence; None while trials are running."""
    command: tuple[str, ...] = ()
    """The words to run it again."""
    axis: str = ""
    """What varies, as the label of an axis."""
    trials: tuple[Trial, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """What else is to be said, a sentence each."""

    def __post_init__(self) -> None:
        _check_texts(self, "name", "asks", "axis")
        if self.answer is not None:
            _check_texts(self, "answer")
        for name in ("command", "notes"):
            _check_all_texts(name, getattr(self, name))
        names = [trial.name for trial in self.trials]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the trial {twice[0]} is there twice; give it another name.")


def save_lab(folder: StrPath, lab: Lab) -> None:
    """Write `lab.json`, over the one that was there: a lab saves itself after each trial."""
    content = _plain(asdict(lab))
    save_manifest(Path(folder) / LAB, content, kind=KIND, version=VERSION, overwrite=True)


def load_lab(folder: StrPath) -> Lab:
    """Read `lab.json`, and check all of it."""
    path = Path(folder) / LAB
    if not path.is_file():
        hint = "name a folder that `tilth lab` made"
        raise FileError(folder, f"is no lab (it has no {LAB})", hint)
    content = load_manifest(path, kind=KIND, version=VERSION)
    try:
        check_keys(Lab, content, "a lab")
        trials = tuple(_trial(each) for each in _listed("trials", content.pop("trials", [])))
        tables = tuple(_table(each) for each in _listed("tables", content.pop("tables", [])))
        for name in ("command", "notes"):
            content[name] = tuple(_listed(name, content.get(name, [])))
        return Lab(trials=trials, tables=tables, **content)
    except ValueError as error:
        problem = f"is no whole lab ({str(error).rstrip('.')})"
        raise FileError(path, problem, "make it again, or restore a copy") from error


def trial_folder(folder: StrPath, trial: Trial) -> Path:
    """Where the run of a trial is, or will be."""
    return Path(folder) / RUNS / trial.name


def _trial(values: object) -> Trial:
    if not isinstance(values, Mapping):
        raise ValueError(f"a trial must be an object, not {values!r}.")
    check_keys(Trial, values, "a trial")
    return Trial(**values)


def _table(values: object) -> Table:
    if not isinstance(values, Mapping):
        raise ValueError(f"a table must be an object, not {values!r}.")
    check_keys(Table, values, "a table")
    columns = tuple(_listed("columns", values.get("columns")))
    rows = tuple(tuple(_listed("a row", row)) for row in _listed("rows", values.get("rows")))
    return Table(values.get("title", ""), columns, rows)


def _listed(name: str, values: object) -> list[Any]:
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list, not {values!r}.")
    return values


def _check_texts(owner: object, *names: str) -> None:
    for name in names:
        if not isinstance(getattr(owner, name), str):
            raise ValueError(f"{name} must be a text, not {getattr(owner, name)!r}.")


def _check_all_texts(name: str, values: tuple[object, ...]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be texts, not {values!r}.")


def _plain(value: Any) -> Any:  # noqa: ANN401, anything that a lab holds
    """The value with lists for tuples, as JSON has it."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
