"""Work ends when its client goes away, before the first token too; lines have limits."""

import asyncio
import json
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from tilth.generation import GenerationOptions, load
from tilth.studio import inspecting, make_app, pages
from tilth.studio.completions import Limits
from tilth.studio.folder import Folder
from tilth.studio.models import Models

SECONDS = 30.0
load_one_thread = partial(load, threads=1)


class Client:
    """A client of an application that sends one request, and may leave."""

    def __init__(self, app, path, body):
        self.status, self.body = None, b""
        self.has_left = asyncio.Event()
        self._content = [json.dumps({"model": "plain", **body}).encode()]
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
        scope |= {"headers": headers, "query_string": b"", "scheme": "http", "root_path": ""}
        self.answered = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if self._content:
            return {"type": "http.request", "body": self._content.pop(), "more_body": False}
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    async def answer(self):
        await asyncio.wait_for(self.answered, SECONDS)
        return self.status, self.body.decode()

    async def leave(self):
        self.has_left.set()
        return (await self.answer())[0]


async def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


class Slow:
    """A decoder that counts its calls and takes its time."""

    calls = 0

    def __init__(self, decoder):
        self.decoder = decoder

    def extend(self, ids, every=False):
        Slow.calls += 1
        time.sleep(0.02)
        return self.decoder.extend(ids, every)

    def truncate(self, row, length):
        self.decoder.truncate(row, length)


def serve(folder, attack, load_one=load_one_thread, **limits):
    """Run an attack, a coroutine of the application and its models."""
    shown = Folder(folder)
    models = Models(shown.models, load_one, rows=1, queue=4)
    try:
        return asyncio.run(attack(make_app(models, limits=Limits(**limits), folder=shown), models))
    finally:
        models.close()


def load_slow(path):
    model = load_one_thread(path)
    return replace(model, decoder=lambda rows: Slow(model.decoder(rows)))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_before_the_first_token_frees_its_place(folder, stream):
    async def attack(app, models):
        engine = models.engine("plain")
        options = GenerationOptions(max_tokens=10**6)
        job = engine.submit([97], options, lambda _: None, bias={engine.model.end_id: -1e9})
        await until(lambda: engine.load == (1, 0))
        client = Client(app, "/v1/completions", {"prompt": "a", "stream": stream, "n": 2})
        await until(lambda: engine.load == (1, 2))
        assert await client.leave() == 499
        assert engine.load == (1, 0)
        job.cancel()

    serve(folder, attack)


SCORED = {"prompt": ["a" * 60] * 64, "max_tokens": 0, "echo": True, "logprobs": 0}


def test_a_client_that_leaves_ends_the_scoring_of_its_prompts(folder):
    async def attack(app, models):
        models.engine("plain")
        before = Slow.calls
        client = Client(app, "/v1/completions", SCORED)
        await until(lambda: Slow.calls > before)
        assert await client.leave() == 499
        calls = Slow.calls
        await asyncio.sleep(0.3)
        assert Slow.calls <= calls + 1
        assert calls < before + 64

    serve(folder, attack, load_slow)


def test_scoring_has_a_limit_of_time(folder):
    async def attack(app, models):
        models.engine("plain")
        before = Slow.calls
        status, said = await Client(app, "/v1/completions", SCORED).answer()
        assert (status, "scoring takes more than 0.2 s; send fewer" in said) == (400, True), said
        assert 0 < Slow.calls - before < 30

    serve(folder, attack, load_slow, seconds=0.2)


def test_the_line_of_the_pages_is_limited_and_clients_leave_it(folder, monkeypatch):
    monkeypatch.setattr(pages, "MAX_WAITING", 2)
    texts, go_on = [], threading.Event()

    def read_text(_model, text):
        texts.append(text)
        go_on.wait(SECONDS)
        return {"text": text}

    monkeypatch.setattr(inspecting, "read_text", read_text)

    async def attack(app, models):
        models.engine("plain")
        first = Client(app, "/api/read", {"text": "first"})
        await until(lambda: texts == ["first"])
        left, waiting = [Client(app, "/api/read", {"text": each}) for each in ("left", "waiting")]
        await asyncio.sleep(0.2)
        status, said = await Client(app, "/api/read", {"text": "refused"}).answer()
        assert (status, "2 requests are waiting" in said) == (503, True), said
        assert await left.leave() == 499
        last = Client(app, "/api/read", {"text": "last"})  # in the place of the one that left
        await asyncio.sleep(0.1)
        assert last.status is None
        go_on.set()
        found = [json.loads((await each.answer())[1])["text"] for each in (first, waiting, last)]
        assert found == texts == ["first", "waiting", "last"]

    serve(folder, attack)
