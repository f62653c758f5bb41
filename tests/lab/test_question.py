"""Functions that all questions share: costs, seeds, groups and comparisons."""

import math
from dataclasses import replace
from statistics import median

import pytest

from tests.lab.asking import BASE, ask, diverged, finished
from tests.report.reporting import make_run, record
from tilth.accounting import training_flops
from tilth.config.overrides import changed
from tilth.formatting import join_words
from tilth.lab.question import at_equal_flops, relative_cost, trial_config
from tilth.lab.questions.learning_rate import LearningRate
from tilth.lab.trials import TrialResult, best_of, difference_text, groups_of, read_result
from tilth.report.comparing import is_within_seed_spread
from tilth.runs.run import open_run


def group(*bits, label="a"):
    question = LearningRate(BASE, seeds=len(bits))
    trials = question.over_seeds(label, label, BASE, 1.0)
    results = {s.name: finished(b) for s, b in zip(trials, bits, strict=True)}
    return groups_of(trials, results)[label]


def test_trials_of_several_seeds_differ_in_the_seed_alone():
    trials = LearningRate(changed(BASE, {"seed": 5}), seeds=3).over_seeds("n", "l", BASE, 2.0)
    assert [trial.config.seed for trial in trials] == [5, 6, 7]
    assert {trial.group for trial in trials} == {"l"}
    assert len({trial.name for trial in trials}) == len({trial.label for trial in trials}) == 3
    assert {changed(trial.config, {"seed": 0}) for trial in trials} == {BASE}


def test_a_single_seed_is_not_part_of_name_or_label():
    (trial,) = LearningRate(BASE).over_seeds("n", "l", BASE)
    assert (trial.name, trial.label) == ("n", "l")


def test_zero_seeds_are_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1, not 0"):
        LearningRate(BASE, seeds=0)


def test_cost_is_relative_flops():
    double = changed(BASE, {"steps": 800})
    assert relative_cost(double, BASE) == 2.0
    wide = changed(BASE, {"model.d_model": 192})
    ratio = training_flops(wide.model, 16) / training_flops(BASE.model, 16)
    assert relative_cost(wide, BASE) == pytest.approx(ratio)
    assert relative_cost(at_equal_flops(wide, BASE), BASE) == pytest.approx(1.0, rel=0.01)
    assert at_equal_flops(BASE, BASE) == BASE


def test_a_trial_samples_once_at_its_end():
    config = trial_config(BASE)
    assert config.watch.sample_every == config.steps == 400


@pytest.mark.parametrize("steps", [1, 2, 7, 12, 50])
def test_step_seconds_is_the_median_and_ignores_slow_steps(tmp_path, steps):
    times = [0.001] * steps
    times[0] = 0.01
    if steps >= 12:
        times[4] = 0.02  # something else wanted the machine
    records = [
        replace(record(number, 7.0 - number / 1e3), step_seconds=seconds)
        for number, seconds in enumerate(times, start=1)
    ]
    make_run(tmp_path / "run", records)
    found = read_result(tmp_path / "run", "finished")
    assert found.step_seconds == median(times)
    assert found.seconds == sum(times)
    assert (found.steps, found.first_loss) == (steps, 6.999)


def test_step_seconds_of_older_runs_come_from_tokens_per_second(tmp_path):
    make_run(tmp_path / "run", [record(1, 7.0), record(2, 6.0)])
    found = read_result(tmp_path / "run", "finished")
    tokens = open_run(tmp_path / "run").config.tokens_per_step
    assert found.step_seconds == found.seconds / 2 == tokens / 512.0


def test_a_first_loss_that_was_not_finite_is_infinite(tmp_path):
    make_run(tmp_path / "run", [record(1, None), record(2, 3.0)])
    assert read_result(tmp_path / "run", "diverged").first_loss == math.inf
    make_run(tmp_path / "none", [])
    assert read_result(tmp_path / "none", "failed") == TrialResult("failed")


def test_a_difference_within_the_spread_of_seeds_is_reported():
    base = group(1.00, 1.02)
    near, far = group(1.01, 1.05), group(1.10, 1.12)
    assert is_within_seed_spread(near, base)
    assert not is_within_seed_spread(far, base)
    assert difference_text(near, base) == "+0.0200 (+2.0%), within the spread over seeds"
    assert difference_text(far, base) == "+0.1000 (+9.9%)"
    assert difference_text(group(0.5), group(1.0)) == "-0.5000 (-50.0%), one seed"


def test_a_group_with_a_trial_that_diverged_has_no_mean_and_is_never_best():
    question = LearningRate(BASE, seeds=2)
    good, bad = (question.over_seeds(name, name, BASE, 1.0) for name in ("good", "bad"))
    results = {trial.name: finished(1.5) for trial in good}
    results |= {bad[0].name: finished(1.0), bad[1].name: diverged()}
    groups = groups_of([*bad, *good], results)
    assert not groups["bad"].is_whole
    assert groups["bad"].result_text == "diverged"
    assert best_of(groups.values()).label == "good"
    assert difference_text(groups["bad"], groups["good"]) == "diverged"


def test_an_unfinished_group_is_left_out():
    trials = LearningRate(BASE, seeds=2).over_seeds("n", "l", BASE)
    assert groups_of(trials, {trials[0].name: finished(1.0)}) == {}


def test_result_text_of_trials_without_an_evaluation():
    trials = LearningRate(BASE).over_seeds("n", "l", BASE)
    assert groups_of(trials, {"n": TrialResult("failed")})["l"].result_text == "failed"
    assert groups_of(trials, {"n": TrialResult("finished")})["l"].result_text == "not evaluated"


def test_join_words():
    assert join_words(["a"]) == "a"
    assert join_words(["a", "b"]) == "a and b"
    assert join_words(["a", "b", "c"]) == "a, b and c"


def test_a_question_with_all_results_plans_no_more_trials():
    question = LearningRate(BASE)
    results = ask(question, lambda trial: finished(abs(trial.x - 0.01)))
    number = len(results)
    assert len(ask(question, None, results)) == number
