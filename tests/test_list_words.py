"""`make words` finds planted phrases and long sentences in each kind of file."""

import subprocess
import sys

import pytest

from scripts.list_words import MOST_WORDS, ROOT, findings

LONG = " ".join(["word"] * (MOST_WORDS + 1))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("planted.py", '"""PLANTED."""\n'),
        ("planted.py", "x = 1  # PLANTED\n"),
        ("planted.py", "# PLANTED\n"),
        ("planted.py", 'raise ValueError(f"{x}: PLANTED")\n'),
        ("planted.hpp", "// PLANTED.\nint x;\n"),
        ("planted.md", "# Title\n\n- PLANTED.\n"),
        ("planted.md", "| a | PLANTED |\n|---|---|\n"),
    ],
)
@pytest.mark.parametrize(
    ("planted", "complaint"),
    [
        ("a path is no run", "'is no'"),
        ("What enters: a path", "'What enters'"),
        ("a door to the package", "'door'"),
        ("a process of its own", "'of its own'"),
        (LONG, " words: "),
    ],
)
def test_planted_prose_is_found(tmp_path, name, text, planted, complaint):
    path = tmp_path / name
    path.write_text(text.replace("PLANTED", planted))
    (found,) = findings(path)
    assert complaint in found
    assert planted in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("good.md", "There is no queue. It is no longer there.\n\n```text\nwhat enters\n```\n"),
        ("good.py", f'x = 1\nPROGRAM = """\nroom = 1\n{LONG}\n"""\n'),
        ("good.hpp", "int what_enters;  // The input.\n"),
        ("good.md", f"{LONG[:60]}. {LONG[:60]}. `{LONG}`\n"),
    ],
)
def test_plain_prose_and_code_are_not_listed(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert list(findings(path)) == []


def test_line_numbers_and_exit_code(tmp_path):
    (tmp_path / "page.md").write_text("Fine.\n\nFine too. But\nwhoever reads this stops.\n")
    command = [sys.executable, ROOT / "scripts" / "list_words.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{tmp_path}/page.md:3: 'whoever'")
    assert done.stderr == "1 findings\n"
