"""Folders of runs and labs to a `Report`: a section per lab, and one for all other runs."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilth.files import FileError
from tilth.report.comparing import (
    ReportedRun,
    answer_of,
    axis_places,
    group_names,
    groups_of,
    labels_of,
    notes_of,
    varying_values,
)
from tilth.report.curves import Curves, read_curves
from tilth.report.lab_file import LAB, Chart, Lab, Table, load_lab, trial_folder
from tilth.runs.metrics import SampleRecord
from tilth.runs.run import CONFIG, Run, open_run

# Both readable on white and on black, and distinct to those who see no red (after Okabe and Ito).
COLOURS = ("#1f83c6", "#e08a00", "#0f9d74", "#c96aa0", "#d1581b", "#7a7f87")
# From low to high, for groups that have a place on an axis.
SCALE = ((76, 111, 224), (31, 158, 137), (190, 140, 20), (217, 83, 79))


@dataclass(frozen=True)
class Section:
    """A question and all that answers it."""

    asks: str
    answer: str
    notes: tuple[str, ...]
    axis: str
    entries: tuple[ReportedRun, ...]
    charts: tuple[Chart, ...]
    """The lab's own."""
    tables: tuple[Table, ...]
    """The lab's own."""
    commands: tuple[str, ...]

    @property
    def runs(self) -> list[Run]:
        """The runs that there are."""
        return [entry.run for entry in self.entries if entry.run is not None]

    @property
    def begun(self) -> list[ReportedRun]:
        """The entries that have a step to draw."""
        return [e for e in self.entries if e.curves is not None and len(e.curves.train_loss.steps)]

    @property
    def colours(self) -> dict[str, str]:
        """The colour of each group: its own, or its place on the axis."""
        groups = groups_of(self.entries)
        places = {name: group[0].x for name, group in groups.items()}
        ordered = sorted({x for x in places.values() if x is not None})
        if None in places.values() or len(ordered) < 3:
            return {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(groups)}
        return {
            name: _on_scale(ordered.index(x) / (len(ordered) - 1))
            for name, x in places.items()
            if x is not None
        }


@dataclass(frozen=True)
class Report:
    """A title and its sections."""

    title: str
    sections: tuple[Section, ...]


def read_report(paths: Sequence[Path], title: str | None = None) -> Report:
    """Read all runs and labs; a folder of run directories stands for all of them."""
    labs: list[Path] = []
    runs: dict[Path, bool] = {}
    for path in dict.fromkeys(paths):
        if (path / LAB).is_file():
            labs.append(path)
        else:
            runs |= {run: runs.get(run, False) or run == path for run in _runs_in(path)}
    sections = _told_apart([_section_of_lab(path, load_lab(path)) for path in labs], labs)
    if runs:
        sections.append(_section_of_runs(runs))
    if not sections:
        raise ValueError("There is nothing to report on; name runs or labs.")
    if title is None:
        title = sections[0].asks if len(sections) == 1 else "A report of tilth"
    return Report(title, tuple(sections))


def _told_apart(sections: list[Section], labs: list[Path]) -> list[Section]:
    """Sections whose headings differ: labs that ask the same are told apart by their folders."""
    asked = Counter(section.asks for section in sections)
    return [
        replace(section, asks=f"{section.asks} ({label})") if asked[section.asks] > 1 else section
        for section, label in zip(sections, labels_of(labs), strict=True)
    ]


def _runs_in(path: Path) -> list[Path]:
    if (path / CONFIG).is_file():
        return [path]
    inside = sorted(config.parent for config in path.glob(f"[!.]*/{CONFIG}"))
    if not inside:
        problem = f"is neither a run nor a lab (it has no {CONFIG} and no {LAB})"
        raise FileError(path, problem, "name a folder that `tilth train` or `tilth lab` made")
    return inside


def _section_of_lab(path: Path, lab: Lab) -> Section:
    entries, unreadable = [], []
    for trial in lab.trials:
        entry = ReportedRun(trial.label, trial.group, trial.state, x=trial.x)
        folder = trial_folder(path, trial)
        if (folder / CONFIG).exists():
            try:
                run, curves, samples = _read_run(folder)
                entry = replace(entry, run=run, curves=curves, samples=samples)
            except FileError as error:
                unreadable.append(_left_out(error))
        entries.append(entry)
    answer = lab.answer
    if not answer and not lab.trials:
        answer = "There is no answer yet."
    elif not answer:
        ended = sum(trial.state not in ("planned", "running") for trial in lab.trials)
        answer = f"{ended} of {len(lab.trials)} runs have ended. So far: {answer_of(entries)}"
    return Section(
        asks=lab.asks,
        answer=answer,
        notes=(*lab.notes, *notes_of(entries), *unreadable),
        axis=lab.axis,
        entries=tuple(entries),
        # A lab that goes on may have empty tables and charts.
        charts=tuple(c for c in lab.charts if any(line.points for line in c.lines)),
        tables=tuple(table for table in lab.tables if table.rows),
        commands=(shlex.join(lab.command),) if lab.command else (),
    )


def _section_of_runs(named: dict[Path, bool]) -> Section:
    """A section of run directories; one that was not named itself may be unreadable."""
    found: dict[Path, tuple[Run, Curves, tuple[SampleRecord, ...]]] = {}
    errors: list[FileError] = []
    for path, is_named in named.items():
        try:
            found[path] = _read_run(path)
        except FileError as error:
            if is_named:
                raise
            errors.append(error)
    if not found:
        raise errors[0]
    paths, runs = list(found), [run for run, _, _ in found.values()]
    labels = labels_of(paths)
    varying = [name for name in varying_values([run.config for run in runs]) if name != "seed"]
    places = axis_places(runs, varying)
    entries = tuple(
        ReportedRun(label, group, _state_of(run, curves), run, curves, x, samples)
        for (run, curves, samples), label, group, x in zip(
            found.values(), labels, group_names(runs, labels, varying), places, strict=True
        )
    )
    return Section(
        asks="How do these runs compare?" if len(entries) > 1 else "How did this run go?",
        answer=answer_of(entries),
        notes=(*notes_of(entries), *map(_left_out, errors)),
        axis=varying[0] if places[0] is not None else "",
        entries=entries,
        charts=(),
        tables=(),
        commands=tuple(
            shlex.join(["tilth", "train", "--config", str(path / CONFIG), "--out", f"{path}-again"])
            for path in paths
        ),
    )


def _read_run(path: Path) -> tuple[Run, Curves, tuple[SampleRecord, ...]]:
    """A run, its curves and its samples; everything that a report shows is checked here."""
    run = open_run(path)
    return run, read_curves(run), tuple(run.samples())


def _left_out(error: FileError) -> str:
    return f"Left out, as it cannot be read: {str(error).rstrip('.')}."


def _state_of(run: Run, curves: Curves) -> str:
    if run.is_running:
        return "running"
    if curves.ends_badly:
        return "diverged"
    return "finished" if run.is_finished else "stopped"


def _on_scale(share: float) -> str:
    place = share * (len(SCALE) - 1)
    low = min(int(place), len(SCALE) - 2)
    pairs = zip(SCALE[low], SCALE[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs)
