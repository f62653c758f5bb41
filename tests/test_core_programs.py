"""The core's own C++ tests, built as `make sanitize` builds them but without sanitizers."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent


def tool(name):
    found = shutil.which(name, path=str(TOOLS)) or shutil.which(name)
    assert found, f"{name} is missing: run the tests with make test"
    return found


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_cores_own_tests_pass():
    build = ROOT / "build" / "core"  # kept: later runs build only what has changed
    ninja = f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"
    run(tool("cmake"), "-S", str(ROOT / "core"), "-B", str(build), "-G", "Ninja", ninja)
    run(tool("cmake"), "--build", str(build))
    assert "100% tests passed" in run(
        tool("ctest"), "--test-dir", str(build), "--output-on-failure"
    )
