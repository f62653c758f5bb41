"""The attack suite: no crash, no leak, no wrong status. The default suite runs a part of it.

TILTH_SEED=1 python -m pytest -m slow tests/studio/test_attacks.py
"""

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.studio import malformed
from tests.studio.attacked import PATIENCE

ROOT = Path(__file__).parents[2]
SEED = int(os.environ.get("TILTH_SEED", "1"))
STATUSES = {200, 303, 400, 403, 404, 405, 408, 413, 415, 426, 431, 499, 503}
"""Statuses of malformed requests; an internal error is not among them."""


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    """A studio in a process of its own; ends with no traceback in its log."""
    log = tmp_path_factory.mktemp("attacked") / "log"
    with log.open("wb") as file:
        environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.studio.attacked", str(folder)],
            cwd=folder,  # a command that repeats a run names its path from there
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, **environment},
        )
    said = [child.stdout.readline(), child.stdout.readline()]
    port = int(re.search(r":(\d+)$", said[1].strip())[1])
    server = SimpleNamespace(port=port, host=f"127.0.0.1:{port}", pid=child.pid, folder=folder)
    assert run(get(server, "/health"))[0] == 200
    run(post(server, "/v1/completions", malformed.BODIES["/v1/completions"]))  # loads the model
    yield server
    assert child.poll() is None, log.read_text()
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == -signal.SIGTERM
    child.stdout.close()
    assert "Traceback" not in log.read_text(), log.read_text()[-5000:]


def run(work):
    return asyncio.run(asyncio.wait_for(work, 300))


async def answer(server, data, *, seconds=30.0):
    """Send bytes; return the status and the rest of the response; None if there is none."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        with suppress(ConnectionError):  # refused before all was sent
            writer.write(data)
            await writer.drain()
        head = b""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), seconds)
            if b" 100 " in head[:20]:  # an interim response
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), seconds)
        if not head:
            return None, b""
        status = int(head.split()[1])
        length = re.search(rb"content-length: (\d+)", head.lower())
        body = b""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if length and not data.startswith(b"HEAD"):
                body = await asyncio.wait_for(reader.readexactly(int(length[1])), seconds)
        return status, head + body
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def message(server, path, body=None, **headers):
    content = b"" if body is None else json.dumps(body).encode()
    found = {"Host": server.host, "Connection": "close"}
    if body is not None:
        found |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
    found |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in found.items() if value is not None]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + content


async def get(server, path, **headers):
    return await answer(server, message(server, path, **headers))


async def post(server, path, body, **headers):
    return await answer(server, message(server, path, body, **headers))


def routes():
    return [*((path, None) for path in malformed.GETS), *malformed.BODIES.items()]


def test_every_route_answers_its_own_pages(server):
    """Else the refusals below would prove nothing."""
    for path, body in routes():
        status, said = run(
            answer(server, message(server, path, body, Origin=f"http://{server.host}"))
        )
        assert status == (404 if path == "/v1/embeddings" else 200), (path, said)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},  # DNS rebinding: the name of the attacker leads to this machine
        {"Host": "127.0.0.1.evil.example"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_foreign_requests_are_refused_everywhere(server, headers):
    async def attack():
        return [
            await answer(server, message(server, path, body, **headers)) for path, body in routes()
        ]

    for status, said in run(attack()):
        assert status == (400 if "Host" in headers and headers["Host"] is None else 403), said
        assert b"access-control" not in said.lower()


def test_the_host_of_the_request_line_does_not_count(server):
    lines = b"GET http://127.0.0.1/api/folder HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    assert run(answer(server, lines))[0] == 403


def test_forms_and_preflights_are_refused(server):
    async def attack():
        for path, body in malformed.BODIES.items():
            for kind in (
                "text/plain",
                "application/x-www-form-urlencoded",
                "multipart/form-data",
                "",
            ):
                status, said = await post(server, path, body, Content_Type=kind)
                assert status == 415, (path, kind, said)
            asked = message(server, path, Origin="http://evil.example").replace(
                b"GET", b"OPTIONS", 1
            )
            status, said = await answer(server, asked)
            assert status == 403
            assert b"access-control" not in said.lower()

    run(attack())


PATHS = ["../plain", "plain/..", "/etc/passwd", "..", ".", "", "\x00", "plain\x00", "\ud800", "//",
         "plain/../../../etc/passwd", "config.toml", "plain/config.toml", "a" * 5000]  # fmt: skip
URLS = ["/health/", "/health//", "/static/../app.py", "/static/..%2fapp.py",
        "/static/%2e%2e/app.py", "/static/..\\app.py",
        "/static//etc/passwd", "/static/%00", "/static/", "/static/main.js/..", "/../../etc/passwd",
        "//etc/passwd", "/static/%252e%252e%252fapp.py", "/v1/models/..%2f..%2fetc%2fpasswd",
        "/v1/models/%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/login"]  # fmt: skip


def test_no_path_leads_out_of_the_folder(server):
    async def attack():
        for url in URLS:
            status, said = await get(server, url)
            assert status == 404, (url, said)
            assert str(server.folder).encode() not in said
        for path, body in malformed.BODIES.items():
            for field in ("model", "other", "subject", "lab"):
                for name in PATHS if field in body else ():
                    status, said = await post(server, path, {**body, field: name})
                    assert status in (400, 404), (path, field, name, said)
                    assert str(server.folder).encode() not in said, (path, name)
                    assert b"root:" not in said

    run(attack())


async def bombard(server, first, count, at_once=8):
    """Send malformed requests; return how many had each status."""
    found = Counter()
    numbers = iter(range(first, first + count))

    async def client():
        for number in numbers:
            data = malformed.request(random.Random(f"{SEED} {number}"), server.host)
            status, said = await answer(server, data)
            found[status] += 1
            assert status is None or status in STATUSES, (number, data[:2000], said)
            assert b"Traceback" not in said, number
            assert str(server.folder).encode() not in said, (number, said)

    await asyncio.gather(*(client() for _ in range(at_once)))
    return found


def check_statuses(found):
    """Most requests reach the application, and it accepts some of them."""
    total = sum(found.values())
    assert found[None] < 0.2 * total, found
    assert found[200] > 0.05 * total, found
    assert found[400] > 0.2 * total, found


def test_some_malformed_requests(server):
    check_statuses(run(bombard(server, 0, 120)))


@pytest.mark.slow
def test_malformed_requests(server):
    found = run(asyncio.wait_for(bombard(server, 120, 10_000), 3000))
    print(found)
    check_statuses(found)


def test_huge_bodies(server):
    huge = b'{"model": "plain", "prompt": "' + b"a" * (5 << 20) + b'"}'

    async def attack():
        head = message(server, "/v1/completions", {}, Content_Length=str(len(huge))).partition(
            b"\r\n\r\n"
        )[0]
        assert (await answer(server, head + b"\r\n\r\n"))[0] == 413
        # A client that sends the body all the same may see the connection reset before it reads.
        assert (await answer(server, head + b"\r\n\r\n" + huge))[0] in (413, None)
        chunked = message(
            server, "/v1/completions", {}, Content_Length=None, Transfer_Encoding="chunked"
        )
        chunked = chunked.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        assert (await answer(server, chunked + chunk * 65))[0] == 413
        headers = b"GET / HTTP/1.1\r\nHost: " + server.host.encode() + b"\r\n"
        for long in (
            b"X: " + b"a" * (1 << 20),
            b"\r\n".join(b"X%d: a" % i for i in range(100_000)),
        ):
            assert (await answer(server, headers + long + b"\r\n\r\n"))[0] in (400, 431, None)
        deep = {"model": "plain", "prompt": json.loads("[" * 500 + "]" * 500)}
        assert (await post(server, "/v1/completions", deep))[0] == 400

    run(attack())


@pytest.mark.slow
def test_slow_clients_lose_their_connection(server):
    """Headers and bodies have a limit of time; other clients are served meanwhile."""

    async def until_closed(data, drip=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        began, said = time.monotonic(), b""
        with suppress(ConnectionError):
            while time.monotonic() - began < 10 * PATIENCE:
                writer.write(drip)
                with suppress(TimeoutError):
                    chunk = await asyncio.wait_for(reader.read(1000), 0.2)
                    said += chunk
                    if not chunk:
                        break
        writer.transport.abort()
        return time.monotonic() - began, said

    async def attack():
        begun = f"GET / HTTP/1.1\r\nHost: {server.host}\r\nX: ".encode()
        body = message(server, "/v1/completions", {}, Content_Length="1000").partition(b"{}")[0]
        slow = await asyncio.gather(
            until_closed(b""),
            until_closed(begun, drip=b"a"),
            until_closed(body, drip=b" "),
            *(get(server, "/health") for _ in range(20)),
        )
        assert all(seconds < 3 * PATIENCE for seconds, _ in slow[:3]), slow
        assert b" 408 " in slow[2][1].split(b"\r\n")[0]
        assert [status for status, _ in slow[3:]] == [200] * 20

    run(attack())


@pytest.mark.slow
def test_a_client_that_does_not_read_loses_its_connection(server):
    asked = {"model": "plain", "prompt": "a", "max_tokens": 2000, "n": 16, "stream": True}
    asked |= {"logprobs": 20, "logit_bias": {"258": -100}}
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        time.sleep(0.5)  # until earlier connections are closed
        before = descriptors_of(server)
        client.connect(("127.0.0.1", server.port))
        client.sendall(message(server, "/v1/completions", asked))
        time.sleep(0.5)
        assert descriptors_of(server) == before + 1
        deadline = time.monotonic() + 5 * PATIENCE
        while descriptors_of(server) > before:  # the server has closed it
            assert time.monotonic() < deadline
            time.sleep(0.2)
        run(settled(server, 5.0))


async def load_of(server):
    _, said = await get(server, "/metrics")
    found = re.findall(
        r"^tilth_(running|waiting)_sequences\{.*\} (\d+)$", said.decode(), re.MULTILINE
    )
    return [sum(int(n) for kind, n in found if kind == each) for each in ("running", "waiting")]


async def settled(server, seconds=20.0):
    """Wait until no text is being generated."""
    deadline = time.monotonic() + seconds
    while (load := await load_of(server)) != [0, 0]:
        assert time.monotonic() < deadline, load
        await asyncio.sleep(0.05)


async def stream(server, seed, leave_after=None):
    """Read a stream; leave after some events. Returns the text."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    asked = {"model": "plain", "prompt": "the", "max_tokens": 12, "seed": seed, "stream": True}
    writer.write(message(server, "/v1/completions", asked))
    text, events = "", 0
    try:
        assert b" 200 " in await reader.readline()
        async for line in reader:
            if not line.startswith(b"data: {"):
                continue
            text += json.loads(line[6:])["choices"][0]["text"]
            events += 1
            if events == leave_after:
                writer.transport.abort()
                return None
        return text
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def streams(server, count):
    """Many streams at once, every third of which is left after a few events."""
    work = [stream(server, seed, 1 + seed % 5 if seed % 3 == 0 else None) for seed in range(count)]
    texts = await asyncio.gather(*work)
    await settled(server)
    return texts


def check_texts(texts, model):
    for seed, text in enumerate(texts):
        if seed % 3:
            assert text == "".join(model.generate("the", max_tokens=12, seed=seed)), seed


@pytest.mark.slow
def test_200_streams(server, model):
    check_texts(run(streams(server, 200)), model)


def test_streams_and_disconnects(server, model):
    check_texts(run(streams(server, 30)), model)


def memory_of(server):
    """The bytes that only this process has."""
    lines = Path(f"/proc/{server.pid}/smaps_rollup").read_text("ascii").splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def descriptors_of(server):
    return len([*Path(f"/proc/{server.pid}/fd").iterdir()])


@pytest.mark.slow
def test_ten_rounds_leak_nothing(server):
    """Ten rounds need no more memory, connections and threads, once all threads have run.

    The pool starts threads as requests overlap: until about the fifth round on a busy machine. Up
    to there, a bound four times that of the 6.3% that rounds 2 to 12 once took: a leak of the first
    rounds alone, 2,000 requests, would be within it at 5 kB each, and ten rounds show that.
    """
    sizes, descriptors = [], []
    for number in range(15):
        run(bombard(server, 20_000, 300))
        run(streams(server, 200))
        run(get(server, "/health"))
        time.sleep(0.5)
        sizes.append(memory_of(server))
        descriptors.append(descriptors_of(server))
        print(number, sizes[-1], descriptors[-1])
    assert sizes[4] <= 1.25 * sizes[0], sizes
    assert sizes[-1] <= 1.05 * sizes[4], sizes
    assert descriptors[-1] <= descriptors[4] + 2, descriptors
