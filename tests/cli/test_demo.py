"""A very small demo: every stage, a second call, an interruption, a terminal."""

import contextlib
import io
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import tilth
from tilth import errors
from tilth.cli import demo as module
from tilth.cli.app import app
from tilth.cli.training_view import training_view
from tilth.corpus.stories import story
from tilth.formatting import format_bytes
from tilth.runs.metrics import Evaluation, StepRecord

SIZES = {"stories_bytes": 400_000, "vocab_size": 1000, "recipe": "tiny", "steps": 10}
STEPS = SIZES["steps"]
TIME = r"\([\d.]+ (?:s|minutes)\)"


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "QUICK", module.Sizes(**SIZES))
        yield


def run_demo(folder, **options):
    """Run the demo in `folder`; return stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        module.demo(quick=True, **options)
    return out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A demo folder, and its stdout and stderr."""
    folder = tmp_path_factory.mktemp("made")
    return folder / "demo-quick", *run_demo(folder)


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def losses(folder):
    return [record.loss for record in tilth.open_run(folder / "run").metrics()]


def test_every_stage_prints_a_title_a_result_and_a_time(made):
    _, out, err = made
    stages = re.findall(rf"^(\d)\. .+\.\n(?:(?:   .*)?\n)*?   .+ {TIME}$", out, re.M)
    assert stages == list("12345678")
    assert max(map(len, out.splitlines() + err.splitlines())) <= 80
    assert "\x1b" not in out + err
    assert out.splitlines()[-1] == "Wrote demo-quick"


def test_printed_numbers_equal_those_of_the_files(made):
    folder, out, _ = made
    text = (folder / "stories.txt").read_text()
    assert text.startswith(story(0))
    stories_bytes = (folder / "stories.txt").stat().st_size
    assert f"{text.count('<|endoftext|>'):,} stories, {format_bytes(stories_bytes)}: " in out
    train, valid = (np.load(folder / "data" / f"{split}.npy") for split in ("train", "valid"))
    assert f"{len(train):,} training tokens, {len(valid):,} for validation" in out
    text_bytes = sum(len(part.strip().encode()) for part in text.split("<|endoftext|>"))
    shown = float(re.search(r"([\d.]+) bytes per token", out)[1])
    assert shown == pytest.approx(text_bytes / (len(train) + len(valid)), rel=0.01)

    run = tilth.open_run(folder / "run")
    assert (run.config.steps, run.config.recipe, run.config.seed) == (STEPS, "tiny", 0)
    assert run.is_finished
    model = tilth.TransformerLM(run.config.model)
    assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in out
    assert f"{STEPS} steps of {8 * 128:,} tokens" in out
    # The last evaluation during training read the whole validation set.
    evaluation = run.metrics()[-1].evaluation
    assert evaluation.tokens == len(valid) - 1
    assert f"perplexity {np.exp(evaluation.loss):.2f}: " in out
    assert f"loss {evaluation.loss:.3f} nats per token" in out


def test_the_sentence_is_split_into_tokens_of_the_tokenizer(made):
    folder, out, _ = made
    tokenizer = tilth.Tokenizer.load(folder / "tokenizer.json")
    assert tokenizer.vocab_size == 1000
    tokens = [tokenizer.decode([i]) for i in tokenizer.encode(module.SENTENCE)]
    assert "   " + "|".join(tokens) in out.splitlines()


def test_stories_are_generated_from_the_prompts(made):
    folder, out, _ = made
    printed = " ".join(out.split())
    for beginning in module.BEGINNINGS:
        rest = tilth.load(folder / "run").generate(
            beginning, temperature=0.4, max_tokens=400, seed=0
        )
        paragraphs = (beginning + "".join(rest)).split("\n")
        # Control characters as Python escapes.
        shown = ("".join(c if c.isprintable() else repr(c)[1:-1] for c in p) for p in paragraphs)
        assert " ".join(" ".join(shown).split()) in printed


def test_a_plain_log_has_a_line_for_each_evaluation(made):
    _, _, err = made
    steps = [int(step) for step in re.findall(r"^   step +(\d+): validation loss", err, re.M)]
    assert steps == list(range(1, STEPS + 1))  # a tenth each
    assert len(re.findall(r"^   Once upon a time", err, re.M)) == 5


def test_a_dumb_terminal_gets_plain_lines(made, monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    record = StepRecord(
        *(70, 71_680, 9.6, 3.0, 1e-3, 0.8, 7466.7, 0.7),
        evaluation=Evaluation(3.25, 25.79, 1.4, 65_536),
        saved="step-000070",
        sample="Once upon a time, " * 20,
    )
    config = tilth.open_run(made[0] / "run").config
    with training_view(config, module._show_milestone) as show:
        show(record)
    first, second = terminal.getvalue().splitlines()
    assert first == "   step    70: validation loss 3.250 after 10 s"
    assert second.startswith("   Once upon a time,")
    assert len(second) <= 80


def test_a_second_call_changes_no_file(made):
    folder, out, _ = made
    before = files(folder)
    again, err = run_demo(folder.parent)
    assert files(folder) == before
    assert err == ""
    assert "Existing files in demo-quick are kept." in again

    def without_times(text):
        return re.sub(rf"{TIME}|[\d,]+ tokens/s|Done in .*", "", text)

    assert without_times(again).split("\n\n", 1)[1] == without_times(out).split("\n\n", 1)[1]


PROGRAM = f"""
import sys
from tilth.cli import demo, main
demo.QUICK = demo.Sizes(**{SIZES})
sys.argv = ["tilth", "demo", "--quick"]
main()
"""


def run_on_a_terminal(folder):
    """Run on an ASCII terminal of 80 columns; return its output and the exit code."""
    controller, terminal = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "80", "PYTHONIOENCODING": "ascii"}
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=folder,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, **environment},
    )
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal is closed
        while part := os.read(controller, 65536):
            seen += part
    os.close(controller)
    return seen.decode("ascii"), child.wait()


def test_an_interrupted_demo_resumes_to_the_same_bits(made, tmp_path, monkeypatch):
    def interrupt(record):
        if record.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(module, "_show_milestone", interrupt)
    (tmp_path / "here").mkdir()
    with pytest.raises(SystemExit) as ended:
        run_demo(tmp_path / "here")
    assert ended.value.code == 128 + signal.SIGINT
    # A run stores the path of its data, but the folder may move.
    folder = (tmp_path / "here").rename(tmp_path / "there") / "demo-quick"
    assert tilth.open_run(folder / "run").checkpoints()[-1].step == 7
    before = files(folder)
    assert not any(path.name.startswith("report") for path in before)

    seen, code = run_on_a_terminal(folder.parent)
    assert code == 0, seen
    assert losses(folder) == losses(made[0])
    after = files(folder)
    earlier = {path for path in before if path.is_file() and folder / "run" not in path.parents}
    assert len(earlier) == 9  # demo.json, the stories, the tokenizer, and six of the data
    assert all(after[path] == before[path] for path in earlier)

    assert "\x1b[1m5. Train it" in seen  # bold
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    assert f"step {STEPS} of {STEPS} ###" in text  # the panel
    lines = [line for line in re.split(r"[\r\n]+", text) if line]
    # Text beyond ASCII is escaped, which lengthens its line.
    assert max(len(line) for line in lines if "\\" not in line) <= 80
    assert lines[-1] == "Wrote demo-quick"


def test_an_extended_run_gets_a_new_report(made, tmp_path):
    """Only the report, older than the last step, is written again."""
    folder = tmp_path / "demo-quick"
    shutil.copytree(made[0], folder)
    list(tilth.extend(folder / "run", 2, data=folder / "data"))
    before = files(folder)
    out, _ = run_demo(tmp_path)
    assert f"{STEPS + 2} steps of" in out
    changed = {path.name for path, time in files(folder).items() if before.get(path) != time}
    assert changed - {folder.name} == {"report.html", "report.md", "report-curves.png"}


def test_the_folder_of_another_demo_is_an_error(made, tmp_path):
    folder = made[0]
    before = files(folder)
    with pytest.raises(FileExistsError, match=r"with another --seed or --quick; name another"):
        run_demo(folder.parent, seed=1)
    with pytest.raises(FileExistsError, match=r"with another --seed or --quick; name another"):
        module.demo(out=folder)
    assert files(folder) == before

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="mine is not empty and is not a demo; name another"):
        run_demo(tmp_path, out=tmp_path / "mine")
    with pytest.raises(ValueError, match="--seed must be at least 0, not -1"):
        run_demo(tmp_path, seed=-1)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "precious.txt"]


@pytest.mark.parametrize("package", ["plotly", "matplotlib", "jinja2"])
def test_without_the_extra_the_report_is_skipped(made, tmp_path, monkeypatch, package):
    monkeypatch.setattr(errors, "find_spec", lambda name: name != package)
    shutil.copytree(made[0] / "run", tmp_path / "run")
    demo = module.Demo(tmp_path, module.QUICK, 0, None)
    assert 'pip install "tilth[report]"' in module.write_report(demo)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_suggested_commands_parse(made, monkeypatch):
    folder = made[0]
    demo = module.Demo(folder, module.QUICK, 0, None)
    monkeypatch.setattr(sys, "argv", [".venv/bin/tilth", "demo"])
    for command in module._next_commands(demo):
        program, *words = shlex.split(command)
        assert program == ".venv/bin/tilth"
        app.parse_args(words)
    monkeypatch.setattr(sys, "argv", ["/somewhere/tilth/__main__.py", "demo"])
    assert module._next_commands(demo)[0].startswith("python -m tilth generate ")
    monkeypatch.setattr(sys, "argv", ["/bin/tilth", "demo"])
    monkeypatch.setattr(shutil, "which", lambda _name: "/bin/tilth")
    assert module._next_commands(demo)[0].startswith("tilth generate ")


@pytest.mark.slow
def test_quick_learns_to_write_in_about_a_minute(tmp_path):
    command = [sys.executable, "-m", "tilth", "demo", "--quick"]
    began = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 180  # a minute on an idle machine
    assert float(re.search(r"perplexity ([\d.]+)", done.stdout)[1]) < 20
