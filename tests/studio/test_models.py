"""Models are loaded once, shared, and released when another one needs the memory."""

import shutil
import threading
import time
import weakref
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from tilth.files import FileError
from tilth.generation import GenerationOptions, load
from tilth.model import TransformerLM
from tilth.runs.checkpoints import Checkpoint
from tilth.runs.run import open_run
from tilth.runs.state import CheckpointWriter
from tilth.studio import models as module
from tilth.studio.models import Models, _weight_bytes


@pytest.fixture
def loaded(folder):
    """Two models, and the paths that were loaded."""
    paths = []

    def load_one(path):
        paths.append(path.name)
        return load(path, threads=1)

    found = Models(lambda: {name: folder / name for name in ("plain", "chatty")}, load_one, rows=2)
    yield found, paths
    found.close()


def text_of(engine):
    parts = []
    job = engine.submit([97], GenerationOptions(max_tokens=5, seed=1), parts.append)
    job.wait(20)
    return "".join(part.text for part in parts)


def engines():
    return sum(thread.name == "tilth engine" for thread in threading.enumerate())


def test_a_model_is_loaded_once_and_shared(loaded):
    models, paths = loaded
    assert models.engine("plain") is models.engine("plain")
    models.engine("chatty")
    assert paths == ["plain", "chatty"]
    with pytest.raises(KeyError):
        models.engine("other")


def test_an_idle_model_is_released_under_memory_pressure(loaded, folder, monkeypatch):
    models, paths = loaded
    before = engines()
    told = text_of(models.engine("plain"))
    needed = 2 * _weight_bytes(folder / "chatty") + module.SPARE_BYTES
    monkeypatch.setattr(module, "free_memory_bytes", lambda: needed)
    models.engine("chatty")
    assert engines() == before + 2  # there is enough
    models.close()
    text_of(models.engine("plain"))
    monkeypatch.setattr(module, "free_memory_bytes", lambda: needed - 1)
    models.engine("chatty")
    assert engines() == before + 1
    assert models.loads().keys() == {"chatty"}
    assert text_of(models.engine("plain")) == told  # loaded again, and the other one released
    assert models.loads().keys() == {"plain"}
    assert paths == ["plain", "chatty"] * 2 + ["plain"]


def test_a_busy_model_stays(loaded, monkeypatch):
    models, _ = loaded
    monkeypatch.setattr(module, "free_memory_bytes", lambda: 0)
    busy = models.engine("plain")
    began = threading.Event()
    options = GenerationOptions(max_tokens=10**6, alternatives=None)
    end = {busy.model.end_id: -1e9}
    job = busy.submit([97], options, lambda _part: began.set(), bias=end)
    assert began.wait(20)
    models.engine("chatty")
    assert models.loads().keys() == {"plain", "chatty"}
    job.cancel()
    job.wait(20)


def test_only_weights_count(folder, tmp_path):
    """Not the states of the optimizer, which are twice as large."""
    run = shutil.copytree(folder / "plain", tmp_path / "plain")
    (step,) = run.glob("checkpoints/step-*")
    (step / "optimizer.safetensors").write_bytes(bytes(10**6))
    size = (step / "model.safetensors").stat().st_size
    assert _weight_bytes(run) == _weight_bytes(step) == size


def save(folder, step, valid_loss):
    """Add a checkpoint of other weights to a run."""
    torch.manual_seed(step)
    model = TransformerLM(open_run(folder).config.model)
    with CheckpointWriter(folder, keep=9) as writer:
        state = SimpleNamespace(state_dict=dict)
        writer.save(step, model, state, {"valid_loss": valid_loss}, {})


def test_a_better_checkpoint_is_loaded(folder, tmp_path):
    """Requests that run end with the old one; a worse checkpoint changes nothing."""
    run = tmp_path / "plain"
    shutil.copytree(folder / "plain", run)
    before = engines()
    models = Models(lambda: {"plain": run}, partial(load, threads=1), rows=2)
    old = models.engine("plain")
    assert old.model.score("the") == load(run, threads=1).score("the")
    save(run, 6, valid_loss=2.0)
    assert models.engine("plain") is old
    began = threading.Event()
    job = old.submit(
        [97],
        GenerationOptions(max_tokens=10**6),
        lambda _: began.set(),
        bias={old.model.end_id: -1e9},
    )
    assert began.wait(20)
    save(run, 7, valid_loss=0.5)
    new = models.engine("plain")
    assert new.model.score("the") == load(run, step=7, threads=1).score("the")
    assert new.model.score("the") != old.model.score("the")
    assert models.engine("plain") is new
    assert models.loads() == {"plain": (1, 0)}
    job.cancel()
    assert job.wait(20) == "limit"
    ended = weakref.ref(old)
    del old, job
    deadline = time.monotonic() + 20
    while engines() > before + 1 or ended() is not None:  # its memory is free
        assert time.monotonic() < deadline
        time.sleep(0.01)
    models.close()
    assert engines() == before


def test_a_checkpoint_that_a_training_removes_meanwhile(folder, tmp_path, monkeypatch):
    run = shutil.copytree(folder / "plain", tmp_path / "plain")
    save(run, 6, valid_loss=0.5)
    files = Checkpoint.files

    def files_or_gone(checkpoint, name, state):
        if checkpoint.step == 6:
            shutil.rmtree(checkpoint.folder)
            raise FileError(checkpoint.folder, "is not there", "choose another")
        return files(checkpoint, name, state)

    monkeypatch.setattr(Checkpoint, "files", files_or_gone)
    models = Models(lambda: {"plain": run}, partial(load, threads=1), rows=2)
    assert models.engine("plain").model.score("the") == load(run, threads=1).score("the")
    models.close()


def test_a_run_that_was_trained_again_is_loaded_again(folder, tmp_path):
    """With the same steps, in a new folder of the same name."""
    shutil.copytree(folder / "plain", tmp_path / "run")
    models = Models(lambda: {"run": tmp_path / "run"}, partial(load, threads=1), rows=2)
    old = models.engine("run").model.score("the")
    shutil.rmtree(tmp_path / "run")
    shutil.copytree(folder / "chatty", tmp_path / "run")
    assert models.engine("run").model.score("the") == load(folder / "chatty").score("the") != old
    models.close()


def test_a_model_that_is_looked_at_once_is_not_kept(loaded, folder, monkeypatch):
    models, _ = loaded
    models.engine("chatty")
    monkeypatch.setattr(module, "free_memory_bytes", lambda: 0)
    once = models.load_once(folder / "plain" / "history" / "step-000002")
    assert once.score("the") == load(folder / "plain", step=2, threads=1).score("the")
    assert models.loads() == {}
