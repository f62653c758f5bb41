"""A lab that is stopped, killed or run again trains nothing twice and gives the same bits."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

import tilth
from tilth.config import TrainingConfig
from tilth.config.overrides import changed
from tilth.files import FileError
from tilth.lab.question import Findings, Question
from tilth.lab.questions.custom import Custom, CustomFile
from tilth.lab.runner import drive, run_question
from tilth.report.lab_file import load_lab, save_lab
from tilth.runs import open_run

RATES = CustomFile("rates", grid={"optimizer.lr": [1e-3, 1e-2, 3e-2]})


@pytest.fixture(scope="module")
def base(base):
    return changed(base, {"steps": 8, "batch_size": 2, "watch.evaluation_tokens": 200})


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory):
    """A lab that ran without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    events = list(run_question(Custom(RATES, base), folder, command=("tilth", "lab")))
    return folder, events


def weights(folder):
    return {
        path.name: tilth.open_run(path)
        .checkpoint()
        .folder.joinpath("model.safetensors")
        .read_bytes()
        for path in sorted((folder / "runs").iterdir())
    }


def losses(folder):
    return {
        path.name: [record.loss for record in open_run(path).metrics()]
        for path in sorted((folder / "runs").iterdir())
    }


def changes_of(folder):
    return {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file() and "runs" in p.parts}


def test_every_trial_is_a_run_and_the_answer_is_saved(base, whole):
    folder, events = whole
    lab = load_lab(folder)
    assert lab.answer.startswith("The best trial is lr 0.0")
    assert lab.command == ("tilth", "lab")
    assert [trial.state for trial in lab.trials] == ["finished"] * 3
    assert TrainingConfig.from_dict(lab.base) == base
    for trial in lab.trials:
        run = open_run(folder / "runs" / trial.name)
        assert run.is_finished
        assert run.config.optimizer.lr == trial.x
        assert len(run.samples()) == 1
    ends = [event for event in events if event.result is not None]
    assert [event.done for event in ends] == [1, 2, 3]
    assert {event.known for event in events} == {3}
    assert sum(event.record is not None for event in events) == 3 * base.steps


def test_results_of_an_earlier_plan_do_not_count_as_done(base, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "lab")
    fewer = CustomFile("rates", grid={"optimizer.lr": [1e-3, 2e-2]})
    events = list(run_question(Custom(fewer, base), tmp_path / "lab"))
    assert {(event.done, event.known) for event in events} == {(1, 2), (2, 2)}


def test_the_result_is_the_last_record_of_the_run(whole):
    folder, events = whole
    for event in events:
        if event.result is not None:
            run = open_run(folder / "runs" / event.trial.name)
            last = run.metrics()[-1]
            assert event.result.bits_per_byte == last.evaluation.bits_per_byte
            assert event.result.steps == last.step == 8


def test_a_finished_lab_trains_nothing(base, whole):
    folder, _ = whole
    before, lab = changes_of(folder), load_lab(folder)
    assert list(run_question(Custom(RATES, base), folder, command=lab.command)) == []
    assert changes_of(folder) == before
    assert load_lab(folder) == lab


@pytest.mark.parametrize("events_seen", [1, 5, 9, 13])
def test_a_stopped_lab_continues_to_the_same_bits(base, whole, tmp_path, events_seen):
    events = run_question(Custom(RATES, base), tmp_path)
    list(islice(events, events_seen))
    events.close()
    assert load_lab(tmp_path).answer is None
    rest = list(run_question(Custom(RATES, base), tmp_path))
    steps = sum(event.record is not None for event in rest)
    taken = events_seen - events_seen // (base.steps + 1)
    assert steps == 3 * base.steps - taken  # not one step twice
    assert weights(tmp_path) == weights(whole[0])
    assert losses(tmp_path) == losses(whole[0])
    assert load_lab(tmp_path).answer == load_lab(whole[0]).answer


def test_workers_give_the_same_bits(base, whole, tmp_path):
    list(run_question(Custom(RATES, base), tmp_path, workers=2))
    assert weights(tmp_path) == weights(whole[0])
    assert load_lab(tmp_path).answer == load_lab(whole[0]).answer


def test_stopped_workers_save_their_trials(base, tmp_path):
    long = Custom(RATES, changed(base, {"steps": 3000}))
    events = run_question(long, tmp_path, workers=2)
    next(events)
    events.close()
    begun = [open_run(path) for path in (tmp_path / "runs").iterdir()]
    assert begun
    assert not any(run.is_running for run in begun)
    assert any(run.checkpoints() for run in begun)
    assert not any(run.is_finished for run in begun)


KILLED = """
import os, sys
from tests.lab.test_runner import RATES
from tilth.lab.questions.custom import Custom
from tilth.lab.runner import run_question
from tilth.config import TrainingConfig
import json
base = TrainingConfig.from_dict(json.loads(sys.argv[1]))
for number, event in enumerate(run_question(Custom(RATES, base), sys.argv[2])):
    if number == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("at", [4, 12])
def test_a_killed_lab_continues_to_the_same_bits(base, whole, tmp_path, at):
    script = [sys.executable, "-c", KILLED, json.dumps(base.to_dict()), str(tmp_path), str(at)]
    killed = subprocess.run(script, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -signal.SIGKILL
    list(run_question(Custom(RATES, base), tmp_path))
    assert weights(tmp_path) == weights(whole[0])
    assert losses(tmp_path) == losses(whole[0])


def test_a_run_of_other_values_is_refused(base, whole, tmp_path):
    list(islice(run_question(Custom(RATES, base), tmp_path), 1))
    other = Custom(RATES, changed(base, {"steps": 9}))
    with pytest.raises(ValueError, match=r"was trained with .* or another --out"):
        list(run_question(other, tmp_path))


def test_a_finished_trial_of_other_values_or_data_is_refused(base, whole, tmp_path):
    folder, _ = whole
    other = Custom(RATES, changed(base, {"optimizer.weight_decay": 0.5}))
    with pytest.raises(ValueError, match=r"trained with optimizer\.weight_decay = 0\.1"):
        list(run_question(other, folder))
    tilth.tokenize(
        Path(base.data).parent / "stories.txt",
        tilth.open_data(base.data).tokenizer(),
        tmp_path / "data",
        valid=0.2,
    )
    with pytest.raises(ValueError, match="trained on other data"):
        list(run_question(Custom(RATES, replace(base, data=str(tmp_path / "data"))), folder))


def test_a_folder_belongs_to_one_question(base, whole):
    other = CustomFile("others", grid={"optimizer.lr": [1e-3]})
    with pytest.raises(ValueError, match="is the lab of another question, rates"):
        list(run_question(Custom(other, base), whole[0]))


def test_more_seeds_keep_existing_runs(base, whole, tmp_path):
    folder = tmp_path / "lab"
    shutil.copytree(whole[0], folder)
    events = list(run_question(Custom(RATES, base, seeds=2), folder))
    assert sum(event.result is not None for event in events) == 3
    assert len(load_lab(folder).trials) == 6


def test_two_processes_do_not_share_a_lab(base, tmp_path):
    first = run_question(Custom(RATES, base), tmp_path)
    next(first)
    with pytest.raises(ValueError, match="Another process is running"):
        next(run_question(Custom(RATES, base), tmp_path))
    first.close()


def test_data_that_a_later_trial_cannot_use_is_refused_before_the_first(base, tmp_path):
    asked = CustomFile("lengths", grid={"model.context_length": [16, 100_000]})
    with pytest.raises(ValueError, match="tokenize more text"):
        list(run_question(Custom(asked, base), tmp_path))
    assert not (tmp_path / "runs").exists()


def test_a_diverged_trial_is_stopped_early_and_not_run_again(base, tmp_path):
    asked = CustomFile("rates", grid={"optimizer.lr": [1e-2, 1e6]})
    question = Custom(asked, changed(base, {"steps": 200, "watch.evaluate_every": 100}))
    events = list(run_question(question, tmp_path))
    good, bad = load_lab(tmp_path).trials
    assert (good.state, bad.state) == ("finished", "diverged")
    outcome = next(e.result for e in events if e.result and e.trial.name == bad.name)
    assert outcome.steps < 100
    assert "diverged" in {row[1] for row in load_lab(tmp_path).tables[0].rows}
    assert list(run_question(question, tmp_path)) == []
    # Killed before the lab had written it down, it is as diverged as before.
    lab = load_lab(tmp_path)
    planned = tuple(replace(trial, state="planned") for trial in lab.trials)
    save_lab(tmp_path, replace(lab, trials=planned))
    again = list(run_question(question, tmp_path))
    states = [event.result.state for event in again if event.result is not None]
    assert states == ["finished", "diverged"]


def test_a_run_that_ends_while_it_diverges_has_diverged(base, tmp_path):
    asked = CustomFile("rates", grid={"optimizer.lr": [1e-2, 10.0]})
    short = {"steps": 9, "optimizer.weight_decay": 0.0}  # not as long as our patience
    question = Custom(asked, changed(base, short))
    list(run_question(question, tmp_path))
    lab = load_lab(tmp_path)
    assert [trial.state for trial in lab.trials] == ["finished", "diverged"]
    assert open_run(tmp_path / "runs" / lab.trials[1].name).is_finished
    planned = tuple(replace(trial, state="planned") for trial in lab.trials)
    save_lab(tmp_path, replace(lab, trials=planned))
    list(run_question(question, tmp_path))
    assert [trial.state for trial in load_lab(tmp_path).trials] == ["finished", "diverged"]


def state_after(folder, change):
    """Return the state of a finished run after a change of its log."""
    path = folder / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    (state,) = drive(open_run(folder).config, folder)
    return state


def test_a_run_that_ends_above_its_first_loss_has_diverged(base, whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole[0] / "runs" / "lr-0.01", folder)

    def ends_at(difference):
        def change(records):
            records[-1]["evaluation"]["loss"] = records[0]["loss"] + difference

        return change

    assert state_after(folder, lambda records: None) == "finished"
    assert state_after(folder, ends_at(0.3)) == "finished"  # which chance does
    assert state_after(folder, ends_at(0.6)) == "diverged"
    assert state_after(folder, lambda r: r[-1]["evaluation"].update(loss=None)) == "diverged"
    assert state_after(folder, ends_at(-1.0)) == "finished"
    assert state_after(folder, lambda r: r[-1].update(is_diverging=True)) == "diverged"


def test_a_run_that_learns_nothing_has_not_diverged(base, tmp_path):
    asked = CustomFile("steps", grid={"steps": [1, 2, 3]})
    list(run_question(Custom(asked, changed(base, {"optimizer.lr": 1e-9}), seeds=2), tmp_path))
    assert {trial.state for trial in load_lab(tmp_path).trials} == {"finished"}


def test_an_extended_trial_is_refused_and_may_be_trained_again(base, whole, tmp_path):
    folder = tmp_path / "lab"
    shutil.copytree(whole[0], folder)
    trial = folder / "runs" / "lr-0.01"
    list(tilth.extend(trial, 2))
    sentence = (
        r"lr-0\.01 was trained further, to 10 steps.* after 8; remove that folder to train it"
    )
    with pytest.raises(ValueError, match=sentence):
        list(run_question(Custom(RATES, base), folder))
    shutil.rmtree(trial)
    list(run_question(Custom(RATES, base), folder))
    assert weights(folder) == weights(whole[0])
    assert load_lab(folder).answer == load_lab(whole[0]).answer


class _Prepares(Custom):
    is_stopped = True

    def prepare(self, folder, tell):
        (folder / "data").mkdir(exist_ok=True)
        if self.is_stopped:
            raise KeyboardInterrupt


def test_a_lab_stopped_in_prepare_continues(base, tmp_path):
    question = _Prepares(RATES, base)
    with pytest.raises(KeyboardInterrupt):
        list(run_question(question, tmp_path))
    assert load_lab(tmp_path).trials == ()
    assert TrainingConfig.from_dict(load_lab(tmp_path).base) == base
    assert not (tmp_path / "runs").exists()
    question.is_stopped = False
    assert len(list(islice(run_question(question, tmp_path), 1))) == 1


class _Fails(Question):
    name, asks = "fails", "Does it go on?"

    def trials(self, results):
        return [*self.over_seeds("a", "a", self.base), *self.over_seeds("b", "b", self.base)]

    def conclude(self, results):
        return Findings(", ".join(each.result_text for each in self.groups(results)))


def test_a_trial_without_enough_memory_fails_and_the_next_one_runs(base, tmp_path, monkeypatch):
    from tilth.lab import runner

    def exhausted(config, out):
        if Path(out).name == "a":
            raise MemoryError
        return tilth.train(config, out)

    monkeypatch.setattr(runner, "train", exhausted)
    list(run_question(_Fails(base), tmp_path))
    assert load_lab(tmp_path).answer.startswith("failed, ")
    monkeypatch.undo()
    list(run_question(_Fails(base), tmp_path))  # there may be more memory now
    assert "failed" not in load_lab(tmp_path).answer


def test_a_finished_run_is_not_trained_again(base, whole):
    folder, _ = whole
    trial = load_lab(folder).trials[0]
    run = open_run(folder / "runs" / trial.name)
    assert list(drive(run.config, run.folder)) == ["finished"]


def test_a_finished_run_without_metrics_is_a_sentence(base, whole, tmp_path):
    trial = load_lab(whole[0]).trials[0]
    run = open_run(shutil.copytree(whole[0] / "runs" / trial.name, tmp_path / "run"))
    (run.folder / "metrics.jsonl").unlink()
    with pytest.raises(FileError, match=r"metrics.jsonl has no steps; remove the run"):
        list(drive(run.config, run.folder))


def test_workers_end_when_their_parent_is_killed(base, tmp_path):
    slow = changed(base, {"steps": 5000, "watch.evaluate_every": 0, "watch.save_every": 0})
    script = f"""
import json, multiprocessing, os, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.lab.test_runner import RATES
from tilth.lab.questions.custom import Custom
from tilth.lab.runner import run_question
from tilth.config import TrainingConfig
if __name__ == "__main__":
    base = TrainingConfig.from_dict(json.loads(sys.argv[1]))
    for event in run_question(Custom(RATES, base), sys.argv[2], workers=2):
        print(*(child.pid for child in multiprocessing.active_children()))
        sys.stdout.flush()
        os.kill(os.getpid(), 9)
"""
    (tmp_path / "killed.py").write_text(script)
    command = [sys.executable, tmp_path / "killed.py", json.dumps(slow.to_dict()), tmp_path / "lab"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    workers = [Path("/proc", pid) for pid in done.stdout.split()]
    assert len(workers) == 2
    until = time.monotonic() + 60
    while any(worker.exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(worker.exists() for worker in workers)
    runs = [open_run(path) for path in (tmp_path / "lab" / "runs").iterdir()]
    assert all(run.checkpoints() for run in runs)  # saved before the end
