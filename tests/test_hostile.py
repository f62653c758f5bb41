"""Mutated files and arguments: each verb answers in a sentence; no signal, no hang, no traceback.

The default suite runs a few hundred cases. The campaign, with another seed and number:

    TILTH_SEED=1 TILTH_CASES=1000000 python -m pytest -m slow tests/test_hostile.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BATCH = 2_000


def run_cases(seed, first, count, tmp_path):
    """The problems of these cases; a crash is a problem of the case that was running."""
    problems = []
    while count > 0:
        case_file = tmp_path / "case"
        words = ("--seed", seed, "--first", first, "--count", count, "--case-file", case_file)
        command = [sys.executable, "-m", "tests.hostile.campaign", *map(str, words)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        problems += [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        reached = case_file.read_text()
        if reached == "done":
            break
        crash = f"the process ended with {done.returncode}: {done.stderr[-500:]}"
        problems.append({"case": int(reached), "problem": crash})
        count -= int(reached) + 1 - first
        first = int(reached) + 1
    return problems


def assert_none(problems):
    assert not problems, "\n".join(map(json.dumps, problems[:50]))


def test_some_cases(tmp_path):
    assert_none(run_cases(0, 0, 300, tmp_path))


@pytest.mark.slow
def test_the_campaign(tmp_path):
    seed, total = (
        int(os.environ.get("TILTH_SEED", "1")),
        int(os.environ.get("TILTH_CASES", "10000")),
    )
    problems = []
    for first in range(0, total, BATCH):
        problems += run_cases(seed, first, min(BATCH, total - first), tmp_path)
    assert_none(problems)
