"""Malformed requests from a seed: `request(chance)` returns bytes to send and what was done."""

import json
import random
from typing import Any

TEXTS = ["the mouse", "", "é" * 40, "\x00", "\ud800", "<script>", "a" * 5000, "../../etc/passwd"]
NUMBERS = [0, 1, -1, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")]
OTHERS = [None, True, False, [], {}, [[]], [None], {"a": {"b": 1}}, [0] * 3000, ["x"] * 300]

MODEL = {"model": "plain"}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {**MODEL, "prompt": "the", "max_tokens": 3, "seed": 1, "n": 2, "echo": True,
                        "logprobs": 2, "stop": ["x"], "logit_bias": {"5": 1}, "stream": False},
    "/v1/chat/completions": {"model": "chatty", "max_tokens": 3,
                             "messages": [{"role": "user", "content": "hi"}]},
    "/v1/embeddings": {**MODEL, "input": "a"},
    "/api/model": MODEL,
    "/api/tokens": {**MODEL, "text": "the mouse"},
    "/api/merges": {**MODEL, "text": "the"},
    "/api/film": {**MODEL, "text": "the mouse"},
    "/api/compare": {**MODEL, "other": "chatty", "text": "the mouse"},
    "/api/read": {**MODEL, "text": "the mouse"},
    "/api/read/compare": {**MODEL, "step": 1, "other": "chatty", "other_step": 5, "text": "the"},
    "/api/steps": MODEL,
    "/api/time": {**MODEL, "step": 2, "text": "the", "prompt": "a", "max_tokens": 3,
                  "sampling": {"seed": 1}},
    "/api/lab": {"lab": "lr"},
    "/api/runs/compare": {"runs": ["plain", "chatty"]},
    "/api/runs/norms": {"run": "plain", "kind": "weights"},
    "/api/runs/watch": {"runs": ["plain"], "metric": "loss", "window": {"points": 50}},
    "/api/next": {**MODEL, "ids": [1, 2], "sampling": {"temperature": 1.0, "top_k": 3}},
    "/api/encode": {**MODEL, "text": "the"},
    "/api/inside": {**MODEL, "text": "the mouse", "without": ["layer.0"]},
    "/api/cost": {"subject": "gpt2-xl", "shape": {"d_model": 256}, "batch_size": 4, "mfu": 0.5,
                  "hardware": "a100", "hours": 2, "memory": "80GB", "steps": 3, "price": 2},
    "/api/cost/number": {"subject": "gpt2-xl", "number": "parameters.total", "dtype": "bfloat16"},
}  # fmt: skip
GETS = ["/", "/health", "/metrics", "/v1/models", "/v1/models/plain", "/api/folder",
        "/static/main.js", "/static/style.css", "/api/runs", "/docs/serving.md"]  # fmt: skip
METHODS = [
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "get",
    "G\x00T",
    "",
]
HEADERS = [
    ("Content-Type", ["text/plain", "application/json; charset=utf-16", "", "a" * 3000, "\xff"]),
    ("Content-Length", ["-1", "99999999999", "x", "1", "+5", "0x10", "5, 5", "9" * 5000]),
    ("Transfer-Encoding", ["chunked", "gzip", "chunked, chunked", "identity", "xchunked"]),
    ("Host", ["evil.example", "", "localhost@evil.example", "127.0.0.1:99999", "[::1", "\xff"]),
    ("Origin", ["http://evil.example", "null", "http://[", "file://", "\xff", ""]),
    ("Cookie", ["tilth-token=x", ";;;===", "a" * 4000, "\xff\xfe"]),
    ("Authorization", ["Bearer x", "Basic eDp4", "\xff", ""]),
    ("Expect", ["100-continue", "x"]),
    ("Upgrade", ["websocket", "h2c"]),
    ("Connection", ["close", "upgrade", "keep-alive, close", "x"]),
    ("Range", ["bytes=0-", "bytes=9999999999-", "x"]),
    ("Accept-Encoding", ["gzip;q=x", "*"]),
    ("X" * 2000, ["a" * 2000]),
    ("Bad Name", ["x"]),
    ("X-Line", ["a\nb", "a\r\nInjected: yes"]),
]  # fmt: skip


def mutated(chance: random.Random, value: Any, depth: int = 0) -> Any:
    """Return a JSON value with something else in it."""
    if depth > 3 or chance.random() < 0.3:
        return chance.choice(chance.choice([TEXTS, NUMBERS, OTHERS]))
    if isinstance(value, dict) and value:
        key = chance.choice(sorted(value))
        changed = {**value, key: mutated(chance, value[key], depth + 1)}
        act = chance.random()
        if act < 0.1:
            del changed[key]
        elif act < 0.2:
            changed[chance.choice(["extra", "modle", "", "\x00", "__class__"])] = 1
        return changed
    if isinstance(value, list) and value:
        return [*value, mutated(chance, value[0], depth + 1)]
    return chance.choice(chance.choice([TEXTS, NUMBERS, OTHERS]))


def _body(chance: random.Random, path: str) -> bytes:
    value = BODIES.get(path, MODEL)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
        value = mutated(chance, value)
    body = json.dumps(value).encode()
    act = chance.random()
    if act < 0.05:
        return b"[" * chance.choice([10, 100_000]) + body
    if act < 0.1:
        return body[: chance.randrange(len(body) + 1)]
    if act < 0.2 and body:
        place = chance.randrange(len(body))
        return body[:place] + chance.randbytes(chance.choice([1, 3, 50])) + body[place + 1 :]
    if act < 0.23:
        return chance.randbytes(chance.choice([0, 1, 2000]))
    return body


def request(chance: random.Random, host: str) -> bytes:
    """Return a request that is wrong in about one place; `host` is the server's own."""
    path = chance.choice([*BODIES] * 3 + GETS)
    method = "POST" if path in BODIES else "GET"
    body = _body(chance, path) if method == "POST" or chance.random() < 0.1 else b""
    headers = {"Host": host}
    if body:
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    act = chance.random()
    if act < 0.08:
        method = chance.choice(METHODS)
    elif act < 0.25:
        tail = [
            "..",
            "%2e%2e",
            "%00",
            "%ff",
            "//",
            "?q=" + "a" * 3000,
            ";x",
            "\\",
            "%252e",
            "é",
            "*",
        ]
        place = chance.randrange(len(path) + 1)
        path = path[:place] + chance.choice(tail) + path[place:]
    elif act < 0.45:
        name, values = chance.choice(HEADERS)
        headers[name] = chance.choice(values)
    version = (
        "HTTP/1.1" if chance.random() < 0.97 else chance.choice(["HTTP/1.0", "HTTP/9", "", "X"])
    )
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
    if chance.random() < 0.03:
        place = chance.randrange(len(head))
        head = head[:place] + chance.randbytes(2) + head[place:]
    return head + body
