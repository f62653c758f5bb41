"""The verbs export and import, the model card, --push, --init: on a small trained run."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import gguf
import numpy as np
import pytest
import transformers

import tilth as package
from tests.command_line import tilth
from tests.formats.models import SHAPE, LlamaCpp, model_of
from tests.formats.test_llama2c import TEXTS, RunC, tokenizer_bin, write
from tilth.config import ModelConfig
from tilth.exporting import push as push_folder
from tilth.runs import open_run

FILES = {
    *("README.md", "config.json", "curves.png", "generation_config.json", "manifest.json"),
    *("model.safetensors", "tokenizer.json", "tokenizer_config.json", "training_config.toml"),
}


def succeed(*words, **options):
    done = tilth(*words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(*words):
    done = tilth(*words)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1
    return done.stderr


def greedy(path):
    stream = package.load(path).generate("Once upon", temperature=0, max_tokens=40)
    return "".join(stream)


def test_every_verb_takes_an_exported_folder(run, exported, stories):
    assert {path.name for path in exported.iterdir()} == FILES
    assert greedy(exported) == greedy(run)
    torch_text = package.load(exported, backend="torch").generate(
        "Once upon", temperature=0, max_tokens=40
    )
    assert "".join(torch_text) == greedy(run)
    assert package.account(exported).parameters == package.account(run).parameters
    words = ("evaluate", exported, "--data", stories.folder, "--max-tokens", 300, "--json")
    found = json.loads(succeed(*words))
    expected = json.loads(succeed("evaluate", run, "--max-tokens", 300, "--json"))
    assert found["loss"] == expected["loss"]
    assert "is whole" in succeed("verify", exported)
    assert succeed(
        "generate", exported, "--prompt", "Once", "--max-tokens", 3, "--quantize", "int8"
    )
    assert "give --data" in refuse("evaluate", exported)
    assert "it has no step 5" in refuse("generate", exported, "--step", 5)


def test_step_of_the_checkpoint(run, tmp_path):
    succeed("export", run, "--to", "hf", "--out", tmp_path / "six", "--step", 6)
    found = package.load(tmp_path / "six").score("Once upon a time")
    assert found == package.load(run, step=6).score("Once upon a time")
    assert found != package.load(run, step=12).score("Once upon a time")
    card = (tmp_path / "six" / "README.md").read_text()
    assert "| steps | 6 |" in card
    assert "The curves are of the whole run, of 12 steps." in card
    checkpoint = run / "checkpoints" / "step-000006"
    package.export(checkpoint, tmp_path / "again")
    one, two = (tmp_path / name / "model.safetensors" for name in ("six", "again"))
    assert one.read_bytes() == two.read_bytes()


def test_model_card(run, exported):
    card = (exported / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    record = open_run(run).metrics()[-1]
    for part in (
        f"| tokens | {record.tokens:,} |",
        f"validation loss | {record.evaluation.loss:.4f}",
        "| FLOPs |",
        "| stories.txt |",
        "tilth train --config training_config.toml",
        "![Loss over steps and time](curves.png)",
        "## Limits",
    ):
        assert part in card, part
    assert str(run.parent) not in card  # no private path
    assert str(run.parent) not in (exported / "training_config.toml").read_text()
    assert (exported / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_export_and_import_keep_the_bits(run, exported, tmp_path):
    out = json.loads(succeed("import", exported, "--out", tmp_path / "again", "--json"))
    assert out["model"]["num_kv_heads"] == 2
    one, two = (path / "model.safetensors" for path in (exported, tmp_path / "again"))
    assert one.read_bytes() == two.read_bytes()
    assert greedy(tmp_path / "again") == greedy(run)
    assert "is whole" in succeed("verify", tmp_path / "again")


def test_chat_template_is_kept(exported, tmp_path):
    """From a folder of transformers, through an import, into every format."""
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    theirs = transformers.AutoTokenizer.from_pretrained(exported)
    theirs.chat_template = template
    shutil.copytree(exported, tmp_path / "theirs")
    theirs.save_pretrained(tmp_path / "theirs")
    package.import_model(tmp_path / "theirs", tmp_path / "own")
    package.export(tmp_path / "own", tmp_path / "again")
    package.export(tmp_path / "own", tmp_path / "m.gguf", to="gguf")
    messages = [{"role": "user", "content": "hi"}]
    for name in ("own", "again"):
        found = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert found.apply_chat_template(messages, tokenize=False) == "[user] hi\n"
    field = gguf.GGUFReader(tmp_path / "m.gguf").fields["tokenizer.chat_template"]
    assert field.contents() == template


def test_killed_export_leaves_nothing_half_written(run, tmp_path):
    """SIGKILL at any moment: the folder is complete or absent, and the next export succeeds."""
    program = "import sys, tilth; tilth.export(sys.argv[1], sys.argv[2], to=sys.argv[3])"
    chance = random.Random(0)
    outs = {"hf": tmp_path / "hf", "gguf": tmp_path / "gguf" / "m.gguf"}
    killed = 0
    for place in range(10):
        to = ("hf", "gguf")[place % 2]
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW + program, str(run), str(outs[to]), to],
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()  # writing has begun
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.wait()
        process.stdout.close()
        if to == "hf" and outs[to].exists():
            assert "is whole" in succeed("verify", outs[to])
            shutil.rmtree(outs[to])
        elif outs[to].exists():
            gguf.GGUFReader(outs[to])
            shutil.rmtree(outs[to].parent)
        else:
            killed += 1
    assert killed >= 3
    for to, out in outs.items():
        if out.parent != tmp_path:
            shutil.rmtree(out.parent, ignore_errors=True)
        package.export(run, out, to=to)
    names = sorted(path.name for path in tmp_path.rglob("*"))
    assert not [name for name in names if name.startswith(".") or "partial" in name]


# Each write takes 10 ms, so that a signal meets one.
SLOW = """
import os, time
write, is_begun = os.fsync, False
def slow(*words):
    global is_begun
    if not is_begun:
        print("begun", flush=True)
        is_begun = True
    time.sleep(0.03)
    return write(*words)
os.fsync = slow
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_import_keeps_the_type(run, dtype, tmp_path):
    succeed("export", run, "--to", "hf", "--out", tmp_path / "half", "--dtype", dtype)
    package.import_model(tmp_path / "half", tmp_path / "again")
    one, two = (tmp_path / name / "model.safetensors" for name in ("half", "again"))
    assert one.read_bytes() == two.read_bytes()


def test_gguf_file_and_modelfile(run, tmp_path):
    words = ("export", run, "--to", "gguf", "--out", tmp_path / "new" / "first.gguf")
    assert "Modelfile" in succeed(*words)
    assert (tmp_path / "new" / "Modelfile").read_text().startswith("FROM ./first.gguf\n")
    model = package.load(run)
    ids = model.prompt_ids("Once upon a time")
    stream = package.load(run).generate("Once upon a time", temperature=0, max_tokens=30)
    list(stream)
    assert LlamaCpp(tmp_path / "new" / "first.gguf").greedy(ids, 30) == stream.token_ids


def test_llama2c_files_and_back(run, tmp_path):
    path = tmp_path / "first.bin"
    succeed("export", run, "--to", "llama2c", "--out", path)
    reader = RunC(path.read_bytes())
    model = package.load(run)
    ids = model.prompt_ids("Once upon a time")
    found = [reader.forward(token, place) for place, token in enumerate(ids)]
    expected = model.decoder(1).extend([ids], every=True)[0]
    np.testing.assert_allclose(np.stack(found), expected, atol=1e-4)
    succeed("import", path, "--out", tmp_path / "again")  # with the tokenizer.json beside it
    assert greedy(tmp_path / "again") == greedy(run)


def test_llama2c_with_tokenizer_bin(tmp_path):
    config = ModelConfig(**{**SHAPE, "vocab_size": len(TEXTS)})
    path = write(tmp_path / "stories.bin", model_of(config))
    assert "has no tokenizer.json or tokenizer.bin beside it" in refuse(
        "import", path, "--out", tmp_path / "out"
    )
    (tmp_path / "tokenizer.bin").write_bytes(tokenizer_bin(TEXTS))
    succeed("import", path, "--out", tmp_path / "out")
    model = package.load(tmp_path / "out")
    assert model.end_token == "<s>"
    text = succeed("generate", tmp_path / "out", "--max-tokens", 8, "--temperature", 0)
    stream = model.generate([1], max_tokens=8, temperature=0)
    assert text == "".join(stream) + "\n"
    words = ("generate", tmp_path / "out", "--max-tokens", 4)
    assert succeed(*words, "--prompt-ids", 1, 5).startswith("Once")
    assert "--prompt-ids" in refuse(*words, "--prompt", "Once")
    assert "ids are below 9" in refuse(*words, "--prompt-ids", 99)
    out = tmp_path / "gguf" / "m.gguf"
    assert "holds no merges" in refuse("export", tmp_path / "out", "--to", "gguf", "--out", out)
    again = tmp_path / "again" / "m.bin"
    succeed("export", tmp_path / "out", "--to", "llama2c", "--out", again)
    assert again.read_bytes() == path.read_bytes()


def test_int8_for_runq_c(run, tmp_path):
    path = tmp_path / "q.bin"
    succeed("export", run, "--to", "llama2c", "--quantize", "q8_0", "--out", path)
    RunC(path.read_bytes(), quantized=True)


def test_what_cannot_be_exported_is_refused_and_nothing_is_written(run, exported, tmp_path):
    out = tmp_path / "out"
    words = ("export", run, "--out", out)
    assert "export to gguf to quantize" in refuse(*words, "--to", "hf", "--quantize", "q8_0")
    assert "both types" in refuse(
        *words, "--to", "gguf", "--quantize", "q8_0", "--dtype", "float16"
    )
    assert "reads q8_0, not q4_0" in refuse(*words, "--to", "llama2c", "--quantize", "q4_0")
    assert "reads float32" in refuse(*words, "--to", "llama2c", "--dtype", "float16")
    assert "is not USER/NAME" in refuse(*words, "--to", "hf", "--push", "a")
    assert "add --to hf" in refuse(*words, "--to", "gguf", "--push", "a/b")
    assert "has no checkpoint of step 99" in refuse(*words, "--to", "hf", "--step", 99)
    assert not out.exists()
    message = refuse("export", run, "--to", "hf", "--out", exported)
    assert "is not empty; name a new folder" in message
    (tmp_path / "Modelfile").touch()
    message = refuse("export", run, "--to", "gguf", "--out", tmp_path / "m.gguf")
    assert "Modelfile exists already; name a file in a new folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["Modelfile"]


def test_missing_gguf_package_names_the_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    message = refuse("export", run, "--to", "gguf", "--out", tmp_path / "m.gguf")
    assert 'pip install "tilth[export]"' in message
    assert not list(tmp_path.iterdir())


# --- training from a model folder -----------------------------------------------------------------


def train_words(stories, out, init):
    words = ("train", "tiny", "--data", stories.folder, "--out", out, "--init", init)
    words += ("--steps", 1, "--batch-size", 2, "--machine.threads", 1, "--machine.no-compile")
    return (*words, "--optimizer.lr", 1e-12, "--watch.sample-every", 0)


def test_training_starts_from_an_exported_folder(run, exported, stories, tmp_path):
    succeed(*train_words(stories, tmp_path / "next", exported))
    # With a learning rate of nearly 0, the weights stay.
    _, found = open_run(tmp_path / "next").weights()
    _, expected = open_run(run).weights()
    for name, weight in expected.items():
        np.testing.assert_allclose(found[name], weight, atol=1e-6)
    words = train_words(stories, tmp_path / "other", run)
    succeed(*words, "--model.context-length", 32)
    assert open_run(tmp_path / "other").config.model.context_length == 32
    assert "decides the shape" in refuse(*words[:5], tmp_path / "x", *words[6:], "--size", 3)
    assert "omit --model.d_ff" in refuse(*words[:5], tmp_path / "x", *words[6:], "--model.d-ff", 8)


def test_command_of_the_card_trains_again(exported, stories, tmp_path):
    """From the config in the card's folder, with and without --init: the same bits."""
    shape = ("--model.d-model", 32, "--model.num-layers", 1, "--model.num-heads", 2)
    words = ("--steps", 2, "--batch-size", 2, "--machine.threads", 1, "--machine.no-compile")
    words += ("--watch.sample-every", 0, "--data", stories.folder)
    for name, given in (("random", shape), ("tuned", ("--init", exported))):
        run, out = tmp_path / name, tmp_path / f"{name}-hf"
        succeed("train", "tiny", *words, *given, "--out", run)
        succeed("export", run, "--to", "hf", "--out", out)
        card = (out / "README.md").read_text()
        line = next(line for line in card.splitlines() if line.startswith("tilth train"))
        values = {"training_config.toml": out / "training_config.toml", "DATA": stories.folder}
        values |= {"RUN": tmp_path / f"{name}-again", "MODEL": exported}
        succeed(*(values.get(word, word) for word in line.split()[1:]))
        one, two = (
            folder / "checkpoints" / "step-000002" / "model.safetensors"
            for folder in (run, tmp_path / f"{name}-again")
        )
        assert one.read_bytes() == two.read_bytes()
        assert (f"from the weights of `{exported.name}`" in card) == (name == "tuned")


def test_stopped_run_resumes_from_its_initial_weights(exported, stories, tmp_path):
    config = replace(
        package.recipes.tiny(stories, steps=3), model=package.load(exported).config, batch_size=2
    )
    steps = package.train(config, tmp_path / "run", init=exported)
    first = next(steps).loss
    steps.close()
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step-000000", "step-000001"]
    initial = open_run(tmp_path / "run").weights(0)[1]
    expected = package.load(exported)
    assert expected.config == config.model
    assert first is not None
    assert initial["lm_head.weight"].shape[0] == stories.vocab_size


def test_another_tokenizer_is_refused_with_the_difference(exported, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("completely different words of a zoo\n" * 200)
    tokenizer = package.train_tokenizer(text, 300, ["<|endoftext|>"])
    data = package.tokenize(text, tokenizer, tmp_path / "data")
    words = train_words(data, tmp_path / "next", exported)
    message = refuse(*words)
    assert "is not that of" in message
    assert "its token" in message or "ids instead of" in message
    assert not (tmp_path / "next").exists()


# --- push -----------------------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """The part of the Hugging Face Hub's protocol that an upload needs."""

    def log_message(self, *_):
        pass

    def _body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, content, code=200):
        data = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self._answer({"sha": "0" * 40, "id": "user/name", "siblings": []})

    def do_PUT(self):
        data = self._body()
        Hub.files[self.path.rpartition("/")[2]] = data
        self._answer({})

    def do_POST(self):
        body = self._body()
        base = f"http://127.0.0.1:{self.server.server_port}"
        if self.headers.get("Authorization") != "Bearer hf_secret":
            self._answer({"error": "Invalid user token"}, 401)
        elif self.path == "/api/repos/create":
            Hub.created = json.loads(body)
            self._answer({"url": f"{base}/user/name"})
        elif self.path == "/api/validate-yaml":
            assert "library_name: transformers" in json.loads(body)["content"]
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            asked = json.loads(body)["files"]
            modes = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith("safetensors") else "regular",
                    "shouldIgnore": False,
                    "oid": None,
                }
                for each in asked
            ]
            self._answer({"files": modes, "commitOid": "0" * 40})
        elif self.path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    "oid": each["oid"],
                    "size": each["size"],
                    "actions": {"upload": {"href": f"{base}/lfs/{each['oid']}"}},
                }
                for each in json.loads(body)["objects"]
            ]
            self._answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            Hub.commit = [json.loads(line) for line in body.splitlines()]
            self._answer(
                {"commitUrl": f"{base}/user/name/commit/1", "commitOid": "1" * 40, "success": True}
            )
        else:
            self._answer({"error": f"unknown {self.path}"}, 404)


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Hub.files = {}
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def push(hub, words, token, tmp_path):
    # huggingface_hub reads the address when it is imported.
    environment = {**os.environ, "HF_ENDPOINT": hub, "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def check_uploaded(folder):
    committed = {each["value"]["path"]: each for each in Hub.commit if "path" in each["value"]}
    assert committed.keys() == FILES
    weights = (folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(weights).hexdigest()
    assert Hub.files[digest] == weights
    assert committed["model.safetensors"]["value"]["oid"] == digest
    assert Hub.created["name"] == "name"


PUSH = "import sys; from tilth.exporting import push; print(push(sys.argv[1], 'user/name'))"


def test_push(hub, exported, tmp_path):
    done = push(hub, ["-c", PUSH, exported], "hf_secret", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{hub}/user/name\n"
    check_uploaded(exported)


@pytest.mark.slow
def test_push_by_the_verb(hub, run, tmp_path):
    words = ["-m", "tilth", "export", run, "--to", "hf", "--out", tmp_path / "out"]
    words += ["--push", "user/name"]
    done = push(hub, words, "hf_secret", tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Pushed to {hub}/user/name" in done.stdout
    check_uploaded(tmp_path / "out")


def test_push_without_permission_says_so(hub, exported, tmp_path):
    done = push(hub, ["-c", PUSH, exported], "hf_wrong", tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"OSError: cannot push {exported} to user/name (")
    assert "401" in last
    assert "hf auth login" in last


def test_push_checks_its_name(exported):
    with pytest.raises(ValueError, match="is not USER/NAME"):
        push_folder(exported, "../x")
