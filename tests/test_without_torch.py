"""The base install works without torch; verbs that need it say how to install it.

If torch is installed, a module named torch hides it. `make test-base` runs this file without torch,
on each supported Python version.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.first_edition import unpack

HIDING = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose `hidden/torch.py` hides torch from programs started in it."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "hidden").mkdir()
    (folder / "hidden" / "torch.py").write_text(HIDING)
    unpack(folder / "first")
    return folder


@pytest.fixture(scope="module")
def python(folder):
    def python(*words):
        environment = {**os.environ, "PYTHONPATH": str(folder / "hidden")}
        return subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return python


@pytest.fixture(scope="module")
def tilth(python):
    def tilth(*words):
        return python("-m", "tilth", *words)

    return tilth


def succeed(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_text_to_token_files(tilth):
    succeed(tilth("corpus", "stories", "--size", "50kB", "--out", "stories.txt"))
    succeed(tilth("corpus", "info", "stories.txt"))
    train = ("tokenizer", "train", "stories.txt", "--vocab-size", 400, "--out", "tokenizer.json")
    train += ("--special", "<|endoftext|>")
    succeed(tilth(*train))
    succeed(tilth("tokenizer", "inspect", "tokenizer.json", "--text", "Once upon a time"))
    succeed(tilth("tokenize", "stories.txt", "--tokenizer", "tokenizer.json", "--out", "tokens"))
    assert "tokens is whole" in succeed(tilth("verify", "tokens"))


def test_accounting_and_configs(tilth):
    account = json.loads(succeed(tilth("account", "gpt2-xl", "--hardware", "a100", "--json")))
    assert account["parameters"]["total"] == 2_127_057_600
    assert json.loads(succeed(tilth("config", "schema")))["properties"]["model"]


def test_runs_verify_and_generation(tilth):
    run = "first/runs/adamw"
    succeed(tilth("verify", run))
    (row,) = json.loads(succeed(tilth("runs", run, "--json")))["runs"]
    assert row["state"] == "finished"
    words = ("generate", run, "--prompt", "Once", "--max-tokens", 8, "--temperature", 0)
    succeed(tilth(*words))
    succeed(tilth(*words, "--quantize", "int8"))


def test_export_import_and_tasks(python):
    """In one process: each start of Python takes half a second."""
    program = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.formats.models import config_of, model_of
from tilth.cli.app import run
from tilth.formats.huggingface import write_folder
Path("hf").mkdir()
write_folder(Path("hf"), model_of(config_of("tied-grouped")), dtype="bfloat16")
for words in (
    "import hf --out imported",
    "verify imported",
    "account imported",
    "generate imported --prompt Once --max-tokens 3",
    "evaluate imported --tasks cloze --limit 3",
    "export imported --to hf --out again --dtype float16",
    "export imported --to llama2c --out c/model.bin",
    "import c/model.bin --out from-c",
):
    assert run(words.split()) == 0, words
assert run("export imported --to gguf --out g/model.gguf".split()) in (0, 2)  # gguf is an extra
try:
    import torch
except ModuleNotFoundError:
    pass
else:
    raise AssertionError("torch is not hidden")
"""
    succeed(python("-c", program, Path(__file__).parents[1]))


@pytest.mark.parametrize(
    "words",
    [
        ("train", "tiny", "--data", "first/data", "--out", "run"),
        ("resume", "first/runs/adamw"),
        ("evaluate", "first/runs/adamw"),
        ("generate", "first/runs/adamw", "--prompt", "a", "--device", "cuda"),
        ("lab", "lr", "--data", "first/data", "--out", "lab"),
    ],
    ids=lambda words: words[0],
)
def test_verbs_that_train_say_what_to_install(tilth, folder, words):
    done = tilth(*words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "needs torch, which is not installed; pip install 'tilth[train]'." in done.stderr
    assert not {"run", "lab"} & {path.name for path in folder.iterdir()}


def test_from_python(python):
    program = """
import tilth
model = tilth.load("first/runs/adamw")
assert "".join(model.generate("Once", max_tokens=4, seed=1)) is not None
assert len(model.score("Once upon a time")) > 1
assert tilth.account("gpt2-small").parameters.total > 1e8
from tilth.runs.run import versions
assert versions()["numpy"]
for name in ("train", "TransformerLM", "AdamW", "get_batch", "load_checkpoint"):
    try:
        getattr(tilth, name)
    except ModuleNotFoundError as error:
        assert "pip install 'tilth[train]'" in str(error), error
    else:
        raise AssertionError(name)
"""
    succeed(python("-c", program))
