"""Requests of other pages, other sites and other hosts are refused."""

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from tilth.generation import load
from tilth.studio import make_app
from tilth.studio.folder import Folder
from tilth.studio.models import Models
from tilth.studio.security import HEADERS, MAX_BODY_BYTES, Guard, cookie_value

TOKEN = "correct horse; battery=staple é"
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


@pytest.fixture
def studio(folder):
    """The studio behind a token; cookies are kept as a browser does."""
    shown = Folder(folder)
    app = make_app(Models(shown.models, load), token=TOKEN, folder=shown)
    with TestClient(app, base_url=URL, follow_redirects=False) as client:
        yield client


def test_login(studio):
    asked = studio.get("/")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login")
    page = studio.get("/login")
    assert "password" in page.text
    assert "unsafe" not in page.headers["content-security-policy"]
    assert studio.get("/static/login.js").status_code == 200
    for path in ("/api/folder", "/v1/models", "/metrics", "/login/", "/static", "/none"):
        assert studio.get(path).status_code == 401, path
    for wrong in ("", "correct", TOKEN[:-1], TOKEN + "x", "é" * 20):
        refused = studio.post("/login", json={"token": wrong})
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
    lone = {"content": b'{"token": "\\ud800"}', "headers": {"content-type": "application/json"}}
    assert studio.post("/login", **lone).status_code == 401
    assert studio.post("/login", json={"token": 3}).status_code == 400
    assert studio.post("/login", json={"token": "x" * 1001}).status_code == 400
    assert studio.post("/login", data={"token": TOKEN}).status_code == 415
    entered = studio.post("/login", json={"token": TOKEN})
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert TOKEN not in cookie
    for path in ("/", "/api/folder", "/v1/models"):
        assert studio.get(path).status_code == 200, path
    foreign = {"origin": "http://evil.example"}
    assert studio.get("/api/folder", headers=foreign).status_code == 403
    studio.cookies.clear()
    studio.cookies.set("tilth-token", "0" * 64)
    assert studio.get("/api/folder").status_code == 401


def test_tokens_of_the_login_and_bearers(studio):
    bearer = {"authorization": f"Bearer {TOKEN}".encode()}
    assert studio.get("/api/folder", headers=bearer).status_code == 200
    assert studio.get(f"/api/folder?token={TOKEN}").status_code == 401
    assert studio.get("/", headers={"cookie": f"tilth-token={TOKEN}".encode()}).status_code == 303
    digest = {"authorization": f"Bearer {cookie_value(TOKEN)}"}
    assert studio.get("/api/folder", headers=digest).status_code == 401


def test_there_is_no_login_without_a_token_or_pages(client):
    assert client.get("/login").status_code == 404
    assert client.post("/login", json={"token": "x"}).status_code == 404
    api = client_of(token=TOKEN)
    assert api.get("/").status_code == 401
    cookie = {"cookie": f"tilth-token={cookie_value(TOKEN)}"}
    assert api.get("/", headers=cookie).status_code == 401


def test_preflight_gets_no_permission():
    headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    response = client_of().options("/", headers=headers)
    assert response.status_code == 403
    assert not [name for name in response.headers if name.startswith("access-control")]
