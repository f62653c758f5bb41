"""The folder of the studio: what it finds, what it leaves out, and that it notices changes."""

import os
import shutil
import time
from types import SimpleNamespace

import pytest

from tests.studio.conftest import HOST
from tilth.model import TransformerLM
from tilth.runs.checkpoints import MODEL, part_names
from tilth.runs.run import open_run
from tilth.runs.state import CheckpointWriter, Writers
from tilth.studio import folder as folder_module
from tilth.studio.folder import Folder
from tilth.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(folder_module, "SECONDS", 0.0)


def listed(root):
    return {entry.id: entry.kind for entry in Folder(root).entries()}


def make(root, *names, content="{}"):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_kinds(tmp_path):
    make(tmp_path, "runs/a/config.toml", "runs/a/manifest.json", "runs/a/tokenizer.json")
    make(tmp_path, "lab/lr/lab.json", "lab/lr/runs/0/config.toml", "lab/lr/runs/0/manifest.json")
    make(tmp_path, "data/manifest.json", "data/train.npy", "data/tokenizer.json")
    make(tmp_path, "gpt2/vocab.json", "gpt2/merges.txt", "o200k.tiktoken", "notes.json")
    make(tmp_path, "hf/config.json", "hf/model.safetensors", "hf/tokenizer.json")
    make(tmp_path, "toks/own.json", content='{"version": "1.0", "added_tokens": []}')
    make(tmp_path, ".hidden/config.toml", ".hidden/manifest.json", "runs/b/config.toml")
    assert listed(tmp_path) == {
        "data": "data",
        "gpt2": "tokenizer",
        "hf": "model",
        "lab/lr": "lab",
        "lab/lr/runs/0": "run",
        "o200k.tiktoken": "tokenizer",
        "runs/a": "run",
        "toks/own.json": "tokenizer",
    }
    assert listed(tmp_path / "runs/a") == {"a": "run"}
    assert listed(tmp_path / "gpt2") == {"gpt2": "tokenizer"}


def test_links_that_lead_outside_have_no_id(tmp_path):
    make(tmp_path, "out/r/config.toml", "out/r/manifest.json", "secret.json")
    make(tmp_path, "in/s/config.toml", "in/s/manifest.json", "in/t/train.npy")
    (tmp_path / "in/linked").symlink_to(tmp_path / "out")
    (tmp_path / "in/again").symlink_to(tmp_path / "in/s")
    (tmp_path / "in/loop").symlink_to(tmp_path / "in")
    (tmp_path / "in/t/manifest.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "in/tokenizer.json").symlink_to(tmp_path / "secret.json")
    assert listed(tmp_path / "in") == {"s": "run"}
    with pytest.raises(KeyError):
        Folder(tmp_path / "in").find("../out/r")


def test_a_circular_link_hides_nothing_else(tmp_path):
    make(tmp_path, "r/config.toml", "r/manifest.json", "s/tokenizer.json")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "s/tokenizer.json.bak").symlink_to("tokenizer.json.bak")
    assert listed(tmp_path) == {"r": "run", "s/tokenizer.json": "tokenizer"}


def test_limits(tmp_path, monkeypatch):
    make(tmp_path, "/".join("abcdefghij") + "/tokenizer.json")
    assert listed(tmp_path) == {}
    for name in range(30):
        (tmp_path / str(name)).mkdir()
    monkeypatch.setattr(folder_module, "MAX_FOLDERS", 20)
    found = Folder(tmp_path)
    assert (found.entries(), found.is_truncated) == ([], True)


def test_changes_are_noticed_and_the_rest_is_cached(tmp_path, monkeypatch):
    make(tmp_path, "runs/a/config.toml", "runs/a/manifest.json")
    found = Folder(tmp_path)
    assert [entry.id for entry in found.entries("run")] == ["runs/a"]
    make(tmp_path, "runs/b/config.toml", "runs/b/manifest.json")
    assert [entry.id for entry in found.entries("run")] == ["runs/a", "runs/b"]
    (tmp_path / "runs/a/config.toml").unlink()
    assert [entry.id for entry in found.entries("run")] == ["runs/b"]
    then = time.time() - 100
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.utime(path, (then, then))
    found.entries()
    monkeypatch.setattr(Folder, "_list", None)  # no folder is listed again
    assert [entry.id for entry in found.entries("run")] == ["runs/b"]


def test_models_need_weights_and_tokenizers_are_shared(folder, tmp_path):
    found = Folder(folder)
    assert found.models() == {"chatty": folder / "chatty", "plain": folder / "plain"}
    make(tmp_path, "a/config.toml", "a/manifest.json")
    assert Folder(tmp_path).models() == {}
    expected = Tokenizer.load(folder / "plain")
    assert found.tokenizer("plain").fingerprint == expected.fingerprint
    assert found.tokenizer("plain") is found.tokenizer("plain")


def test_a_run_with_a_checkpoint_in_parts_is_a_model(folder, tmp_path):
    """As training on several ranks with --parallel.memory-gb writes it."""
    run = tmp_path / "run"
    shutil.copytree(folder / "plain", run, ignore=shutil.ignore_patterns("step-*"))
    assert Folder(tmp_path).models() == {}
    model = TransformerLM(open_run(run).config.model)
    optimizer = SimpleNamespace(state_dict=lambda: {"state": {}, "param_groups": []})
    with CheckpointWriter(run, keep=1, writers=Writers(in_parts=True)) as writer:
        writer.save(5, model, optimizer, {"valid_loss": 1.0}, {})
    assert [file.name for file in run.glob("checkpoints/*/model*")] == part_names(MODEL, 1)
    assert Folder(tmp_path).models() == {"run": run}


def test_listing(client):
    found = client.get("/api/folder").json()
    entry = {"kind": "run", "is_model": True, "has_tokenizer": True}
    lab = {"id": "lr", "kind": "lab", "is_model": False, "has_tokenizer": False}
    assert found["entries"] == [{"id": "chatty", **entry}, lab, {"id": "plain", **entry}]
    assert client.get("/api/folder", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get(f"{HOST}/v1/models/a/b").status_code == 404


def test_a_missing_folder_is_a_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match="name the folder of your runs"):
        Folder(tmp_path / "none")
