"""Training progress: the panel, the lines, and escaped text."""

import contextlib
import io
import logging
import os
import pty
import re
import signal
import sys
import threading
import unicodedata
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tilth.cli import training_view as module
from tilth.cli.app import NoteHandler
from tilth.cli.signals import first_signal
from tilth.cli.training_view import training_view
from tilth.config.model import ModelConfig
from tilth.config.training import TrainingConfig
from tilth.formatting import printable
from tilth.runs.metrics import Evaluation, StepRecord

MODEL = ModelConfig(1000, context_length=64, d_model=96, num_layers=2, num_heads=4)
CONFIG = TrainingConfig("data", MODEL, recipe="tiny", steps=400)
NASTY = "Once \x1b[31mred\x07\nand \u202e 你好 \ud800\r\x9b2J\ttab\x7f"


def record(step, **more):
    values = {
        "step": step,
        "tokens": step * 2048,
        "seconds": step * 0.5,
        "loss": 3.0,
        "lr": 1e-3,
        "grad_norm": 0.8125,
        "tokens_per_second": 4096.0,
        "utilisation": 0.771,
    }
    return StepRecord(**(values | more))


EVALUATION = Evaluation(3.25, 25.790, 1.4123, 65_536)


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test advances."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def lines(capsys, clock):
    """Show records without a terminal; return the new lines."""
    with training_view(CONFIG) as show:

        def lines(*records):
            for each in records:
                show(each)
            return capsys.readouterr().err.splitlines()

        yield lines


def test_a_line_at_the_start_every_five_seconds_and_at_the_end(lines, clock):
    assert lines(record(1)) == [
        "step 1 of 400 (0%): loss 3.0000, learning rate 1.00e-03, gradient norm 0.812, "
        "4,096 tokens/s, utilisation 77.1%, 0:00:00 gone, 0:03:20 left"
    ]
    clock.now += 4.9
    assert lines(*map(record, range(2, 100))) == []
    clock.now += 0.2
    (line,) = lines(record(100), record(101))
    assert line.startswith("step 100 of 400 (25%): ")
    assert line.endswith("0:00:50 gone, 0:02:30 left")
    (line,) = lines(record(400))
    assert line.startswith("step 400 of 400 (100%): ")
    assert line.endswith("0:03:20 gone, 0:00:00 left")


def test_a_run_of_any_length(capsys, clock):
    """2**53 steps of half a second: timedelta raised OverflowError, which ended the training."""
    with training_view(replace(CONFIG, steps=2**53)) as show:
        show(record(1))
    assert "142710460.5 years) left" in capsys.readouterr().err


def test_each_event_is_one_line(lines):
    lines(record(1))
    assert lines(record(100, evaluation=EVALUATION, saved="step-000100", sample="Once.")) == [
        "step 100: validation loss 3.2500, perplexity 25.79, 1.4123 bits per byte",
        "step 100: saving checkpoint step-000100",
        "step 100: sample: Once.",
    ]
    assert lines(record(1, evaluation=replace(EVALUATION, perplexity=1.5e30))) == [
        "step 1: validation loss 3.2500, perplexity 1.50e+30, 1.4123 bits per byte"
    ]


def test_skipped_steps_and_divergence(lines, clock):
    lines(record(1))
    skipped = {"was_skipped": True, "grad_norm": None}
    assert lines(
        record(2, loss=None, **skipped),
        record(3, **skipped),
        record(4),
        record(5, **skipped),
        record(6, is_diverging=True),
        record(7, is_diverging=True),
        record(8),
        record(9, is_diverging=True),
    ) == [
        "step 2: skipped: loss not finite, 1 in a row (the run stops at 10)",
        "step 3: skipped: gradient not finite, 2 in a row (the run stops at 10)",
        "step 5: skipped: gradient not finite, 1 in a row (the run stops at 10)",
        "step 6: diverging: the loss is far above its recent values",
        "step 9: diverging: the loss is far above its recent values",
    ]


def test_a_run_without_a_finite_loss(lines):
    line, skipped = lines(record(1, loss=None, grad_norm=None, was_skipped=True))
    assert "loss not finite, learning rate 1.00e-03, gradient norm not finite" in line
    assert "skipped" in skipped


def test_the_loss_is_a_moving_average(lines, clock):
    losses = [6.0, 5.0, 4.0, 9.0]
    lines(*(record(n, loss=loss) for n, loss in enumerate(losses, start=1)))
    clock.now += 10
    (line,) = lines(record(5, loss=1.0))
    assert "loss 5.0000" in line, "of the first steps it is the mean"
    # After 50 steps, one step has a weight of 1/50.
    lines(*(record(n, loss=2.0) for n in range(6, 1000)))
    clock.now += 10
    assert "loss 3.0000" in lines(record(399, loss=52.0))[0]


def test_time_left_excludes_the_first_step(lines, clock):
    """The first step may compile; a resumed session counts only its own steps."""
    lines(record(100, seconds=5000.0))
    clock.now += 10
    assert lines(record(110, seconds=5010.0))[0].endswith("1:23:30 gone, 0:04:50 left")


def test_samples_are_shortened_and_escaped(lines):
    lines(record(1))
    (line,) = lines(record(2, sample=NASTY))
    assert line == (
        "step 2: sample: Once \\x1b[31mred\\x07\\nand \\u202e 你好 \\ud800\\r\\x9b2J\\ttab\\x7f"
    )
    (line,) = lines(record(3, sample="x" * 201))
    assert line == f"step 3: sample: {'x' * 200}…"
    (line,) = lines(record(3, sample="x" * 200))
    assert line == f"step 3: sample: {'x' * 200}"


@given(st.text(st.characters(exclude_categories=())))
def test_printable_text_has_no_control_characters(text):
    shown = printable(text)
    shown.encode("utf-8")
    assert all(unicodedata.category(c)[0] not in "C" for c in shown)
    assert "\u2028" not in shown
    if text.isprintable():
        assert shown == text


# --- the panel ------------------------------------------------------------------------------------


def drawing(standing, width=80, **options):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, **options)
    with console.capture() as capture:
        console.print(module._drawing(standing, console))
    return capture.get()


def test_the_panel_in_80_columns(clock):
    standing = module._Standing(CONFIG)
    clock.now += 7
    assert drawing(standing).splitlines() == [
        "╭─ tiny ───────────────────────────────────────────────────────────────────────╮",
        "│ getting ready ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░   0% │",
        "│ loss                  -   validation loss        -   perplexity            - │",
        "│ learning rate         -   gradient norm          -   bits per byte         - │",
        "│ tokens/s              -   utilisation            -   at step               - │",
        "╰─────────────────────────────────────────────────────────────── 0:00:07 gone ─╯",
    ]
    standing.see(record(1))
    standing.see(record(100, evaluation=EVALUATION))
    clock.now += 10  # the clock advances within a long step
    assert drawing(standing).splitlines() == [
        "╭─ tiny ───────────────────────────────────────────────────────────────────────╮",
        "│ step 100 of 400 █████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  25% │",
        "│ loss             3.0000   validation loss   3.2500   perplexity        25.79 │",
        "│ learning rate  1.00e-03   gradient norm      0.812   bits per byte    1.4123 │",
        "│ tokens/s          4,096   utilisation        77.1%   at step             100 │",
        "╰───────────────────────────────────────────────── 0:01:00 gone, 0:02:20 left ─╯",
    ]
    standing.see(record(400))
    clock.now += 10
    last = drawing(standing).splitlines()
    assert "█ 100% │" in last[1]
    assert "░" not in last[1]
    assert "0:03:20 gone, 0:00:00 left" in last[-1]


def test_warnings_in_the_panel(clock):
    standing = module._Standing(CONFIG)
    standing.see(record(1, loss=None, grad_norm=None, was_skipped=True))
    assert "! skipped 1, 1 in a row: loss or gradient not finite" in drawing(standing)
    standing.see(record(2, is_diverging=True))
    text = drawing(standing)
    assert "! skipped 1: loss or gradient not finite" in text
    assert "! diverging: the loss is far above its recent values" in text


@pytest.mark.parametrize("width", [200, 79, 50, 12])
def test_the_panel_fits(clock, width):
    config = replace(CONFIG, recipe="\x1b[2J" + "long" * 40, steps=10_000_000)
    standing = module._Standing(config)
    million = {"tokens_per_second": 1e9, "grad_norm": 1.23456e30, "loss": 123456.0, "lr": 1e-30}
    worst = replace(EVALUATION, loss=12345.678, perplexity=99999.99)
    standing.see(record(1))
    standing.see(record(9_999_999, evaluation=worst, seconds=1e7, is_diverging=True, **million))
    rows = drawing(standing, width=width, no_color=True, color_system=None).splitlines()
    assert len(rows) == 7
    assert {len(row) for row in rows} == {min(width, 80)}
    assert not any("\x1b" in row for row in rows), "nothing needs a colour"


def test_the_panel_in_ascii(clock):
    standing = module._Standing(CONFIG)
    standing.see(record(100))
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")  # strict: other characters raise
    console = Console(file=file, width=80, force_terminal=True)
    console.print(module._drawing(standing, console))
    file.flush()
    assert b"| step 100 of 400 #############..........." in file.buffer.getvalue()


@contextlib.contextmanager
def terminal(monkeypatch, term):
    """Set stderr to a pseudo-terminal; yield a function that returns the output."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    with os.fdopen(theirs, "w", encoding="utf-8", errors="backslashreplace") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        # Read all the time: a terminal buffers 16 kB, then writers block.
        parts = []

        def read():
            with contextlib.suppress(OSError):  # the end of the terminal
                while part := os.read(ours, 1 << 16):
                    parts.append(part)

        reader = threading.Thread(target=read)
        reader.start()

        def written():
            stderr.close()
            reader.join()
            return b"".join(parts).decode()

        yield written
    reader.join()
    os.close(ours)


def test_on_a_terminal(monkeypatch, capsys):
    with terminal(monkeypatch, "xterm") as written:
        monkeypatch.setattr(logging.getLogger(), "handlers", [NoteHandler()])
        plain = sys.stderr
        with training_view(CONFIG) as show:
            show(record(1))
            assert sys.stderr is not plain
            logging.getLogger("tilth").warning("a note")
            print("a warning", file=sys.stderr)
            print("a result")
            show(record(400, evaluation=EVALUATION, saved="step-000400", sample=NASTY))
        assert sys.stderr is plain
        text = written()
    assert capsys.readouterr().out == "a result\n"
    words = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", text).splitlines()
    above = [line.rstrip() for line in words if not re.match(r"[╭│╰]", line)]
    assert [line for line in above if line] == [
        "a note",
        "a warning",
        "step 400: validation loss 3.2500, perplexity 25.79, 1.4123 bits per byte",
        "step 400: saving checkpoint step-000400",
        "step 400: sample:",
        "    Once \\x1b[31mred\\x07",
        "    and \\u202e 你好 \\ud800\\r\\x9b2J\\ttab\\x7f",
    ]
    assert [line for line in words if "step 400 of 400" in line], "the last panel stays"


def test_a_dumb_terminal_gets_lines(monkeypatch):
    with terminal(monkeypatch, "dumb") as written:
        with training_view(CONFIG) as show:
            show(record(1))
        assert re.fullmatch(r"step 1 of 400 .* left\r\n", written())


def test_an_error_restores_the_terminal(monkeypatch):
    with terminal(monkeypatch, "xterm") as written:
        plain = sys.stderr
        view = training_view(CONFIG)
        view.__enter__()(record(1))
        assert not view.__exit__(ValueError, ValueError("bad"), None), "the error goes on"
        assert sys.stderr is plain
        assert "\x1b[?25h" in written(), "the cursor is shown again"


def test_a_rank_ignores_a_second_sigterm():
    """A cluster signals each process, and torchrun passes its own signal on."""

    def end(number, _frame):
        raise SystemExit(128 + number)

    usual = signal.signal(signal.SIGTERM, end)
    try:
        with first_signal(is_rank=True) as signals:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert signals == [signal.SIGTERM]
        with first_signal():
            signal.raise_signal(signal.SIGTERM)
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, usual)
