"""Models are loaded once, shared, and released when another one needs the memory."""

import threading

import pytest

from tilth.generation import GenerationOptions, load
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
    monkeypatch.setattr(module, "_free_bytes", lambda: needed)
    models.engine("chatty")
    assert engines() == before + 2  # there is enough
    models.close()
    text_of(models.engine("plain"))
    monkeypatch.setattr(module, "_free_bytes", lambda: needed - 1)
    models.engine("chatty")
    assert engines() == before + 1
    assert models.loads().keys() == {"chatty"}
    assert text_of(models.engine("plain")) == told  # loaded again, and the other one released
    assert models.loads().keys() == {"plain"}
    assert paths == ["plain", "chatty"] * 2 + ["plain"]


def test_a_busy_model_stays(loaded, monkeypatch):
    models, _ = loaded
    monkeypatch.setattr(module, "_free_bytes", lambda: 0)
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


def test_a_model_that_is_looked_at_once_is_not_kept(loaded, folder, monkeypatch):
    models, _ = loaded
    models.engine("chatty")
    monkeypatch.setattr(module, "_free_bytes", lambda: 0)
    once = models.load_once(folder / "plain" / "history" / "step-000002")
    assert once.score("the") == load(folder / "plain", step=2, threads=1).score("the")
    assert models.loads() == {}
