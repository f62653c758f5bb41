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

TaskName = Literal["continuation", "agreement", "cloze"]
TASKS = get_args(TaskName)
NUM_ITEMS = 200
SEED = 0x7A51C5  # of stories that a corpus is unlikely to have
Z = 1.959964  # of a 95% interval

_SENTENCE_END = re.compile(r'(?<=[.!?"])\s+(?=[A-Z"])')
_FORMS = [("was", "were"), ("is", "are"), ("has", "have")]
_VERB = re.compile(r" (was|were|is|are|has|have)(?= )")
_OTHER = {one: two for pair in _FORMS for one, two in (pair, pair[::-1])}


@dataclass(frozen=True)
class Item:
    """A context, its possible continuations, and the index of the right one."""

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


def _shuffled(context: str, right: str, wrong: Sequence[str], random: Random) -> Item:
    choices = [right, *wrong]
    order = sorted(range(len(choices)), key=lambda _: random.random())
    return Item(context, tuple(choices[i] for i in order), order.index(0))


def _continuations(random: Random) -> Iterator[Item]:
    source = stories(SEED)
    while True:
        parts = [_sentences(next(source)) for _ in range(4)]
        place = min(len(each) for each in parts) // 2
        sentences = [f" {each[place]}" for each in parts]
        if place >= 2 and len({*sentences}) == 4:
            yield _shuffled(" ".join(parts[0][:place]), sentences[0], sentences[1:], random)


def _endings(random: Random) -> Iterator[Item]:
    source = stories(SEED + 1)
    while True:
        one, two = (_sentences(next(source)) for _ in range(2))
        if one[-1] != two[-1] and len(one) > 3:
            yield _shuffled(" ".join(one[:-1]), f" {one[-1]}", [f" {two[-1]}"], random)


def _agreements(random: Random) -> Iterator[Item]:
    """Each form is as often right as the other of its pair: choosing one always is chance."""
    waiting: dict[str, list[Item]] = {form: [] for form in _OTHER}
    for text in stories(SEED + 2):
        sentences = _sentences(text)
        for place, sentence in enumerate(sentences):
            for match in _VERB.finditer(sentence):
                form, start = match[1], match.start()
                context = " ".join([*sentences[:place], sentence[:start]])
                right, wrong = (
                    f" {each}{sentence[match.end() :]}" for each in (form, _OTHER[form])
                )
                waiting[form].append(_shuffled(context, right, [wrong], random))
        for pair in _FORMS:
            while waiting[pair[0]] and waiting[pair[1]]:
                yield waiting[pair[0]].pop(0)
                yield waiting[pair[1]].pop(0)


_MAKERS: dict[str, Callable[[Random], Iterator[Item]]] = {
    "continuation": _continuations,
    "agreement": _agreements,
    "cloze": _endings,
}


def items_of(task: TaskName, count: int = NUM_ITEMS) -> list[Item]:
    """Return the first items of a task; the same on every machine."""
    random = Random(task)  # noqa: S311, not for cryptography
    return list(islice(_MAKERS[task](random), count))


class ContinuationScorer:
    """Scores token ids after other token ids; a beginning shared with the last call is kept.

    Only the end of what does not fit into the context is read, as lm-eval does.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._decoder: Decoder = model.decoder(1)
        self._length = model.config.context_length
        self._read: list[int] = []

    def score(self, context: Sequence[int], continuation: Sequence[int]) -> tuple[float, bool]:
        """Return the log-probability, and whether each id is the likeliest in its place."""
        ids = [*context, *continuation][-(self._length + 1) :][:-1]
        count = min(len(continuation), len(ids))
        # Logits are needed from the last id before the continuation on.
        limit = min(len(ids) - count, len(self._read))
        same = next((i for i in range(limit) if ids[i] != self._read[i]), limit)
        self._decoder.truncate(0, same)
        if same < len(ids) - count:
            self._decoder.extend([ids[same : len(ids) - count]])
        rows = self._decoder.extend([ids[len(ids) - count :]], every=True)[0].astype(np.float64)
        self._read = ids
        wanted = list(continuation)[-count:]
        largest = rows.max(axis=1, keepdims=True)
        totals = largest[:, 0] + np.log(np.exp(rows - largest).sum(axis=1))
        found = rows[np.arange(count), wanted] - totals
        return float(found.sum()), bool((rows.argmax(axis=1) == wanted).all())


def choose(model: LanguageModel, scorer: ContinuationScorer, item: Item) -> int:
    """Return the index of the choice with the highest log-probability per byte."""

    def encode(text: str) -> list[int]:
        begin_ids = model.begin_ids or ([] if model.end_id is None else [model.end_id])
        return [*begin_ids, *model.tokenizer.encode_ordinary(text)]

    context, scores = encode(item.context), []
    for choice in item.choices:
        whole = encode(item.context + choice)
        # Before a continuation, the end of the context may have other ids: they are scored too.
        both = zip(context, whole, strict=False)
        shared = next((i for i, (one, two) in enumerate(both) if one != two), len(context))
        total, _ = scorer.score(whole[:shared], whole[shared:])
        scores.append(total / len(choice.encode()))
    return int(np.argmax(scores))


def run_task(
    model: LanguageModel,
    task: TaskName,
    *,
    limit: int | None = None,
    progress: Progress | None = None,
) -> TaskResult:
    """Evaluate a model on a built-in task, or on the first `limit` items of it."""
    items = items_of(task, NUM_ITEMS if limit is None else limit)
    scorer = ContinuationScorer(model)
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
