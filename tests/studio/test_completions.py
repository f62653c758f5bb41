"""The API, through the application: equality with Python, errors, streams, chat."""

import json
import random
import re
import shutil
from functools import partial

import numpy as np
import pytest
from starlette.testclient import TestClient

from tests.studio.conftest import END, HOST, TEMPLATE
from tilth.generation import load
from tilth.studio import make_app
from tilth.studio.completions import Limits
from tilth.studio.folder import Folder
from tilth.studio.models import Models

CHAT = {"model": "chatty", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


def complete(client, **body):
    return client.post("/v1/completions", json={"model": "plain", **body})


def events(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in response.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_samples_equal_those_of_generate(client, model):
    body = {"prompt": ["the mouse", "a"], "max_tokens": 12, "seed": 3, "n": 2, "temperature": 0.9}
    found = complete(client, **body).json()
    assert [choice["index"] for choice in found["choices"]] == [0, 1, 2, 3]
    options = {"max_tokens": 12, "seed": 3, "temperature": 0.9}
    for choice in found["choices"]:
        prompt, sample = body["prompt"][choice["index"] // 2], choice["index"] % 2
        stream = model.generate(prompt, sample_index=sample, **options)
        assert choice["text"] == "".join(stream)
        assert choice["finish_reason"] == (
            "stop" if stream.stop_reason == "end token" else "length"
        )
    assert found["usage"]["prompt_tokens"] == sum(len(model.prompt_ids(p)) for p in body["prompt"])


def test_stream_equals_the_whole(client):
    body = {"prompt": "the mouse", "max_tokens": 20, "seed": 5, "logprobs": 2, "n": 2}
    whole = complete(client, **body).json()
    parts = events(complete(client, **body, stream=True, stream_options={"include_usage": True}))
    assert parts.pop()["usage"] == whole["usage"]
    for choice in whole["choices"]:
        own = [p["choices"][0] for p in parts if p["choices"][0]["index"] == choice["index"]]
        assert "".join(each["text"] for each in own) == choice["text"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        logprobs = [value for each in own for value in each["logprobs"]["token_logprobs"]]
        assert logprobs == choice["logprobs"]["token_logprobs"]


def test_echoed_prompt_is_scored(client, model):
    text = "the mouse is happy"
    found = complete(client, prompt=text, max_tokens=0, echo=True, logprobs=1).json()["choices"][0]
    assert found["text"] == text
    logprobs = found["logprobs"]
    assert "".join(logprobs["tokens"]) == text
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["text_offset"][:3] == [0, 3, 4]
    trace = model.trace(text, allow_special=False)  # NumPy, after the end token
    ids = model.tokenizer.encode(text)
    assert trace.token_ids == [model.end_id, *ids]
    whole = model.score(text)
    assert len(whole) == len(ids) == len(logprobs["token_logprobs"])
    first = model.tokenizer.encode(text)[:1]
    alone = complete(client, prompt=first, max_tokens=1, logprobs=0, temperature=0).json()
    assert len(alone["choices"][0]["logprobs"]["token_logprobs"]) == 1


def test_scores_equal_a_forward_pass(client, model):
    """Against `trace`, in NumPy."""
    ids = model.tokenizer.encode("the mouse")
    found = complete(client, prompt=ids, max_tokens=0, echo=True, logprobs=3).json()["choices"][0]
    from tilth.generation.trace import trace

    losses = trace(model.config, model.weights(), ids, vocab_size=model.tokenizer.vocab_size).losses
    np.testing.assert_allclose(found["logprobs"]["token_logprobs"][1:], -losses, atol=1e-4)
    assert [len(top) for top in found["logprobs"]["top_logprobs"][1:]] == [3] * (len(ids) - 1)


def test_stop_strings_and_bias(client):
    bias = {str(ord("x")): 100}
    found = complete(client, prompt="a", max_tokens=6, logit_bias=bias, temperature=0).json()
    assert found["choices"][0]["text"] == "xxxxxx"
    found = complete(client, prompt="a", max_tokens=6, logit_bias=bias, stop=["xx"]).json()
    assert found["choices"][0]["text"] == ""
    assert found["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("count", [0, 5, 57, 58, 100, 149])
def test_generated_ids_go_on_as_if_the_text_had_not_stopped(client, model, count):
    """A branch of the page Write, past the context too."""
    prompt = model.tokenizer.encode("the mouse")
    stream = model.generate(prompt, max_tokens=150, seed=4)
    ids = [token.id for token in stream.tokens]
    assert len(ids) == 150
    body = {"prompt": prompt, "seed": 4, "return_token_ids": True, "max_tokens": 150 - count}
    found = complete(client, **body, generated_ids=ids[:count]).json()
    assert found["choices"][0]["token_ids"] == ids[count:]


def test_same_seed_same_text_no_seed_other_text(client):
    body = {"prompt": "the", "max_tokens": 30}
    texts = [complete(client, **body, seed=7).json()["choices"][0]["text"] for _ in range(2)]
    assert texts[0] == texts[1]
    assert len({complete(client, **body).json()["choices"][0]["text"] for _ in range(4)}) > 1


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"model": "other"}, 404, "unknown model; there is chatty, plain."),
        ({"prompt": "a" * 65}, 400, "the prompt has 65 tokens, and the context length is 64"),
        ({"prompt": [300]}, 400, "the prompt has the id 300"),
        ({"generated_ids": [300]}, 400, "the prompt has the id 300"),
        ({"generated_ids": [1], "echo": True}, 400, "generated_ids takes neither echo"),
        ({"prompt": [1, "a"]}, 400, "prompt must be a text, a list of token ids"),
        ({"prompt": [[1], "a"]}, 400, "prompt must be a text"),
        ({"prompt": {}}, 400, "prompt"),
        ({"max_tokens": 201}, 400, "this server allows 200"),
        ({"max_tokens": -1}, 400, "max_tokens must be at least 0"),
        ({"max_tokens": 1.5}, 400, "max_tokens must be a whole number"),
        ({"max_tokns": 1}, 400, "did you mean max_tokens?"),
        ({"temperature": "hot"}, 400, "temperature"),
        ({"top_p": 1.5}, 400, "top_p"),
        ({"logprobs": 21}, 400, "logprobs must be at most 20"),
        ({"n": 17}, 400, "n must be at most 16"),
        ({"best_of": 3}, 400, "best_of is not supported"),
        ({"suffix": "a"}, 400, "suffix is not supported"),
        ({"frequency_penalty": 0.5}, 400, "frequency_penalty is not supported"),
        ({"logit_bias": {"a": 1}}, 400, "keys are token ids"),
        ({"logit_bias": {"9999": 1}}, 400, "must be below"),
        ({"logit_bias": {"9": 200}}, 400, "from -100 to 100"),
        ({"stop": ["a"] * 5}, 400, "stop"),
    ],
)
def test_invalid_requests(client, body, status, sentence):
    response = complete(client, **body)
    assert response.status_code == status
    assert sentence in response.json()["error"]["message"]
    # A stream fails with the same status, before it begins.
    assert complete(client, **body, stream=True).status_code == status


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"a"', b"\xff", b"[" * 100_000, b'{"n": 1e999}']
)
def test_invalid_bodies(client, body):
    headers = {"content-type": "application/json"}
    response = client.post("/v1/completions", content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


def test_random_requests_get_an_answer_or_a_sentence(client):
    """Mutations of a valid body never end in an internal error."""
    chance = random.Random(0)
    values = [None, True, 0, -1, 2**63, 1e308, "", "x", [], {}, [[]], [1] * 70, "\ud800", "a\0"]
    names = ["model", "prompt", "max_tokens", "temperature", "top_p", "n", "seed", "stop", "echo"]
    names += ["logprobs", "logit_bias", "top_k", "min_p", "repetition_penalty", "stream", "user"]
    statuses = set()
    for _ in range(400):
        body = {"model": "plain", "prompt": "the", "max_tokens": 2}
        for name in chance.sample(names, chance.randrange(1, 4)):
            body[name] = chance.choice(values)
        content = json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        response = client.post("/v1/completions", content=content, headers=headers)
        assert response.status_code in (200, 400, 404), (body, response.text)
        statuses.add(response.status_code)
    assert statuses == {200, 400, 404}


def test_chat(client, folder):
    from tilth.generation import load

    chatty = load(folder / "chatty", threads=1)
    whole = client.post("/v1/chat/completions", json={**CHAT, "seed": 4}).json()
    prompt = "[user] hi\n[assistant] "
    expected = "".join(chatty.generate(prompt, max_tokens=5, seed=4))
    assert whole["choices"][0]["message"]["content"] == expected
    streamed = client.post(
        "/v1/chat/completions",
        json={**CHAT, "seed": 4, "stream": True, "logprobs": True, "top_logprobs": 2},
    )
    deltas = [each["choices"][0] for each in events(streamed)]
    assert deltas[0]["delta"]["role"] == "assistant"
    assert "".join(each["delta"]["content"] for each in deltas) == expected
    tokens = [token for each in deltas for token in each["logprobs"]["content"]]
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)


def test_a_chat_without_max_tokens_takes_what_the_server_allows(folder):
    """The rest of the context, which may be more than --max-tokens."""
    shown = Folder(folder)
    models = Models(shown.models, partial(load, threads=1))
    app = make_app(models, limits=Limits(max_tokens=7), folder=shown)
    asked = {key: value for key, value in CHAT.items() if key != "max_tokens"}
    with TestClient(app, base_url=HOST) as client:
        found = client.post(
            "/v1/chat/completions", json={**asked, "logit_bias": {"120": 100}, "temperature": 0}
        )
        assert found.status_code == 200, found.text
        assert found.json()["choices"][0]["message"]["content"] == "x" * 7
        for tokens, sentence in ((8, "this server allows 7"), (0, "max_tokens must be at least 1")):
            refused = client.post("/v1/chat/completions", json={**asked, "max_tokens": tokens})
            assert (refused.status_code, sentence in refused.text) == (400, True), refused.text


def test_chat_needs_a_template(client):
    response = client.post("/v1/chat/completions", json={**CHAT, "model": "plain"})
    assert response.status_code == 400
    assert "has no chat template" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "limits|too long",
        ),
        ("{{ 'a' * 10**10 }}", "cannot render"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{% for", "cannot render"),
    ],
)
def test_hostile_templates(template, sentence, monkeypatch):
    from tilth.studio import chat

    monkeypatch.setattr(chat, "SECONDS", 1)
    with pytest.raises(chat.TemplateError, match=sentence):
        chat.render(template, CHAT["messages"], {"eos_token": END})


def test_template_sees_messages_and_special_tokens():
    from tilth.studio import chat

    text = chat.render(TEMPLATE + "{{ eos_token }}é", CHAT["messages"], {"eos_token": END})
    assert text == f"[user] hi\n[assistant] {END}é"


def test_the_log_says_why_a_model_cannot_be_loaded(folder, tmp_path, caplog):
    shutil.copytree(folder / "plain", tmp_path / "plain")
    (tmp_path / "plain" / "tokenizer.json").write_text("{")
    shown = Folder(tmp_path)
    with TestClient(make_app(Models(shown.models, load), folder=shown), base_url=HOST) as client:
        response = complete(client, prompt="the")
    assert response.status_code == 500
    sentence = "plain cannot be loaded; the server's log says why."
    assert response.json()["error"]["message"] == sentence
    assert f"{tmp_path}/plain/tokenizer.json" in caplog.text


def test_models_health_metrics_and_unknown_paths(client):
    assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["chatty", "plain"]
    assert client.get("/v1/models/plain").json()["id"] == "plain"
    assert client.get("/v1/models/x").status_code == 404
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/v1/completions").status_code == 405
    assert client.get("/../etc/passwd").status_code == 404
    embeddings = client.post("/v1/embeddings", json={"input": "a"})
    assert (embeddings.status_code, "not available" in embeddings.text) == (404, True)
    before = _metric(client, "tilth_generated_tokens_total")
    complete(client, prompt="the", max_tokens=3, temperature=0, logit_bias={"120": 100})
    assert _metric(client, "tilth_generated_tokens_total") == before + 3
    assert _metric(client, 'tilth_running_sequences{model="plain"}') == 0


def test_refusals_are_in_the_metrics(client):
    """Those of the guard and of the router too; unknown paths share a label."""

    def counts():
        text = client.get("/metrics").text
        found = re.findall(r'tilth_requests_total\{path="(.*)",status="(\d+)"\} (\d+)', text)
        return {(path, int(status)): int(count) for path, status, count in found}

    before = counts()
    client.get("/v1/models", headers={"host": "evil.example"})
    client.post("/v1/completions", content=b"{}", headers={"content-type": "text/plain"})
    client.get("/v1/completions")
    client.get("/none%22%0A")
    client.get("/none/again", headers={"origin": "http://evil.example"})
    expected = {
        ("/v1/models", 403): 1,
        ("/v1/completions", 415): 1,
        ("/v1/completions", 405): 1,
        ("other", 404): 1,
        ("other", 403): 1,
    }
    found = {key: count - before.get(key, 0) for key, count in counts().items()}
    del found["/metrics", 200]
    assert {key: count for key, count in found.items() if count} == expected


def _metric(client, name):
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith(name))
