"""Tokens a second while clients stream from a server, compared with llama.cpp's server.

22.7M parameters with random weights, two threads for the decoder, a slot for each client, on the
same two cores as the clients, which are coroutines of one process. Each sends a prompt of 16 ids
and reads 64 sampled tokens as server-sent events. "first token": each client asks for one token,
so the time is that of the last first token when all clients come at once. "one after the other":
each client sends several requests, so first tokens come while the other clients stream. The waits
in the notes are the times to each first token.
Targets: at least 1.3 times llama.cpp's server with 8 and with 64 clients.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import finalize

from bench.declaration import Benchmark, Contender, Target
from bench.generating_models import SHAPES, draw_weights, write_gguf
from bench.workloads import make_once, write_once

SHAPE, CONTEXT, PROMPT_TOKENS, NEW_TOKENS = "22.7M", 256, 16, 64
SAMPLED = {"temperature": 0.8, "top_p": 0.95, "seed": 0}
CLIENTS = {
    "8 clients": (8, NEW_TOKENS, 1),
    "64 clients": (64, NEW_TOKENS, 1),
    "8 clients, first token": (8, 1, 1),
    "64 clients, first token": (64, 1, 1),
    "8 clients, one after the other": (8, NEW_TOKENS, 16),
    "64 clients, one after the other": (64, NEW_TOKENS, 4),
}
"""Clients, tokens of a request, and requests of a client, one after the other."""
LLAMA_OPTIONS: dict[str, object] = {
    "ignore_eos": True,
    "cache_prompt": False,
    "top_k": 0,
    "min_p": 0.0,
}
F32, Q8_0 = "llama.cpp F32", "llama.cpp Q8_0"


def prepare(folder: Path) -> dict[str, Path]:
    """Write the model for both servers, and the numbers of clients, tokens and requests."""
    for kind in ("F32", "Q8_0"):
        write = partial(write_gguf, name=SHAPE, kind=kind, context_length=32_768)
        make_once(folder / f"{kind}.gguf", write)
    if not (folder / "model" / "config.json").exists():
        write_model(folder / "model")
    return {
        name: write_once(folder / f"{number}.json", partial(json.dumps, work))
        for number, (name, work) in enumerate(CLIENTS.items())
    }


def write_model(folder: Path) -> None:
    """Write a model folder whose end token is the last id."""
    from tilth.formats.huggingface import write_folder
    from tilth.formats.model_files import ModelFiles
    from tilth.tokenizer import Tokenizer

    config = SHAPES[SHAPE].config(CONTEXT)
    end = config.vocab_size - 1
    letters = {i: chr(0x4E00 + i).encode() for i in range(256, end)}
    bytes_ = {i: bytes([i]) for i in range(256)}
    tokenizer = Tokenizer(letters | bytes_, [], {"<|endoftext|>": end})
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, ModelFiles(config, draw_weights(SHAPE), tokenizer, "<|endoftext|>"))


# --- servers --------------------------------------------------------------------------------------


def serve_llama(kind: str, folder: Path, slots: int) -> None:
    """Run llama.cpp's server in this process until its standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(folder / f"{kind}.gguf")
    params.n_ctx = 2 * CONTEXT * slots
    params.n_parallel = slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(f"address  {server.listening_address}", flush=True)
    sys.stdin.read()


def start(command: list[str]) -> tuple[subprocess.Popen[str], int]:
    """Start a server, and return it and its port."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"address .*:([0-9]+)", line):
            return process, int(found[1])
    raise RuntimeError(f"{command} did not start")


def contender(name: str, kind: str, against: str = "") -> Contender:
    """Declare a server; `kind` is a precision of tilth, or the GGUF file of llama.cpp."""

    def setup(file: Path, sample: float) -> Callable[[], Streamed]:
        clients, tokens, requests = json.loads(file.read_text())
        if against:
            command = [sys.executable, "-m", "bench.serving", kind, str(file.parent), str(clients)]
        else:
            command = [sys.executable, "-m", "tilth", "serve", str(file.parent / "model")]
            command += ["--port", "0", "--slots", str(clients), "--threads", "2"]
            command += [] if kind == "float32" else ["--quantize", kind]
        process, port = start(command)

        def work() -> Streamed:
            own = LLAMA_OPTIONS if against else {}
            return asyncio.run(stream_all(port, clients, tokens, requests, own))

        finalize(work, stop, process)
        return work

    package = "xllamacpp" if against else "tilth"
    differs = "" if kind in ("float32", "F32") else "different rounding"
    return Contender(
        name, setup, lambda work: work(), lambda found: found.tokens, package, against, warmup=1,
        incomparable=differs, waits=lambda found: found.first_token_seconds,
    )  # fmt: skip


def stop(process: subprocess.Popen[str]) -> None:
    """End a server."""
    process.kill()
    process.wait()


# --- clients --------------------------------------------------------------------------------------


class Streamed(NamedTuple):
    """Number of tokens that the clients asked for, and the time to each first token."""

    tokens: int
    first_token_seconds: list[float]


async def stream_all(
    port: int, clients: int, tokens: int, requests: int, own: dict[str, object]
) -> Streamed:
    """Stream from all clients at once; each sends its requests one after the other."""

    async def client(number: int) -> list[tuple[int, float]]:
        numbers = range(number, clients * requests, clients)
        return [await stream(port, each, tokens, own) for each in numbers]

    found = await asyncio.gather(*map(client, range(clients)))
    received = [each for of_client in found for each in of_client]
    # A character of some tokens is incomplete, so it comes with the next one.
    if (least := min(parts for parts, _ in received)) < max(1, tokens // 2):
        raise RuntimeError(f"a client received {least} parts of {tokens}")
    return Streamed(clients * requests * tokens, [seconds for _, seconds in received])


async def stream(port: int, number: int, tokens: int, own: dict[str, object]) -> tuple[int, float]:
    """Send a request, with the server's own options.

    Return the number of parts of its answer, and the time to the first one.
    """
    body = json.dumps(
        {
            "model": "model",
            "prompt": [300 + (7919 * number + i) % 9000 for i in range(PROMPT_TOKENS)],
            "max_tokens": tokens,
            "stream": True,
            "logit_bias": {str(SHAPES[SHAPE].vocab_size - 1): -100},
            **SAMPLED,
            **own,
        }
    ).encode()
    began, first = time.perf_counter(), 0.0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{status!r}: {(await reader.read())[-300:]!r}")
    parts = 0
    async for line in reader:
        if line.startswith(b"data: {"):
            first = first or time.perf_counter() - began
            parts += 1
    writer.close()
    return parts, first


def work(file: Path) -> float:
    """Return the tokens of a workload."""
    clients, tokens, requests = json.loads(file.read_text())
    return float(clients * tokens * requests)


BENCHMARK = Benchmark(
    prepare=prepare,
    threads=2,
    work=work,
    unit="tokens",
    contenders=[
        contender("tilth float32", "float32"),
        contender(F32, "F32", "tilth float32"),
        contender("tilth int8", "int8"),
        contender(Q8_0, "Q8_0", "tilth int8"),
    ],
    targets=[
        Target(peer, 1.3, workload=name)
        for peer in (F32, Q8_0)
        for name in ("8 clients", "64 clients")
    ],
)

if __name__ == "__main__":
    serve_llama(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
