"""Mutated files against the functions that read them: 500 cases a second on one core.

A verb of `campaign.py` takes 20 ms or more. Here a case mutates one file of a folder, recomputes
the checksums as an attacker would, and calls one reader. The reader must return, or raise an error
that the command line reports in one sentence with exit code 2.
"""

import contextlib
import json
import random
import shutil
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from unittest import mock

from tests.hostile.mutations import make_consistent, mutate_file

CPU_SECONDS = 15
IMPORTED = ("optuna", "torch._dynamo", "tilth.lab.sections.runner", "tilth.lab.search.journal")
IMPORTED += ("tilth.report.reading", "tilth.data.verifying", "tilth.runs.checkpoint_file")
IMPORTED += ("tilth.studio.timeline", "tilth.data.tasks")
TEXT = "Once upon a time there was a mouse.\n 12 naïve"


def read_data(folder):
    from tilth.data import Batches, get_batch, open_data
    from tilth.lab.texts import documents_of

    data = open_data(folder)
    data.tokenizer()
    for split in ("train", "valid"):
        list(documents_of(data, split))
    for batch in range(3):
        get_batch(data.train, 2, 8)
        Batches(data.train, 2, 8, 0, vocab_size=data.vocab_size)[batch]


def verify_data(folder):
    from tilth.data.verifying import verify_data

    list(verify_data(folder))


def read_run(folder):
    from tilth.runs import open_run

    run = open_run(folder)
    run.metrics()
    run.samples()
    run.tokenizer()
    run.checkpoint().state()


def verify_run(folder):
    from tilth.runs import open_run
    from tilth.runs.run import verify_run

    list(verify_run(open_run(folder)))


def load_model(folder):
    from tilth.generation import load

    load(folder)


def report_run(folder):
    from tilth.report.reading import read_report

    read_report([folder])


def read_studio(folder):
    """Compute what the pages show of a folder; an error without an answer for the client fails."""
    from tilth.generation import load
    from tilth.studio.errors import RequestError
    from tilth.studio.folder import Folder
    from tilth.studio.inspecting import look_inside
    from tilth.studio.models import Models
    from tilth.studio.runs import Compared, Norms, Runs, Watch
    from tilth.studio.timeline import Steps, Timeline

    def ask(compute, *values, answered=RequestError):
        try:
            compute(*values)
        except answered:
            pass
        except Exception as error:
            raise AssertionError(f"{compute.__qualname__}: {error!r}") from error

    def look_inside_of(path):
        look_inside(models.load_once(path), "Once", [])

    shown = Folder(folder)
    runs, models = Runs(shown, lambda: False), Models(shown.models, load)
    timeline = Timeline(shown, models, runs)
    refused = OSError, ValueError, MemoryError
    ask(runs.table.read)
    for entry in shown.entries("run"):
        for axis, metric in ("step", "loss"), ("flops", "lr"), ("seconds", "bits_per_byte"):
            ask(runs.updates, Watch([entry.id], metric, axis), entry.id, {})
        ask(runs.norms, Norms(entry.id))
        ask(runs.compare, Compared([entry.id, entry.id]))
        ask(timeline.steps, Steps(entry.id))
    for entry in shown.entries():
        if entry.has_tokenizer:
            ask(shown.tokenizer, entry.id, answered=refused)
        if entry.kind == "model":
            ask(look_inside_of, entry.path, answered=refused)


def join_tasks(folder):
    from tilth.tokenizer import Tokenizer

    corpus, tokenizer = (folder / "corpus").read_text().splitlines()
    tokenize_in_tasks(corpus, Tokenizer.load(tokenizer), folder)


def tokenize_in_tasks(corpus, tokenizer, out, **options):
    """Tokenize in tasks; this process runs those that are missing."""
    from tilth.data import tasks, tokenize
    from tilth.executors import Executor

    def run_tasks(function, arguments, _executor, _folder):
        for index, argument in enumerate(arguments):
            function(argument)
            yield index

    with mock.patch.object(tasks, "run_tasks", run_tasks):
        tokenize(corpus, tokenizer, out, executor=Executor(), tasks=2, **options)


def read_lab(folder):
    from tilth.report.lab_file import load_lab

    load_lab(folder)


def read_search(folder):
    from tilth.lab.search.journal import JOURNAL, Journal
    from tilth.lab.search.space import read_space

    journal = Journal(folder / JOURNAL, read_space(["optimizer.lr=0.001..0.1"]))
    journal.begun()
    journal.all_searched()


def resume_tokenizing(folder):
    from tilth.data import tokenize
    from tilth.tokenizer import Tokenizer

    corpus, tokenizer = (folder / "corpus").read_text().splitlines()
    tokenize(corpus, Tokenizer.load(tokenizer), folder)


def read_question(folder):
    from tilth.lab.questions.custom import read_custom

    read_custom(folder / "question.toml")


def read_config(folder):
    from tilth.config import TrainingConfig
    from tilth.files import read_toml

    TrainingConfig.from_dict(read_toml(folder / "config.toml"))


def read_tokenizer(folder):
    from tilth.tokenizer import Tokenizer

    names = ("tokenizer.json", "tokenizer.tiktoken")
    path = next((folder / name for name in names if (folder / name).exists()), folder)
    # A pattern for ranks; a folder with GPT-2's two files has one.
    given = None if (folder / "vocab.json").exists() else "gpt2"
    for each in (path, folder):
        tokenizer = Tokenizer.load(each, pattern=given)
        tokenizer.decode(tokenizer.encode(TEXT, add_special_tokens=True))


def read_corpus(folder):
    from tilth.corpus import Corpus

    for path in sorted(folder.iterdir()):
        for _ in Corpus(path):
            pass


def read_counts(folder):
    from tilth.tokenizer import PieceCounts, train_tokenizer

    path = folder / "plain.counts"
    for counts in (path, PieceCounts.load(path)):
        train_tokenizer(counts=counts, vocab_size=300)


def read_model_folder(folder):
    from tilth.formats.huggingface import open_model_folder, verify_model_folder

    list(verify_model_folder(folder))
    opened = open_model_folder(folder)
    opened.weights()
    opened.end_token_of(opened.tokenizer())


def read_llama2c(folder):
    from tilth.formats.llama2c import load_tokenizer, read_model

    config, _ = read_model(folder / "model.bin")
    load_tokenizer(folder / "tokenizer.bin", config.vocab_size).decode([0, 1, 2])


def read_writeup(folder):
    from tilth.lab.sections.runner import _claim
    from tilth.report.lab_file import load_lab

    _claim(folder, WRITEUP)
    load_lab(folder / "parts" / "unicode")


def read_demo(folder):
    from tilth.cli.demo import QUICK, _claim

    _claim(folder, QUICK, 0)


WRITEUP = {"data": "built-in", "budget": "5m", "steps": None, "max_bytes": 1000, "seed": 0}
RUN = (read_run, verify_run, load_model, report_run, read_studio)


def _subjects(edition, corpora, models):
    """Pairs of readers and the folder they read, as bytes by relative path."""
    from tilth.data import tokenize

    yield (read_data, verify_data, read_studio), _folder(edition / "data")
    for run in sorted((edition / "runs").iterdir()):
        yield RUN, _folder(run)
        yield (read_config,), _files(run / "config.toml")
    for lab in ("lab", "search"):
        yield (read_lab, read_studio), _files(edition / lab / "lab.json")
    yield (read_search,), _files(edition / "search" / "search.journal")
    for model in sorted(models.iterdir()):
        is_folder = (model / "config.json").exists()
        yield (read_model_folder, read_studio) if is_folder else (read_llama2c,), _folder(model)
    yield (read_writeup,), _writeup(edition)
    yield (read_demo,), _claimed()
    yield (resume_tokenizing,), _interrupted(edition, tokenize)
    yield (join_tasks,), _interrupted(edition, tokenize_in_tasks)
    yield (read_question,), _files(edition / "question.toml")
    for name in ("tokenizer.json", "tokenizer.tiktoken"):
        yield (read_tokenizer,), _files(edition / name)
    yield (read_tokenizer,), _folder(edition / "gpt2")
    yield from (((read_tokenizer,), content) for content in other_tokenizers())
    for path in sorted(corpora.iterdir()):
        yield (read_counts if path.suffix == ".counts" else read_corpus,), _files(path)


def other_tokenizers():
    """Folders as other tools write them: post-processors, chat templates, settings."""
    from tilth.tokenizer import Template, Tokenizer, train_tokenizer

    trained = train_tokenizer(texts=[TEXT], vocab_size=270, special_tokens=["<s>", "</s>"])
    template = Template(("<s>",), ("</s>",))
    for changes in (
        {"template": template, "add_prefix_space": True, "chat_template": "{{ messages }}"},
        {"template": template, "pattern": (r"\p{N}", "llama3"), "whole_piece_first": True},
        {"template": Template(("<s>",)), "pattern": "tekken"},
    ):
        tokenizer = Tokenizer.from_vocabulary(replace(trained.vocabulary, **changes))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if changes["template"] is template:
                tokenizer.save(folder)
                config = {"chat_template": [{"name": "default", "template": "{{ messages }}"}]}
                (folder / "tokenizer_config.json").write_text(json.dumps(config))
            else:
                tokenizer.save_tekken(folder / "tekken.json")
            yield _folder(folder)
    token = {"content": "<s>", "lstrip": True, "normalized": True, "special": True}
    settings = {
        "tokenizer_config.json": {
            "tokenizer_class": "Qwen2Tokenizer",
            "added_tokens_decoder": {"0": token},
            "add_bos_token": True,
            "bos_token": "<s>",
            "additional_special_tokens": ["</s>", "<x>"],
        },
        "special_tokens_map.json": {"eos_token": {**token, "content": "</s>"}},
        "added_tokens.json": {"<y>": 270},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trained.save_files(folder / "vocab.json", folder / "merges.txt")
        for file, content in settings.items():
            (folder / file).write_text(json.dumps(content))
        yield _folder(folder)


def _interrupted(edition, tokenize):
    """Return a data folder whose tokenizing was interrupted before its manifest was written."""
    from tilth.tokenizer import Tokenizer

    def interrupt(phase, _done, _total):
        if phase == "check":
            raise InterruptedError

    corpus, tokenizer = edition / "stories.txt", edition / "tokenizer.json"
    out = edition / tokenize.__name__
    with contextlib.suppress(InterruptedError):
        tokenize(corpus, Tokenizer.load(tokenizer), out, progress=interrupt)
    (out / "corpus").write_text(f"{corpus}\n{tokenizer}\n")
    return _folder(out)


def _writeup(edition):
    """Return the settings of a write-up and one of its parts."""
    from tilth.files import save_manifest

    with tempfile.TemporaryDirectory() as name:
        save_manifest(Path(name, "writeup.json"), WRITEUP, kind="write-up", version=1)
        part = (edition / "lab" / "lab.json").read_bytes()
        return {**_folder(Path(name)), "parts/unicode/lab.json": part}


def _claimed():
    """Return the settings of a demo."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "demo")
        read_demo(folder)
        return _folder(folder)


def _folder(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _files(*paths):
    return {path.name: path.read_bytes() for path in paths}


class Readers:
    """The cases of one seed; case number n is always the same."""

    def __init__(self, seed, edition, corpora, models, folder):
        self.seed, self.folder = seed, folder / "readers"
        self.subjects = list(_subjects(edition, corpora, models))
        for module in IMPORTED:  # once, and not again in the child of each batch
            import_module(module)
        # The folders of data, runs and models have most of the files, and the most to go wrong.
        self.weighted = self.subjects + 4 * [each for each in self.subjects if len(each[1]) > 3]

    def write(self, content):
        """Write the files of a subject into the empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for path, data in content.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(data)

    def problem_of(self, number):
        """Return the problem of a case, or None, and the names of its reader and file."""
        from tilth.cli.app import _explained

        chance = random.Random(f"readers:{self.seed}:{number}")
        readers, content = chance.choice(self.weighted)
        reader, name = chance.choice(readers), chance.choice(sorted(content.keys() - {"corpus"}))
        self.write(content)
        mutate_file(chance, self.folder / name)
        if chance.random() < 0.8:
            make_consistent(self.folder)
        began, problem = time.process_time(), None
        try:
            reader(self.folder)
        except Exception as error:
            if _explained(error)[1] != 2:
                problem = f"{type(error).__name__}: {error}"[:500]
        if problem is None and (seconds := time.process_time() - began) > CPU_SECONDS:
            problem = f"took {seconds:.1f} s of CPU time"
        return problem, [reader.__name__, name]
