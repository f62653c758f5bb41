"""`tilth generate`, called as a command."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.command_line import program_without
from tests.command_line import tilth as run_tilth
from tilth.config import ModelConfig
from tilth.config.training import OptimizerConfig, TrainingConfig
from tilth.generation import LanguageModel, _core, load
from tilth.model import TransformerLM
from tilth.runs.run import create_run
from tilth.runs.state import CheckpointWriter
from tilth.tokenizer import Tokenizer

TILTH = [sys.executable, "-m", "tilth"]


def tilth(*words, **options):
    return run_tilth("generate", *words, **options)


def make_run(folder, tokens):
    """An untrained run with these tokens and an end token."""
    tokenizer = Tokenizer(dict(enumerate(tokens)), [], special_tokens=["<|endoftext|>"])
    vocab_size = len(tokens) + 1
    model = ModelConfig(vocab_size, context_length=32, d_model=32, num_layers=2, num_heads=4)
    config = TrainingConfig("data", model, steps=5, optimizer=OptimizerConfig(lr=1e-3))
    config = config.resolve(device="cpu", dtype="float32", compile=False, threads=1)
    run = create_run(folder, config, tokenizer, "none")
    torch.manual_seed(0)
    with CheckpointWriter(run.folder, keep=1) as writer:
        optimizer = SimpleNamespace(state_dict=dict)  # a real one takes seconds to import
        writer.save(5, TransformerLM(model), optimizer, {"valid_loss": 1.0}, {})
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose tokens are printable characters."""
    return make_run(tmp_path_factory.mktemp("runs") / "first", [bytes([i]) for i in range(32, 127)])


def expected(run, prompt, **options):
    model = run if isinstance(run, LanguageModel) else load(run)
    return "".join(model.generate(prompt, **options))


def test_text_goes_to_stdout_and_the_stop_reason_to_stderr(run):
    done = tilth(run.folder, "--prompt", "Once", "--max-tokens", 20, "--seed", 3)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"Once{expected(run, 'Once', max_tokens=20, seed=3)}\n"
    assert done.stderr.startswith("stopped at --max-tokens after 20 tokens, ")
    assert re.search(r" tokens/s, the first after \d+ ms\n$", done.stderr)


def test_every_option_reaches_the_model(run):
    options = {
        "max_tokens": 30,
        "temperature": 0.7,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.2,
        "seed": 1,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    words = [str(word).replace("_", "-") for word in words]
    done = tilth(run.folder, "--prompt", "-1", *words, "--samples", 2, "--threads", 1)
    assert done.returncode == 0, done.stderr
    texts = [expected(run, "-1", **options, sample_index=i) for i in range(2)]
    assert done.stdout == f"-1{texts[0]}\n---\n-1{texts[1]}\n"
    assert texts[0] != texts[1]
    assert done.stderr.count("stopped") == 2


def test_prompts_of_a_file(run, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("Once\na cat\n")
    words = ("--prompt-file", file, "--max-tokens", 9, "--samples", 2)
    texts = [
        prompt + expected(run, prompt, max_tokens=9, sample_index=index)
        for prompt in ("Once", "a cat")
        for index in range(2)
    ]
    done = tilth(run.folder, *words)
    assert done.stdout == "\n---\n".join(texts) + "\n"
    assert done.stderr.count("stopped") == 4
    assert re.search(r"generated 36 tokens in .* tokens/s, the first after \d+ ms\n$", done.stderr)
    done = tilth(run.folder, *words, "--json")
    assert done.stderr.startswith("generated 36 tokens in ")
    result = json.loads(done.stdout)
    found = [each["prompt"] + s["text"] for each in result["prompts"] for s in each["samples"]]
    assert found == texts
    for wrong, sentence in (
        (["--prompt", "a"], "give one of --prompt, --prompt-ids, --prompt-file"),
        (["--prompt-ids", "1"], "give one of --prompt, --prompt-ids, --prompt-file"),
        (["--interactive"], "give one of --prompt, --prompt-ids, --prompt-file"),
    ):
        done = tilth(run.folder, *words, *wrong)
        assert (done.returncode, sentence in done.stderr) == (2, True)
    assert "does not exist" in tilth(run.folder, "--prompt-file", tmp_path / "none").stderr


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"x" * 40, "the prompt has 40 tokens, and the context length is 32; shorten it."),
        (b"a\xff", "the prompt is not UTF-8 (its byte 1); convert it first."),
    ],
)
def test_errors_name_the_line_of_a_prompt(run, tmp_path, line, sentence):
    file = tmp_path / "prompts.txt"
    file.write_bytes(b"Once\n" + line + b"\na cat\n")
    done = tilth(run.folder, "--prompt-file", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tilth: line 2 of {file}: {sentence}\n"


@pytest.fixture
def calls(monkeypatch):
    """The number of ids of each call of a native decoder."""
    calls = []

    class Counted(_core.Decoder):
        def extend(self, ids, every=False):
            calls.append(sum(map(len, ids)))
            return super().extend(ids, every)

    monkeypatch.setattr(_core, "Decoder", Counted)
    return calls


def test_samples_are_generated_together(run, calls):
    done = tilth(run.folder, "--prompt", "a cat", "--max-tokens", 20, "--samples", 8)
    assert done.stderr.count("stopped") == 8
    assert len(calls) <= 20  # one by one: about 150
    assert sum(calls) > 100


def test_drafts_leave_the_text_unchanged(run, calls):
    words = ("--prompt", "abcabcabcabc", "--max-tokens", 60, "--temperature", 0)
    alone = tilth(run.folder, *words).stdout
    assert len(alone) > 60
    num_calls = len(calls)
    assert tilth(run.folder, *words, "--drafts").stdout == alone
    assert len(calls) - num_calls < 0.8 * num_calls


def test_stop_strings_and_a_full_context(run):
    text = expected(run, "a", max_tokens=200)
    stop = text[50:53]
    done = tilth(run.folder, "--prompt", "a", "--stop", "~~~~", "--stop", stop)
    assert done.stdout == f"a{text[: text.index(stop)]}\n"
    assert done.stderr.startswith("stopped at a stop string after ")
    done = tilth(run.folder, "--prompt", "a", "--past-context", "stop")
    assert done.stdout == f"a{text[:32]}\n"
    assert done.stderr.startswith("stopped as the context is full after 32 tokens")


def test_prompts_from_stdin_are_plain_text(run):
    for line_end in ("", "\n", "\r\n"):
        done = tilth(
            run.folder, "--prompt", "-", "--max-tokens", 5, input=f"<|endoftext|>{line_end}"
        )
        assert done.stdout == f"<|endoftext|>{expected(run, '<|endoftext|>', max_tokens=5)}\n"
    words = ("--allow-special", "--max-tokens", 5)
    done = tilth(run.folder, "--prompt", "-", *words, input="<|endoftext|>")
    special = expected(run, "<|endoftext|>", max_tokens=5, allow_special=True)
    assert done.stdout == f"<|endoftext|>{special}\n"
    assert special == expected(run, "", max_tokens=5)


def test_a_terminal_gets_no_control_characters(tmp_path):
    """In prompt and text, all but line ends and tabs are escaped."""
    run = make_run(tmp_path / "run", [bytes([i]) for i in range(128)])
    text = expected(run, "a\x1b]0;t\x07", max_tokens=99)
    assert any(letter < " " for letter in text)
    ours, theirs = pty.openpty()
    command = [*TILTH, "generate", run.folder, "--prompt", "-", "--max-tokens", "99"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=theirs) as child:
        child.communicate(b"a\x1b]0;t\x07")
    os.close(theirs)
    shown = os.read(ours, 1 << 16).decode()
    assert child.returncode == 0
    assert not set(shown) & {chr(i) for i in range(32) if i not in (9, 10, 13)}
    assert shown.startswith(r"a\x1b]0;t\x07")
    assert shown.replace("\r", "").replace("\n", "") == "".join(
        letter if letter.isprintable() or letter == "\t" else repr(letter)[1:-1]
        for letter in ("a\x1b]0;t\x07" + text).replace("\n", "")
    )


def test_json_has_every_token(run):
    done = tilth(run.folder, "--prompt", "Hi", "--max-tokens", 6, "--json", "--alternatives", 3)
    assert done.returncode == 0, done.stderr
    rate = r"generated 6 tokens in [\d.]+ s, [\d,]+ tokens/s, the first after \d+ ms\n"
    assert re.fullmatch(rate, done.stderr)
    result = json.loads(done.stdout)
    assert (result["prompt"], result["seed"]) == ("Hi", 0)
    (text,) = result["samples"]
    assert text["text"] == expected(run, "Hi", max_tokens=6)
    assert text["stop_reason"] == "limit"
    assert "".join(token["text"] for token in text["tokens"]) == text["text"]
    for token in text["tokens"]:
        assert token["log_probability"] < 0
        values = [each["log_probability"] for each in token["alternatives"]]
        assert len(values) == 3
        assert values == sorted(values, reverse=True)


def test_interactive_reads_prompts_until_the_input_ends(run):
    lines = f"Hi\n{'x' * 40}\n\né\n\udcff\nHo"
    done = tilth(
        run.folder, "--interactive", "--max-tokens", 5, input=lines, errors="surrogateescape"
    )
    assert done.returncode == 0, done.stderr
    answers = [f"{line}{expected(run, line, max_tokens=5)}" for line in ("Hi", "", "Ho")]
    assert done.stdout.splitlines() == answers
    assert "tilth: the prompt has 40 tokens, and the context length is 32" in done.stderr
    assert "tilth: the prompt is not UTF-8 (its byte 0); convert it first." in done.stderr
    assert done.stderr.count("tilth: ") == 3


def test_bad_options_are_errors_before_the_first_prompt(run):
    done = tilth(run.folder, "--interactive", "--temperature", "-1", input="Hi\nHo\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "tilth: temperature is -1; it must be at least 0.\n"


def test_a_prompt_is_utf8_in_every_locale(run, tmp_path):
    words = ["--prompt", "caf\udcc3\udca9"]  # é, as Python decodes it in an ASCII locale
    for locale in ("C.UTF-8", "C"):
        variables = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        assert "byte 0xC3 at offset 3 has" in tilth(run.folder, *words, env=variables).stderr
    done = tilth(run.folder, "--prompt", "On\udcffce")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--prompt 'On\\udcffce' is not UTF-8; write it in UTF-8." in done.stderr
    assert "--stop '\\udcff' is not UTF-8" in tilth(run.folder, "--stop", "\udcff").stderr
    file = tmp_path / "options.toml"
    file.write_text('prompt = "café"', encoding="utf-8")
    assert "at offset 3 has" in tilth(run.folder, "--config", file, env=variables).stderr


def test_a_closed_stdin_is_an_empty_prompt(run):
    command = " ".join([*TILTH, "generate", str(run.folder), "--prompt - --max-tokens 5 <&-"])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{expected(run, '', max_tokens=5)}\n"


def test_int8(run):
    done = tilth(run.folder, "--prompt", "Hi", "--max-tokens", 5, "--quantize", "int8")
    assert done.returncode == 0, done.stderr
    int8 = load(run, quantize="int8")
    assert done.stdout == f"Hi{expected(int8, 'Hi', max_tokens=5)}\n"


def test_int8_cache(run):
    done = tilth(run.folder, "--prompt", "Hi", "--max-tokens", 20, "--cache", "int8")
    assert done.returncode == 0, done.stderr
    int8 = load(run, cache="int8")
    assert done.stdout == f"Hi{expected(int8, 'Hi', max_tokens=20)}\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--temperature", "-1"], "temperature is -1; it must be at least 0."),
        (["--top-p", "1.5"], "top_p is 1.5; it must be at most 1."),
        (["--top-p", "nan"], "top_p is nan; it must be finite."),
        (["--prompt", "x" * 40], "the prompt has 40 tokens, and the context length is 32"),
        (["--prompt", "é"], "byte"),
        (["--step", "7"], "has no checkpoint of step 7; there are 5"),
        (
            ["--device", "meta"],
            "the device meta cannot be used (",
        ),
        (["--device", "privateuseone"], "the device privateuseone cannot be used"),
        (["--threads", "30000"], "threads is 30,000, and this machine has"),
        (["--threads", str(2**64)], "threads is 18,446,744,073,709,551,616, and this machine"),
        (["--samples", "0"], "samples must be at least 1, not 0."),
        (["--samples", str(10**10)], "samples must be at most 1000000000, not 10000000000."),
        (["--interactive", "--json"], "leave --prompt and --json out"),
        (["--quantize", "int3"], "int3"),
        (["--temprature", "1"], "Did you mean --temperature?"),
    ],
)
def test_mistakes_are_one_sentence(run, words, sentence):
    done = tilth(run.folder, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tilth: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_a_folder_that_is_not_a_run(tmp_path):
    done = tilth(tmp_path)
    assert done.returncode == 2
    assert "is not a run" in done.stderr


def test_first_token_within_a_second_without_torch(run, once_within, cpu_seconds):
    program = program_without({"torch"}, "generate", run.folder, "--max-tokens", 1)
    once_within(1, lambda: cpu_seconds(program))


def test_ctrl_c_ends_generation(run):
    command = [*TILTH, "generate", run.folder, "--samples", "100000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.read(10)
        child.send_signal(signal.SIGINT)
        _, stderr = child.communicate(timeout=10)
    assert child.returncode == 130
    assert stderr.endswith(b"tilth: interrupted\n")
