"""`scaling`: its trials and findings, with losses of a known law, and a tiny lab."""

import math
import re
from dataclasses import replace

import pytest

import tilth
from tests.lab.asking import BASE, ask, diverged
from tilth.accounting import training_flops
from tilth.lab.question import relative_cost
from tilth.lab.questions.scaling import Scaling
from tilth.lab.scaling_law import Law
from tilth.lab.trials import TrialResult

LAW = Law(E=0.9, A=60.0, alpha=0.4, B=300.0, beta=0.45)


def parameters(config):
    return training_flops(config.model) / config.model.context_length / 6


def law_result(trial, factor=1.0):
    loss = factor * LAW.loss(parameters(trial.config), trial.config.tokens)
    return TrialResult("finished", loss, loss / 3.0, 0.01, trial.config.steps)


@pytest.fixture
def question(stories):
    return Scaling(replace(BASE, data=str(stories.folder)), predict=["tinystories:41M", "small"])


def test_trials_are_a_grid_of_sizes_and_lengths(question):
    trials = question.trials({})
    shapes = {(t.config.model.num_layers, t.config.model.d_model) for t in trials}
    assert shapes == {(2, 64), (3, 96), (4, 96), (6, 160)}
    assert {t.config.model.d_head for t in trials} == {32}
    assert {t.config.steps for t in trials} == {50, 100, 200, 400}
    assert len(trials) == len({t.name for t in trials}) == 16
    rates = {t.config.model.num_layers: t.config.optimizer.lr for t in trials}
    assert rates[4] == BASE.optimizer.lr
    assert rates[6] == pytest.approx(BASE.optimizer.lr * math.sqrt(4 / 6), rel=1e-3)
    optimizers = [trial.config.optimizer for trial in trials]
    embedding = {round(each.lr * each.embedding_lr_factor, 9) for each in optimizers}
    assert len(embedding) == (1 if BASE.optimizer.embedding_lr_factor != 1.0 else 4)
    assert question.cost() == pytest.approx(
        sum(relative_cost(t.config, question.base) for t in trials)
    )
    assert len(Scaling(question.base, 3, ()).trials({})) == 48


def test_known_law_is_found_and_used(question):
    found = question.conclude(ask(question, law_result))
    values = {row[0]: row[1] for row in found.tables[1].rows}
    assert float(values["E"]) == pytest.approx(0.9, rel=1e-3)
    assert float(values["alpha"]) == pytest.approx(0.4, rel=1e-3)
    assert float(values["beta"]) == pytest.approx(0.45, rel=1e-3)
    growth = values["exponent of the optimal N in FLOPs"]
    assert float(growth) == pytest.approx(0.45 / 0.85, abs=1e-3)
    (first, second) = found.tables[2].rows
    model = tilth.config.RECIPES["tinystories"](1000, "data").model
    expected = LAW.loss(training_flops(model) / 256 / 6, 41e6)
    assert first[0] == "tinystories:41M"
    assert first[2] == 41_000_000
    assert float(first[3]) == pytest.approx(expected, abs=1e-3)
    assert float(first[5]) == pytest.approx(expected / 3, abs=1e-3)
    assert second[2] == 2_400 * 4 * 256
    assert "0.9 + 60 / N^0.4 + 300 / D^0.45" in found.answer
    held_out = next(note for note in found.notes if note.startswith("Held out"))
    assert "6 x 160, 400 steps" in held_out
    assert abs(float(re.search(r"error of ([-+.\d]+)%", held_out)[1])) < 0.01
    assert any("read it more than 4 times" in note for note in found.notes)


def test_frontier_is_below_all_runs(question):
    found = question.conclude(ask(question, law_result))
    frontier = next(chart for chart in found.charts if "frontier" in chart.title)
    lines = {line.name: line.points for line in frontier.lines}
    for flops, loss in (*lines["runs"], *lines["predicted"]):
        assert loss >= LAW.loss(*LAW.optimum(flops)) - 1e-6
    for flops, loss in lines["compute-optimal"]:
        assert loss == pytest.approx(LAW.loss(*LAW.optimum(flops)), rel=1e-3)


def test_largest_run_off_the_law_is_reported(question):
    def answer(trial):
        is_largest = trial.config.model.num_layers == 6 and trial.config.steps == 400
        return law_result(trial, 1.05 if is_largest else 1.0)

    found = question.conclude(ask(question, answer))
    held_out = next(note for note in found.notes if note.startswith("Held out"))
    assert "outside the interval, an error of -4.7" in held_out


def test_diverged_runs_are_left_out(question):
    def answer(trial):
        return diverged() if trial.config.model.num_layers == 6 else law_result(trial)

    found = question.conclude(ask(question, answer))
    values = {row[0]: row[1] for row in found.tables[1].rows}
    assert float(values["alpha"]) == pytest.approx(0.4, rel=1e-2)
    nothing = question.conclude(ask(question, lambda _: diverged()))
    assert nothing.answer.startswith("No law was fitted")


@pytest.mark.parametrize(
    ("predict", "sentence"),
    [
        ("tinnystories", "did you mean tinystories"),
        ("tinystories:many", "are not a number; write NAME:41M"),
        ("tinystories:0", "are not a number"),
        ("leaderboard", "has no number of steps; give tokens, as in leaderboard:1B"),
    ],
)
def test_invalid_predictions_are_rejected(predict, sentence):
    with pytest.raises(ValueError, match=sentence):
        Scaling(BASE, predict=[predict])


def test_a_tiny_lab_is_trained_and_resumed(stories, tmp_path):
    options = {
        "recipe": "tiny",
        "steps": 16,
        "batch_size": 2,
        "out": tmp_path / "lab",
        "changes": {
            "model.context_length": 16,
            "machine.threads": 1,
            "watch.evaluation_tokens": 64,
        },
    }
    plan = tilth.lab.plan("scaling", stories, predict=["tiny"], **options)
    assert "6 trials" in str(plan)  # 1, 2 and 3 layers, 8 and 16 steps
    events = plan.run()
    for event in events:
        if event.result is not None:
            break
    events.close()
    lab = tilth.lab.scaling(stories, predict=["tiny"], **options)
    assert lab.answer.startswith("The loss in nats per token is ")
    assert {trial.state for trial in lab.trials} == {"finished"}
    again = tilth.lab.scaling(stories, predict=["small"], **options)  # nothing is trained
    assert again.trials == lab.trials
    assert again.tables[2].rows[0][0] == "small"
    assert all(line.points for chart in again.charts for line in chart.lines)
