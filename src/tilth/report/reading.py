"""Reading of run and lab directories: a section per lab, and one for all other runs."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

import numpy as np

from tilth.files import FileError, StrPath
from tilth.report.comparing import (
    ReportedRun,
    answer_of,
    axis_values,
    group_names,
    grouped,
    labels_of,
    notes_of,
    varying_values,
)
from tilth.report.curves import read_curves
from tilth.report.lab_file import LAB, Chart, Fold, Lab, Quote, Table, load_lab, trial_folder
from tilth.runs.run import CONFIG, Run, open_run

# Readable on white and on black, and safe for color blindness (after Okabe and Ito).
COLOURS = ("#1f83c6", "#e08a00", "#0f9d74", "#c96aa0", "#d1581b", "#7a7f87")
# From low to high, for groups with a value on an axis.
SCALE = ((76, 111, 224), (31, 158, 137), (190, 140, 20), (217, 83, 79))


@dataclass(frozen=True)
class Section:
    """A question, its answer, and its runs, charts and tables."""

    asks: str
    answer: str
    notes: tuple[str, ...]
    axis: str
    entries: tuple[ReportedRun, ...]
    commands: tuple[str, ...]
    charts: tuple[Chart, ...] = ()
    """From the lab file."""
    tables: tuple[Table, ...] = ()
    """From the lab file."""
    quotes: tuple[Quote, ...] = ()
    """From the lab file."""
    folds: tuple[Fold, ...] = ()
    """From the lab file."""

    @property
    def runs(self) -> list[Run]:
        """The runs that could be read."""
        return [entry.run for entry in self.entries if entry.run is not None]

    @property
    def started(self) -> list[ReportedRun]:
        """The entries with at least one step."""
        return [entry for entry in self.entries if len(entry.curves.train_loss.steps)]

    @property
    def colours(self) -> dict[str, str]:
        """The colour of each group: from the palette, or by rank on the axis."""
        places = {name: group[0].x for name, group in grouped(self.entries).items()}
        ordered = sorted({x for x in places.values() if x is not None})
        if None in places.values() or len(ordered) < 3:
            return dict(zip(places, cycle(COLOURS), strict=False))
        ranks = {x: rank / (len(ordered) - 1) for rank, x in enumerate(ordered)}
        return {name: _scale_colour(ranks[x]) for name, x in places.items() if x is not None}


@dataclass(frozen=True)
class Report:
    """A title and its sections."""

    title: str
    sections: tuple[Section, ...]


def read_report(paths: Sequence[StrPath], title: str | None = None) -> Report:
    """Read runs and labs; a directory of run directories means all of them.

    Labs with the same question get their directory in the heading.
    """
    labs: list[Path] = []
    runs: dict[Path, bool] = {}
    for path in dict.fromkeys(map(Path, paths)):
        if (path / LAB).is_file():
            labs.append(path)
        else:
            runs |= {run: runs.get(run, False) or run == path for run in _runs_in(path)}
    sections = [section_of_lab(path, load_lab(path)) for path in labs]
    asked = Counter(section.asks for section in sections)
    for index, label in enumerate(labels_of(labs)):
        if asked[asks := sections[index].asks] > 1:
            sections[index] = replace(sections[index], asks=f"{asks} ({label})")
    if runs:
        sections.append(_section_of_runs(runs))
    if not sections:
        raise ValueError("there is nothing to report; name run or lab directories.")
    if title is None:
        title = sections[0].asks if len(sections) == 1 else "tilth report"
    return Report(title, tuple(sections))


def _runs_in(path: Path) -> list[Path]:
    if (path / CONFIG).is_file():
        return [path]
    inside = sorted(config.parent for config in path.glob(f"[!.]*/{CONFIG}"))
    if not inside:
        problem = f"is neither a run nor a lab (it has no {CONFIG} and no {LAB})"
        raise FileError(path, problem, "name a directory that `tilth train` or `tilth lab` wrote")
    return inside


def section_of_lab(path: Path, lab: Lab) -> Section:
    """Return the section of a lab, with the runs in its directory."""
    entries, errors = [], []
    for trial in lab.trials:
        entry = ReportedRun(trial.label, trial.group, trial.state, x=trial.x)
        folder = trial_folder(path, trial)
        try:
            entries.append(_read_run(folder, entry) if (folder / CONFIG).exists() else entry)
        except FileError as error:
            entries.append(entry)
            errors.append(error)
    ended = sum(trial.state not in ("planned", "running") for trial in lab.trials)
    so_far = f"{ended} of {len(lab.trials)} runs have ended. So far: {answer_of(entries)}"
    return Section(
        asks=lab.asks,
        answer=lab.answer or (so_far if lab.trials else "There is no answer yet."),
        notes=(*lab.notes, *notes_of(entries), *map(_skipped, errors)),
        axis=lab.axis,
        entries=tuple(entries),
        # A running lab may have empty tables and charts.
        charts=tuple(c for c in lab.charts if any(line.points for line in c.lines)),
        tables=tuple(table for table in lab.tables if table.rows),
        quotes=lab.quotes,
        folds=lab.folds,
        commands=(shlex.join(lab.command),) if lab.command else (),
    )


def _section_of_runs(named: dict[Path, bool]) -> Section:
    """Return the section of run directories; unreadable ones are skipped unless they were named."""
    found: dict[Path, ReportedRun] = {}
    errors: list[FileError] = []
    for path, is_named in named.items():
        try:
            found[path] = _read_run(path, ReportedRun("", "", ""))
        except FileError as error:
            if is_named:
                raise
            errors.append(error)
    if not found:
        raise errors[0]
    labels, runs = labels_of(list(found)), [entry.run for entry in found.values() if entry.run]
    varying = [name for name in varying_values([run.config for run in runs]) if name != "seed"]
    places = axis_values(runs, varying)
    names = zip(labels, group_names(runs, labels, varying), places, strict=True)
    entries = tuple(
        replace(entry, label=label, group=group, x=x, state=_state_of(entry))
        for entry, (label, group, x) in zip(found.values(), names, strict=True)
    )
    return Section(
        asks="How do these runs compare?" if len(entries) > 1 else "How did this run go?",
        answer=answer_of(entries),
        notes=(*notes_of(entries), *map(_skipped, errors)),
        axis=varying[0] if places[0] is not None else "",
        entries=entries,
        commands=tuple(
            shlex.join(["tilth", "train", "--config", str(path / CONFIG), "--out", f"{path}-again"])
            for path in found
        ),
    )


def _read_run(path: Path, entry: ReportedRun) -> ReportedRun:
    """Read run, curves and samples; this validates everything that a report shows."""
    run = open_run(path)
    return replace(entry, run=run, curves=read_curves(run), samples=tuple(run.samples()))


def _skipped(error: FileError) -> str:
    return f"Skipped, because it cannot be read: {str(error).rstrip('.')}."


def _state_of(entry: ReportedRun) -> str:
    assert entry.run is not None
    state = entry.run.state
    return "diverged" if state != "running" and entry.curves.ends_diverging else state


def _scale_colour(share: float) -> str:
    places = np.arange(len(SCALE))
    channels = zip(*SCALE, strict=True)
    return "#" + "".join(f"{round(np.interp(share * places[-1], places, c)):02x}" for c in channels)
