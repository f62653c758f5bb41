"""The pages of the studio and the JSON that they read. A page holds no state of the server."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tilth.generation.language_model import LanguageModel
from tilth.generation.sampling import Sampling
from tilth.schema import Length, read
from tilth.studio import inspecting
from tilth.studio.completions import Completions, read_body
from tilth.studio.errors import invalid

Handler = Callable[[Request], Awaitable[Response]]

STATIC = files("tilth.studio") / "static"
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
PAGES_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No inline script or style, and no request to another server."""

Text = Annotated[str, Length(at_most=inspecting.MAX_CHARACTERS)]


@dataclass(frozen=True)
class _Asked:
    """A body of the page API; each page reads its own fields."""

    model: str
    text: Text = ""
    ids: Annotated[list[int], Length(at_most=1 << 17)] = field(default_factory=list)
    without: Annotated[list[str], Length(at_most=10_000)] = field(default_factory=list)
    sampling: Sampling = field(default_factory=Sampling)


def static_files() -> dict[str, Handler]:
    """Return a handler for each file of the pages, by path; other paths do not exist."""

    def handler(content: bytes, kind: str) -> Handler:
        async def serve(_request: Request) -> Response:
            headers = {"Content-Security-Policy": PAGES_POLICY, "Cache-Control": "no-cache"}
            return Response(content, headers=headers, media_type=kind)

        return serve

    found = {}
    for file in STATIC.iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            path = "/" if file.name == "index.html" else f"/static/{file.name}"
            found[path] = handler(file.read_bytes(), kind)
    return found


@dataclass
class Pages:
    """The handlers of the page API; computations take turns, as each uses all threads."""

    completions: Completions
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by path; all take POST."""
        return {
            "/api/model": self._answer(
                lambda model, asked: inspecting.describe(asked.model, model)
            ),
            "/api/tokens": self._answer(
                lambda model, asked: inspecting.tokens_of(model.tokenizer, asked.text)
            ),
            "/api/merges": self._answer(
                lambda model, asked: {"nodes": inspecting.merge_tree(model.tokenizer, asked.text)}
            ),
            "/api/read": self._answer(lambda model, asked: inspecting.read_text(model, asked.text)),
            "/api/next": self._answer(
                lambda model, asked: inspecting.next_tokens(model, asked.ids, asked.sampling)
            ),
            "/api/encode": self._answer(lambda model, asked: {"ids": model.prompt_ids(asked.text)}),
            "/api/inside": self._answer(
                lambda model, asked: inspecting.look_inside(model, asked.text, asked.without)
            ),
        }

    def _answer(self, compute: Callable[[LanguageModel, _Asked], dict[str, Any]]) -> Handler:
        async def handler(request: Request) -> Response:
            body = await read_body(request)
            with invalid():
                try:
                    values = json.loads(body)
                except (ValueError, RecursionError):
                    raise ValueError("the body is not valid JSON.") from None
                asked = read(_Asked, values, "the request")
            _, engine = await self.completions.engine(asked.model)
            async with self._turn:
                with invalid():
                    found = await run_in_threadpool(compute, engine.model, asked)
            return JSONResponse(found)

        return handler
