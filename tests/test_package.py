"""`import tilth` is fast, lazy, and provides the names in `__all__`."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

import tilth

PROBE = """
import json, sys, time
start = time.perf_counter()
import tilth
print(json.dumps([time.perf_counter() - start, [m for m in sys.modules if "." not in m]]))
"""


@pytest.mark.alone
def test_import_is_light(once_within):
    def import_seconds():
        command = [sys.executable, "-c", PROBE]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, modules = json.loads(done.stdout)
        assert not {"torch", "numpy", "rich", "cyclopts"} & set(modules)
        return seconds

    once_within(0.1, import_seconds)


def test_names_load_when_used():
    for name in tilth.__all__:
        assert getattr(tilth, name) is not None
        assert name in dir(tilth)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'splitt'"):
        _ = tilth.splitt


def test_version_is_the_installed_one():
    assert tilth.__version__ == version("tilth")
