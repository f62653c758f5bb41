"""`tilth lab`, called as a command."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.command_line import program_without, tilth
from tilth.cli.app import app
from tilth.cli.lab_view import watch
from tilth.lab.questions.sgd import descend
from tilth.lab.workers import WorkerLostError
from tilth.report.lab_file import load_lab
from tilth.runs import open_run

TILTH = [sys.executable, "-m", "tilth", "lab"]


def test_sgd_prints_a_table_and_a_curve():
    done = tilth("lab", "sgd")
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["step", "lr", "1", "lr", "10", "lr", "100", "lr", "1000"]
    losses = [descend(lr) for lr in (1.0, 10.0, 100.0, 1000.0)]
    for step in range(11):
        assert rows[step].split() == [str(step), *(f"{line[step]:.4g}" for line in losses)]
    assert rows[11] == ""
    assert rows[-1] == "a: lr 1   b: lr 10   c: lr 100   d: lr 1000   *: several"
    assert done.stderr == ""


def test_sgd_as_json():
    words = ["sgd", "--lr", "2.5", "--lr", "1e9", "--steps", "30", "--seed", "7", "--json"]
    found = json.loads(tilth("lab", *words).stdout)
    assert (found["steps"], found["seed"]) == (30, 7)
    assert [run["lr"] for run in found["runs"]] == [2.5, 1e9]
    assert found["runs"][0]["losses"] == descend(2.5, 30, 7)
    assert found["runs"][1]["losses"][-1] is None  # beyond float32


def test_sgd_errors_are_one_sentence():
    for words, part in (
        (["--lr=-1"], "lr is -1.0"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--lr=1e40"], "lr is 1e+40; it must be at most 1e+30"),
    ):
        done = tilth("lab", "sgd", *words)
        assert done.returncode == 2
        assert part in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_help_is_without_torch():
    program = program_without({"torch"}, "lab", "--help")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"sgd" in done.stdout


# --- questions that train -------------------------------------------------------------------------

SMALL = (
    *("--recipe", "tiny", "--model.d-model", "16", "--model.num-heads", "2"),
    *("--model.num-layers", "1", "--model.context-length", "16", "--batch-size", "4"),
    *("--machine.threads", "1", "--machine.no-compile"),
    *("--watch.evaluation-tokens", "100", "--watch.sample-tokens", "4"),
)


@pytest.fixture(scope="module")
def data(stories):
    return stories


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def here(capsys, *words):
    """Run the verb in this process, which has imported torch."""
    app([*map(str, ("lab", *words))])
    return capsys.readouterr()


def test_a_dry_run_prints_the_cost_and_writes_nothing(data, tmp_path, capsys):
    out = tmp_path / "lab"
    words = ("lr", "--data", data.folder, *SMALL, "--steps", 5, "--out", out, "--dry-run")
    lines = here(capsys, *words).out.splitlines()
    assert lines[0].startswith("Which learning rate is best")
    assert lines[2].split() == ["trial", "steps", "tokens", "parameters", "FLOPs", "time"]
    assert lines[3].split()[1:3] == ["5", "320"]
    assert lines[-1].startswith("7 trials and more that depend on their results, about")
    assert not out.exists()


def test_a_lab_resumes_with_another_number_of_workers(data, tmp_path, capsys):
    place = SMALL.index("--machine.threads")
    few = SMALL[2:place] + SMALL[place + 2 :]
    mine = tmp_path / "mine.toml"
    mine.write_text('recipe = "tiny"\n[grid]\noptimizer.lr = [1e-3]\n')
    words = (mine, "--data", data.folder, *few, "--steps", 3, "--out", tmp_path / "lab")
    first = here(capsys, *words)
    assert here(capsys, *words, "--workers", 2).out == first.out


def test_warm_up_steps_with_a_time_budget(data, tmp_path, capsys):
    words = ("lr", "--data", data.folder, *SMALL, "--budget", "60s", "--dry-run")
    done = here(capsys, *words, "--optimizer.warmup-steps", 5, "--out", tmp_path / "lab")
    assert "7 trials" in done.out


def test_a_time_budget_is_converted_to_steps_of_all_trials(data, tmp_path, capsys, monkeypatch):
    module = "tilth.training.planning"
    monkeypatch.setattr(
        f"{module}._time_steps", lambda _c, machines, _d: [(0.01, 0.01)] * len(machines)
    )

    def steps_of(budget):
        words = ("lr", "--data", data.folder, *SMALL, "--budget", budget, "--dry-run")
        lines = here(capsys, *words, "--out", tmp_path / "lab").out.splitlines()
        return int(lines[3].split()[1].replace(",", ""))

    assert 4 < steps_of("1000s") / steps_of("200s") < 6
    # 90% of it for about ten trials at 10 ms per step, minus evaluations and samples.
    assert 0.5 < steps_of("1000s") * 10.5 * 0.01 / 900 <= 1


def test_a_question_is_answered_reported_and_not_trained_again(data, tmp_path, capsys):
    out = tmp_path / "lab"
    words = ("corpora", "--data", data.folder, *SMALL, "--steps", 4, "--out", out)
    with pytest.raises(ValueError, match="give --data two or more folders"):
        here(capsys, *words)
    other = tmp_path / "other"
    shutil.copytree(data.folder, other)
    first = here(capsys, *words, "--data", other)
    assert first.out.startswith("After equal steps, the model reaches ")
    assert "2 of 2" in first.err
    for name in ("lab.json", "report.html", "report.md"):
        assert (out / name).stat().st_size > 0
    again = here(capsys, *words, "--data", other)
    assert again.out == first.out
    assert "of 2" not in again.err
    with pytest.raises(ValueError, match=r"begun with optimizer\.lr = .* or another --out"):
        here(capsys, *words, "--data", other, "--optimizer.lr", "0.5")
    with pytest.raises(ValueError, match="begun with steps = 4, not 5; give the same"):
        here(capsys, *words[:-4], "--steps", 5, "--out", out, "--data", other)


def test_shape_is_three_labs_and_one_report(data, tmp_path, capsys):
    out = tmp_path / "shape"
    words = ("shape", "--data", data.folder, *SMALL, "--steps", 3, "--out", out)
    done = here(capsys, *words, "--max-bytes", 20_000)
    assert len(done.out.splitlines()) == 4  # three answers and the written files
    assert {path.name for path in out.iterdir() if path.is_dir()} == {
        *("depth", "context", "vocabulary")
    }
    assert (out / "report.html").exists()


def test_a_custom_question_and_unknown_names(data, tmp_path, capsys):
    mine = tmp_path / "mine.toml"
    base = "[base]\noptimizer.weight_decay = 0.0\n"
    mine.write_text(f'recipe = "tiny"\n{base}[grid]\noptimizer.lr = [1e-3, 1e-2]\n')
    words = ("--data", data.folder, *SMALL[2:], "--steps", 3, "--out", tmp_path / "lab")
    done = here(capsys, mine, *words)
    assert done.out.startswith("The best trial is lr 0.01")
    assert here(capsys, mine, *words).out == done.out
    with pytest.raises(ValueError, match=r"no question .lrr.; give .*, lr, "):
        here(capsys, "lrr", *words)
    with pytest.raises(ValueError, match="workers must be at least 1, not 0"):
        here(capsys, mine, *words, "--workers", 0)


def test_a_stopped_lab_prints_how_to_continue(data, tmp_path):
    out = tmp_path / "lab"
    words = ["lr", "--data", data.folder, *SMALL, "--steps", 40_000, "--out", out]
    command = [*TILTH, *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    # Signals are handled from the first event on.
    while not any(path.read_text().count("\n") > 1 for path in out.glob("runs/*/metrics.jsonl")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert f"continue with `{shlex.join(['tilth', 'lab', *map(str, words)])}`" in stderr
    (run,) = [open_run(path) for path in (out / "runs").iterdir()]
    assert run.checkpoints()
    assert not run.is_finished
    assert load_lab(out).answer is None


def test_a_signal_before_the_first_step_acts_at_once(capsys):
    def preparing():
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")
        yield

    with pytest.raises(SystemExit) as end:
        watch(preparing(), ("tilth", "lab", "a b"))
    assert end.value.code == 130
    assert capsys.readouterr().err == "tilth: stopped; continue with `tilth lab 'a b'`\n"


def test_a_worker_ended_by_a_signal_is_not_reported_as_out_of_memory(capsys, monkeypatch):
    monkeypatch.setattr("tilth.cli.lab_view._lines", lambda: lambda event: None)

    def losing(*, signalled):
        yield "an event"
        if signalled:
            signal.raise_signal(signal.SIGINT)
        raise WorkerLostError("a worker was killed, perhaps for lack of memory")

    with pytest.raises(SystemExit) as end:
        watch(losing(signalled=True), ("tilth", "lab"))
    assert end.value.code == 130
    assert "memory" not in capsys.readouterr().err
    with pytest.raises(OSError, match="lack of memory"):
        watch(losing(signalled=False), ("tilth", "lab"))


def test_ctrl_c_while_workers_start(data, tmp_path):
    out = tmp_path / "lab"
    words = ["lr", "--data", data.folder, *SMALL, "--steps", 40_000, "--out", out, "--workers", 2]
    command = [*TILTH, *map(str, words)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def is_importing():  # the fork server first imports torch, for seconds
        folders = [Path("/proc", pid) for pid in children.read_text().split()]
        workers = [each for each in folders if b"forkserver" in (each / "cmdline").read_bytes()]
        return any("libtorch" in (each / "maps").read_text() for each in workers)

    while not is_importing():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert f"continue with `{shlex.join(['tilth', 'lab', *map(str, words)])}`" in stderr
    assert "Traceback" not in stderr, stderr
    assert "memory" not in stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--steps", 0), "steps"), (("--steps", 4, "--seeds", 0), "seeds must be at least 1")],
)
@pytest.mark.parametrize("question", ["lr", "batch-size", "ablations", "shape", "scaling"])
def test_zero_steps_and_zero_seeds_are_errors(
    data, tmp_path, capsys, monkeypatch, question, words, said
):
    monkeypatch.setattr("tilth.training.planning._time_steps", lambda *_, **__: [(0.01, 0.01)])
    monkeypatch.setattr(
        "tilth.lab.planning.run_question", lambda *_, **__: pytest.fail("it trains")
    )
    options = ("--data", data.folder, *SMALL, *words, "--out", tmp_path / "lab")
    with pytest.raises(ValueError, match=said):
        here(capsys, question, *options)
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize("question", ["lr", "corpora", "shape", "tokenizers", "sgd"])
def test_a_folder_that_is_not_a_lab_is_an_error_and_unchanged(data, tmp_path, capsys, question):
    (tmp_path / "report.md").write_text("theirs")
    words = {
        "sgd": (),
        "tokenizers": ("--data", data.folder),
        "corpora": ("--data", data.folder, "--data", data.folder, *SMALL, "--steps", 3),
    }.get(question, ("--data", data.folder, *SMALL, "--steps", 3))
    with pytest.raises(FileExistsError, match="is not empty and not a lab directory"):
        here(capsys, question, *words, "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
    assert (tmp_path / "report.md").read_text() == "theirs"


def test_varied_steps_and_a_budget_are_an_error(data, tmp_path, capsys):
    mine = tmp_path / "mine.toml"
    words = ("--data", data.folder, *SMALL[2:], "--out", tmp_path / "lab", "--dry-run")
    for text in ("[grid]\nsteps = [2, 3]\n", "[[trials]]\nlabel = 'long'\nsteps = 3\n"):
        mine.write_text(f'recipe = "tiny"\n{text}')
        with pytest.raises(ValueError, match=r"varies steps, .* give --steps as well, or leave"):
            here(capsys, mine, *words, "--budget", "1m")
        assert here(capsys, mine, *words, "--steps", 5).out.splitlines()[-2] == ""
    mine.write_text('recipe = "tiny"\n[base]\nsteps = 3\n[grid]\nbatch_size = [1, 2]\n')
    with pytest.raises(ValueError, match=r"gives steps in \[base\]; leave them out, and give"):
        here(capsys, mine, *words, "--steps", 5)


def test_tokenizers_trains_no_model(data, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(data.folder, other)
    out = tmp_path / "lab"
    done = here(capsys, "tokenizers", "--data", data.folder, "--data", other, "--out", out)
    assert load_lab(out).answer in done.out
    assert (out / "report.html").exists()


def test_sgd_writes_its_curve(tmp_path, capsys):
    done = here(capsys, "sgd", "--out", tmp_path / "lab")
    assert "lowest at lr 100: 3.32e-24. The loss grows at lr 1000." in done.out
    (chart,) = load_lab(tmp_path / "lab").charts
    assert [line.name for line in chart.lines] == ["lr 1", "lr 10", "lr 100", "lr 1000"]
    assert [len(line.points) for line in chart.lines] == [11] * 4
    assert (tmp_path / "lab" / "report-chart-1.png").exists()
