"""Questions from Python: planned, run, read and continued without the command line."""

import os
import shutil
import subprocess
import sys

import pytest

import tilth
from tilth.lab.questions.ablations import BASE
from tilth.report.lab_file import LOCK, load_lab

SMALL = {
    "recipe": "tiny",
    "steps": 3,
    "batch_size": 4,
    "changes": {
        **{"model.d_model": 16, "model.num_heads": 2, "model.num_layers": 1},
        **{"model.context_length": 16, "machine.threads": 1, "machine.compile": False},
        **{"watch.evaluation_tokens": 100, "watch.sample_tokens": 4},
    },
}


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('recipe = "tiny"\n[grid]\noptimizer.lr = [1e-3, 1e-2]\n')
    return path


def test_a_plan_shows_the_trials_and_their_cost_and_writes_nothing(stories, tmp_path):
    plan = tilth.lab.plan("learning-rate", stories, out=tmp_path / "lr", **SMALL)
    assert str(plan).startswith("Which learning rate is best")
    assert "7 trials and more that depend on their results" in str(plan)
    assert [trial.name for trial in plan.question.trials({})][4] == "lr-0.02"
    assert plan.question.name == "lr"
    assert list(tmp_path.iterdir()) == []


def test_a_question_is_planned_run_and_read(stories, mine, tmp_path):
    plan = tilth.lab.plan(mine, stories.folder, out=tmp_path / "lab", **SMALL)
    events = list(plan.run())
    assert [event.record.step for event in events if event.record] == [1, 2, 3] * 2
    results = [event.result for event in events if event.result]
    assert [result.state for result in results] == ["finished"] * 2
    lab = tilth.lab.load(tmp_path / "lab")
    assert lab.answer.startswith("The best trial is lr 0.01, with ")
    assert f"{min(result.bits_per_byte for result in results):.4f}" in lab.answer
    assert tilth.lab.custom(mine, stories, out=tmp_path / "lab", **SMALL) == lab
    assert list(tilth.lab.plan(mine, stories, out=tmp_path / "lab", **SMALL).run()) == []


def test_an_option_overrides_the_file_of_a_question(stories, mine, tmp_path):
    mine.write_text(
        "[base]\nbatch_size = 2\noptimizer.lr = 0.5\n[grid]\noptimizer.weight_decay = [0.0, 0.1]"
    )
    file = {name: value for name, value in SMALL.items() if name != "batch_size"}
    base = tilth.lab.plan(mine, stories, out=tmp_path / "lab", **file).question.base
    assert (base.batch_size, base.optimizer.lr) == (2, 0.5)
    options = {**SMALL, "changes": {**SMALL["changes"], "optimizer.lr": 0.25}}
    base = tilth.lab.plan(mine, stories, out=tmp_path / "lab", **options).question.base
    assert (base.batch_size, base.optimizer.lr) == (4, 0.25)


def test_every_question_is_a_function(stories, tmp_path, monkeypatch):
    """One trial each; the trials have tests elsewhere."""
    monkeypatch.setattr("tilth.lab.questions.learning_rate.FIRST_POWERS", range(1))
    monkeypatch.setattr("tilth.lab.questions.learning_rate.LAST_POWER", 0)
    monkeypatch.setattr("tilth.lab.questions.batch_size.SIZES", (4,))
    monkeypatch.setattr("tilth.lab.questions.ablations.variants_of", lambda _: [BASE])
    for name, question in (
        ("lr", tilth.lab.learning_rate),
        ("batch-size", tilth.lab.batch_size),
        ("ablations", tilth.lab.ablations),
    ):
        lab = question(stories, out=tmp_path / name, seeds=1, **SMALL)
        assert (lab.name, lab) == (name, load_lab(tmp_path / name))
        assert lab.answer is not None


def test_sgd_and_tokenizers_need_no_training(stories, tmp_path):
    lab = tilth.lab.sgd([1.0, 100.0], out=tmp_path / "sgd")
    assert lab == tilth.lab.load(tmp_path / "sgd")
    assert lab.answer.startswith("After 10 steps, the loss is lowest at lr 100")
    assert tilth.lab.sgd([1.0]).name == "sgd"
    with pytest.raises(ValueError, match="two data folders or more"):
        tilth.lab.tokenizers([stories, stories], out=tmp_path / "tokenizers")


def test_errors(stories, tmp_path):
    with pytest.raises(ValueError, match=r"no question 'lrr'; give learning-rate, lr, "):
        tilth.lab.plan("lrr", stories)
    with pytest.raises(TypeError, match="there is no option bugdet; did you mean budget"):
        tilth.lab.plan("lr", stories, bugdet="20m")
    with pytest.raises(ValueError, match="2 data folders are given; give one"):
        tilth.lab.learning_rate([stories, stories])
    with pytest.raises(ValueError, match=r"there is no recipe 'tinny'; did you mean tiny"):
        tilth.lab.plan("lr", stories, recipe="tinny", out=tmp_path / "lab")
    with pytest.raises(ValueError, match="max_bytes must be at least 1, not 0"):
        tilth.lab.plan("vocabulary", stories, max_bytes=0, out=tmp_path / "lab", **SMALL)
    with pytest.raises(ValueError, match="there is no learning rate to compare"):
        tilth.lab.sgd([])


@pytest.mark.parametrize("budget", [{"steps": 2}, {"budget": "1m"}])
def test_a_base_without_trials_is_an_error(stories, tmp_path, budget):
    """A context below 16 is not tried, and 3 x 8 tokens are not whole sequences of 16 or 32."""
    options = {"recipe": "tiny", "batch_size": 3, "changes": {"model.context_length": 8}, **budget}
    with pytest.raises(ValueError, match="context has no trials for this base; give another"):
        tilth.lab.plan("context", stories, out=tmp_path / "lab", **options)


def test_workers_share_the_cores_of_this_process_not_of_the_host(
    stories, mine, tmp_path, monkeypatch
):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    changes = {**SMALL["changes"]}
    del changes["machine.threads"]
    options = {**SMALL, "changes": changes, "out": tmp_path / "lab", "workers": 2}
    assert tilth.lab.plan(mine, stories, **options).question.base.machine.threads == 2


def test_a_text_is_named_by_its_folder_even_in_it(stories, tmp_path, monkeypatch):
    shutil.copytree(stories.folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    plan = tilth.lab.plan("corpora", [".", stories], out=tmp_path / "lab", **SMALL)
    assert [trial.name for trial in plan.question.trials({})] == ["copy", stories.folder.name]


def test_a_budget_of_three_parts(stories, tmp_path):
    """A third of 100 s has no end as a decimal."""
    options = {name: value for name, value in SMALL.items() if name != "steps"}
    planned = tilth.lab.plan_shape(stories, out=tmp_path / "shape", budget="100s", **options)
    assert next(planned).question.name == "depth"


def test_names_do_not_import_torch():
    program = "import sys, tilth.lab; dir(tilth.lab); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert {"learning_rate", "plan", "load", "Search", "TrialResult"} <= set(dir(tilth.lab))
    assert all(hasattr(tilth.lab, name) for name in tilth.lab.__all__)


def test_a_lock_that_is_a_pipe_or_a_link_is_refused(stories, mine, tmp_path):
    out = tmp_path / "lab"
    out.mkdir()
    os.mkfifo(out / LOCK)
    with pytest.raises(ValueError, match="lock is a pipe or a device; remove it"):
        tilth.lab.custom(mine, stories, out=out, **SMALL)
    (out / LOCK).unlink()
    (out / LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="lock cannot be locked"):
        tilth.lab.custom(mine, stories, out=out, **SMALL)
    assert not (tmp_path / "elsewhere").exists()
