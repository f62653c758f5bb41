"""The C++ test programs, built by `make env`."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "core"
PROGRAMS = [path.stem for path in sorted((ROOT / "core" / "tests").glob("test_*.cpp"))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    program = BUILD / name
    assert program.exists(), f"{program} is missing: run make env"
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
