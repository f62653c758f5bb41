"""The README and the docs are true today: their examples run, and their commands exist."""

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands():
    """Each shell command of each page."""
    for page in PAGES:
        for language, body in BLOCK.findall(page.read_text()):
            if language == "sh":
                for line in body.splitlines():
                    command = shlex.split(line, comments=True)
                    if command:
                        yield pytest.param(command, id=f"{page.name}: {line}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page):
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_python_blocks_are_examples():
    """A block marked python without a prompt would be run by nothing (but see test_bench.py)."""
    for page in set(PAGES) - {ROOT / "bench" / "README.md"}:
        for language, body in BLOCK.findall(page.read_text()):
            if language == "python":
                assert body.startswith(">>> "), f"{page}: {body}"


@pytest.mark.parametrize("command", list(commands()))
def test_shell_commands(command, tmp_path):
    program, *words = command
    if program == "make":  # would make another environment: that its target exists must do here
        makefile = (ROOT / "Makefile").read_text()
        targets = [word for word in words if "=" not in word]
        for target in targets:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        for variable in (word.partition("=")[0] for word in words if "=" in word):
            assert f"$({variable})" in makefile, variable
    elif program in {"tilth", ".venv/bin/tilth"}:
        done = subprocess.run(
            [sys.executable, "-m", "tilth", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    else:
        assert program in {"git", "cd", "pip", ".venv/bin/pre-commit"}, f"nothing checks {program}"


def test_relative_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
