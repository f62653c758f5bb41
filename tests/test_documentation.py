"""Examples and commands in the README and the docs work, and shown output is real output."""

import doctest
import io
import re
import shlex
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from torch.distributed.run import parse_args as parse_torchrun

from tests.command_line import tilth
from tilth.cli.app import app, run

ROOT = Path(__file__).parents[1]
# Not report.md, which commands of the README write to the current folder.
PAGES = sorted([*ROOT.glob("[A-Z]*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"(?:^<!-- (.+?) -->\n)?^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def name_of(page):
    return str(page.relative_to(ROOT))


def commands(page):
    """Yield each shell command of a page, in order."""
    for language, body in BLOCK.findall(page.read_text()):
        if language == "sh":
            for line in body.splitlines():
                if command := shlex.split(line, comments=True):
                    yield command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_examples_run(page):
    assert doctest.testfile(str(page), module_relative=False).failed == 0


def test_python_blocks_are_examples():
    """No test runs a python block without a prompt, except those of test_bench.py."""
    for page in set(PAGES) - {ROOT / "bench" / "README.md"}:
        for language, body in BLOCK.findall(page.read_text()):
            if language == "python":
                assert body.startswith(">>> "), f"{page}: {body}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_shell_commands(page, tmp_path):
    """Run the commands of a page in order, in one folder, as a reader would."""
    shutil.copy(page, tmp_path)
    for program, *words in commands(page):
        if program == "make":
            check_make(words)
        elif page.name == "report.md":  # a lab that took minutes: parse only
            assert app.parse_args(words, print_error=False, exit_on_error=False)
        elif words[:2] == ["corpus", "fetch"]:  # needs a network: parse only
            assert app.parse_args(words)[0].__name__ == "fetch"
        elif program == "torchrun":  # tests/training/test_distributed.py runs it: parse only
            parsed = parse_torchrun(words)
            assert parsed.module
            assert parsed.training_script == "tilth"
            assert app.parse_args(parsed.training_script_args)
        elif words[0] in {"serve", "studio"}:  # until Ctrl-C: parse only
            assert app.parse_args(words)[0].__name__ == words[0]
        elif program in {"tilth", ".venv/bin/tilth"}:
            done = tilth(*words, cwd=tmp_path)
            assert done.returncode == 0, f"{words}: {done.stderr}"
        else:
            pytest.fail(f"{page}: nothing checks {program}")


def test_commands_of_the_write_up():
    """It took two hours: parse only."""
    text = (ROOT / "docs" / "writeup.md").read_text()
    lines = [body.strip() for language, body in BLOCK.findall(text) if language == "text"]
    lines = [line for line in lines if line.startswith("tilth ")]
    assert len(lines) > 15
    for line in lines:
        assert app.parse_args(shlex.split(line)[1:], print_error=False, exit_on_error=False), line


def check_make(words):
    """Check that targets and variables exist; running them would create another environment."""
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        name, is_variable, _ = word.partition("=")
        found = f"$({name})" in makefile if is_variable else f"\n{name}:" in makefile
        assert found, f"make {word}"


def test_shown_output_is_real(tmp_path):
    """Run the console blocks of the README and compare what they show.

    A line `...` stands for any lines. A comment above a block weakens the comparison: with
    "numbers vary" all numbers are equal, with "output varies" only the exit code counts.
    """
    blocks = CONSOLE.findall((ROOT / "README.md").read_text())
    shown = [(how, *each) for how, body in blocks for each in SHOWN.findall(body)]
    assert len(shown) >= 10
    for how, command, expected in shown:
        program, *words = shlex.split(command)
        assert program == "tilth"
        code, found = on_terminal(words, tmp_path)
        assert code == 0, f"{command}: {found}"
        if how == "output varies":
            continue
        assert how in {"", "numbers vary"}
        comparable = without_numbers if how else str
        check = doctest.OutputChecker().check_output
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert check(comparable(expected), comparable(found), flags), f"{command}\n{found}"


def on_terminal(words, folder):
    """Return the exit code, and stdout and stderr in the order in which they were written."""
    output = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with chdir(folder), redirect_stdout(output), redirect_stderr(output):
        try:
            code = run(words)
        except SystemExit as end:
            code = end.code
    return code, output.buffer.getvalue().decode()


def without_numbers(text):
    """Replace numbers, and the units of times and sizes, which depend on the machine."""
    text = re.sub(r"\d[\d,.:]*(e[-+]?\d+)?", "0", text)
    return re.sub(r"\b0 (s|ms|minutes?|hours?|[kMG]B)\b", "0 unit", text)


def test_links_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)", page.read_text()):
            path = page.parent / target if target else page
            assert path.exists(), f"{page}: {target}"
            if anchor:
                assert anchor[1:] in anchors(path), f"{page}: {target}{anchor}"


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pictures_exist():
    for page in PAGES:
        for target in re.findall(r'(?:src|srcset)="(?!https?:)([^"]+)"', page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
