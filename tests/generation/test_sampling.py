"""Tests of sampling against plain Python, Hugging Face and statistics."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilth.generation import sampling as module
from tilth.generation.sampling import (
    Sampling,
    choose,
    next_token_distribution,
    random_unit,
)

logits_of_a_vocabulary = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40)


def dense(logits, **options):
    """The probability of every token."""
    found = np.zeros(len(logits))
    ids, probabilities = next_token_distribution(logits, Sampling(**options))
    assert len(set(ids.tolist())) == len(ids)
    found[ids] = probabilities
    return found


def defined(logits, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0):
    """The definition in plain Python."""
    weights = [math.exp((x - max(logits)) / temperature) for x in logits]
    kept = {i: weight / sum(weights) for i, weight in enumerate(weights)}
    ordered = sorted(kept, key=lambda i: (-kept[i], i))
    if top_k is not None:
        ordered = ordered[:top_k]
    total = sum(kept[i] for i in ordered)
    nucleus, mass = [], 0.0
    for i in ordered:
        if nucleus and mass >= top_p * total:
            break
        nucleus.append(i)
        mass += kept[i]
    nucleus = [i for i in nucleus if kept[i] >= min_p * kept[ordered[0]]]
    total = sum(kept[i] for i in nucleus)
    return np.array([kept[i] / total if i in nucleus else 0.0 for i in range(len(logits))])


# --- the distribution ---


@given(logits_of_a_vocabulary, st.floats(0.1, 3.0), st.one_of(st.none(), st.integers(1, 50)))
def test_temperature_and_top_k_are_as_defined(logits, temperature, top_k):
    logits = np.round(logits, 2)  # so ties are exact, and ordered by id
    found = dense(logits, temperature=temperature, top_k=top_k)
    np.testing.assert_allclose(found, defined(logits, temperature, top_k), rtol=2e-5, atol=1e-7)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True),
    st.floats(0.001, 0.999),
    st.one_of(st.none(), st.integers(1, 30)),
    st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
)
def test_top_p_and_min_p_are_as_defined(numbers, top_p, top_k, min_p):
    logits = np.array(numbers) / 7
    expected = defined(logits, 1.0, top_k, top_p, min_p)
    # If a set reaches p up to rounding, both results are right.
    nearly = [defined(logits, 1.0, top_k, top_p + d, min_p + e) for d, e in NEARBY]
    found = dense(logits, top_p=top_p, top_k=top_k, min_p=min_p)
    assert any(np.allclose(found, one, rtol=1e-5, atol=1e-8) for one in [expected, *nearly])


NEARBY = [(d, e) for d in (-1e-5, 1e-5) for e in (-1e-5, 1e-5)]


def test_top_p_equals_the_filter_of_hugging_face():
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    random = np.random.default_rng(0)
    for _ in range(50):
        logits = random.standard_normal(1000).astype(np.float32) * 4
        said = random.integers(0, 1000, 30)
        theirs = LogitsProcessorList(
            [
                RepetitionPenaltyLogitsProcessor(1.3),
                TemperatureLogitsWarper(0.8),
                TopKLogitsWarper(200),
                TopPLogitsWarper(0.9),
                MinPLogitsWarper(0.02),
            ]
        )(torch.tensor(said)[None], torch.tensor(logits)[None])
        sampling = Sampling(0.8, 200, 0.9, 0.02, 1.3)
        ids, probabilities = next_token_distribution(logits, sampling, said.tolist())
        found = np.zeros(1000)
        found[ids] = probabilities
        np.testing.assert_allclose(found, theirs[0].softmax(-1).numpy(), rtol=1e-4, atol=1e-7)


def test_edges():
    logits = np.log([0.1, 0.4, 0.3, 0.2])
    np.testing.assert_allclose(dense(logits), [0.1, 0.4, 0.3, 0.2], rtol=1e-6)
    assert dense(logits, top_p=0.0).tolist() == [0, 1, 0, 0]  # at least one
    np.testing.assert_allclose(dense(logits, top_p=1.0), [0.1, 0.4, 0.3, 0.2], rtol=1e-6)
    assert dense(logits, temperature=0.0).tolist() == [0, 1, 0, 0]
    assert dense(logits, temperature=5e-324).tolist() == [0, 1, 0, 0]
    assert dense(logits, top_k=1).tolist() == [0, 1, 0, 0]
    assert dense(logits, min_p=1.0).tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(dense(logits, top_k=99), dense(logits), rtol=1e-6)
    np.testing.assert_allclose(dense(logits, temperature=1e300), [0.25] * 4, rtol=1e-6)
    assert dense([3.5]).tolist() == [1.0]
    assert dense([3.5], top_k=1, top_p=0.0, min_p=1.0).tolist() == [1.0]


def test_equal_logits_are_ordered_by_id():
    equal = np.zeros(10)
    assert dense(equal, top_p=0.5).tolist() == [0.2] * 5 + [0.0] * 5  # exactly half reaches a half
    assert dense(equal, top_k=3).tolist() == [1 / 3] * 3 + [0.0] * 7
    assert dense(equal, top_k=4, top_p=0.5).tolist() == [0.5] * 2 + [0.0] * 8  # half of the four
    assert dense(equal, temperature=0.0).tolist() == [1.0] + [0.0] * 9
    assert dense(equal, min_p=1.0).tolist() == [0.1] * 10


def test_repetition_penalty():
    sampling = Sampling(temperature=0.0, repetition_penalty=2.0)
    assert next_token_distribution([1.0, 1.5], sampling, [1, 1])[0].tolist() == [0]
    assert next_token_distribution([-1.5, -1.0], sampling, [1])[0].tolist() == [0]
    assert next_token_distribution([1.0, 2.5], sampling, [1])[0].tolist() == [1]
    logits = np.array([1.0, 1.5])
    next_token_distribution(logits, sampling, [1])
    assert logits.tolist() == [1.0, 1.5]  # the argument is unchanged


@pytest.mark.parametrize(("penalty", "likeliest"), [(1e-320, 1), (1e308, 0)])
@pytest.mark.parametrize("logits", [[1.0, 20.0], [-1.0, -20.0]])
def test_extreme_repetition_penalty(penalty, likeliest, logits):
    ids, probabilities = next_token_distribution(logits, Sampling(repetition_penalty=penalty), [1])
    assert ids[probabilities.argmax()] == likeliest


def test_repetition_penalty_of_all_tokens():
    """All tokens become infinitely unlikely, and one is still chosen."""
    sampling = Sampling(repetition_penalty=1e300, top_p=0.9)
    for logits in ([-1e10, -2e10], [1e-300, 1e-310]):
        options = {"sample_index": 0, "position": 0, "previous_ids": [0, 1]}
        assert choose(logits, sampling, **options) in (0, 1)


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 0.0}, {"temperature": 0.0}])
def test_greedy_choice_among_nearly_equal_logits(options):
    logits = np.array([0.1, np.nextafter(np.float32(0.1), np.float32(1)), 0.0], np.float32)
    sampling = Sampling(**{"temperature": 1e6, **options})
    assert dense(logits, **{"temperature": 1e6, **options}).tolist() == [0, 1, 0]
    chosen = {choose(logits, sampling, sample_index=0, position=i) for i in range(20)}
    assert chosen == {1}


def test_tokens_of_probability_zero_are_never_kept():
    logits = [0.0, -math.inf, 1.0, -1000.0]
    for options in ({}, {"top_k": 4}, {"top_p": 0.9999999}, {"min_p": 1e-9}):
        assert set(np.flatnonzero(dense(logits, **options))) == {0, 2}


@pytest.mark.parametrize("logits", [[-math.inf] * 3, [0.0, math.nan], [math.inf, 0.0]])
def test_logits_that_are_not_finite_are_rejected(logits):
    with pytest.raises(ValueError, match="there is no token to choose, as the largest logit is"):
        choose(logits, Sampling(), sample_index=0, position=0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; it must be at least 0."),
        ({"temperature": math.nan}, "temperature is nan; it must be finite."),
        ({"temperature": math.inf}, "temperature is inf; it must be finite."),
        ({"top_k": 0}, "top_k must be at least 1, not 0."),
        ({"top_p": 1.01}, "top_p is 1.01; it must be at most 1."),
        ({"top_p": math.nan}, "top_p is nan; it must be finite."),
        ({"min_p": -0.5}, "min_p is -0.5; it must be at least 0."),
        ({"min_p": math.nan}, "min_p is nan; it must be finite."),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0; it must be above 0."),
        ({"repetition_penalty": math.nan}, "repetition_penalty is nan; it must be finite."),
        ({"seed": -1}, "seed must be at least 0, not -1"),
        ({"seed": 2**64}, "seed must be at most 18446744073709551615, not 18446744073709551616"),
    ],
)
def test_invalid_options_are_rejected(options, sentence):
    with pytest.raises(ValueError, match=sentence.replace("*", r"\*")):
        Sampling(**options)


# --- random numbers ---


@pytest.mark.parametrize(
    "options",
    [{}, {"temperature": 0.7, "top_p": 0.9}, {"top_k": 3}, {"min_p": 0.2, "temperature": 1.5}],
)
def test_draws_follow_the_distribution(options):
    """Chi-square test of 5,000 draws at 99.9%, with a fixed seed."""
    random = np.random.default_rng(1)
    logits = random.standard_normal(8)
    sampling = Sampling(**options, seed=3)
    draws = 5_000
    counts = np.zeros(8)
    for i in range(draws):  # over positions of one sample, and over samples
        counts[choose(logits, sampling, sample_index=i // 100, position=i % 100)] += 1
    expected = defined(logits, **options) * draws
    assert not counts[expected == 0].any()
    kept = expected > 0
    chi_square = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    limits = {2: 13.8, 3: 16.3, 4: 18.5, 5: 20.5, 6: 22.5, 7: 24.3}
    assert chi_square < limits[int(kept.sum()) - 1]


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=200),
    st.sampled_from([np.float32, np.float64]),
    st.floats(0.1, 3.0),
    st.one_of(st.none(), st.integers(1, 250), st.just(10**30)),
    st.floats(0.0, 1.0),
    st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    st.one_of(st.just(1.0), st.floats(0.5, 2.0)),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_draw_inverts_the_cumulative_distribution(
    numbers, dtype, temperature, top_k, top_p, min_p, penalty, unit
):
    """The cumulative distribution is in the order of ids."""
    logits = np.array(numbers, dtype) / 7
    said = [i for i in range(len(numbers)) if i % 3 == 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "random_unit", lambda *_: unit)
        sampling = Sampling(temperature, top_k, top_p, min_p, penalty)
        found = choose(logits, sampling, sample_index=0, position=0, previous_ids=said)
    # If a set reaches p, or the number a boundary, up to rounding, both results are right.
    places = []
    for d, e in [(0.0, 0.0), *NEARBY]:
        p, q = np.clip([top_p + d if top_p < 1 else 1.0, min_p + e if min_p > 0 else 0.0], 0, 1)
        nearly = Sampling(temperature, top_k, p, q, penalty)
        ids, probabilities = next_token_distribution(logits, nearly, said)
        ends = np.cumsum(probabilities)
        for near in (unit, unit - 1e-5, unit + 1e-5):
            places.append(ids[min(np.searchsorted(ends, near, side="right"), len(ids) - 1)])
    assert found in places


def test_draw_from_a_large_vocabulary():
    random = np.random.default_rng(2)
    for scale in (0.01, 1.0, 10.0):  # untrained, trained, nearly certain
        logits = (scale * random.standard_normal(50_000)).astype(np.float32)
        for options in ({}, {"top_p": 0.95}, {"top_k": 1000, "top_p": 0.9}, {"min_p": 0.3}):
            sampling = Sampling(0.8, **options)
            ids, probabilities = next_token_distribution(logits, sampling)
            ends = np.cumsum(probabilities)
            for position in range(20):
                place = np.searchsorted(ends, random_unit(0, 5, position), side="right")
                found = choose(logits, sampling, sample_index=5, position=position)
                nearby = ids[max(0, place - 1) : place + 2]  # the number may be on a boundary
                assert found in nearby
                assert abs(ends[np.searchsorted(ids, found)] - ends[place]) < 1e-4


def test_random_numbers_are_uniform_and_independent():
    units = np.array(
        [random_unit(s, i, p) for s in range(20) for i in range(20) for p in range(50)]
    )
    assert len(set(units)) == len(units)
    assert 0 <= units.min() < units.max() < 1
    counts = np.histogram(units, bins=100, range=(0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 149  # chi-square, 99 degrees, 99.9%
    grid = units.reshape(20, 20, 50)
    for axis in range(3):
        first, second = (
            np.take(grid, range(19 if axis < 2 else 49), axis),
            np.take(grid, range(1, 20 if axis < 2 else 50), axis),
        )
        assert abs(np.corrcoef(first.ravel(), second.ravel())[0, 1]) < 0.03


def test_random_numbers_are_splitmix64():
    """The first two outputs of the published generator with seed 0."""
    assert module.splitmix64(0) == 0xE220A8397B1DCDAF
    assert module.splitmix64(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


def test_draw_at_the_ends_of_the_unit_interval(monkeypatch):
    monkeypatch.setattr(module, "random_unit", lambda *_: 1.0)
    assert choose([0.0, 0.0, -math.inf], Sampling(), sample_index=0, position=0) == 1
    monkeypatch.setattr(module, "random_unit", lambda *_: 0.0)
    assert choose([-math.inf, 0.0, 0.0], Sampling(), sample_index=0, position=0) == 1
    # Intervals are closed on the left: 0.25 belongs to the second of four.
    monkeypatch.setattr(module, "random_unit", lambda *_: 0.25)
    assert choose([0.0] * 4, Sampling(), sample_index=0, position=0) == 1


def test_sampling_does_not_import_torch():
    code = (
        "import sys, tilth.generation as g; g.Sampling, g.next_token_distribution; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
