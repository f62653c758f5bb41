"""What every request must pass before a handler sees it.

A browser carries requests of any page to a local server. So the Host must be one of ours (DNS
rebinding), an Origin must be our own (other pages, other ports), bodies must be JSON (forms need
no permission of a browser), and nothing allows other origins (no CORS). Beyond the loopback
interface a token is required: as a bearer token, or as a cookie that the page `/login` sets.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilth.studio.openai import error_body

MAX_BODY_BYTES = 4 << 20
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PUBLIC_PATHS = frozenset({"/health"})
"""Paths that need no token: probes of a cluster have none."""
LOGIN, STATIC_FILES = "/login", "/static/"
"""Paths that need no token in the studio; static files are those of the package."""
COOKIE = "tilth-token"
COOKIE_SECONDS = 30 * 86400

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


class Guard:
    """Middleware that refuses requests of other origins, and requests without the token.

    Args:
        app: The application.
        hosts: Host names under which the server is reached, without ports.
        token: The required token; None on the loopback interface.
        has_login: Whether the page of the login is there, and its cookie counts.
        refused: Called with the path and the status of each refusal.

    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: Iterable[str],
        token: str | None = None,
        *,
        has_login: bool = False,
        refused: Callable[[str, int], None] = lambda _path, _status: None,
    ) -> None:
        self._app, self._token, self._has_login = app, token, has_login
        self._refused = refused
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # the server has no WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        if problem := self._problem(scope):
            status, sentence = problem
            if (
                status == 401
                and self._has_login
                and (scope["method"], scope["path"]) == ("GET", "/")
            ):
                self._refused(scope["path"], 303)
                await RedirectResponse(LOGIN, 303)(scope, receive, send_with_headers)
                return
            self._refused(scope["path"], status)
            body = error_body(sentence, code="refused")
            refusal = Response(body, status, media_type="application/json")
            if status == 401:
                refusal.headers["WWW-Authenticate"] = "Bearer"
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _problem(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the sentence of a refusal, or None."""
        headers = Headers(scope=scope)
        host, *others = headers.getlist("host") or [""]
        if others or _name(f"//{host}") not in self._hosts:
            return 403, "the Host of the request is not a name of this server."
        origins = headers.getlist("origin")
        if any(_netloc(origin) != host.lower() for origin in origins):
            return 403, "requests of other origins are refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "requests of other sites are refused."
        if self._token is not None and not self._may_pass(scope["path"], headers, self._token):
            return 401, "this server needs its token: Authorization: Bearer TOKEN."
        if scope["method"] == "POST":
            media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if media_type != "application/json":
                return 415, "the body must be JSON, with Content-Type: application/json."
            length = headers.get("content-length", "0")
            if not length.isdecimal() or int(length[:20]) > MAX_BODY_BYTES:
                return 413, f"the body may have at most {MAX_BODY_BYTES:,} bytes."
        return None

    def _may_pass(self, path: str, headers: Headers, token: str) -> bool:
        """Return whether a request has the token, or needs none."""
        if path in PUBLIC_PATHS:
            return True
        if self._has_login and (path == LOGIN or path.startswith(STATIC_FILES)):
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and is_token(given.strip().encode("latin-1"), token):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return self._has_login and is_token(cookie.encode("latin-1"), cookie_value(token))


def is_token(given: bytes, token: str) -> bool:
    """Compare in constant time; headers are bytes that were decoded as Latin-1."""
    return secrets.compare_digest(given, token.encode())


def cookie_value(token: str) -> str:
    """Return the value of the cookie: a digest, as a token may have any characters."""
    return hashlib.sha256(b"tilth studio " + token.encode()).hexdigest()


def _netloc(url: str) -> str:
    """Return the host and the port of a URL, or "" if it has none."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _name(url: str) -> str:
    """Return the host name of a URL, or "" if it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
