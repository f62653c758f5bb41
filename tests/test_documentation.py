"""The README and the docs are true today: their examples run, and their commands exist."""

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.command_line import tilth
from tilth.cli.app import app

ROOT = Path(__file__).parents[1]
# Not report.md, which the README's own commands write beside it.
PAGES = sorted([*ROOT.glob("[A-Z]*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def name_of(page):
    return str(page.relative_to(ROOT))


def commands(page):
    """Each shell command of a page, in order."""
    for language, body in BLOCK.findall(page.read_text()):
        if language == "sh":
            for line in body.splitlines():
                if command := shlex.split(line, comments=True):
                    yield command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_run(page):
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_python_blocks_are_examples():
    """A block marked python without a prompt would be run by nothing (but see test_bench.py)."""
    for page in set(PAGES) - {ROOT / "bench" / "README.md"}:
        for language, body in BLOCK.findall(page.read_text()):
            if language == "python":
                assert body.startswith(">>> "), f"{page}: {body}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shell_commands(page, tmp_path):
    """In one folder, one after the other, as a reader would type them."""
    shutil.copy(page, tmp_path)
    for program, *words in commands(page):
        if program == "make":
            check_make(words)
        elif page.name == "report.md":  # of a lab that took minutes: it must be understood
            assert app.parse_args(words, print_error=False, exit_on_error=False)
        elif words[:2] == ["corpus", "fetch"]:  # needs a network: that it is understood must do
            assert app.parse_args(words)[0].__name__ == "fetch"
        elif program in {"tilth", ".venv/bin/tilth"}:
            done = tilth(*words, cwd=tmp_path)
            assert done.returncode == 0, f"{words}: {done.stderr}"
        else:
            pytest.fail(f"{page}: nothing checks {program}")


def check_make(words):
    """Would make another environment: that its targets and variables exist must do here."""
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, is_variable, _ = word.partition("=")
        found = f"$({name})" in makefile if is_variable else f"\n{name}:" in makefile
        assert found, f"make {word}"


def test_relative_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
