"""`corpora`: one model on several texts, and how to read the difference.

Losses per token depend on the tokenizer, so bits per byte are compared. Texts differ in how
predictable they are, so each model is also scored on the first characters of the others' documents.
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
from tilth.lab.question import Findings, Sweep
from tilth.lab.texts import documents_of
from tilth.lab.trials import Column, PlannedTrial, Results, TrialGroup
from tilth.report.lab_file import RUNS, Table

SCORED_DOCUMENTS = 20
SCORED_CHARACTERS = 400  # of each document, from its start


class Corpora(Sweep):
    """The base on each of several data folders."""

    name = "corpora"
    asks = "How does the same model perform on different texts?"
    title, label = "The same model on each text", "text"
    unfinished = "Fewer than two of the models finished training."

    def __init__(
        self, base: TrainingConfig, seeds: int | None, corpora: Sequence[StrPath], folder: Path
    ) -> None:
        super().__init__(base, seeds)
        self.data = {Path(corpus).absolute().name: open_data(corpus) for corpus in corpora}
        if len(self.data) < max(2, len(corpora)):
            raise ValueError(
                f"{len(corpora)} data folders have {len(self.data)} different names; give --data "
                "two or more folders of different names."
            )
        self.folder = folder

    def trials(self, results: Results) -> list[PlannedTrial]:
        """Return a trial per text: the same shape and steps, with the vocabulary of the text."""
        trials: list[PlannedTrial] = []
        for name, data in self.data.items():
            config = replace(self.base, data=str(data.folder))
            config = changed(config, {"model.vocab_size": data.vocab_size})
            trials += self.over_seeds(name, name, config)
        return trials

    def columns(self, best: TrialGroup | None) -> tuple[str | tuple[str, Column], ...]:
        """Losses and bits per byte of each text."""
        return (
            "loss",
            ("perplexity", lambda g: f"{g.perplexity:.1f}" if g.is_whole else None),
            "bits per byte",
            ("vocabulary size", lambda g: f"{self.data[g.label].vocab_size:,}"),
            ("bytes per token", lambda g: f"{_bytes_per_token(self.data[g.label]):.2f}"),
            ("training tokens", lambda g: f"{len(self.data[g.label].train):,}"),
        )

    def explain(self, groups: list[TrialGroup], best: TrialGroup) -> Findings:
        """Report the easiest and the hardest text, and each model on the other texts."""
        whole = [each for each in groups if each.is_whole]
        if len(whole) < 2:
            return Findings(self.unfinished)
        hardest = max(whole, key=lambda each: each.mean)
        answer = (
            f"After equal steps, the model reaches {best.mean:.4f} bits per byte on {best.label} "
            f"and {hardest.mean:.4f} on {hardest.label}, "
            f"{hardest.mean / (best.mean or 1.0):.2f} times as many."
        )
        notes = (
            "The loss is per token and depends on the tokenizer: compare bits per byte.",
            "Fewer bits per byte mean an easier text, not a better model; read the samples to "
            "judge the models.",
            "On another text, a model is worse for two reasons: its tokenizer needs more tokens, "
            "and it was not trained on similar text.",
        )
        return Findings(answer, (self._foreign(whole),), notes=notes)

    def _foreign(self, groups: list[TrialGroup]) -> Table:
        """Evaluate each model on the first characters of the documents of every text."""
        texts = {}
        for group in groups:
            documents = islice(documents_of(self.data[group.label], "valid"), SCORED_DOCUMENTS)
            texts[group.label] = [document[:SCORED_CHARACTERS] for document in documents]
        rows = []
        for group in groups:
            model = load(self.folder / RUNS / group.trials[0].name)
            scores = [f"{bits_per_byte(model, scored):.3f}" for scored in texts.values()]
            rows.append((f"trained on {group.label}", *scores))
        columns = ("model", *(f"on {name}" for name in texts))
        title = f"Bits per byte on the first {SCORED_CHARACTERS} characters of held-out documents"
        return Table(title, columns, tuple(rows))


def _bytes_per_token(data: Data) -> float:
    return data.text_bytes("valid") / max(1, len(data.valid))


def bits_per_byte(model: LanguageModel, texts: Iterable[str]) -> float:
    """Return the bits per byte of a model on texts, each scored from its start."""
    nats, num_bytes = 0.0, 0
    for text in texts:
        nats -= sum(token.log_probability for token in model.score(text))
        num_bytes += len(text.encode())
    return nats / math.log(2) / max(1, num_bytes)
