"""A search: its trials and results are the same however it is shared or interrupted."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from types import SimpleNamespace

import optuna
import pytest

from tilth.config.training import MachineConfig, TrainingConfig
from tilth.lab.search import journal as journal_module
from tilth.lab.search import search as search_module
from tilth.lab.search.findings import Outcome, SearchTrial
from tilth.lab.search.journal import JOURNAL, Journal
from tilth.lab.search.search import Search
from tilth.lab.search.space import draw_points
from tilth.report.lab_file import load_lab
from tilth.runs.run import open_run

STEPS = 16
LR = "optimizer.lr=1e-4..1e-1"
DISCRETE = ("optimizer.name=adamw,muon", "optimizer.weight_decay=0.0,0.1,0.2")


@pytest.fixture(autouse=True)
def _no_measuring(monkeypatch):
    """Every run would measure the machine's peak for a third of a second."""
    monkeypatch.setattr("tilth.training.session.measured_peak", lambda *_: 1e9)
    monkeypatch.setattr("tilth.training.planning.measured_peak", lambda *_: 1e9)


def outcomes_of(search):
    """Run a search to its end."""
    return {e.trial.name: e.result for e in search.run() if e.result is not None}


def stop_in(search, name, step):
    """Stop a search in the middle of a trial."""
    with closing(search.run()) as events:
        for event in events:
            if event.trial.name == name and event.record and event.record.step == step:
                return
    raise AssertionError("the search ended before it was stopped")


def journal_of(folder):
    """The trials, as Optuna reads them from the journal."""
    backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name=None, storage=storage).trials


def trained(folder):
    """The trials that did not repeat another."""
    return [trial for trial in journal_of(folder) if "values" in trial.user_attrs]


def measured(folder):
    """Return the learning rate and bits per byte of each run directory."""
    found = {}
    for run in map(open_run, sorted((folder / "runs").iterdir())):
        last = run.metrics()[-1].evaluation.bits_per_byte
        found[run.folder.name] = (run.config.optimizer.lr, last)
    return found


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """A search that was never interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "search"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilth.training.session.measured_peak", lambda *_: 1e9)
        outcomes = outcomes_of(Search(base, [LR], folder, trials=3, command=("tilth", "again")))
    return folder, outcomes


def test_files_of_a_finished_search(whole, base):
    folder, outcomes = whole
    lab, runs = load_lab(folder), measured(folder)
    assert list(runs) == [f"trial-{number:04}" for number in range(3)]
    assert [trial.state for trial in lab.trials] == ["finished"] * 3
    assert lab.command == ("tilth", "again")
    assert lab.axis == "optimizer.lr"
    rates = [lr for lr, _ in runs.values()]
    assert rates[0] == base.optimizer.lr  # the config's own values come first
    assert len(set(rates)) == 3
    assert all(1e-4 <= lr <= 1e-1 for lr in rates)
    assert [trial.x for trial in lab.trials] == rates
    assert [trial.label for trial in lab.trials] == [f"lr {lr:g}" for lr in rates]
    assert {name: o.bits_per_byte for name, o in outcomes.items()} == {
        name: bits for name, (_, bits) in runs.items()
    }
    best = min(runs.values(), key=lambda found: found[1])
    assert f"lr {best[0]:g}, with {best[1]:.4f} bits per byte" in lab.answer
    assert lab.tables[0].rows[0][2] == best[1]
    assert lab.charts[0].lines[0].points == tuple(sorted(runs.values()))
    assert TrainingConfig.from_dict(lab.base).steps == STEPS


def test_a_trial_is_an_ordinary_run_with_few_evaluations(whole):
    run = open_run(whole[0] / "runs" / "trial-0002")
    config = run.config
    assert config.optimizer.min_lr == pytest.approx(config.optimizer.lr / 100)  # it follows
    assert (config.watch.evaluate_every, config.watch.save_every) == (2, 2)
    assert (config.watch.norms_every, config.watch.sample_every) == (0, STEPS)
    assert config.watch.evaluation_tokens == 32_768
    assert len(run.samples()) == 1
    assert run.is_finished


def test_the_journal_agrees_with_the_results(whole):
    folder, outcomes = whole
    trials = journal_of(folder)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert [trial.value for trial in trials] == [o.bits_per_byte for o in outcomes.values()]
    for trial in trials:  # all evaluations but the last, which could save nothing any more
        assert list(trial.intermediate_values) == [2, 4, 6, 8, 10, 12, 14]


def test_finished_trials_are_not_run_again(whole, base):
    folder, _ = whole
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")}
    assert list(Search(base, [LR], folder, trials=3).run()) == []
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")} == before


@pytest.mark.parametrize(("name", "step"), [("trial-0000", 1), ("trial-0001", 7)])
def test_a_stopped_search_continues_to_the_same_result(whole, base, tmp_path, name, step):
    folder = tmp_path / "search"
    stop_in(Search(base, [LR], folder, trials=3), name, step)
    assert load_lab(folder).answer is None
    assert {t.name: t.state for t in load_lab(folder).trials}[name] == "running"
    events = list(Search(base, [LR], folder, trials=3).run())
    assert (events[0].trial.name, events[0].record.step) == (name, step + 1)
    assert measured(folder) == measured(whole[0])
    assert load_lab(folder).answer == load_lab(whole[0]).answer


def test_more_trials_extend_a_finished_search(whole, base, tmp_path):
    folder = tmp_path / "search"
    outcomes_of(Search(base, [LR], folder, trials=2))
    assert list(outcomes_of(Search(base, [LR], folder, trials=3))) == ["trial-0002"]
    assert measured(folder) == measured(whole[0])


def test_each_point_of_a_small_space_is_tried_once(base, tmp_path):
    folder = tmp_path / "search"
    small = Search(base, DISCRETE, folder, fixed={"steps": 2}, trials=50)
    assert len(outcomes_of(small)) == 6
    tried = {
        (run.config.optimizer.name, run.config.optimizer.weight_decay)
        for run in map(open_run, (folder / "runs").iterdir())
    }
    assert tried == {(name, decay) for name in ("adamw", "muon") for decay in (0.0, 0.1, 0.2)}
    lab = load_lab(folder)
    assert len(lab.trials) == 6
    assert lab.answer.startswith("The best of 6 trials is ")
    assert outcomes_of(Search(base, DISCRETE, folder, fixed={"steps": 2}, trials=50)) == {}
    assert load_lab(folder).answer == lab.answer


def test_invalid_combinations_fail_with_a_reason(base, tmp_path):
    words = ("model.d_model=16,20", "model.num_heads=2,5")
    search = Search(base, words, tmp_path / "search", fixed={"steps": 1}, trials=50)
    assert 0.5 < search.possible < 1.0
    outcomes = outcomes_of(search)
    lab = search.lab()
    assert sorted(outcome.state for outcome in outcomes.values()) == ["failed", *["finished"] * 3]
    failed = next(trial for trial in lab.trials if trial.state == "failed")
    assert failed.label == "d_model 16, 5 heads"
    assert any(
        note.startswith(f"{failed.name} failed: ") and "num_heads 5" in note for note in lab.notes
    )
    assert any("FLOPs per step differ" in note for note in lab.notes)
    assert not (tmp_path / "search" / "runs" / failed.name).exists()


def test_a_trial_that_diverges_is_stopped_early_and_avoided(base, tmp_path):
    words = ("optimizer.lr=1e-2,1e3",)
    search = Search(base, words, tmp_path, fixed={"steps": 60, "optimizer.name": "adamw"})
    first, second = outcomes_of(search).values()
    assert (first.state, second.state) == ("finished", "diverged")
    assert second.steps < 60
    assert [trial.state for trial in search.lab().trials] == ["finished", "diverged"]
    assert [trial.state.name for trial in trained(tmp_path)] == ["COMPLETE", "PRUNED"]
    assert "lr 0.01" in search.lab().answer


def test_a_trial_worse_than_the_median_is_pruned(base, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "FEWEST_FINISHED", 1)
    search = Search(base, ["optimizer.lr=1e-2,1e-7"], tmp_path, fixed={"steps": 40})
    first, second = outcomes_of(search).values()
    assert (first.state, second.state) == ("finished", "pruned")
    assert second.steps == 10  # the first evaluation after a quarter of the steps
    first, second = trained(tmp_path)
    assert (first.state.name, second.state.name) == ("COMPLETE", "PRUNED")
    assert second.intermediate_values[10] > first.intermediate_values[10]
    lab = search.lab()
    assert [trial.state for trial in lab.trials] == ["finished", "pruned"]
    assert len(lab.tables[0].rows) == 1


def test_the_default_trial_is_never_pruned(base, tmp_path, monkeypatch):
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda _: True)
    options = {"fixed": {"steps": 2}, "trials": 2}
    first, second = outcomes_of(Search(base, [LR], tmp_path, **options)).values()
    assert (first.state, second.state) == ("finished", "pruned")


def test_a_step_is_reported_to_optuna_once(base, tmp_path):
    """A trial without checkpoints begins again; Optuna warns if a step is reported twice."""
    options = {"fixed": {"steps": 8}, "trials": 2}
    stop_in(Search(base, [LR], tmp_path, **options), "trial-0001", 5)
    for checkpoint in (tmp_path / "runs" / "trial-0001" / "checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    events = list(Search(base, [LR], tmp_path, **options).run())
    assert [event.record.step for event in events if event.record] == list(range(1, 9))
    assert list(journal_of(tmp_path)[1].intermediate_values) == list(range(1, 8))


def test_default_values_outside_the_space(base, tmp_path):
    search = Search(base, ["optimizer.lr=1e-4..1e-3"], tmp_path, fixed={"steps": 2}, trials=3)
    outcomes_of(search)
    rates = [lr for lr, _ in measured(tmp_path).values()]
    assert rates[0] == 1e-2
    assert all(1e-4 <= lr <= 1e-3 for lr in rates[1:])
    assert "lr 0.01" in search.lab().answer
    first = journal_of(tmp_path)[0]
    assert (first.state.name, first.params) == ("FAIL", {})  # so it says nothing of the range


def test_fixed_values_override_the_evaluation_of_a_search(base, tmp_path):
    search = Search(base, [LR], tmp_path, fixed={"watch.evaluation_tokens": 64})
    assert search.own.watch.evaluation_tokens == 64


def test_fixed_values_hold_for_all_trials(base, tmp_path):
    fixed = {"steps": 1, "model.d_ff": 24, "batch_size": 2}
    outcomes_of(Search(base, ["model.num_layers=1,2"], tmp_path, fixed=fixed))
    runs = [open_run(folder) for folder in sorted((tmp_path / "runs").iterdir())]
    assert [run.config.model.num_layers for run in runs] == [1, 2]
    assert {(run.config.model.d_ff, run.config.batch_size) for run in runs} == {(24, 2)}


def test_a_budget_is_shared_by_all_trials(base, tmp_path, monkeypatch):
    plan_run, budgets, planned = search_module.plan_run, [], []

    def watched(config, data):
        budgets.append((config.steps, config.budget_seconds))
        planned.append(plan_run(config, data))
        return planned[-1]

    monkeypatch.setattr(search_module, "plan_run", watched)
    base = replace(base, steps=None, budget_seconds=40.0)
    plan = Search(base, [LR], tmp_path, trials=8).plan()
    assert budgets == [(None, 5.0)]  # the learning rate costs nothing
    assert plan.steps == planned[0].config.steps
    assert plan.seconds == pytest.approx(8 * planned[0].seconds)
    # A step of twice the batch costs twice as much, and half of the trials have it, or so.
    words = ["batch_size=4,8"]
    sized = Search(base, words, tmp_path, trials=9)
    doubled = [v["batch_size"] == 8 for _, v in draw_points(sized.space, 50, 0)]
    sized.plan()
    assert budgets[-1][1] == pytest.approx(40 / (1 + 8 * (1 + sum(doubled) / 50)))
    assert not list(tmp_path.iterdir())


def test_a_trial_that_another_process_resumes_is_left_alone(base, tmp_path):
    options = {"fixed": {"steps": 4}, "trials": 3}
    stop_in(Search(base, [LR], tmp_path, **options), "trial-0001", 2)
    with open_run(tmp_path / "runs" / "trial-0001").locked():
        assert list(outcomes_of(Search(base, [LR], tmp_path, **options))) == ["trial-0002"]
        assert load_lab(tmp_path).answer is None
    assert list(outcomes_of(Search(base, [LR], tmp_path, **options))) == ["trial-0001"]
    assert load_lab(tmp_path).answer.startswith("The best of 3 trials")


def test_a_claimed_trial_is_not_taken_again(base, tmp_path, monkeypatch):
    def drive(_config, _folder):
        yield SimpleNamespace(step=1, evaluation=None)

    monkeypatch.setattr(search_module, "drive", drive)
    with ExitStack() as stack:
        at_once = [stack.enter_context(closing(Search(base, [LR], tmp_path).run())) for _ in "123"]
        names = [next(events).trial.name for events in at_once]
        assert names == ["trial-0000", "trial-0001", "trial-0002"]
        at_once[1].close()
        assert next(Search(base, [LR], tmp_path).run()).trial.name == "trial-0001"


def test_a_torn_line_of_the_journal_is_truncated(base, tmp_path):
    options = {"fixed": {"steps": 1}}
    outcomes_of(Search(base, [LR], tmp_path, trials=1, **options))
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "worker_')
    outcomes = outcomes_of(Search(base, [LR], tmp_path, trials=2, **options))
    assert list(outcomes) == ["trial-0001"]
    assert all(json.loads(line) for line in (tmp_path / JOURNAL).read_bytes().splitlines())


def test_a_process_killed_while_it_saves_a_result(base, tmp_path, monkeypatch):
    options = {"fixed": {"steps": 1}, "trials": 2}
    tell = optuna.Study.tell

    def die(study, trial, *arguments):
        if trial.number == 1:
            raise KeyboardInterrupt
        tell(study, trial, *arguments)

    monkeypatch.setattr(optuna.Study, "tell", die)
    with pytest.raises(KeyboardInterrupt):
        outcomes_of(Search(base, [LR], tmp_path, **options))
    monkeypatch.undo()
    assert outcomes_of(Search(base, [LR], tmp_path, **options)) == {}
    assert [trial.state.name for trial in journal_of(tmp_path)] == ["COMPLETE"] * 2
    assert load_lab(tmp_path).answer.startswith("The best of 2 trials")


def test_importance_of_the_deciding_field(tmp_path):
    """One of two fields alone decides the value."""
    journal = Journal(tmp_path / JOURNAL, ())
    plan = journal_module.SearchPlan(8, MachineConfig(), 1.0, 1.0)
    journal.begin({"steps": 8}, plan, {"decides": 0.5, "idles": 0.5})
    for number in range(40):
        if number == journal_module.FEWEST_FOR_IMPORTANCE - 1:
            assert journal.importances() == {}
        trial = journal.trial(journal.ask(), seed=0)
        value = (trial.suggest_float("decides", 0, 1) - 0.3) ** 2
        trial.suggest_float("idles", 0, 1)
        journal.end(trial, SearchTrial(trial.number, outcome=Outcome("finished", value)))
    found = journal.importances()
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["decides"] > 0.8


# --- mistakes -------------------------------------------------------------------------------------


def test_another_search_in_the_same_folder_is_refused(whole, base):
    folder, _ = whole
    with pytest.raises(
        ValueError, match=r"is a search with vary = .*; give the same settings, or another"
    ):
        list(Search(base, ["optimizer.lr=0.1..0.2"], folder).run())
    with pytest.raises(ValueError, match="is a search with steps = 16, not 20; give"):
        list(Search(base, [LR], folder, fixed={"steps": 20}).run())


def test_a_folder_with_other_files_is_refused(base, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(FileExistsError, match="is not empty and not a lab directory"):
        list(Search(base, [LR], tmp_path).run())
    with pytest.raises(FileExistsError, match="is a file"):
        list(Search(base, [LR], tmp_path / "mine.txt").run())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_optuna(base, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r'an extra: pip install "tilth\[search\]"'):
        list(Search(base, [LR], tmp_path / "search").run())


def test_zero_trials_are_refused(base, tmp_path):
    with pytest.raises(ValueError, match="trials must be at least 1, not 0"):
        Search(base, [LR], tmp_path, trials=0)


def test_a_base_that_cannot_be_trained_ends_the_search(base, tmp_path):
    fixed = {"watch.sample_prompt": "x" * 100}
    with pytest.raises(ValueError, match=r"watch\.sample_prompt has 100 tokens"):
        list(Search(base, [LR], tmp_path, fixed=fixed).run())


# --- several processes ----------------------------------------------------------------------------

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from tilth.lab.search.search import Search
from tilth.config.training import TrainingConfig
from tilth.training import session

def lives(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True

def live(number):
    while number == 1 and not told[0].exists():
        time.sleep(0.01)
    for event in Search(base, [words], folder, trials=int(trials)).run():
        step = None if event.record is None else event.record.step
        with told[number].open("a") as file:
            print(event.trial.name, step, file=file)
        if number == 0 and step == 12:
            os.kill(os.getpid(), signal.SIGKILL)
        while number == 1 and lives(children[0]):  # whose trial goes before our next
            time.sleep(0.01)

torch.set_num_threads(1)
session.measured_peak = lambda *_: 1e9
config, words, out, trials = sys.argv[1:]
base, folder = TrainingConfig.from_dict(json.loads(config)), Path(out)
told = [folder.parent / f"process-{number}" for number in range(2)]
children = []
for number in range(2):
    children.append(os.fork())  # torch is loaded once
    if children[-1] == 0:
        live(number)
        os._exit(0)
assert [os.waitpid(child, 0)[1] for child in children] == [signal.SIGKILL, 0]
"""


def test_processes_share_trials_and_resume_those_of_a_killed_process(whole, base, tmp_path):
    """Of two processes, one is killed in its first trial; the other continues that trial."""
    folder = tmp_path / "search"
    words = [sys.executable, "-c", PROGRAM, json.dumps(base.to_dict()), LR, str(folder), "5"]
    subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    by_killed, by_other = (
        [line.split() for line in (tmp_path / f"process-{number}").read_text().splitlines()]
        for number in range(2)
    )
    assert {name for name, _ in by_killed} == {"trial-0000"}
    resumed = [int(step) for name, step in by_other if name == "trial-0000" and step != "None"]
    assert resumed == list(range(resumed[0], STEPS + 1))
    assert resumed[0] > 8  # a later checkpoint may not have been whole yet
    ended = [name for name, step in by_other if step == "None"]
    assert "trial-0000" in ended[:2]  # before any other was begun
    assert sorted(ended) == [f"trial-{number:04}" for number in range(5)]
    runs = measured(folder)
    assert len({lr for lr, _ in runs.values()}) == 5  # nobody drew what another had
    assert runs["trial-0000"] == measured(whole[0])["trial-0000"]
    for name in runs:
        records = open_run(folder / "runs" / name).metrics()
        assert [record.step for record in records] == list(range(1, STEPS + 1))
    assert load_lab(folder).answer.startswith("The best of 5 trials")
    assert not list((folder / "claims").iterdir())
