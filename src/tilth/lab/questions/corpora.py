"""`corpora`: one model on several texts, and how to read the difference.

Losses per token depend on the tokenizer, so bits per byte are compared; and since texts differ in
how much there is to predict, every run is also asked about the beginnings of the others' documents.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tilth.config.overrides import changed
from tilth.config.training import TrainingConfig
from tilth.data import Data, open_data
from tilth.files import StrPath
from tilth.generation import LanguageModel, load
from tilth.lab.question import Findings, Question
from tilth.lab.texts import documents_of
from tilth.lab.trials import Column, PlannedTrial, Results, group_table
from tilth.report.lab_file import RUNS, Table

ASKED_DOCUMENTS = 20
ASKED_CHARACTERS = 400  # of each document, its beginning


class Corpora(Question):
    """The base on each of several data folders."""

    name = "corpora"
    asks = "How does the same model fare on different texts?"

    def __init__(
        self, base: TrainingConfig, seeds: int | None, corpora: Sequence[StrPath], folder: Path
    ) -> None:
        super().__init__(base, seeds)
        self.data = {Path(corpus).name: open_data(corpus) for corpus in corpora}
        if len(self.data) < max(2, len(corpora)):
            raise ValueError(
                f"{len(corpora)} folders with {len(self.data)} names are given; give --data twice "
                "or more, folders of different names."
            )
        self.folder = folder

    def trials(self, results: Results) -> list[PlannedTrial]:
        """The same shape and steps; the vocabulary is that of each text."""
        trials: list[PlannedTrial] = []
        for name, data in self.data.items():
            config = replace(self.base, data=str(data.folder))
            config = changed(config, {"model.vocab_size": data.vocab_size})
            trials += self.over_seeds(name, name, config)
        return trials

    def conclude(self, results: Results) -> Findings:
        """Losses, bits per byte, and each model on the other's text."""
        groups = self.groups(results)
        own: dict[str, Column] = {
            "perplexity": lambda each: f"{math.exp(each.loss):.1f}" if each.is_whole else None,
            "vocabulary": lambda each: f"{self.data[each.label].vocab_size:,}",
            "bytes per token": lambda each: f"{_bytes_per_token(self.data[each.label]):.2f}",
            "tokens to train on": lambda each: f"{len(self.data[each.label].train):,}",
        }
        title, (perplexity, *others) = "The same model on each text", own
        names = ("loss", perplexity, "bits per byte", *others)
        tables = (group_table(title, groups, "text", names, own),)
        whole = {each.label: each for each in groups if each.is_whole}
        if len(whole) < 2:
            return Findings("Too few of the texts could be trained on to the end.", tables)
        easiest = min(whole, key=lambda name: whole[name].mean)
        hardest = max(whole, key=lambda name: whole[name].mean)
        ratio = whole[hardest].mean / whole[easiest].mean
        answer = (
            f"After equally many steps, {easiest} costs {whole[easiest].mean:.4f} bits per byte "
            f"and {hardest} {whole[hardest].mean:.4f}, {ratio:.2f} times as many."
        )
        foreign = self._foreign(list(whole))
        notes = (
            "The loss is per token of each text's own tokenizer: compare bits per byte.",
            "A text of few words and plots has less to predict: fewer bits per byte do not mean "
            "that its model is better, but that its text is easier. Read the samples for that.",
            "On a foreign text a model pays twice: its tokenizer cuts the text into more tokens, "
            "and it has not seen such text.",
        )
        return Findings(answer, (*tables, foreign), notes=notes)

    def _foreign(self, names: Sequence[str]) -> Table:
        """Bits per byte of each model on the beginnings of each text's documents."""
        texts = {name: _beginnings(self.data[name]) for name in names}
        rows = []
        for name in names:
            run = self.over_seeds(name, name, self.base)[0].name
            model = load(self.folder / RUNS / run)
            scores = [f"{bits_per_byte(model, texts[other]):.3f}" for other in names]
            rows.append((f"trained on {name}", *scores))
        columns = ("model", *(f"asked about {name}" for name in names))
        title = f"Bits per byte of the first {ASKED_CHARACTERS} characters of documents"
        return Table(title, columns, tuple(rows))


def _bytes_per_token(data: Data) -> float:
    return data.text_bytes("valid") / max(1, len(data.valid))


def _beginnings(data: Data) -> list[str]:
    documents = islice(documents_of(data, "valid"), ASKED_DOCUMENTS)
    return [document[:ASKED_CHARACTERS] for document in documents]


def bits_per_byte(model: LanguageModel, texts: Iterable[str]) -> float:
    """What a model needs to write down texts, each from its beginning."""
    nats, num_bytes = 0.0, 0
    for text in texts:
        nats -= sum(token.log_probability for token in model.score(text))
        num_bytes += len(text.encode())
    return nats / math.log(2) / max(1, num_bytes)
