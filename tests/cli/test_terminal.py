"""Live displays on a terminal are drawn; untrusted text is escaped."""

import os
import pty
import subprocess
import sys

from tests.command_line import tilth
from tilth.tokenizer import Tokenizer


def on_terminal(*words, cwd, stdin=None):
    """Run `tilth WORDS` on a pseudo-terminal; return its output. `stdin` is a file instead."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"}
    command = [sys.executable, "-m", "tilth", *map(str, words)]
    child = subprocess.Popen(
        command, cwd=cwd, env=environment, stdin=stdin or theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:  # Linux: the child has closed the terminal
        pass
    finally:
        os.close(ours)
    assert child.wait() == 0, output.decode()
    return output.decode()


def test_the_training_panel_is_drawn(stories, tmp_path):
    words = f"train tiny --data {stories.folder} --out run --steps 3 --machine.no-compile"
    output = on_terminal(*words.split(), cwd=tmp_path)
    assert "\\x1b" not in output
    assert "\x1b[1A" in output  # the panel is drawn again in its place
    assert "step 3 of 3" in output


def test_a_progress_bar_is_drawn(tmp_path):
    name = "red \x1b[31m.txt"
    (tmp_path / name).write_text("a seed and a row " * 20_000)
    words = ("tokenizer", "train", name, "--vocab-size", 270, "--out", "tokenizer.json")
    output = on_terminal(*words, cwd=tmp_path)
    assert "\x1b[?25l" in output  # the cursor is hidden while the bar moves
    assert "\\x1b[?25l" not in output
    assert "\x1b[31m.txt" not in output


def test_decoded_text_is_escaped_on_a_terminal_only(tmp_path):
    tokenizer = Tokenizer({0: b"\x1b[31m", 1: b"\xc3", 2: b"\xaf"}, [])
    tokenizer.save(tmp_path / "t.json")
    (tmp_path / "ids").write_text("0 1\n2 0")
    words = ("tokenizer", "decode", "t.json")
    with (tmp_path / "ids").open() as ids:
        assert on_terminal(*words, cwd=tmp_path, stdin=ids) == "\\x1b[31mï\\x1b[31m"
    redirected = tilth(*words, cwd=tmp_path, input=b"0 1\n2 0", text=False)
    assert redirected.stdout == "\x1b[31mï\x1b[31m".encode()
