"""`tilth lab writeup`: all sections for two texts, as one document.

A folder holds one write-up: `writeup.json` (its settings), a lab per part, and the document. Parts
that are finished are read, and trials that are finished are not repeated.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilth.accounting.hardware import processor_name
from tilth.config.threads import usable_cores
from tilth.data.token_files import Data
from tilth.errors import import_extra
from tilth.files import StrPath, hold_lock, load_manifest, refuse_link, save_manifest
from tilth.formatting import format_duration, join_words, parse_duration, suggestion
from tilth.lab.planning import Options, check_options, quiet
from tilth.lab.question import Tell, refuse_changes
from tilth.lab.sections import (
    accounting,
    bugs,
    comparing,
    generating,
    layers,
    optimizing,
    tokenizing,
    training,
    unicode,
    vocabulary,
)
from tilth.lab.sections.corpora import make_corpora, open_corpora
from tilth.lab.sections.section import SHORT_SECONDS, Part, Section, Setting, read_sections
from tilth.lab.texts import MOST_BYTES
from tilth.report.lab_file import LAB, LOCK, Fold, Lab, Table, load_lab, save_lab
from tilth.report.reading import Report, section_of_lab
from tilth.report.reading import Section as ReportSection
from tilth.report.writing import save_report
from tilth.schema import check_int, plain
from tilth.tokenizer.measuring import no_warnings

SECTIONS = read_sections(
    {
        "unicode": unicode.made,
        "vocabulary": vocabulary.made,
        "comparing": comparing.made,
        "tokenizers": tokenizing.compared,
        "storing": tokenizing.stored,
        "layers": layers.made,
        "bugs": bugs.made,
        "accounting": accounting.made,
        "sgd": optimizing.descended,
        "adamw": optimizing.accounted,
        "learning-rate": training.learning_rate,
        "batch-size": training.batch_size,
        "generation": generating.made,
        "ablations-adamw": training.norms("adamw"),
        "ablations-muon": training.norms("muon"),
        "depth-without-norms": training.depth,
        "ablations": training.ablations,
        "corpora": training.corpora_lab,
        "scaling": training.scaling,
    }
)
SETTINGS, KIND, VERSION = "writeup.json", "write-up", 1
BUDGET = "2h"
BYTES_PER_SECOND = 20_000  # of text for each second of the budget, up to MOST_BYTES
TITLE = "The write-up"


def writeup(
    data: Sequence[StrPath | Data] = (),
    *,
    out: StrPath = "writeup",
    budget: str = BUDGET,
    only: Sequence[str] = (),
    steps: int | None = None,
    max_bytes: int | None = None,
    tell: Tell = quiet,
    **options: Any,  # noqa: ANN401, of `tilth.lab.planning.Options`
) -> list[Path]:
    """Write one document with every experiment of the write-ups; return the paths of its files.

    `data` are two folders, stories and another text; without them the built-in corpora are made.
    `budget` is the time for all trials, `steps` their length instead. `only` names sections; the
    document has all that are finished. `options` are those of every question: recipe, batch_size,
    seed, workers and changes. A call on the folder of an unfinished write-up continues it.
    """
    folder, seconds = Path(out), parse_duration(budget)
    wanted = chosen(only)
    if max_bytes is None:
        max_bytes = min(MOST_BYTES, round(seconds * BYTES_PER_SECOND))
    check_int("max_bytes", max_bytes)
    check_options(options, ("recipe", "batch_size", "seed", "workers", "changes"))
    for module in ("jinja2", "plotly", "matplotlib"):
        import_extra(module, "The write-up")
    corpora = open_corpora(data) if data else None
    if folder.exists() and not (folder / SETTINGS).exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty and not a write-up; name another --out.")
    recipe = options.get("recipe") or ("tiny" if seconds < SHORT_SECONDS else "small")
    options = {"seed": 0, **options, "recipe": recipe}
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / LOCK, f"Another process is writing {folder}; wait for it, or stop it."):
        settings = {
            "data": [each.fingerprint for each in corpora] if corpora else "built-in",
            **{"budget": budget, "steps": steps, "max_bytes": max_bytes},
            # The number of workers changes no result.
            **plain({name: value for name, value in options.items() if name != "workers"}),
        }
        for name in ("corpora-made", "parts", "texts"):
            refuse_link(folder / name)  # files in them are replaced
        _claim(folder, settings)
        made = corpora or make_corpora(folder / "corpora-made", max_bytes, options["seed"], tell)
        setting = Setting(
            folder,
            tuple(made),
            tuple(each.folder.resolve().name for each in made),
            budget,
            steps,
            max_bytes,
            Options(**options),  # type: ignore[typeddict-item]
            tell,
        )
        for section in wanted:
            for part in section.parts:
                tell(f"{SECTIONS.index(section) + 1}. {section.title}: {part.name}")
                _make(part, setting)
        return _save(setting)


def chosen(only: Sequence[str]) -> list[Section]:
    """Return the sections of these names, in their order; all without names."""
    by_name = {section.name: section for section in SECTIONS}
    for name in only:
        if name not in by_name:
            raise ValueError(f"there is no section {name!r}; {suggestion(name, by_name)}")
    return [section for section in SECTIONS if not only or section.name in only]


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a new write-up, or compare those of an existing one."""
    path = folder / SETTINGS
    if not path.exists():
        save_manifest(path, settings, kind=KIND, version=VERSION)
        return
    old = load_manifest(path, kind=KIND, version=VERSION)
    names = [*old, *(name for name in settings if name not in old)]
    changes = {
        "the data" if name == "data" else name: (old.get(name), settings.get(name))
        for name in names
        if old.get(name) != settings.get(name)
    }
    refuse_changes(f"{folder} was begun with", changes)


def _make(part: Part, setting: Setting) -> None:
    shown = setting.folder / "parts" / part.name  # with its folds; a lab keeps its own answer
    if (shown / LAB).exists():
        return
    with no_warnings():  # the tables have the sizes that were reached
        lab = part.make(setting).folded()
    shown.mkdir(parents=True, exist_ok=True)
    save_lab(shown, lab)


# --- the document ---------------------------------------------------------------------------------


def _save(setting: Setting) -> list[Path]:
    """Write the document of all finished parts."""
    sections: list[ReportSection] = []
    contents: list[tuple[str, str, str]] = []
    for number, section in enumerate(SECTIONS, start=1):
        for part in section.parts:
            shown = setting.folder / "parts" / part.name
            if not (shown / LAB).exists():
                continue
            lab = load_lab(shown)
            problems = ", ".join(part.problems)
            first = f"Problems of the handout: {problems}."
            titled = replace(  # the fold has the command
                lab,
                command=(),
                asks=f"{number}. {section.title}: {lab.asks}",
                notes=(first, *lab.notes),
            )
            sections.append(section_of_lab(setting.folder / part.name, titled))
            contents.append((f"{number}. {section.title}", problems, str(lab.answer)))
    report = Report(TITLE, (_contents(setting, contents), *sections))
    return save_report(report, setting.folder / "writeup.html", overwrite=True)


def _contents(setting: Setting, rows: list[tuple[str, str, str]]) -> ReportSection:
    length = f"a budget of {format_duration(setting.seconds)} for all trials"
    if setting.steps is not None:
        length = f"{setting.steps:,} steps per trial"
    names = join_words(setting.names)
    table = Table("Contents", ("section", "problems of the handout", "answer"), tuple(rows))
    texts = Table.by(
        "Texts",
        setting.texts,
        {
            "text": lambda each: each[0],
            "training bytes": lambda each: each[1].text_bytes("train"),
            "validation bytes": lambda each: each[1].text_bytes("valid"),
            "vocabulary size": lambda each: each[1].vocab_size,
            "training tokens": lambda each: len(each[1].train),
            "fingerprint": lambda each: each[1].fingerprint[:12],
        },
    )
    answer = (
        f"Every number below was computed from {names} on one machine ({processor_name()}, "
        f"{usable_cores()} cores), with {length}. The folds say how, and list the figures of five "
        "write-ups of the same assignment."
    )
    fold = Fold("How this document was made", code=shlex.join(setting.command(setting.folder)))
    lab = Lab("writeup", TITLE, answer, tables=(texts, table), folds=(fold,))
    return section_of_lab(setting.folder, lab)
