"""Lab directories: `lab.json` (question, trials, answer) and `runs/NAME/`, a run per trial.

>>> import tempfile
>>> trial = Trial("lr-1e-3", label="1e-3", group="lr 1e-3", x=1e-3, state="finished")
>>> lab = Lab("lr", "Which learning rate is best?", axis="learning rate", trials=(trial,))
>>> with tempfile.TemporaryDirectory() as folder:
...     save_lab(folder, lab)
...     load_lab(folder) == lab
True
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from tilth.config.training import TrainingConfig
from tilth.files import (
    FileError,
    StrPath,
    load_manifest,
    refuse_invalid,
    refuse_link,
    save_manifest,
)
from tilth.schema import FileName, Pattern, Range, check, plain, read

LAB, RUNS, LOCK = "lab.json", "runs", "lock"
KIND, VERSION = "lab", 1
LARGEST = 1e100  # matplotlib overflows on axes that span hundreds of decades
State = Literal["planned", "running", "finished", "diverged", "pruned", "failed"]
Whole = Annotated[int, Range(at_least=-LARGEST, at_most=LARGEST)]
Real = Annotated[float, Range(at_least=-LARGEST, at_most=LARGEST)]
Number = Whole | Real
Cell = str | bool | Whole | Real | None
Scale = Literal["linear", "log"]
T = TypeVar("T")
TrialName = Annotated[FileName, Pattern(r"[^\\]*", "the name of a folder")]


@dataclass(frozen=True)
class Trial:
    """A run of a lab."""

    name: TrialName
    """Name of its run directory in `runs/`."""
    label: str
    """Name in a report."""
    group: str
    """Equal for trials that differ only in the seed."""
    x: Number | None = None
    """Value on the axis of the lab."""
    state: State = "planned"

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Table:
    """A table of a lab or a report."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def __post_init__(self) -> None:
        check(self)
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                sizes = f"{len(self.columns)} columns, and rows[{number}] has {len(row)}"
                raise ValueError(f"the table {self.title!r} has {sizes}.")

    @classmethod
    def by(cls, title: str, items: Iterable[T], columns: Mapping[str, Callable[[T], Cell]]) -> Self:
        """Return a row per item; `columns` maps the name of a column to a function of an item."""
        rows = tuple(tuple(column(item) for column in columns.values()) for item in items)
        return cls(title, tuple(columns), rows)


@dataclass(frozen=True)
class Line:
    """A line of a chart."""

    name: str
    points: tuple[tuple[Number, Number], ...]
    """(x, y), in drawing order."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Chart:
    """A line chart of a lab."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    text: str = ""
    """Caption."""

    def __post_init__(self) -> None:
        check(self)
        for axis, name, scale in ((0, "x", self.x_scale), (1, "y", self.y_scale)):
            values = [point[axis] for line in self.lines for point in line.points]
            if scale == "log" and min(values, default=1) <= 0:
                problem = f"has {name} = {min(values)}, which a log scale cannot show"
                hint = f"drop the point, or make {name}_scale linear"
                raise ValueError(f"the chart {self.title!r} {problem}; {hint}.")


@dataclass(frozen=True)
class Quote:
    """A generated text."""

    title: str
    caption: str
    """Its settings and measurements."""
    text: str

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Fold:
    """Details that a reader opens: sentences, code and a table."""

    title: str
    text: tuple[str, ...] = ()
    code: str = ""
    table: Table | None = None

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Lab:
    """A question, its trials and its answer."""

    name: str
    asks: str
    """The question, as a sentence."""
    answer: str | None = None
    """A sentence; None while trials are running."""
    command: tuple[str, ...] = ()
    """Command line that repeats the lab."""
    axis: str = ""
    """Label of the x axis on which the trials differ."""
    trials: tuple[Trial, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
    """Further sentences."""
    charts: tuple[Chart, ...] = ()
    base: dict[str, Any] = field(default_factory=dict)
    """`TrainingConfig.to_dict()` of the config that the trials modify; {} without one."""
    quotes: tuple[Quote, ...] = ()
    """Generated texts."""
    folds: tuple[Fold, ...] = ()

    def __post_init__(self) -> None:
        check(self)
        for name, count in Counter(trial.name for trial in self.trials).items():
            if count > 1:
                raise ValueError(f"the trial name {name} occurs twice; rename one.")
        if self.base:
            TrainingConfig.from_dict(self.base)  # raises if it is invalid


def save_lab(folder: StrPath, lab: Lab) -> None:
    """Write `lab.json`, replacing an earlier one: a lab is saved after each trial."""
    refuse_link(Path(folder) / LAB)
    content = plain(asdict(lab))
    save_manifest(Path(folder) / LAB, content, kind=KIND, version=VERSION, overwrite=True)


def load_lab(folder: StrPath) -> Lab:
    """Read and validate `lab.json`."""
    path = Path(folder) / LAB
    if not path.is_file():
        hint = "name a directory that `tilth lab` wrote"
        raise FileError(folder, f"is not a lab directory (it has no {LAB})", hint)
    content = load_manifest(path, kind=KIND, version=VERSION)
    hint = "run the lab again, or restore a backup"
    with refuse_invalid(path, "is not a valid lab file", hint):
        return read(Lab, content, "a lab")


def new_lab(folder: StrPath, name: str) -> Path:
    """Create the directory of a lab, or return the existing one; raise if it is another lab's."""
    check_folder(folder, name)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_folder(folder: StrPath, name: str, parts: tuple[str, ...] = ()) -> None:
    """Raise if a directory holds anything but the lab `name`; call this before long work.

    A lab of several parts has one directory per part instead of a `lab.json`.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; name a directory for the lab.")
    if (folder / LAB).exists() and (other := load_lab(folder).name) != name:
        raise ValueError(f"{folder} is the lab of another question, {other}; name another --out.")
    is_ours = any((folder / part / LAB).exists() for part in ("", *parts))
    others = {path.name for path in folder.glob("[!.]*")} - {LOCK, *parts}
    if others and not is_ours:
        raise FileExistsError(f"{folder} is not empty and not a lab directory; name another --out.")


def trial_folder(folder: StrPath, trial: Trial) -> Path:
    """Return the run directory of a trial."""
    return Path(folder) / RUNS / trial.name
