"""`tilth lab` as a person would use it."""

import json
import subprocess
import sys

from tilth.lab.sgd import descend

TILTH = [sys.executable, "-m", "tilth", "lab"]


def lab(*words):
    return subprocess.run([*TILTH, *words], capture_output=True, text=True, check=False)


def test_sgd_prints_a_table_and_a_curve():
    done = lab("sgd")
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
    found = json.loads(lab(*words).stdout)
    assert (found["steps"], found["seed"]) == (30, 7)
    assert [run["lr"] for run in found["runs"]] == [2.5, 1e9]
    assert found["runs"][0]["losses"] == descend(2.5, 30, 7)
    assert found["runs"][1]["losses"][-1] is None  # beyond float32


def test_sgd_refuses_in_one_sentence():
    for words, part in (
        (["--lr=-1"], "lr is -1.0"),
        (["--steps", "0"], "at least one"),
        (["--lr=1e40"], "leave the numbers"),
    ):
        done = lab("sgd", *words)
        assert done.returncode == 2
        assert part in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""


def test_help_is_without_torch():
    program = (
        "import sys; sys.argv = ['tilth', 'lab', '--help']\n"
        "from tilth.cli import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert b"sgd" in done.stdout
