"""What is common to all questions: costs, seeds, results and their words."""

import math
from collections import deque
from dataclasses import replace

import pytest

from tests.lab.asking import BASE, ask, diverged, finished
from tests.lab.reporting import config_of, make_run, record
from tilth.accounting import training_flops
from tilth.lab import experiment
from tilth.lab.experiment import (
    Outcome,
    against,
    at_equal_flops,
    best_of,
    is_chance,
    listed,
    read_outcome,
    relative_cost,
    results_of,
    trial_config,
)
from tilth.lab.learning_rates import LearningRates
from tilth.recipes.changing import changed
from tilth.training import loop


def result(*bits, label="a"):
    question = LearningRates(BASE, seeds=len(bits))
    setups = question.over_seeds(label, label, BASE, 1.0)
    outcomes = {s.name: finished(b) for s, b in zip(setups, bits, strict=True)}
    return results_of(setups, outcomes)[label]


def test_trials_of_several_seeds_differ_in_the_seed_alone():
    setups = LearningRates(changed(BASE, {"seed": 5}), seeds=3).over_seeds("n", "l", BASE, 2.0)
    assert [setup.config.seed for setup in setups] == [5, 6, 7]
    assert {setup.group for setup in setups} == {"l"}
    assert len({setup.name for setup in setups}) == len({setup.label for setup in setups}) == 3
    assert {changed(setup.config, {"seed": 0}) for setup in setups} == {BASE}


def test_one_seed_needs_no_mention():
    (setup,) = LearningRates(BASE).over_seeds("n", "l", BASE)
    assert (setup.name, setup.label) == ("n", "l")


def test_no_seed_at_all_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        LearningRates(BASE, seeds=0)


def test_cost_is_that_of_the_flops():
    double = changed(BASE, {"steps": 800})
    assert relative_cost(double, BASE) == 2.0
    wide = changed(BASE, {"model.d_model": 192})
    ratio = training_flops(wide.model, 16) / training_flops(BASE.model, 16)
    assert relative_cost(wide, BASE) == pytest.approx(ratio)
    assert relative_cost(at_equal_flops(wide, BASE), BASE) == pytest.approx(1.0, rel=0.01)
    assert at_equal_flops(BASE, BASE) == BASE


def test_a_trial_writes_one_text_at_its_end():
    config = trial_config(BASE)
    assert config.watch.sample_every == config.steps == 400


def logged(folder, times, sessions=(0,)):
    """A run whose steps took these times, as a training logs them; its losses fall from 7."""
    config = config_of(steps=len(times))
    records, recent = [], deque(maxlen=loop.SPEED_STEPS)
    for number, seconds in enumerate(times):
        if number in sessions:
            recent.clear()
        recent.append(seconds)
        speed = round(config.tokens_per_step * len(recent) / sum(recent), 1)
        records.append(replace(record(number + 1, 7.0 - number / 1e3), tokens_per_second=speed))
    make_run(folder, records, config)
    return read_outcome(folder, "finished")


@pytest.mark.parametrize("steps", [1, 2, 7, 12, 20, 21, 50, 200])
def test_a_step_takes_its_median_whatever_the_first_and_a_few_others_took(tmp_path, steps):
    times = [0.001] * steps
    assert logged(tmp_path / "even", times).step_seconds == pytest.approx(0.001, rel=1e-3)
    times[0] = 0.01
    if steps >= 12:
        times[4] = 0.02  # something else wanted the machine
    found = logged(tmp_path / "uneven", times)
    expected = 0.001 if steps > 1 else 0.01
    assert found.step_seconds == pytest.approx(expected, rel=1e-3)
    assert found.seconds == pytest.approx(sum(times), rel=0.02)  # of some, only their mean is known
    assert found.steps == steps
    assert found.first_loss == 7.0


@pytest.mark.parametrize("begins", [1, 5, 11])
def test_a_step_takes_about_its_median_in_a_run_that_was_resumed(tmp_path, begins):
    times = [0.001] * 12
    times[0] = times[begins] = 0.003
    found = logged(tmp_path / "run", times, (0, begins))
    assert found.step_seconds == pytest.approx(0.001, rel=0.06)
    soon = logged(tmp_path / "soon", [0.003, 0.001], (0, 1))
    assert 0 < soon.step_seconds <= 0.003


def test_the_mean_of_a_log_is_of_as_many_steps_as_a_training_takes():
    assert experiment.SPEED_STEPS == loop.SPEED_STEPS


def test_a_first_loss_that_was_not_finite_is_infinite(tmp_path):
    make_run(tmp_path / "run", [record(1, None), record(2, 3.0)])
    assert read_outcome(tmp_path / "run", "diverged").first_loss == math.inf
    make_run(tmp_path / "none", [])
    assert read_outcome(tmp_path / "none", "failed") == Outcome("failed")


def test_a_difference_within_the_spread_of_seeds_is_called_that():
    base = result(1.00, 1.02)
    near, far = result(1.01, 1.05), result(1.10, 1.12)
    assert is_chance(near, base)
    assert not is_chance(far, base)
    assert against(near, base) == "+0.0200 (+2.0%), within the spread of seeds"
    assert against(far, base) == "+0.1000 (+9.9%)"
    assert against(result(0.5), result(1.0)) == "-0.5000 (-50.0%), one seed"


def test_a_group_with_a_trial_that_diverged_has_no_mean_and_is_never_best():
    question = LearningRates(BASE, seeds=2)
    good, bad = (question.over_seeds(name, name, BASE, 1.0) for name in ("good", "bad"))
    outcomes = {setup.name: finished(1.5) for setup in good}
    outcomes |= {bad[0].name: finished(1.0), bad[1].name: diverged()}
    results = results_of([*bad, *good], outcomes)
    assert not results["bad"].is_whole
    assert results["bad"].standing == "diverged"
    assert best_of(results.values()).label == "good"
    assert against(results["bad"], results["good"]) == "diverged"


def test_what_is_not_done_has_no_result():
    setups = LearningRates(BASE, seeds=2).over_seeds("n", "l", BASE)
    assert results_of(setups, {setups[0].name: finished(1.0)}) == {}


def test_a_trial_that_failed_before_its_first_evaluation_stands_so():
    setups = LearningRates(BASE).over_seeds("n", "l", BASE)
    assert results_of(setups, {"n": Outcome("failed")})["l"].standing == "failed"
    assert results_of(setups, {"n": Outcome("finished")})["l"].standing == "not evaluated"


def test_names_as_a_sentence_has_them():
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(["a", "b", "c"]) == "a, b and c"


def test_asking_again_with_all_outcomes_asks_for_nothing():
    question = LearningRates(BASE)
    outcomes = ask(question, lambda setup: finished(abs(setup.x - 0.01)))
    number = len(outcomes)
    assert len(ask(question, None, outcomes)) == number
