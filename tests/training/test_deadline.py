"""Time budgets: the end of a run is decided late, and the run is that of its config."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.training.comparing import difference
from tilth.runs.run import open_run, verify_run
from tilth.training import deadline, loop, planning, resume, train

SCHEDULE = {"schedule": "warmup-stable-decay", "warmup_steps": None, "decay_steps": None}


@pytest.fixture
def budget(change, monkeypatch):
    """Return a config of 12 seconds, of which the plan believes that a step takes 1 s."""
    monkeypatch.setattr(planning, "_time_steps", lambda *_, **__: [(1.0, 1.0)])
    monkeypatch.setattr(planning, "_expected_seconds", lambda config, *_: float(config.steps))
    stopped = SimpleNamespace(perf_counter=lambda: 0.0)
    monkeypatch.setattr(planning, "time", stopped)
    watch = {"evaluate_every": 0, "save_every": 2, "sample_every": 0}
    return replace(
        change(optimizer=SCHEDULE, watch=watch, steps=None, machine={"dtype": "float32"}),
        budget_seconds=40.0,
    )


def run_at(seconds, config, folder, monkeypatch, last=None):
    """Train while a step takes `seconds`, or as many as a function of its number returns."""
    clock = SimpleNamespace(now=0.0)
    for module in (deadline, loop):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    records = train(config, folder)
    clock.now += seconds(1) if callable(seconds) else seconds
    for record in records:
        if record.step == last:
            records.close()
            break
        clock.now += seconds(record.step + 1) if callable(seconds) else seconds
    else:
        clock.now -= seconds(record.step + 1) if callable(seconds) else seconds
    return clock.now


@pytest.mark.parametrize("pace", [0.5, 0.8, 1.0, 1.3, 2.0])
def test_budget_is_kept_at_another_speed(budget, tmp_path, monkeypatch, pace):
    gone = run_at(pace, budget, tmp_path / "run", monkeypatch)
    config = open_run(tmp_path / "run").config
    # By this clock, a step with an evaluation takes as long as one without; the decision sets the
    # time of one evaluation aside.
    assert 40.0 - 2.1 * pace <= gone <= 40.0
    assert config.steps == pytest.approx(40 / pace, abs=2)
    decay = config.optimizer.decay_steps / config.steps
    # A faster machine learns of it at the planned end of the constant phase: step 20.
    assert decay == pytest.approx(0.5 if pace >= 1 else 1 - 20 / config.steps, abs=0.1)
    assert all(problem is None for _, problem in verify_run(open_run(tmp_path / "run")))


def test_slow_evaluations_are_part_of_the_budget(budget, tmp_path, monkeypatch):
    watch = replace(budget.watch, evaluate_every=5)
    config = replace(budget, watch=watch)
    gone = run_at(
        lambda step: 3.0 if step % 10 == 0 else 1.0, config, tmp_path / "run", monkeypatch
    )
    assert gone == pytest.approx(40.0, rel=0.08)


def test_run_is_that_of_its_config(budget, tmp_path, monkeypatch):
    run_at(1.4, budget, tmp_path / "budget", monkeypatch)
    config = open_run(tmp_path / "budget").config
    assert config.steps < 40
    list(train(config, tmp_path / "steps"))
    assert difference(tmp_path / "budget", tmp_path / "steps") is None


@pytest.mark.parametrize("last", [16, 17, 23])
def test_resumes_to_the_same_bits_after_the_decision(budget, tmp_path, monkeypatch, last):
    run_at(1.4, budget, tmp_path / "whole", monkeypatch)
    run_at(1.4, budget, tmp_path / "stopped", monkeypatch, last=last)
    assert open_run(tmp_path / "stopped").config == open_run(tmp_path / "whole").config
    list(resume(tmp_path / "stopped"))
    assert difference(tmp_path / "stopped", tmp_path / "whole") is None


def test_resumes_from_a_checkpoint_before_the_decision(budget, tmp_path, monkeypatch):
    """The process died between the decision and the next checkpoint."""
    run_at(1.4, budget, tmp_path / "whole", monkeypatch)
    run_at(1.4, budget, tmp_path / "killed", monkeypatch, last=16)
    newest = open_run(tmp_path / "killed").checkpoints()[-1]
    (newest.folder / "model.safetensors").write_bytes(b"damaged")
    list(resume(tmp_path / "killed"))
    assert difference(tmp_path / "killed", tmp_path / "whole") is None


def test_config_of_a_decaying_run_cannot_change(budget, tmp_path, monkeypatch):
    run_at(1.4, budget, tmp_path / "run", monkeypatch, last=20)
    run = open_run(tmp_path / "run")
    run.save_config(replace(run.config, steps=run.config.steps + 5))
    with pytest.raises(ValueError, match="was trained with steps = "):
        list(resume(tmp_path / "run"))


def test_stopped_before_the_decision(budget, tmp_path, monkeypatch):
    """The time of the budget is over; the planned number of steps stays."""
    run_at(1.4, budget, tmp_path / "run", monkeypatch, last=7)
    list(resume(tmp_path / "run"))
    assert open_run(tmp_path / "run").config.steps == 40
    assert len(open_run(tmp_path / "run").metrics()) == 40


def test_cosine_keeps_the_planned_number_of_steps(budget, tmp_path, monkeypatch):
    cosine = replace(budget, optimizer=replace(budget.optimizer, schedule="cosine"))
    run_at(1.4, cosine, tmp_path / "run", monkeypatch)
    assert open_run(tmp_path / "run").config.steps == 40


def test_short_runs(budget, tmp_path, monkeypatch):
    for seconds in (1.0, 2.0, 3.0, 4.0):
        config = replace(budget, budget_seconds=seconds)
        folder = tmp_path / f"run-{seconds}"
        gone = run_at(1.0, config, folder, monkeypatch)
        assert gone == pytest.approx(seconds, abs=1.0)
        assert open_run(folder).is_finished


def test_decided_once(budget, tmp_path, monkeypatch, caplog):
    run_at(lambda step: 1.4 if step < 18 else 0.3, budget, tmp_path / "run", monkeypatch)
    said = [
        record.message for record in caplog.records if "to keep the time budget" in record.message
    ]
    assert len(said) == 1
