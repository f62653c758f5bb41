"""Built-in evaluation tasks: choices between continuations of generated stories. No torch.

The stories come from the built-in corpus (`tilth.corpus.stories`), with a random seed of their own.

| task | choices | chance |
|---|---|---|
| `continuation` | the next sentence, or one of three other stories | 25% |
| `agreement` | the rest of a sentence, with the right or the wrong form of its verb | 50% |
| `cloze` | the last sentence, or that of another story | 50% |

The model chooses the continuation of the highest log-probability per byte.

>>> item = items_of("agreement", 4)[0]
>>> len(item.choices), item.choices[item.answer] != item.choices[1 - item.answer]
(2, True)
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Literal, get_args

import numpy as np

from tilth.corpus.stories import stories
from tilth.files import Progress
from tilth.generation import LanguageModel
from tilth.generation.decoding import Decoder
from tilth.generation.native_decoder import common_length

TaskName = Literal["continuation", "agreement", "cloze"]
TASKS = get_args(TaskName)
NUM_ITEMS = 200
SEED = 0x7A51C5  # of stories that a corpus is unlikely to have
Z = 1.959964  # of a 95% interval
MAX_LOGITS = 1 << 25  # in memory at once: 128 MiB

_SENTENCE_END = re.compile(r'(?<=[.!?"])\s+(?=[A-Z"])')
_FORMS = [("was", "were"), ("is", "are"), ("has", "have")]
_VERB = re.compile(r" (was|were|is|are|has|have)(?= )")
_OTHER = {one: two for pair in _FORMS for one, two in (pair, pair[::-1])}


@dataclass(frozen=True)
class Item:
    """A context, its possible continuations, and the index of the right one.

    The makers below put the right one first; `items_of` moves it.
    """

    context: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class TaskResult:
    """The accuracy on a task, with its 95% interval (Wilson) and the accuracy of chance."""

    task: str
    accuracy: float
    low: float
    high: float
    chance: float
    items: int


def _sentences(text: str) -> list[str]:
    return _SENTENCE_END.split(text)


def _continuations() -> Iterator[Item]:
    source = stories(SEED)
    while True:
        parts = [_sentences(next(source)) for _ in range(4)]
        place = min(len(each) for each in parts) // 2
        sentences = [f" {each[place]}" for each in parts]
        if place >= 2 and len({*sentences}) == 4:
            yield Item(" ".join(parts[0][:place]), tuple(sentences), 0)


def _endings() -> Iterator[Item]:
    source = stories(SEED + 1)
    while True:
        one, two = (_sentences(next(source)) for _ in range(2))
        if one[-1] != two[-1] and len(one) > 3:
            yield Item(" ".join(one[:-1]), (f" {one[-1]}", f" {two[-1]}"), 0)


def _agreements() -> Iterator[Item]:
    """Each form is as often right as the other of its pair: choosing one always is chance."""
    waiting: dict[str, list[Item]] = {form: [] for form in _OTHER}
    for text in stories(SEED + 2):
        sentences = _sentences(text)
        for place, sentence in enumerate(sentences):
            for match in _VERB.finditer(sentence):
                form, start = match[1], match.start()
                context = " ".join([*sentences[:place], sentence[:start]])
                forms = (form, _OTHER[form])  # the right one first
                choices = tuple(f" {each}{sentence[match.end() :]}" for each in forms)
                waiting[form].append(Item(context, choices, 0))
        for pair in _FORMS:
            while waiting[pair[0]] and waiting[pair[1]]:
                yield waiting[pair[0]].pop(0)
                yield waiting[pair[1]].pop(0)


_MAKERS: dict[str, Callable[[], Iterator[Item]]] = {
    "continuation": _continuations,
    "agreement": _agreements,
    "cloze": _endings,
}


def items_of(task: TaskName, count: int = NUM_ITEMS) -> list[Item]:
    """Return the first items of a task; the same on every machine.

    Of as many items in a row as there are choices, each has its answer in another place.
    """
    random = Random(task)  # noqa: S311, not for cryptography
    items: list[Item] = []
    places: list[int] = []
    for item in islice(_MAKERS[task](), count):
        if not places:
            places = sorted(range(len(item.choices)), key=lambda _: random.random())
        answer = places.pop()
        wrong = item.choices[1:]
        items.append(
            Item(item.context, (*wrong[:answer], item.choices[0], *wrong[answer:]), answer)
        )
    return items


class ContinuationScorer:
    """Scores token ids after other token ids, in batches of `rows` sequences.

    The first sequence of a batch keeps what it shares with that of the batch before; the native
    decoder reads a beginning that sequences share once. Only the end of what does not fit into the
    context is read, as lm-eval does.
    """

    def __init__(self, model: LanguageModel, rows: int = 1) -> None:
        self._rows = rows if model.has_batches else 1
        self._decoder: Decoder = model.decoder(self._rows)
        self._length, self._vocab_size = model.config.context_length, model.config.vocab_size
        self._first: list[int] = []  # the ids that the first row has read

    def score(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Return the log-probability, and whether each id is the likeliest in its place."""
        return self.score_batch([(context, continuation)])[0]

    def score_batch(
        self, requests: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[tuple[float, bool]]:
        """Score pairs of context and continuation."""
        found: list[tuple[float, bool]] = []
        for start in range(0, len(requests), self._rows):
            found += self._score_rows(requests[start : start + self._rows])
        return found

    def _score_rows(
        self, requests: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[tuple[float, bool]]:
        # `read` ends before the last id; logits are needed from the last id of the context on.
        read = [[*one, *two][-(self._length + 1) : -1] for one, two in requests]
        counts = [min(len(two), len(ids)) for (_, two), ids in zip(requests, read, strict=True)]
        wanted = [list(two)[-count:] for (_, two), count in zip(requests, counts, strict=True)]
        before = [ids[: len(ids) - count] for ids, count in zip(read, counts, strict=True)]
        same = common_length(self._first, before[0])
        for row in range(self._rows):
            self._decoder.truncate(row, same if row == 0 else 0)
        before[0] = before[0][same:]
        if any(before):
            self._decoder.extend(self._padded(before))
        self._first = read[0]
        totals, greedy = [0.0] * len(requests), [True] * len(requests)
        # In parts, as the logits of whole contexts may be large.
        width = max(1, MAX_LOGITS // (self._vocab_size * self._rows))
        for start in range(0, max(counts), width):
            parts = [
                ids[len(ids) - count :][start : start + width]
                for ids, count in zip(read, counts, strict=True)
            ]
            logits = self._decoder.extend(self._padded(parts), every=True)
            for row, part in enumerate(parts):
                total, is_greedy = _score(
                    logits[row, : len(part)], wanted[row][start : start + width]
                )
                totals[row] += total
                greedy[row] = greedy[row] and is_greedy
        return list(zip(totals, greedy, strict=True))

    def _padded(self, ids: list[list[int]]) -> list[list[int]]:
        return ids + [[]] * (self._rows - len(ids))


def _score(logits: np.ndarray, wanted: list[int]) -> tuple[float, bool]:
    """Return the sum of log-probabilities, and whether each id is the likeliest."""
    wide = logits.astype(np.float64)
    largest = wide.max(axis=1, initial=-np.inf, keepdims=True)
    totals = largest[:, 0] + np.log(np.exp(wide - largest).sum(axis=1))
    found = wide[np.arange(len(wanted)), wanted] - totals
    return float(found.sum()), bool((wide.argmax(axis=1) == wanted).all())


def choose(model: LanguageModel, scorer: ContinuationScorer, item: Item) -> int:
    """Return the index of the choice with the highest log-probability per byte."""

    def encode(text: str) -> list[int]:
        begin_ids = model.begin_ids or ([] if model.end_id is None else [model.end_id])
        return [*begin_ids, *model.tokenizer.encode_ordinary(text)]

    context, requests = encode(item.context), []
    for choice in item.choices:
        whole = encode(item.context + choice)
        # Before a continuation, the end of the context may have other ids: they are scored too.
        shared = common_length(context, whole)
        requests.append((whole[:shared], whole[shared:]))
    found = scorer.score_batch(requests)
    sizes = [len(choice.encode()) for choice in item.choices]
    return int(np.argmax([total / size for (total, _), size in zip(found, sizes, strict=True)]))


def run_task(
    model: LanguageModel,
    task: TaskName,
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> TaskResult:
    """Evaluate a model on a built-in task, or on the first `limit` items of it."""
    items = items_of(task, NUM_ITEMS if limit is None else limit)
    scorer = ContinuationScorer(model, len(items[0].choices))
    right = 0
    for done, item in enumerate(items, 1):
        right += choose(model, scorer, item) == item.answer
        if progress is not None:
            progress(task, done, len(items))
    low, high = wilson(right, len(items))
    return TaskResult(task, right / len(items), low, high, 1 / len(items[0].choices), len(items))


def wilson(right: int, count: int) -> tuple[float, float]:
    """Return the 95% interval of a proportion (Wilson 1927).

    >>> [round(each, 3) for each in wilson(5, 10)]
    [0.237, 0.763]
    """
    share = right / count
    centre = (share + Z * Z / (2 * count)) / (1 + Z * Z / count)
    spread = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    half = spread / (1 + Z * Z / count)
    return max(0.0, centre - half), min(1.0, centre + half)
