"""A real server: the verb, OpenAI's client, clients that leave or stall, many at once."""

import concurrent.futures
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import openai
import pytest

from tests.command_line import tilth
from tests.exporting.test_evaluation_harness import CHOICE, run_python
from tilth.studio import serving


@pytest.fixture(scope="module")
def server(folder):
    """A server of the run `plain` in a process of its own; yields its port."""
    command = ["-m", "tilth", "serve", folder / "plain", "--port", "0", "--threads", "1"]
    options = ["--slots", "4", "--queue", "40", "--max-tokens", "100000"]
    child = subprocess.Popen(
        [sys.executable, *map(str, command), *options], stderr=subprocess.PIPE, text=True
    )
    said = [child.stderr.readline(), child.stderr.readline()]
    assert said[0].split() == ["models", "plain"], said
    yield int(re.search(r":(\d+)/v1", said[1])[1])
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 128 + signal.SIGTERM
    rest = child.stderr.read()
    child.stderr.close()
    assert "Traceback" not in rest, rest


@pytest.fixture
def api(server):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server}/v1", api_key="none") as api:
        yield api


def load_of(server):
    """The numbers of running and waiting sequences."""
    lines = httpx.get(f"http://127.0.0.1:{server}/metrics").text.splitlines()
    return [int(line.split()[-1]) for line in lines if re.match(r"tilth_(running|waiting)", line)]


def test_client_of_openai(api, model):
    assert [each.id for each in api.models.list()] == ["plain"]
    options = {"max_tokens": 20, "temperature": 0.8, "seed": 3}
    expected = "".join(model.generate("the mouse", **options))
    whole = api.completions.create(model="plain", prompt="the mouse", **options)
    assert whole.choices[0].text == expected
    stream = api.completions.create(model="plain", prompt="the mouse", stream=True, **options)
    assert "".join(each.choices[0].text for each in stream) == expected
    with pytest.raises(openai.NotFoundError, match="unknown model"):
        api.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="no chat template"):
        api.chat.completions.create(model="plain", messages=[{"role": "user", "content": "hi"}])


def test_many_clients_get_the_texts_of_generate(api, model):
    def ask(seed):
        found = api.completions.create(model="plain", prompt="the", max_tokens=12, seed=seed)
        return found.choices[0].text

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        texts = list(pool.map(ask, range(32)))
    assert texts == ["".join(model.generate("the", max_tokens=12, seed=i)) for i in range(32)]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_cancels_its_texts(server, model, stream):
    forever = {"model": "plain", "prompt": "a", "max_tokens": 90_000, "stream": stream, "n": 3}
    forever |= {"logit_bias": {str(model.end_id): -100}}
    with httpx.Client(base_url=f"http://127.0.0.1:{server}") as client:
        timeout = httpx.Timeout(20, read=1)
        if stream:
            with client.stream("POST", "/v1/completions", json=forever, timeout=timeout) as parts:
                lines = parts.iter_lines()
                assert len([next(lines) for _ in range(10)]) == 10
                assert load_of(server) == [3, 0]
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post("/v1/completions", json=forever, timeout=timeout)
    deadline = time.monotonic() + 20
    while load_of(server) != [0, 0]:
        assert time.monotonic() < deadline, load_of(server)
        time.sleep(0.05)


def test_slow_headers_are_dropped(folder, monkeypatch):
    """A client that never ends its headers loses the connection; others are served."""
    import threading

    import uvicorn
    from starlette.responses import PlainTextResponse

    monkeypatch.setattr(serving, "HEADER_SECONDS", 0.3)
    listener = serving._listen("127.0.0.1", 0)
    config = uvicorn.Config(
        PlainTextResponse("ok"), http=serving._protocol(), log_config=None, lifespan="off"
    )
    runner = uvicorn.Server(config)
    thread = threading.Thread(target=runner.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        port = listener.getsockname()[1]
        for begun in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
                slow.sendall(begun)
                assert slow.recv(100) == b""  # closed by the server
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/").text == "ok"
            time.sleep(0.1)
            assert client.get("/").text == "ok"  # on the same connection
    finally:
        runner.should_exit = True
        thread.join(20)
        listener.close()


def test_mistakes_of_the_user(folder, tmp_path):
    done = tilth("serve", tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not a run" in done.stderr
    (tmp_path / "plain").symlink_to(folder / "plain")
    done = tilth("serve", folder / "plain", tmp_path / "plain")
    assert "have the same name" in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = tilth("serve", folder / "plain", "--port", taken.getsockname()[1])
        assert "choose another --host or --port" in done.stderr
    done = tilth("serve", folder / "plain", "--host", "a..b", "--port", 0)
    assert "cannot listen on a..b, port 0" in done.stderr
    for words in (["--port", 70000], ["--slots", 0], ["--token", "short"], ["--max-seconds", 0]):
        done = tilth("serve", folder / "plain", *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr


def test_other_addresses_need_a_token(folder):
    command = ["-m", "tilth", "serve", folder / "plain", "--host", "0.0.0.0", "--port", "0"]
    child = subprocess.Popen(
        [sys.executable, *map(str, command)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        said = [child.stderr.readline() for _ in range(3)]
        token = said[0].split()[1]
        port = int(re.search(r":(\d+)/v1", said[2])[1])
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            assert client.get("/v1/models").status_code == 401
            headers = {"authorization": f"Bearer {token}"}
            assert client.get("/v1/models", headers=headers).status_code == 200
    finally:
        child.terminate()
        child.wait(20)
        child.stderr.close()


LM_EVAL = """
import json, sys
import lm_eval.evaluator, lm_eval.tasks
from lm_eval.tasks._yaml_loader import load_yaml
from tilth.exporting.evaluation_harness import harness_model
import tilth
folder, exported, address, *files = sys.argv[1:]
def run(model, **options):
    return lm_eval.evaluator.simple_evaluate(
        model=model, tasks=[load_yaml(f, resolve_func=True) for f in files], bootstrap_iters=100,
        task_manager=lm_eval.tasks.TaskManager(include_defaults=False), **options)["results"]
arguments = f"base_url={address}/completions,model=plain,tokenizer={exported},num_concurrent=2"
theirs = run("local-completions", model_args=arguments + ",max_length=64")
ours = run(harness_model(tilth.load(folder)))
print("RESULT " + json.dumps([theirs, ours], default=str))
"""


@pytest.mark.slow  # importing lm-eval and its libraries takes 15 s
def test_lm_eval_gives_the_same_numbers_over_http(server, folder, tmp_path):
    chance = random.Random(0)
    words = ["the", "mouse", "ran", "home", "and", "was", "happy"]
    with (tmp_path / "choice.jsonl").open("w") as file:
        for _ in range(20):
            choices = [" " + " ".join(chance.choices(words, k=2)) for _ in range(3)]
            row = {"question": " ".join(chance.choices(words, k=4)), "choices": choices}
            file.write(json.dumps({**row, "answer": chance.randrange(3)}) + "\n")
    task = tmp_path / "choice.yaml"
    task.write_text(CHOICE.format(folder=tmp_path))
    exported = tmp_path / "exported"
    assert tilth("export", folder / "plain", "--to", "hf", "--out", exported).returncode == 0
    words = [folder / "plain", exported, f"http://127.0.0.1:{server}/v1", task]
    done = run_python("-c", LM_EVAL, *words, home=tmp_path / "home")
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(each for each in done.stdout.splitlines() if each.startswith("RESULT "))
    theirs, ours = json.loads(line.removeprefix("RESULT "))
    for name in ("acc,none", "acc_norm,none"):
        assert theirs["local_choice"][name] == ours["local_choice"][name]
