import json
import os
import pty
import subprocess
import sys

from tilth.corpus import SAMPLE
from tilth.tokenizer import reference

TILTH = [sys.executable, "-m", "tilth"]


def demo(*words):
    return subprocess.run([*TILTH, "demo", *words], capture_output=True, text=True, check=False)


def test_shows_the_pieces_of_the_sample():
    done = demo()
    assert done.returncode == 0, done.stderr
    shown = "|".join(reference.split(SAMPLE)).replace("\n", "⏎\n")
    assert shown in done.stdout
    assert f"{len(SAMPLE.encode()):,} bytes" in done.stdout


def test_writes_the_pieces_and_keeps_what_exists(tmp_path):
    out = tmp_path / "pieces.jsonl"
    done = demo("--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Wrote {out}"
    assert [json.loads(line) for line in out.read_text().splitlines()] == reference.split(SAMPLE)

    out.write_text("precious")
    refused = demo("--out", str(out))
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert out.read_text() == "precious"
    assert demo("--out", str(out), "--overwrite").returncode == 0
    assert out.read_text() != "precious"


def test_long_text_is_cut_in_the_display_only(tmp_path):
    text = tmp_path / "long.txt"
    text.write_text("a b" * 1000)
    done = demo("--text", str(text))
    assert "more" in done.stdout
    assert len(done.stdout) < 2000


def test_not_utf8(tmp_path):
    text = tmp_path / "latin1.txt"
    text.write_bytes("naïf".encode("latin-1"))
    done = demo("--text", str(text))
    assert done.returncode == 2
    assert "not UTF-8 (byte 2 is 0xef)" in done.stderr


def test_colours_on_a_terminal_only():
    assert "\x1b[" not in demo().stdout
    controller, terminal = pty.openpty()
    subprocess.run(
        [*TILTH, "demo"], stdout=terminal, check=True, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    assert b"\x1b[" in os.read(controller, 65536)
    os.close(controller)
