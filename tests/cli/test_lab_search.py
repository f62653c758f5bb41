"""`tilth lab search`, called as a command."""

import signal
import subprocess
import sys
import time

import pytest

from tests.command_line import tilth
from tilth.report.lab_file import load_lab
from tilth.runs.run import open_run

SMALL = (
    *("--model.d-model", "16", "--model.num-layers", "1", "--model.num-heads", "2"),
    *("--model.context-length", "16", "--batch-size", "4", "--machine.threads", "1"),
    *("--machine.no-compile", "--recipe", "tiny"),
)
LR = ("--vary", "optimizer.lr=1e-3..1e-1")


def start(*words):
    command = [sys.executable, "-m", "tilth", "lab", "search", *map(str, words), *SMALL]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run(*words):
    done = tilth("lab", "search", *words, *SMALL)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def data(stories):
    return stories.folder


def test_a_stopped_search_resumes_its_trial(data, tmp_path):
    out = tmp_path / "search"
    words = ("--data", data, *LR, "--trials", 2, "--steps", 300, "--out", out)
    process = start(*words)
    metrics = out / "runs" / "trial-0000" / "metrics.jsonl"
    # Signals are handled from the first event on.
    while process.poll() is None and not (metrics.exists() and metrics.read_text().count("\n") > 1):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == ""
    assert "tilth: stopped; continue with `tilth lab search --data" in stderr
    stopped = open_run(out / "runs" / "trial-0000").checkpoints()[-1].step
    assert stopped < 300

    code, stdout, stderr = run(*words)
    assert code == 0, stderr
    lab = load_lab(out)
    assert lab.answer.startswith("The best of 2 trials is lr ")
    written = f"Wrote {out}/report.html, {out}/report.md"
    assert stdout.splitlines() == [lab.answer, written]
    lines = [line for line in stderr.splitlines() if "bits per byte" in line]
    assert len(lines) == 2
    assert lines[0].lstrip().startswith("1 of 2  lr 0.02: ")
    config = open_run(out / "runs" / "trial-0001").config
    assert config.model.d_model == 16
    assert config.steps == 300


def test_dry_run_prints_the_cost_and_writes_nothing(data, tmp_path):
    layers = ("--vary", "model.num_layers=1,2")
    words = ("--data", data, *LR, *layers, "--trials", 4, "--budget", "2m", "--dry-run")
    code, stdout, stderr = run(*words, "--out", tmp_path / "search")
    assert code == 0, stderr
    lines = stdout.splitlines()
    assert lines[:2] == [
        "varies   optimizer.lr from 0.001 to 0.1, log scale",
        "varies   model.num_layers 1 or 2",
    ]
    assert lines[2].startswith("trials   4, each of ")
    assert [line.split()[0] for line in lines[3:]] == ["cost", "machine", "time"]
    assert not list(tmp_path.iterdir())


def test_a_mistake_is_one_sentence_and_writes_nothing(data, tmp_path):
    out = tmp_path / "search"
    code, _, stderr = run("--data", data, "--out", out, "--vary", "optimizer.lt=1e-3..1e-1")
    assert code == 2
    assert "there is no optimizer.lt in a training config; did you mean optimizer.lr?" in stderr
    assert stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_processes_of_this_host(data, tmp_path):
    out = tmp_path / "search"
    words = ("--data", data, *LR, "--trials", 3, "--steps", 5, "--out", out)
    code, stdout, stderr = run(*words, "--cluster", "local", "--workers", 2)
    assert code == 0, stderr
    assert stdout.startswith("The best of 3 trials")
    assert f"Wrote {out}" in stdout
    code, _, stderr = run(*words, "--workers", 2)
    assert code == 2
    assert "--workers are those of a cluster" in stderr
