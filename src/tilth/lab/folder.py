"""A lab folder: a question, the runs that answer it, and the answer.

What enters: a `Lab`, which says what is asked, which trials there are and what they showed. What
leaves: `lab.json`, beside `runs/NAME/` for each trial, and the same `Lab` again.

>>> import tempfile
>>> trial = Trial("lr-1e-3", label="1e-3", group="lr 1e-3", x=1e-3, state="finished")
>>> lab = Lab("lr", "Which learning rate is best?", axis="learning rate", trials=(trial,))
>>> with tempfile.TemporaryDirectory() as folder:
...     save_lab(folder, lab)
...     load_lab(folder) == lab
True
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tilth.files import FileError, StrPath, load_manifest, save_manifest
from tilth.model.config import check_keys
from tilth.recipes.config import TrainingConfig

LAB, RUNS, LOCK = "lab.json", "runs", "lock"
KIND, VERSION = "lab", 1
State = Literal["planned", "running", "finished", "diverged", "pruned", "failed"]
Cell = str | int | float | None
Scale = Literal["linear", "log"]


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
        if self.x is not None and not _is_finite(self.x):
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
class Line:
    """A line of a chart."""

    name: str
    points: tuple[tuple[float, float], ...]
    """(x, y), in the order in which the line joins them; all finite."""

    def __post_init__(self) -> None:
        _check_texts(self, "name")
        for point in self.points:
            if len(point) != 2 or not all(_is_finite(value) for value in point):
                raise ValueError(
                    f"the line {self.name!r} has the point {point!r}; give two finite numbers."
                )


@dataclass(frozen=True)
class Chart:
    """What a lab shows as lines."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    text: str = ""
    """A sentence under it: how to read it."""

    def __post_init__(self) -> None:
        _check_texts(self, "title", "x_label", "y_label", "text")
        for axis, name, scale in ((0, "x", self.x_scale), (1, "y", self.y_scale)):
            if scale not in get_args(Scale):
                raise ValueError(
                    f"{name}_scale of the chart {self.title!r} is {scale!r}; say linear or log."
                )
            values = [point[axis] for line in self.lines for point in line.points]
            if scale == "log" and min(values, default=1) <= 0:
                raise ValueError(
                    f"the chart {self.title!r} has {name} = {min(values)}, which no log scale "
                    f"has a place for; leave it out, or make {name}_scale linear."
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
    charts: tuple[Chart, ...] = ()
    base: dict[str, Any] = field(default_factory=dict)
    """The config that the trials were changed from, as its `to_dict` gave it; {} without one."""

    def __post_init__(self) -> None:
        _check_texts(self, "name", "asks", "axis")
        if self.answer is not None:
            _check_texts(self, "answer")
        for name in ("command", "notes"):
            _check_all_texts(name, getattr(self, name))
        names = [trial.name for trial in self.trials]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the trial {twice[0]} is there twice; give it another name.")
        if not isinstance(self.base, dict):
            raise ValueError(f"base must be an object, not {self.base!r}.")
        if self.base:
            TrainingConfig.from_dict(self.base)  # which checks all of it


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
        makers = {"trials": _trial, "tables": _table, "charts": _chart}
        for name, make in makers.items():
            content[name] = tuple(make(each) for each in _listed(name, content.get(name, [])))
        for name in ("command", "notes"):
            content[name] = tuple(_listed(name, content.get(name, [])))
        return Lab(**content)
    except ValueError as error:
        problem = f"is no whole lab ({str(error).rstrip('.')})"
        raise FileError(path, problem, "make it again, or restore a copy") from error


def new_lab(folder: StrPath, name: str) -> Path:
    """The folder for a question, made if it is not there; refused if it is another's."""
    check_folder(folder, name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_folder(folder: StrPath, name: str, parts: tuple[str, ...] = ()) -> None:
    """Refuse a folder in which something would be lost; call it before long work.

    A question that consists of several has a folder for each of its parts instead of a `lab.json`.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a folder for the lab.")
    if (folder / LAB).exists() and (other := load_lab(folder).name) != name:
        raise ValueError(f"{folder} is the lab of another question, {other}; name another --out.")
    is_ours = any((folder / part / LAB).exists() for part in ("", *parts))
    others = {path.name for path in folder.glob("[!.]*")} - {LOCK, *parts}
    if others and not is_ours:
        raise FileExistsError(f"{folder} is not empty, and holds no lab; name another --out.")


def trial_folder(folder: StrPath, trial: Trial) -> Path:
    """Where the run of a trial is, or will be."""
    return Path(folder) / RUNS / trial.name


def _trial(values: object) -> Trial:
    return Trial(**_object(Trial, values, "a trial"))


def _table(values: object) -> Table:
    table = _object(Table, values, "a table")
    table["columns"] = tuple(_listed("columns", table["columns"]))
    table["rows"] = _rows("rows", table["rows"], "a row")
    return Table(**table)


def _chart(values: object) -> Chart:
    chart = _object(Chart, values, "a chart")
    chart["lines"] = tuple(_line(each) for each in _listed("lines", chart["lines"]))
    return Chart(**chart)


def _line(values: object) -> Line:
    line = _object(Line, values, "a line")
    line["points"] = _rows("points", line["points"], "a point")
    return Line(**line)


def _object(kind: type[Any], values: object, what: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} must be an object, not {values!r}.")
    check_keys(kind, values, what)
    return dict(values)


def _rows(name: str, values: object, what: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(_listed(what, each)) for each in _listed(name, values))


def _listed(name: str, values: object) -> list[Any]:
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list, not {values!r}.")
    return values


def _is_finite(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max  # an int may be beyond what a chart can show


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
