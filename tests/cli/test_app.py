"""Exit codes and errors of the command line."""

import io
import itertools
import os
import shlex
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.command_line import assert_one_sentence, program_without, tilth
from tilth.cli.app import VERBS, EscapedTerminal, app, run

TILTH = [sys.executable, "-m", "tilth"]


@pytest.mark.alone
@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_are_fast_without_torch(flag, once_within, cpu_seconds):
    program = program_without({"torch", "numpy"}, flag)
    once_within(0.4, lambda: cpu_seconds(program))


def verbs():
    """Yield the words of each verb."""
    for name, path, _ in VERBS:
        if path.endswith(":app"):
            yield from ((name, each) for each in app[name] if not each.startswith("-"))
        else:
            yield (name,)


@pytest.mark.parametrize("words", list(verbs()), ids=" ".join)
def test_help_ends_with_examples_that_parse(words):
    done = tilth(*words, "--help")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    _, _, examples = done.stdout.partition("\nExamples:\n")
    assert examples
    for line in examples.splitlines():
        command = shlex.split(line)
        if "|" in command:  # echo "a text" | tilth ...
            command = command[command.index("|") + 1 :]
        program, *arguments = itertools.takewhile(lambda word: word != ">", command)
        assert (program, arguments[0]) == ("tilth", words[0])
        assert app.parse_args(arguments, print_error=False, exit_on_error=False)


def test_help_names_the_verbs():
    done = tilth("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert tilth().stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["dmeo"], ["dmeo", "demo"]),
        (["demo", "--sed", "1"], ["--sed", "Did you mean --seed?"]),
        (["demo", "surplus"], ["unexpected argument 'surplus'; see --help"]),
        (["demo", "--seed"], ["--seed"]),
        (["corpus", "info", "missing.txt"], ["missing.txt"]),
    ],
)
def test_unknown_words_get_a_suggestion(words, parts):
    assert_one_sentence(tilth(*words), *parts)


def test_config_file(tmp_path):
    config = tmp_path / "tilth.toml"
    config.write_text('size = "5kB"\nseed = 3\n')

    def stories(name, *words):
        done = tilth("corpus", "stories", "--out", str(tmp_path / name), *words)
        assert done.returncode == 0, done.stderr
        return (tmp_path / name).read_text()

    expected = stories("flags.txt", "--size", "5kB", "--seed", "3")
    assert stories("file.txt", "--config", str(config)) == expected
    before = tilth("--config", str(config), "corpus", "stories", "--out", str(tmp_path / "before"))
    assert before.returncode == 0, before.stderr
    assert (tmp_path / "before").read_text() == expected

    # A flag overrides the file.
    other = stories("other.txt", "--size", "5kB", "--seed", "4")
    assert stories("both.txt", "--config", str(config), "--seed", "4") == other != expected


def test_config_file_with_an_unknown_key(tmp_path):
    config = tmp_path / "tilth.toml"
    config.write_text("over_writ = true\n")
    done = tilth("corpus", "stories", "--out", str(tmp_path / "out"), "--config", str(config))
    assert_one_sentence(done, "over_writ", str(config), "did you mean overwrite?")


def test_a_key_may_be_named_like_a_verb(tmp_path):
    """Options of the verb are read; other keys are unknown."""
    config = tmp_path / "tilth.toml"
    config.write_text("[train]\nseed = 3\n")
    done = tilth("corpus", "stories", "--out", str(tmp_path / "out"), "--config", str(config))
    assert_one_sentence(done, "unknown key train.seed", str(config))
    config.write_text("debug = true")
    assert_one_sentence(tilth("demo", "--config", str(config)), "unknown key debug", str(config))
    config.write_text('tokenizer = "none.json"\n')
    (tmp_path / "a.txt").write_text("words")
    done = tilth("tokenize", "a.txt", "--out", "data", "--config", str(config), cwd=tmp_path)
    assert_one_sentence(done, "none.json")


def test_arguments_are_not_json(tmp_path):
    """cyclopts parses JSON in lists by default, also 2,000 brackets."""
    (tmp_path / "a.txt").write_text("a story")
    for path in ('["a.txt"]', "[" * 100 + "]" * 100, "[" * 2000):
        assert_one_sentence(tilth("corpus", "info", path, cwd=tmp_path), path[:20])
    (tmp_path / '["a.txt"]').write_text("two<|endoftext|>stories")
    done = tilth("corpus", "info", '["a.txt"]', "--json", cwd=tmp_path)
    assert '"documents": 2' in done.stdout


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["corpus", "stories", "--size", "1kB", "--seed", "1.5"], "--seed: 1.5"),
        (["tokenizer", "train", "x.txt", "--vocab-size", "300.25"], "--vocab-size: 300.25"),
        (["train", "tiny", "--data", "x", "--model.d-model", "-64.5"], "--model.d-model: -64.5"),
        (["train", "tiny", "--data", "x", "--config", "a.toml"], "[batch_size]: 4.7"),
    ],
)
def test_a_fraction_is_not_an_integer(tmp_path, words, option):
    (tmp_path / "a.toml").write_text("batch_size = 4.7\n")
    done = tilth(*words, "--out", "out", cwd=tmp_path)
    assert_one_sentence(done, option, "not a whole number")


def test_an_integer_may_have_a_decimal_point(tmp_path):
    words = ["corpus", "stories", "--size", "1kB", "--seed", "1.0", "--out", "out.txt"]
    assert tilth(*words, cwd=tmp_path).returncode == 0


def test_config_file_missing_or_broken(tmp_path):
    (tmp_path / "tilth.toml").write_text("text = [\n")
    missing = tilth("demo", "--config", str(tmp_path / "tilt.toml"))
    assert_one_sentence(missing, "tilt.toml", "did you mean tilth.toml?")
    broken = tilth("demo", "--config", str(tmp_path / "tilth.toml"))
    assert_one_sentence(broken, "tilth.toml", "not TOML")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert_one_sentence(tilth("demo", "--config", str(tmp_path / "binary.toml")), "not TOML")
    assert_one_sentence(
        tilth("demo", "--config", str(tmp_path / "no" / "c.toml")), "no config file"
    )


def test_debug_shows_the_traceback():
    done = tilth("corpus", "info", "--debug", "missing.txt", timeout=60)  # in a new process
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "FileNotFoundError" in done.stderr


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_files(tmp_path, signal_number, code):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    out = tmp_path / "out" / "tokenizer.json"
    out.parent.mkdir()
    child = subprocess.Popen(
        [*TILTH, "tokenizer", "train", str(pipe), "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with pipe.open("w") as writer:  # opens when the child reads
        writer.write("half a text")
        writer.flush()
        child.send_signal(signal_number)
    # The pipe is closed now, so a signal from before the read is handled.
    _, errors = child.communicate(timeout=30)
    assert child.returncode == code
    assert errors == ("tilth: interrupted\n" if code == 130 else "")
    assert list(out.parent.iterdir()) == []


def test_a_closed_pipe_on_stdout():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*TILTH, "account", "gpt2-xl"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert done.returncode == 1
    assert done.stderr == b""


def test_control_characters_do_not_reach_the_terminal():
    """Control characters of arguments and file names are escaped."""
    done = tilth("corpus", "info", "missing\x1b[31m\u202e.txt")
    assert_one_sentence(done, r"missing\x1b[31m\u202e.txt")


def test_terminal_text_is_escaped_and_rich_output_is_not():
    from rich.console import Console

    stream = io.StringIO()
    terminal = EscapedTerminal(stream)
    print("a\x1b]0;title\x07b\tc", file=terminal)
    assert stream.getvalue() == "a\\x1b]0;title\\x07b\tc\n"
    Console(file=terminal, force_terminal=True, color_system="standard").print("[red]r[/]")
    assert "\x1b[31mr" in stream.getvalue()


def test_lines_and_bytes_for_a_terminal_are_escaped():
    stream = io.StringIO()
    terminal = EscapedTerminal(stream)
    terminal.writelines(["a\x1bb\n", "c\n"])
    for data in (b"\x1b[31mna\xc3", b"\xafve\xff\n", b"\xf0\x9f"):
        assert terminal.buffer.write(data) == len(data)
    assert stream.getvalue() == "a\\x1bb\nc\n\\x1b[31mna\u00efve\ufffd\n"
    terminal.buffer.flush()
    assert stream.getvalue().endswith("\n\ufffd")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (MemoryError("no room"), 2, "tilth: out of memory (no room); take a smaller model"),
        (
            RuntimeError("[x.cpp] not enough memory: you tried to allocate 64 bytes. Error 12"),
            2,
            "tilth: out of memory (cannot allocate 64 bytes); take a smaller model",
        ),
        (ModuleNotFoundError("no", name="torch.nn"), 2, "tilth: this needs torch, which is not"),
        (ImportError("no b", name="torch.a"), 2, "tilth: torch cannot be imported (no b); install"),
        (RuntimeError("Symlink loop from 'a'"), 2, "tilth: Symlink loop from 'a'; remove the"),
        (KeyError("config"), 70, "tilth: internal error (KeyError: 'config'); this is a bug"),
        (RecursionError("deep"), 70, "tilth: internal error (RecursionError: deep)"),
    ],
)
def test_every_error_is_one_sentence(monkeypatch, capsys, error, code, sentence):
    def fail(*_words):
        raise error

    monkeypatch.setattr("tilth.cli.app.app", SimpleNamespace(meta=fail))
    assert run(["corpus"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith(sentence)
    assert shown.count("\n") == 1
    with pytest.raises(type(error)):
        run(["corpus", "--debug"])
