"""`tilth train`, `resume` and `evaluate`, called as commands."""

import fcntl
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
import tomllib

import pytest
import tomli_w
import torch

from tests.command_line import tilth as run_tilth
from tilth.formatting import parse_duration
from tilth.runs.metrics import Evaluation
from tilth.runs.run import open_run
from tilth.training import evaluation

SMALL = (
    *("--model.d-model", "16", "--model.num-layers", "1", "--model.num-heads", "2"),
    *("--model.context-length", "16", "--batch-size", "4", "--machine.threads", "1"),
    *("--watch.evaluation-tokens", "100", "--watch.sample-tokens", "8", "--machine.no-compile"),
)


def start(*words, **options):
    command = [sys.executable, "-m", "tilth", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes, **options)


def unread_bytes(pipe):
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def run(*words):
    done = run_tilth(*words)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def data(stories):
    return stories


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    code, stdout, stderr = run(
        "train", "tiny", "--data", data.folder, "--out", out, "--steps", 10, *SMALL
    )
    assert code == 0, stderr
    return out, stdout, stderr


def test_train_prints_the_cost_and_progress_and_writes_a_run(trained):
    out, stdout, stderr = trained
    lines = stderr.splitlines()
    assert lines[0].startswith("model    ")
    assert "parameters: 1 layers of width 16, 2 heads, vocabulary 300" in lines[0]
    assert lines[1] == "length   640 tokens: 10 steps of 64 tokens"
    assert [line.split()[0] for line in lines[2:5]] == ["cost", "machine", "time"]
    assert any("validation loss" in line for line in lines)
    assert stdout.splitlines()[0].startswith("validation loss ")
    assert stdout.splitlines()[-1] == f"Wrote {out}"
    assert open_run(out).is_finished


def test_the_saved_config_repeats_the_run(trained, tmp_path):
    out, _, _ = trained
    code, _, stderr = run("train", "--config", out / "config.toml", "--out", tmp_path / "again")
    assert code == 0, stderr
    assert (out / "config.toml").read_text() == (tmp_path / "again" / "config.toml").read_text()
    times = {"seconds", "step_seconds", "tokens_per_second", "utilisation"}
    first, again = (
        [
            {k: v for k, v in record.to_dict().items() if k not in times}
            for record in open_run(f).metrics()
        ]
        for f in (out, tmp_path / "again")
    )
    assert first == again


def test_the_saved_config_repeats_a_run_whose_recipe_has_changed(trained, tmp_path):
    """The file leaves out the usual value of a later field, and the recipe has another one."""
    out, _, _ = trained
    values = tomllib.loads((out / "config.toml").read_text())
    assert values["optimizer"].pop("embedding_lr_factor") != 1.0
    assert values["optimizer"].pop("momentum_warmup_steps") != 0
    old = tmp_path / "old.toml"
    old.write_text(tomli_w.dumps(values))
    code, _, stderr = run("train", "--config", old, "--out", tmp_path / "again")
    assert code == 0, stderr
    optimizer = open_run(tmp_path / "again").config.optimizer
    assert (optimizer.embedding_lr_factor, optimizer.momentum_warmup_steps) == (1.0, 0)


def test_a_budget_chooses_the_size_and_says_why(data, tmp_path):
    code, _, stderr = run(
        *("train", "tiny", "--data", data.folder, "--out", tmp_path / "run", "--budget", "1s"),
        *("--machine.threads", 1, "--watch.evaluation-tokens", 100, "--watch.sample-every", 0),
    )
    assert code == 0, stderr
    model = open_run(tmp_path / "run").config.model
    (line,) = (line for line in stderr.splitlines() if line.startswith("size "))
    assert f"{model.num_layers} layers of width {model.d_model}: 1 s at" in line


def test_evaluate(trained):
    out, stdout, _ = trained
    code, printed, stderr = run("evaluate", out, "--max-tokens", 100, "--json")
    assert code == 0, stderr
    found = json.loads(printed)
    assert found["step"] == 10
    assert f"validation loss {found['loss']:.4f}" in stdout
    code, printed, stderr = run("evaluate", out)
    assert code == 0, stderr
    assert printed.splitlines()[-1].startswith("bits per byte  ")


def test_evaluate_limits_the_number_of_threads(trained, tmp_path, monkeypatch):
    out, _, _ = trained
    folder = shutil.copytree(out, tmp_path / "run")
    config = tomllib.loads((folder / "config.toml").read_text())
    config["machine"]["threads"] = 1024
    (folder / "config.toml").write_text(tomli_w.dumps(config))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    asked, set_num_threads = [], torch.set_num_threads

    def ask(threads):
        asked.append(threads)
        set_num_threads(min(threads, 2))

    monkeypatch.setattr(torch, "set_num_threads", ask)
    code, _, stderr = run("evaluate", folder, "--max-tokens", 100)
    assert code == 0, stderr
    assert asked[0] == 32


def test_evaluate_writes_null_for_non_finite_values(trained, monkeypatch):
    out, _, _ = trained
    checkpoint = open_run(out).checkpoint()
    found = Evaluation(math.nan, math.nan, math.inf, 5)
    monkeypatch.setattr(evaluation, "evaluate_run", lambda *_, **__: (checkpoint, found))
    code, printed, stderr = run("evaluate", out, "--json")
    assert code == 0, stderr
    assert json.loads(printed)["loss"] is None
    assert json.loads(printed)["bits_per_byte"] is None


def test_verify(trained):
    out, _, _ = trained
    code, stdout, stderr = run("verify", out)
    assert code == 0, stderr
    assert stdout.splitlines()[-1] == f"{out} is whole"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "sigterm"]
)
def test_a_signal_finishes_the_step_and_saves_a_checkpoint(data, tmp_path, number, code):
    out = tmp_path / "run"
    process = start(
        "train", "tiny", "--data", data.folder, "--out", out, "--steps", 100_000, *SMALL
    )
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == code, stderr
    stopped = open_run(out).checkpoints()[-1].step
    assert f"stopped after step {stopped:,} of 100,000, which is saved; continue with" in stderr
    assert "Traceback" not in stderr
    assert open_run(out).metrics()[-1].step == stopped


def test_a_closed_terminal_saves_a_checkpoint(data, tmp_path):
    """As at the end of an ssh connection: SIGHUP, and writes to stderr fail."""
    out = tmp_path / "run"
    words = ["train", "tiny", "--data", data.folder, "--out", out, "--steps", 100_000, *SMALL]
    program = (
        "import os, pathlib, pty, sys, time\n"
        "child, terminal = pty.fork()\n"
        "if child == 0: os.execv(sys.executable, [sys.executable, '-m', 'tilth', *sys.argv[2:]])\n"
        "metrics = pathlib.Path(sys.argv[1])\n"
        "while not (metrics.exists() and metrics.stat().st_size): os.read(terminal, 1 << 16)\n"
        "os.close(terminal)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    command = [sys.executable, "-c", program, out / "metrics.jsonl", *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGHUP, done.stderr
    assert open_run(out).checkpoints()[-1].step == open_run(out).metrics()[-1].step


def test_a_signal_that_also_ends_the_reader_of_stderr_saves_a_checkpoint(data, tmp_path):
    """As Ctrl-C in `tilth train ... 2>&1 | tee log`: it reaches both processes."""
    out = tmp_path / "run"
    process = start(
        "train", "tiny", "--data", data.folder, "--out", out, "--steps", 100_000, *SMALL
    )
    metrics = out / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.stdout.close()
    assert open_run(out).checkpoints()[-1].step == open_run(out).metrics()[-1].step


def test_a_signal_during_a_blocked_print_saves_a_checkpoint(data, tmp_path):
    """As before a stopped pager: writing a line blocks."""
    out = tmp_path / "run"
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    every_step = ["--watch.evaluate-every", 1]  # one line per step
    process = start(
        *("train", "tiny", "--data", data.folder, "--out", out, "--steps", 100_000),
        *(*SMALL, *every_step),
        env=environment,
    )
    capacity = fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 8192)  # not 65,536: a line a step
    while process.poll() is None and unread_bytes(process.stderr) < capacity - 1024:
        time.sleep(0.1)
    time.sleep(0.5)  # it blocks while printing now
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert open_run(out).checkpoints()[-1].step == open_run(out).metrics()[-1].step


@pytest.mark.parametrize("closed", ["1>&-", "2>&-"])
def test_closed_streams_are_ignored(data, tmp_path, closed):
    words = [sys.executable, "-m", "tilth", "train", "tiny", "--data", str(data.folder), *SMALL]
    command = shlex.join([*words, "--out", str(tmp_path / "run"), "--steps", "2"])
    subprocess.run(["sh", "-c", f"{command} {closed}"], check=True, capture_output=True)
    assert open_run(tmp_path / "run").is_finished


def test_values_come_from_flags_over_the_file_over_the_recipe(data, tmp_path):
    (tmp_path / "mine.toml").write_text(
        "steps = 3\nseed = 5\n[optimizer]\nlr = 0.02\nbetas = [0.8, 0.9]\n[watch]\nsave_every = 2\n"
    )
    words = ("--config", tmp_path / "mine.toml", "--steps", 4, "--optimizer.lr", "0.03", *SMALL)
    out = tmp_path / "run"
    code, _, stderr = run("train", "tiny", "--data", data.folder, "--out", out, *words)
    assert code == 0, stderr
    config = tomllib.loads((out / "config.toml").read_text())
    assert (config["steps"], config["seed"]) == (4, 5)
    assert (config["optimizer"]["lr"], config["optimizer"]["betas"]) == (0.03, [0.8, 0.9])
    assert config["watch"]["save_every"] == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tniy"], "there is no recipe 'tniy'; did you mean tiny?"),
        (["tiny", "--model.d-modl", "3"], "Did you mean --model.d-model?"),
        (
            ["tiny", "--size", "3", "--model.num-layers", "2"],
            "model.num_layers 2 are both the number of layers; give one",
        ),
        (["tiny", "--model.num-heads", "5"], "is not a multiple of num_heads 5"),
        (["tiny", "--budget", "soon"], "'soon' is not a duration; write it like 90s, 8m"),
        (["tiny", "--steps", "0"], "steps must be at least 1, not 0"),
        (["tiny", "--machine.device", "abacus"], "the device abacus cannot be used"),
        (["tiny", "--machine.dtype", "float16"], "float16 is not supported on a CPU; use float32"),
        (["tiny", "--optimizer.lr", "-1"], "optimizer.lr is -1; it must be above 0"),
        (["tiny", "--microbatch-size", "99"], "microbatch_size 99 is above batch_size"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(data, tmp_path, words, sentence):
    code, _, stderr = run("train", *words, "--data", data.folder, "--out", tmp_path / "run")
    assert code == 2
    assert sentence in stderr
    assert stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_resume_errors(trained, tmp_path):
    code, _, stderr = run("resume", trained[0])
    assert code == 2
    assert "is finished, after 10 steps" in stderr
    code, _, stderr = run("resume", tmp_path)
    assert code == 2
    assert "is not a run (it has no config.toml); name a folder that `tilth train` made" in stderr


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("8m", 480), ("1h30m", 5400), ("1.5h", 5400), ("2h5s", 7205)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "m", "-8m", "8m8m", "1.2.3s", "0s"])
def test_invalid_durations(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
