"""The login of the studio: a page asks for the token once, and a cookie keeps it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tilth.schema import Length
from tilth.studio.completions import read_asked
from tilth.studio.errors import RequestError
from tilth.studio.security import COOKIE, COOKIE_SECONDS, cookie_value, is_token


@dataclass(frozen=True)
class _Login:
    """The body of `/login`."""

    token: Annotated[str, Length(at_most=1000)]


def login(token: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that sets the cookie for a client that knows the token.

    The cookie is not for scripts, and not for requests that other sites begin. It has no `Secure`,
    as the server has no TLS.
    """

    async def handler(request: Request) -> Response:
        asked = await read_asked(request, _Login)
        if not is_token(asked.token.strip().encode("utf-8", "replace"), token):
            raise RequestError(401, "this is not the token; the server printed it when it started.")
        response = JSONResponse({"status": "ok"})
        response.set_cookie(
            COOKIE, cookie_value(token), COOKIE_SECONDS, httponly=True, samesite="strict"
        )
        return response

    return handler
