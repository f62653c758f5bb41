"""Each test runs in a separate process, as the setting of malloc is permanent."""

import subprocess
import sys

import pytest

from tilth.training import allocator

STEPS = """
import resource, sys
import torch
from tilth.training.allocator import keep_freed_memory

torch.set_num_threads(1)
if "keep" in sys.argv:
    assert keep_freed_memory() and keep_freed_memory()

def step():  # 160 MB, all freed at its end
    return sum(float(tensor[-1]) for tensor in [torch.ones(10_000_000) for _ in range(4)])

for _ in range(8):  # until each block has found its place
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
assert step() + step() == 8
pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(pages)
"""


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=True, timeout=60
    ).stdout


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone can be told")
def test_freed_pages_are_reused():
    kept, usual = (python("-c", STEPS, mode) for mode in ("keep", "usual"))
    assert int(kept) < 100  # those of the interpreter
    assert int(usual) > 2 * 160_000_000 / 4096  # or there is nothing left to keep


def test_without_glibc_nothing_changes(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert allocator.keep_freed_memory.__wrapped__() is False


def test_docstring():
    """In a separate process, as the setting is permanent."""
    program = "import doctest, tilth.training.allocator as a; print(doctest.testmod(a))"
    assert python("-c", program) == "TestResults(failed=0, attempted=2)\n"
