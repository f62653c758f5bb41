"""The page Time and the comparison of two models: numbers that equal those of Python."""

import math
import shutil
from itertools import accumulate

import pytest
from starlette.testclient import TestClient

from tests.studio.conftest import HOST
from tests.studio.test_pages import ask
from tilth.generation import LanguageModel, load
from tilth.studio import make_app
from tilth.studio.folder import Folder
from tilth.studio.models import Models
from tilth.studio.timeline import compare_readings
from tilth.tokenizer import Tokenizer

TEXT = "the mouse thé\n\nthere"
STEPS = [0, 1, 2, 4, 5]


def bits_of(model, text):
    return [-token.log_probability / math.log(2) for token in model.score(text, alternatives=5)]


def test_steps(client):
    found = ask(client, "steps")
    assert (found["steps"], found["total"]) == (STEPS, 5)
    assert found["valid"] == {"x": [], "y": []}  # the run has no log
    assert ask(client, "steps", model="chatty")["steps"] == [5]


@pytest.mark.parametrize("step", STEPS)
def test_a_moment_is_that_of_the_checkpoint(client, folder, step):
    sampling = {"temperature": 0.7, "top_p": 0.9, "seed": 3}
    asked = {"step": step, "text": TEXT, "prompt": "the", "max_tokens": 9, "sampling": sampling}
    found = ask(client, "time", **asked)
    model = load(folder / "plain", step=step, threads=1)
    assert found["written"] == "".join(model.generate("the", max_tokens=9, **sampling))
    assert [token["bits"] for token in found["read"]["tokens"]] == bits_of(model, TEXT)
    expected = math.fsum(bits_of(model, TEXT)) / len(TEXT.encode())
    assert found["read"]["bits_per_byte"] == pytest.approx(expected, rel=1e-12)
    assert ask(client, "read", step=step, text=TEXT) == found["read"]
    assert ask(client, "time", step=step)["written"] is None


def test_checkpoints_differ_and_are_not_kept(client):
    found = [ask(client, "time", step=step, text=TEXT)["read"]["bits"] for step in STEPS]
    assert len(set(found)) == len(STEPS)
    loaded = client.get("/metrics").text.count("tilth_running_sequences{")
    ask(client, "inside", step=2, text="the mouse")
    assert client.get("/metrics").text.count("tilth_running_sequences{") == loaded


def test_two_checkpoints_token_by_token(client, folder):
    asked = {"step": 1, "other": "plain", "other_step": 4, "text": TEXT}
    found = ask(client, "read/compare", **asked)
    models = [load(folder / "plain", step=step, threads=1) for step in (1, 4)]
    bits = [bits_of(model, TEXT) for model in models]
    assert found["has_same_tokenizer"]
    assert [each["bits"] for each in found["segments"]] == [
        list(pair) for pair in zip(*bits, strict=True)
    ]
    assert [side["bits"] for side in found["sides"]] == [
        pytest.approx(math.fsum(each)) for each in bits
    ]
    best = ask(client, "read/compare", other="chatty", text=TEXT)["sides"]
    for name, side in zip(("plain", "chatty"), best, strict=True):
        assert {**ask(client, "read", model=name, text=TEXT), "vocab_size": 259} == side


def model_of(model, tokenizer):
    """The weights of a model with another tokenizer."""
    return LanguageModel.from_weights(model.config, model.weights(), tokenizer, threads=1)


BYTES = {i: bytes([i]) for i in range(256)}
END = ["<|endoftext|>"]


@pytest.mark.parametrize("specials", [END, []])
def test_different_tokenizers_are_aligned_by_bytes(model, specials):
    """Without an end token, the first token of a text has no score."""
    other = model_of(
        model, Tokenizer({**BYTES, 256: b"he", 257: b"er"}, [(b"h", b"e"), (b"e", b"r")], specials)
    )
    found = compare_readings(model, other, TEXT)
    assert not found["has_same_tokenizer"]
    content = TEXT.encode()
    ends = []
    for each in (model, other):
        ids = each.tokenizer.encode(TEXT)
        lengths = [len(each.tokenizer.token(i)) for i in ids]
        ends.append({*accumulate(lengths)})
    shared = sorted(ends[0] & ends[1])
    segments = found["segments"]
    if specials:
        assert len(segments) == len(shared)
        assert found["sides"][0]["bytes"] == found["sides"][1]["bytes"] == len(content)
    else:  # "t" has bits by the first model alone, within "the"
        assert found["sides"][1]["bytes"] == len(content) - 1
    for which, each in enumerate((model, other)):
        own = [segment["bits"][which] for segment in segments]
        assert math.fsum(bits for bits in own if bits is not None) == pytest.approx(
            math.fsum(bits_of(each, TEXT)), rel=1e-12
        )
        assert [segment["tokens"][which][1] for segment in segments][-1] == len(
            found["sides"][which]["tokens"]
        )
    texts = [segment["text"] for segment in segments]
    assert "".join(texts).replace("<c3><a9>", "é") == TEXT


def test_a_beginning_that_one_model_does_not_score(model):
    other = model_of(model, Tokenizer(BYTES, []))
    found = compare_readings(model, other, "xyz")
    assert [segment["bits"][1] is None for segment in found["segments"]] == [True, False, False]
    assert [segment["text"] for segment in found["segments"]] == ["x", "y", "z"]
    assert compare_readings(model, model, "")["segments"] == []


def test_texts_that_a_tokenizer_changes_are_not_aligned(model, tmp_path):
    Tokenizer(BYTES, [], END).save(tmp_path / "tokenizer.json")
    content = (tmp_path / "tokenizer.json").read_text()
    for name in ('"add_prefix_space": false', '"add_prefix_space":false'):
        content = content.replace(name, '"add_prefix_space": true')
    (tmp_path / "tokenizer.json").write_text(content)
    changed = model_of(model, Tokenizer.load(tmp_path / "tokenizer.json"))
    assert bytes(changed.tokenizer.encode("a")) == b" a"
    found = compare_readings(changed, model, "a,b")
    assert found["segments"] is not None  # the other text is its end
    assert found["segments"][0]["bits"][1] is None
    lower = model_of(model, Tokenizer({**BYTES, 256: b"th"}, [(b"t", b"h")], END))
    assert compare_readings(lower, model, "the")["segments"] is not None


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"step": 3}, 404, "plain has no checkpoint of step 3"),
        ({"step": 1, "model": "other"}, 404, "no run of this name"),
        ({"step": 1, "model": "../plain"}, 404, "no run of this name"),
        ({"step": -1}, 400, "step"),
        ({"step": "1"}, 400, "step"),
        ({"step": 2**70}, 400, "step"),
        ({"step": 1, "max_tokens": 301}, 400, "max_tokens"),
        ({"step": 1, "text": "a" * 4001}, 400, "text"),
        ({"step": 1, "max_tokens": 1, "prompt": "a" * 100}, 400, "shorten it"),
        ({"step": 1, "sampling": {"temperature": -1}}, 400, "temperature"),
        ({}, 400, "step"),
    ],
)
def test_refusals(client, body, status, words):
    response = client.post("/api/time", json={"model": "plain", **body})
    assert response.status_code == status
    assert words in response.json()["error"]["message"]
    assert "/" not in response.json()["error"]["message"].replace("../", "")


@pytest.fixture
def own(folder, tmp_path):
    """A studio of its own, whose files a test may change."""
    root = tmp_path / "root"
    shutil.copytree(folder, root)
    shown = Folder(root)
    models = Models(shown.models, lambda path: load(path, threads=1))
    with TestClient(make_app(models, folder=shown), base_url=HOST) as client:
        yield client, root


def test_a_checkpoint_that_links_outside_is_refused(own, folder):
    client, root = own
    for linked in (
        root / "plain/history/step-000001",
        root / "plain/history/step-000002/model.safetensors",
    ):
        shutil.rmtree(linked) if linked.is_dir() else linked.unlink()
        linked.symlink_to(folder / linked.relative_to(root))
    for step, status in ((1, 400), (2, 400), (4, 200)):
        response = client.post("/api/time", json={"model": "plain", "step": step, "text": "a"})
        assert response.status_code == status, response.text
        assert str(folder) not in response.text


def test_damaged_and_removed_checkpoints(own, monkeypatch):
    client, root = own
    path = root / "plain/history/step-000001/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x77")
    response = client.post("/api/time", json={"model": "plain", "step": 1, "text": "a"})
    assert (response.status_code, "cannot be loaded" in response.text) == (500, True)
    assert str(root) not in response.text

    def removed(self, path):
        shutil.rmtree(path)
        return load(path)

    monkeypatch.setattr(Models, "load_once", removed)
    response = client.post("/api/time", json={"model": "plain", "step": 2, "text": "a"})
    assert (response.status_code, "has no checkpoint of step 2" in response.text) == (404, True)
