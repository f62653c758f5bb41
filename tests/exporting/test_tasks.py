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
    size = len(items[0].choices)
    assert counts == {i: len(items) / size for i in range(size)}
    assert items_of(task, 21) == items[:21]
    assert (
        len({tuple(item.answer for item in items[i : i + size]) for i in range(0, 200, size)}) > 1
    )


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


def test_batches_score_as_single_requests(model):
    rng = np.random.default_rng(1)
    length = model.config.context_length
    prefix = rng.integers(0, 256, 40).tolist()
    requests = []
    for lengths in ((0, 5), (1, 1), (20, 3), (2 * length, 4), (5, length + 9), (0, 1), (3, 70)):
        one, two = (rng.integers(0, 256, count).tolist() for count in lengths)
        requests.append(([*prefix, *one], two))
    requests.append(([7], [8, 9]))
    single = ContinuationScorer(model)
    expected = [single.score(*request) for request in requests]
    batches = ContinuationScorer(model, 3)
    for _ in range(2):  # the second time, the first row has ids already
        found = batches.score_batch(requests)
        assert [total for total, _ in found] == pytest.approx([each for each, _ in expected])
        assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]


def test_large_logits_are_computed_in_parts(model, monkeypatch):
    ids = np.random.default_rng(2).integers(0, 256, 50).tolist()
    requests = [(ids[:4], ids[4:]), (ids[:9], ids[9:12])]
    expected = ContinuationScorer(model, 2).score_batch(requests)
    monkeypatch.setattr("tilth.exporting.tasks.MAX_LOGITS", 14 * model.config.vocab_size)
    found = ContinuationScorer(model, 2).score_batch(requests)
    assert [total for total, _ in found] == pytest.approx([total for total, _ in expected])


def test_torch_scores_alike(run):
    own, torch = (tilth.load(run, backend=backend) for backend in ("native", "torch"))
    one, two = (run_task(each, "cloze", limit=8) for each in (own, torch))
    assert one == two


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
