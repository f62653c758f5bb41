import math
import os
import pty
import re
import subprocess
import sys

from tilth.corpus import SAMPLE
from tilth.tokenizer import Tokenizer, reference

TILTH = [sys.executable, "-m", "tilth"]


def demo(*words, steps=0):
    command = [*TILTH, "demo", "--steps", str(steps), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_trains_on_stories():
    done = demo(steps=12)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"step +\d+  loss +([0-9.]+)", done.stdout)]
    assert len(losses) == 12
    assert abs(losses[0] - math.log(1000)) < 0.5  # a model that knows nothing
    assert losses[-1] < losses[0] - 0.5
    x, y = re.findall(r"^   [xy]  (.+)$", done.stdout, re.MULTILINE)
    assert x.split("|")[1:] == y.split("|")[:-1]
    assert "Once upon a time" in done.stdout


def test_shows_pieces_and_tokens_of_the_sample():
    done = demo()
    assert done.returncode == 0, done.stderr
    assert "|".join(reference.split(SAMPLE)).replace("\n", "⏎") in done.stdout
    vocab, merges = reference.train([SAMPLE], 320)
    tokens = [vocab[i] for i in reference.encode(SAMPLE, vocab, merges)]
    assert "|".join(t.decode("utf-8", "backslashreplace") for t in tokens[:9]) in done.stdout
    assert f"{len(SAMPLE.encode()):,} bytes, {len(tokens):,} tokens" in done.stdout


def test_writes_the_tokenizer_and_keeps_what_exists(tmp_path):
    out = tmp_path / "tokenizer.json"
    done = demo("--out", str(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"Wrote {out}"
    assert list(Tokenizer.load(out).merges) == reference.train([SAMPLE], 320)[1]

    out.write_text("precious")
    refused = demo("--out", str(out))
    assert refused.returncode == 2
    assert "--overwrite" in refused.stderr
    assert refused.stdout == ""  # before any work
    assert out.read_text() == "precious"
    assert demo("--out", str(out), "--overwrite").returncode == 0
    assert out.read_text() != "precious"


def test_long_text_is_cut_in_the_display_only(tmp_path):
    text = tmp_path / "long.txt"
    text.write_text("a b" * 10_000)
    done = demo("--text", str(text))
    assert "30,000 characters" in done.stdout
    assert len(done.stdout) < 5000


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
        [*TILTH, "demo", "--steps", "0"],
        stdout=terminal,
        check=True,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(terminal)
    assert b"\x1b[" in os.read(controller, 65536)
    os.close(controller)
