"""Requests of other pages, other sites and other hosts are refused."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from tilth.studio.security import HEADERS, MAX_BODY_BYTES, Guard

URL = "http://localhost:8765"


def client_of(**options):
    options = {"hosts": ("localhost", "127.0.0.1", "::1"), **options}
    return TestClient(Guard(PlainTextResponse("ok"), **options), base_url=URL)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "127.0.0.1"},
        {"host": "[::1]:8765"},
        {"host": "LOCALHOST:1"},
        {"origin": URL},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_own_requests_pass(headers):
    response = client_of().get("/", headers=headers)
    assert response.text == "ok"
    assert HEADERS.items() <= {k.title(): v for k, v in response.headers.items()}.items() or all(
        response.headers[name] == value for name, value in HEADERS.items()
    )


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},  # DNS rebinding
        {"host": "localhost.evil.example"},
        {"host": "localhost@evil.example"},
        {"host": ""},
        {"host": "[::1"},
        {"origin": "http://evil.example"},
        {"origin": "http://localhost:9999"},  # another server on this machine
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_foreign_requests_are_refused(headers):
    response = client_of().get("/", headers=headers)
    assert response.status_code == 403
    assert "error" in response.json()
    assert "access-control-allow-origin" not in response.headers


def test_two_hosts_are_refused():
    response = client_of().get("/", headers=[("host", "localhost"), ("host", "localhost")])
    assert response.status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_bodies_must_be_json(kind):
    headers = {} if kind is None else {"content-type": kind}
    assert client_of().post("/", content=b"{}", headers=headers).status_code == 415
    good = {"content-type": "application/json; charset=utf-8"}
    assert client_of().post("/", content=b"{}", headers=good).status_code == 200


@pytest.mark.parametrize("length", [str(MAX_BODY_BYTES + 1), "9" * 50, "-1", "x"])
def test_declared_length(length):
    headers = {"content-type": "application/json", "content-length": length}
    assert client_of().post("/", content=b"", headers=headers).status_code == 413


def test_token():
    client = client_of(token="correct horse")
    assert client.get("/health").status_code == 200
    for given in (None, "Bearer wrong", "Basic correct horse", "correct horse", "Bearer é"):
        headers = {} if given is None else {"authorization": given.encode()}
        response = client.get("/", headers=headers)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
    assert client.get("/", headers={"authorization": "Bearer correct horse"}).status_code == 200


def test_preflight_gets_no_permission():
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    response = client_of().options("/", headers=headers)
    assert response.status_code == 403
    assert not [name for name in response.headers if name.startswith("access-control")]
