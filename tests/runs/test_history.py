"""The history of a run: weights of geometrically spaced steps, which resuming does not need."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import tilth
from tests.torch_threads import one_thread
from tests.training.conftest import change, config, data
from tilth.files import FileError
from tilth.runs.checkpoints import (
    HISTORY,
    is_in_history,
    list_checkpoints,
    most_in_history,
    remove_old,
)
from tilth.runs.run import open_run, verify_run
from tilth.training import resume, train
from tilth.training.evaluation import evaluate_run

__all__ = ["change", "config", "data", "one_thread"]
KEPT = [0, 1, 2, 3, 4, 6, 8, 12]


@pytest.fixture(scope="module")
def run(config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / "run"
    watch = replace(config.watch, weights_per_doubling=2)
    list(train(replace(config, watch=watch), folder))
    return open_run(folder)


def steps_of(run, name=HISTORY):
    return [each.step for each in list_checkpoints(run.folder, name)]


@pytest.mark.parametrize("per_doubling", [0, 1, 2, 3, 10, 64])
@pytest.mark.parametrize("steps", [1, 2, 3, 300])
def test_steps_are_the_first_at_or_after_each_power(per_doubling, steps):
    found = [step for step in range(steps + 1) if is_in_history(step, per_doubling)]
    assert len(found) <= most_in_history(steps, per_doubling)
    if per_doubling in (0, 1):
        assert len(found) == most_in_history(steps, per_doubling)
    # Exactly: the smallest step with step ** per_doubling >= 2 ** power.
    powers = [step**per_doubling for step in range(steps + 1)]
    expected = {0} if per_doubling else set()
    for power in range(per_doubling * steps.bit_length() if per_doubling else 0):
        expected |= set([step for step in range(steps + 1) if powers[step] >= 2**power][:1])
    assert found == sorted(expected)


def test_a_run_keeps_them(run, config):
    assert steps_of(run) == KEPT
    assert [each.step for each in run.checkpoints()] == [8, 12]
    assert [each.step for each in run.history()] == KEPT
    for each in list_checkpoints(run.folder, HISTORY):
        names = sorted(path.name for path in each.folder.iterdir())
        assert names == ["model.safetensors", "state.json"]
    assert "history/step-000064" in (run.folder / "README.md").read_text()
    assert run.config.watch.weights_per_doubling == 2


def test_weights_are_those_of_the_checkpoint_of_the_step(run, config, tmp_path):
    for full in run.checkpoints():
        weights = full.weights(config.model)
        kept = next(
            each for each in list_checkpoints(run.folder, HISTORY) if each.step == full.step
        )
        assert kept.folder != full.folder
        for name, weight in kept.weights(config.model).items():
            np.testing.assert_array_equal(weight, weights[name])
    before = {}  # of a run that saves a checkpoint at each step
    watch = replace(config.watch, save_every=1, keep_checkpoints=12)
    list(train(replace(config, watch=watch), tmp_path / "all"))
    for each in open_run(tmp_path / "all").checkpoints():
        before[each.step] = each.weights(config.model)
    for step in KEPT[1:]:
        _, weights = run.weights(step)
        for name, weight in weights.items():
            np.testing.assert_array_equal(weight, before[step][name])


def test_readers_take_a_step_of_the_history(run):
    scores = {step: tilth.load(run.folder, step=step).score("Once upon") for step in KEPT}
    assert len({tuple(scored) for scored in scores.values()}) == len(KEPT)
    model = tilth.load(run.folder / HISTORY / "step-000003")
    assert model.score("Once upon") == scores[3]
    checkpoint, found = evaluate_run(run, step=3)
    logged = run.metrics()[2].evaluation
    assert (checkpoint.step, found.loss) == (3, pytest.approx(logged.loss, rel=0.05))
    with pytest.raises(FileError, match="has no checkpoint of step 5; there are 0, 1, 2, 3, 4, 6"):
        tilth.load(run.folder, step=5)
    assert run.checkpoint().step in (8, 12)  # the best one, and never one of the history


def test_verify_finds_damage(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "copy")
    path = tmp_path / "copy" / HISTORY / "step-000003" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    found = dict(verify_run(open_run(tmp_path / "copy")))
    damaged = [name for name, problem in found.items() if problem]
    assert damaged == ["history/step-000003"]
    assert {f"history/step-{step:06}" for step in KEPT} <= found.keys()


def test_resuming_neither_needs_nor_removes_them(run, config, tmp_path):
    watch = replace(config.watch, weights_per_doubling=2)
    records = train(replace(config, watch=watch), tmp_path / "run")
    for record in records:
        if record.step == 7:
            records.close()
    stopped = open_run(tmp_path / "run")
    assert steps_of(stopped) == KEPT[:-2]
    shutil.rmtree(stopped.folder / HISTORY)  # it is not needed
    list(resume(stopped.folder))
    assert steps_of(stopped) == [8, 12]
    for step in (8, 12):
        first, second = (each.weights(step)[1] for each in (stopped, run))
        for name, weight in first.items():
            np.testing.assert_array_equal(weight, second[name])
    remove_old(run.folder, keep=1, newest=12)
    assert steps_of(run) == KEPT


def test_a_history_alone_resumes_from_nothing(run, tmp_path):
    shutil.copytree(run.folder, tmp_path / "copy")
    for each in open_run(tmp_path / "copy").checkpoints():
        shutil.rmtree(each.folder)
    copy = open_run(tmp_path / "copy")
    assert not copy.is_finished
    with pytest.raises(FileError, match="has no checkpoint yet"):
        copy.checkpoint()
    assert copy.checkpoint(12).folder.parent.name == HISTORY
