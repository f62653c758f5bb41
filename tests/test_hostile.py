"""Mutated files and arguments end in one sentence: no signal, no hang, no traceback.

The default suite runs some thousand cases. The campaign runs as many as it is told to, most of them
against readers (2 ms a case), one in fifty against verbs (20 ms or more):

    TILTH_SEED=1 TILTH_CASES=1000000 python -m pytest -m slow tests/test_hostile.py
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BATCH = 20_000


def run_cases(level, seed, first, count, tmp_path):
    """Return the problems of these cases; a crash is a problem of the case that was running."""
    problems = []
    while count > 0:
        case_file = tmp_path / "case"
        words = ("--seed", seed, "--first", first, "--count", count, "--case-file", case_file)
        command = [sys.executable, "-m", "tests.hostile.campaign", level, *map(str, words)]
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


@pytest.mark.parametrize(("level", "count"), [("verbs", 300), ("readers", 2_000)])
def test_some_cases(level, count, tmp_path):
    assert_none(run_cases(level, 0, 0, count, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(("level", "share"), [("verbs", 0.02), ("readers", 0.98)])
def test_campaign(level, share, tmp_path):
    seed = int(os.environ.get("TILTH_SEED", "1"))
    total = round(share * int(os.environ.get("TILTH_CASES", "50000")))
    problems = []
    for first in range(0, total, BATCH):
        problems += run_cases(level, seed, first, min(BATCH, total - first), tmp_path)
    assert_none(problems)
