"""Mutated corpora end in documents or in one sentence, in little memory and time.

`TILTH_FUZZ_CASES=1000000 TILTH_FUZZ_SEED=7 pytest -m slow tests/corpus/test_fuzz.py`
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SEED = os.environ.get("TILTH_FUZZ_SEED", "0")
CASES = int(os.environ.get("TILTH_FUZZ_CASES", "100000"))
CASES_AT_ONCE = 5000
PROGRAM = Path(__file__).with_name("fuzzing.py")


def read_cases(first, behind, folder):
    command = [sys.executable, str(PROGRAM), SEED, str(first), str(behind), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ended by {done.returncode} in {folder}\n{done.stderr}"


def test_some_mutated_files(tmp_path):
    read_cases(0, 300, tmp_path)


@pytest.mark.slow
def test_many_mutated_files(tmp_path):
    for first in range(0, CASES, CASES_AT_ONCE):
        read_cases(first, min(CASES, first + CASES_AT_ONCE), tmp_path)
