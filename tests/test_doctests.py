"""The examples in the docstrings of all modules run."""

import doctest
import re
from importlib import import_module

import pytest

from scripts.draw_packages import PACKAGE

# allocator.py changes the process: see its own test.
MODULES = [
    ".".join(("tilth", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in sorted(PACKAGE.rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text("utf-8"), re.MULTILINE) and path.name != "allocator.py"
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    result = doctest.testmod(import_module(name))
    assert result.attempted
    assert not result.failed
