"""Count the pieces of a corpus in tasks, on several processes or machines that share the folders.

    train_in_tasks("web", "web.json", 32_000, executor=Executor("ray", address="auto"))

A task counts some files, or a part of one, and writes a file of counts by an atomic rename. Its
name is a checksum of what determines it, so a task may run again, or twice at once, and a task that
is done is not run again. The sum of all files is the file of `count_pieces` of the whole corpus,
byte for byte.

Plain text that is split at special tokens only is not cut: there a task has whole files.
"""

import logging
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilth.corpus import Corpus, Position
from tilth.corpus.cutting import cut, size_bytes
from tilth.corpus.listing import list_sources
from tilth.corpus.readers import BEGINNING, warn_skipped
from tilth.executors import Executor, number_of_tasks, run_tasks
from tilth.files import (
    FileError,
    Progress,
    StrPath,
    check_own_folder,
    check_target,
    checksum_of,
    no_progress,
)
from tilth.tokenizer.counts import Counting, merge_counts
from tilth.tokenizer.patterns import Pattern
from tilth.tokenizer.tokenizer import Tokenizer
from tilth.tokenizer.training import (
    SEPARATOR,
    checked_merges,
    count_pieces,
    plain_and_others,
    train_tokenizer,
)

TASK_BYTES = 1 << 30  # of the corpus, by default
JOBS = "jobs"  # the folder of Slurm's logs
SUM = "sum.counts"  # of all tasks, from which a tokenizer is trained
MARKER = "tilth-tasks"  # the first file created in the folder and the last one removed
# Every name that counting writes in the folder, and the temporary names (`files.atomic_write`).
_COUNTS = rf"[0-9a-f]{{64}}\.counts|{re.escape(SUM)}"
_KNOWN_NAME = re.compile(rf"{MARKER}|{_COUNTS}|\.(?:{_COUNTS})\.[0-9a-f]{{16}}\.partial")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The arguments of a call that all tasks share."""

    folder: Path
    settings: Counting
    separator: str | None
    field: str
    on_error: str
    threads: int
    others: tuple[str, ...] = ()  # the paths of the corpus that is cut


@dataclass(frozen=True)
class Task:
    """Files of plain text, or a part of the other files, to count."""

    options: Options
    identity: str
    size_bytes: int
    files: tuple[str, ...] = ()
    start: Position = BEGINNING
    stop: Position = BEGINNING

    @property
    def path(self) -> Path:
        """The file of counts."""
        return self.options.folder / f"{self.identity}.counts"


def count_in_tasks(
    paths: StrPath | Iterable[StrPath],
    out: StrPath,
    special_tokens: Sequence[str] | None = None,
    *,
    executor: Executor,
    tasks: int | None = None,
    pattern: Pattern = "gpt2",
    separator: str | None = None,
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[int, int]:
    """Count the pieces of a corpus in tasks; write their sum to the file `out`.

    The corpus is cut into `tasks` parts (by default of 1 GB) for the workers of the executor, each
    with `threads` threads, by default one. The other arguments and the file are those of
    `count_pieces` and `PieceCounts.save`; returns the number of distinct pieces and of all. The
    folder `.NAME.tasks` beside the file `out` has the counts of finished tasks, until all are done:
    the same call runs the tasks that are missing. `progress` is called in the phases "count" and
    "read" (bytes).
    """
    out = Path(out)
    check_target(out, overwrite=overwrite)
    settings = Counting.of(pattern, special_tokens or ())
    options = Options(_folder_of(out), settings, separator, field, on_error, threads or 1)
    with _counted(options, paths, executor, tasks, progress) as files:
        return merge_counts(files, out, overwrite=overwrite, progress=progress)


def train_in_tasks(
    paths: StrPath | Iterable[StrPath],
    out: StrPath,
    vocab_size: int = 10_000,
    special_tokens: Sequence[str] | None = None,
    *,
    executor: Executor,
    tasks: int | None = None,
    pattern: Pattern = "gpt2",
    separator: str | None = None,
    field: str = "text",
    on_error: str = "stop",
    threads: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Tokenizer:
    """Train a tokenizer, counting the pieces in tasks; save it to the file `out` and return it.

    The arguments are those of `count_in_tasks` and `train_tokenizer`, and the file is that of
    `train_tokenizer(...).save(out)`, byte for byte. `progress` is called in the phases "count",
    "read" (bytes) and "merge".
    """
    out = Path(out)
    check_target(out, overwrite=overwrite)
    settings = Counting.of(pattern, special_tokens or ())
    checked_merges(vocab_size, settings)  # raises now, not after hours of counting
    options = Options(_folder_of(out), settings, separator, field, on_error, threads or 1)
    with _counted(options, paths, executor, tasks, progress) as files:
        counts = options.folder / SUM
        merge_counts(files, counts, overwrite=True, progress=progress)
        tokenizer = train_tokenizer(counts=counts, vocab_size=vocab_size, progress=progress)
        tokenizer.save(out, overwrite=overwrite)
    return tokenizer


def _folder_of(out: Path) -> Path:
    return out.absolute().with_name(f".{out.name}.tasks")


@contextmanager
def _counted(
    options: Options,
    paths: StrPath | Iterable[StrPath],
    executor: Executor,
    number: int | None,
    progress: Progress | None,
) -> Iterator[list[Path]]:
    """Run the tasks that are not done; yield the files of counts, and remove them at the end.

    After an error they stay for the next call.
    """
    folder = options.folder
    if os.path.lexists(folder):
        check_own_folder(folder, MARKER, _KNOWN_NAME, (JOBS,))
    tasks = _tasks_of(options, paths, executor, number)
    folder.mkdir(exist_ok=True)
    (folder / MARKER).touch()
    missing = [task for task in tasks if not task.path.exists()]
    total = sum(task.size_bytes for task in tasks)
    done = total - sum(task.size_bytes for task in missing)
    tell = progress or no_progress
    tell("count", done, total)
    for index in run_tasks(count_task, missing, executor, folder / JOBS):
        done += missing[index].size_bytes
        tell("count", done, total)
    files = [task.path for task in tasks]
    try:
        yield files
    except FileError as error:
        if error.path in files:  # the next call counts it again
            Path(error.path).unlink(missing_ok=True)
        raise
    for file in (*files, folder / SUM):
        file.unlink(missing_ok=True)
    shutil.rmtree(folder / JOBS, ignore_errors=True)
    if {path.name for path in folder.iterdir()} == {MARKER}:
        (folder / MARKER).unlink()
        folder.rmdir()


def _tasks_of(
    options: Options,
    paths: StrPath | Iterable[StrPath],
    executor: Executor,
    number: int | None,
) -> list[Task]:
    special_tokens = options.settings.special_tokens
    files, others = plain_and_others(
        paths,
        need_corpus=options.separator is not None and options.separator not in special_tokens,
    )
    options = replace(options, others=tuple(str(path.absolute()) for path in others))
    sources = [source for file in files for source in list_sources(file)]
    corpus = _corpus(options) if others else None
    plain_bytes = sum(source.size_bytes for source in sources)
    total = plain_bytes + (corpus.size_bytes if corpus else 0)
    number = number_of_tasks(number, total, TASK_BYTES, executor)
    tasks: dict[str, Task] = {}

    def add(files: list[str], start: Position, stop: Position, stamps: list[object]) -> None:
        size = sum(Path(file).stat().st_size for file in files)
        if corpus is not None and stop > start:
            size = size_bytes(corpus, (start, stop))
        # Equal files are counted as often as they are given.
        identity = checksum_of(
            {
                "header": options.settings.header().decode(),
                "reading": [options.separator, options.field, options.on_error],
                "stamps": stamps,
                "part": [len(tasks), start, stop],
            }
        )
        tasks[identity] = Task(options, identity, size, tuple(files), start, stop)

    group: list[str] = []
    stamps: list[object] = []
    group_bytes = 0
    for source in sources:
        group.append(str(source.path.absolute()))
        stamps.append([group[-1], source.stamp()])
        group_bytes += source.size_bytes
        if group_bytes * number >= total or source is sources[-1]:
            add(group, BEGINNING, BEGINNING, stamps)
            group, stamps, group_bytes = [], [], 0
    if corpus is not None:
        share = round(number * corpus.size_bytes / max(1, total))
        stamps = [[str(each.path.absolute()), each.stamp()] for each in corpus.sources]
        for start, stop in cut(corpus, max(1, share)):
            add([], start, stop, stamps)
    return [*tasks.values()]


@lru_cache(maxsize=1)
def _corpus(options: Options) -> Corpus:
    separator = SEPARATOR if options.separator is None else options.separator
    return Corpus(
        options.others, separator=separator, field=options.field, on_error=options.on_error
    )


def _texts(corpus: Corpus, start: Position, stop: Position) -> Iterator[bytes]:
    skipped = 0
    for block in corpus.blocks(start, stop):
        found = block.documents()
        skipped = warn_skipped(log, found.skipped, skipped)
        yield from found.texts


def count_task(task: Task) -> None:
    """Run a task, unless it is done: write its file of counts."""
    options = task.options
    if task.path.exists():
        return
    settings = options.settings
    # Blocks have bytes, which count as the text that they encode.
    texts: Any = None if task.files else _texts(_corpus(options), task.start, task.stop)
    counts = count_pieces(
        task.files or None,
        settings.special_tokens,
        texts=texts,
        pattern=settings.pattern,
        threads=options.threads,
    )
    if counts.settings != settings:
        problem = f"was counted with Unicode {counts.settings.unicode} by a worker"
        raise FileError(task.path, problem, "install the same tilth on all machines")
    counts.save(task.path, overwrite=True)
