"""Mutated files against the functions that read them: 500 cases a second on one core.

A verb of `campaign.py` takes 20 ms or more. Here a case mutates one file of a folder, recomputes
the checksums as an attacker would, and calls one reader. The reader must return, or raise an error
that the command line reports in one sentence with exit code 2.
"""

import json
import random
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.hostile.mutations import make_consistent, mutate_file

CPU_SECONDS = 15
TEXT = "Once upon a time there was a mouse.\n 12 naïve"


def read_data(folder):
    from tilth.data import open_data

    data = open_data(folder)
    data.tokenizer()
    for split in ("train", "valid"):
        data.documents(split)


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


def read_lab(folder):
    from tilth.report.lab_file import load_lab

    load_lab(folder)


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
    for each in (path, folder):
        tokenizer = Tokenizer.load(each, pattern="gpt2")  # of ranks
        tokenizer.decode(tokenizer.encode(TEXT, add_special_tokens=True))


def read_corpus(folder):
    from tilth.corpus import Corpus

    for path in sorted(folder.iterdir()):
        for _ in Corpus(path):
            pass


RUN = (read_run, verify_run, load_model, report_run)


def _subjects(edition, corpora):
    """Pairs of readers and the folder they read, as bytes by relative path."""
    yield (read_data, verify_data), _folder(edition / "data")
    for run in sorted((edition / "runs").iterdir()):
        yield RUN, _folder(run)
        yield (read_config,), _files(run / "config.toml")
    for lab in ("lab", "search"):
        yield (read_lab,), _files(edition / lab / "lab.json")
    yield (read_question,), _files(edition / "question.toml")
    for name in ("tokenizer.json", "tokenizer.tiktoken"):
        yield (read_tokenizer,), _files(edition / name)
    yield (read_tokenizer,), _folder(edition / "gpt2")
    yield from (((read_tokenizer,), content) for content in _other_tokenizers())
    for path in sorted(corpora.iterdir()):
        yield (read_corpus,), _files(path)


def _other_tokenizers():
    """Folders as other tools write them: post-processors, chat templates, tekken.json."""
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


def _folder(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _files(*paths):
    return {path.name: path.read_bytes() for path in paths}


class Readers:
    """The cases of one seed; case number n is always the same."""

    def __init__(self, seed, edition, corpora, folder):
        self.seed, self.folder = seed, folder / "readers"
        self.subjects = list(_subjects(edition, corpora))

    def problem_of(self, number):
        """Return the problem of a case, or None, and the names of its reader and file."""
        from tilth.cli.app import _explained

        chance = random.Random(f"readers:{self.seed}:{number}")
        readers, content = chance.choice(self.subjects)
        reader, name = chance.choice(readers), chance.choice(sorted(content))
        shutil.rmtree(self.folder, ignore_errors=True)
        for path, data in content.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(data)
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
