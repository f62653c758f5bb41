"""The built-in tasks: items, chance, intervals, and scores against `LanguageModel.score`."""

from collections import Counter

import numpy as np
import pytest

import tilth
from tilth.exporting.tasks import (
    TASKS,
    ContinuationScorer,
    Item,
    choose,
    items_of,
    run_task,
    wilson,
)


@pytest.fixture(scope="module")
def model(run):
    return tilth.load(run)


@pytest.mark.parametrize("task", TASKS)
def test_items_are_distinct_and_answers_balanced(task):
    items = items_of(task)
    assert items == items_of(task)
    assert len({item.context + item.choices[item.answer] for item in items}) >= 180
    assert all(len({*item.choices}) == len(item.choices) for item in items)
    counts = Counter(item.answer for item in items)
    expected = len(items) / len(items[0].choices)
    assert all(abs(counts[i] - expected) < 4 * expected**0.5 for i in range(len(items[0].choices)))


def test_choosing_one_form_always_is_chance():
    items = items_of("agreement", 100)
    right = [item.choices[item.answer].split()[0] for item in items]
    for one, two in (("was", "were"), ("is", "are"), ("has", "have")):
        assert abs(right.count(one) - right.count(two)) <= 1


@pytest.mark.parametrize("task", TASKS)
def test_text_continues_its_story(task):
    for item in items_of(task, 20):
        assert not item.context.endswith(" ")
        assert all(choice.startswith(" ") for choice in item.choices)


def test_scores_equal_those_of_the_model(model):
    scorer = ContinuationScorer(model)
    ids = [model.end_id, *model.tokenizer.encode("Once upon a time there was")]
    scored = [token.log_probability for token in model.score("Once upon a time there was")]
    for start in (1, 3, 2, len(ids) - 1):  # the cache is reused in every order
        total, _ = scorer.score(ids[:start], ids[start:])
        assert total == pytest.approx(sum(scored[start - 1 :]), abs=1e-4)
        scorer.score([ids[0], 7, 8, 9, 10, 11], [12, 13])  # another context, longer than shared


def test_long_contexts_keep_their_end(model):
    length = model.config.context_length
    ids = np.random.default_rng(0).integers(0, 256, 3 * length).tolist()
    total, _ = ContinuationScorer(model).score(ids[:-5], ids[-5:])
    expected, _ = ContinuationScorer(model).score(ids[-length - 1 : -5], ids[-5:])
    assert total == pytest.approx(expected, abs=1e-5)
    more, _ = ContinuationScorer(model).score(ids[:5], ids[5:])  # longer than the context
    assert np.isfinite(more)


def test_greedy_flag(model):
    ids = model.prompt_ids("Once upon")
    stream = model.generate(ids, temperature=0, max_tokens=5)
    list(stream)
    assert ContinuationScorer(model).score(ids, stream.token_ids)[1]
    other = [*stream.token_ids[:-1], (stream.token_ids[-1] + 1) % 256]
    assert not ContinuationScorer(model).score(ids, other)[1]


def test_model_chooses_what_it_would_write(model):
    stream = model.generate("Once upon", temperature=0, max_tokens=12)
    text = "".join(stream)
    choices = (" zq#~ kjx%", text)
    assert choose(model, ContinuationScorer(model), Item("Once upon", choices, 1)) == 1


def test_result_has_chance_and_interval(model):
    found = run_task(model, "continuation", limit=30)
    assert (found.chance, found.items) == (0.25, 30)
    assert found.low < found.accuracy < found.high


def test_wilson_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    for right, count in ((0, 10), (3, 10), (50, 60), (60, 60)):
        low, high = stats.binomtest(right, count).proportion_ci(method="wilson")
        assert wilson(right, count) == pytest.approx((low, high), abs=1e-6)
